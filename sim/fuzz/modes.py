"""Names of all that a fuzzing run can command: kinds of commands and their modes, by rule from the instruction set."""

from __future__ import annotations

from gemmule.config import Config
from gemmule.isa import MatrixFlag, SOp, Unit, VOp
from gemmule.operations import EXPONENTIALS, flag_name
from gemmule.sim.fuzz.draw import sets_of
from gemmule.sim.fuzz.vector import SCALED, word_table_rows

__all__ = ["exponential", "flag_names", "grain", "kind_name", "kinds", "modes_of"]

_OPS: dict[Unit, type[VOp] | type[SOp]] = {Unit.VECTOR: VOp, Unit.SELECT: SOp}


def kind_name(unit: Unit, op: int) -> str:
    """The operation's name; the unit's where it has but one."""
    return _OPS[unit](op).name.lower() if unit in _OPS else unit.name.lower()


def kinds(config: Config) -> list[tuple[Unit, int, str]]:
    """(unit, operation, name) of everything that can be commanded on this configuration."""
    every = [(unit, int(op), kind_name(unit, op)) for unit in Unit for op in _OPS.get(unit, (0,))
             if sets_of(config, unit, op)]
    without = set()
    if config.stat_contexts == 1:  # it writes two
        without.add("absmax")
    if word_table_rows(config.dim) > config.spm_rows:
        without.add("word_table")
    return [kind for kind in every if kind[2] not in without]


def flag_names(unit: Unit, op: int, flags: frozenset[int]) -> list[str]:
    """Names of the flags that are set, as this operation calls them."""
    return [flag_name(unit, op, flags, bit) for bit in sorted(flags)]


def exponential(unit: Unit, op: int, period: int) -> str:
    """Name of the exponential that a command's ``period`` chooses; empty where it is the device's own, or none."""
    chooses = unit is Unit.VECTOR and op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
    return EXPONENTIALS[period] if chooses and period else ""


def modes_of(config: Config, unit: Unit, op: int) -> list[str]:
    """Every mode that a kind of command has on this configuration."""
    sets = sets_of(config, unit, op)
    if config.spm_banks == 1:  # A and B would share the bank, which this dataflow cannot
        sets = tuple(flags for flags in sets if unit is not Unit.MATRIX or MatrixFlag.OUTPUT_STATIONARY not in flags)
    modes = list(dict.fromkeys(name for flags in sets for name in flag_names(unit, op, flags)))
    modes.append("dynamic")
    if unit is Unit.VECTOR and op in SCALED:
        modes.append("scaled")
    if config.comparison_modes:
        modes += filter(None, (exponential(unit, op, kind) for kind in range(len(EXPONENTIALS))))
    if unit is not Unit.VECTOR or op not in (VOp.TABLE, VOp.WORD_TABLE):  # a table has no lengths
        modes += ["register", "empty"]
        if grain(config, unit, op) > 1:
            modes.append("ragged")
    if unit in (Unit.LOAD, Unit.STORE):
        modes += ["unaligned", "joined"]
    if unit is Unit.MATRIX or unit is Unit.VECTOR and op in (VOp.PRODUCT, VOp.ADD):
        modes.append("apart")
    if "output_stationary" in modes:
        modes.append("switch")
    return modes


def grain(config: Config, unit: Unit, op: int) -> int:
    """Columns, or list entries, of a whole scratchpad row."""
    listed = unit is Unit.SELECT and op in (SOp.LIST_LOAD, SOp.LIST_STORE)
    return config.dim // 2 if listed else config.dim
