"""Energy per event: which events are counted, the table that prices them, and the energy of counts.

Prices are decimal texts in pJ of at most six decimals and become whole attojoules, so sums are exact: the parts of an
energy add up to its total to the last digit. The table that ships is ``sim/energy/sky130.yaml``; docs/energy.md
says how it was made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmule.config import PRESETS, Config
from gemmule.io.reading import ReadError, named, shown
from gemmule.io.yaml_file import YamlFile, read_yaml

__all__ = ["ATTO", "DEFAULT", "EVENTS", "PARTS", "Energy", "EnergyError", "EnergyTable", "Price", "load_energy"]

EVENTS: Mapping[str, tuple[str, str]] = {
    "cycle": ("clock", "a cycle of the device: the clock of every flip-flop, and leakage"),
    "fetch_byte": ("front end", "a byte of commands that fetch reads"),
    "command": ("front end", "a command that is resolved and goes to its unit; control commands too"),
    "load_byte": ("load", "a byte that a load moves"),
    "store_byte": ("store", "a byte that a store moves"),
    "mac_int8": ("matrix", "a multiply-accumulate with weights of 8 bits"),
    "mac_int4": ("matrix", "a multiply-accumulate with weights of 4 bits"),
    "weight": ("matrix", "a weight that enters the mesh, those of padding too"),
    "sum": ("matrix", "a sum of 32 bits that leaves the mesh"),
    "scale": ("vector", "an element of REQUANT or RESCALE"),
    "lookup": ("vector", "an element of REQUANT with LOOKUP, or of I_GELU: GELU, SiLU"),
    "add": ("vector", "an element of ADD or PRODUCT"),
    "rope": ("vector", "an element of ROPE"),
    "norm_stat": ("vector", "an element of NORM_STAT"),
    "norm_apply": ("vector", "an element of NORM_APPLY"),
    "maximum": ("vector", "an element of SOFTMAX_MAX or ABSMAX"),
    "exponential": ("vector", "an element of SOFTMAX_EXP"),
    "normalise": ("vector", "an element of SOFTMAX_NORM"),
    "table": ("vector", "an entry of TABLE or WORD_TABLE"),
    "key": ("select", "a key of TOP_K"),
    "scan": ("select", "an element of ARGMAX, IMPORTANCE or COMPARE"),
    "entry": ("select", "a key, list entry or importance that any other select operation moves"),
    "spm_read": ("scratchpad", "a scratchpad row that is read"),
    "spm_write": ("scratchpad", "a scratchpad row, or a piece of it, that is written"),
    "acc_read": ("accumulator", "an accumulator row that is read"),
    "acc_write": ("accumulator", "an accumulator row, or a piece of it, that is written"),
    "dram_read_bit": ("DRAM", "a bit that the bus reads, in whole beats"),
    "dram_write_bit": ("DRAM", "a bit that the bus writes, in whole beats"),
}
"""By name: the part of the device that an event counts for, and what it is."""
PARTS = tuple(dict.fromkeys(part for part, _ in EVENTS.values()))
"""Parts of the device, in the order of their first events."""
ATTO = 10**6
"""Attojoules of a picojoule."""
DEFAULT = Path(__file__).with_name("sky130.yaml")
"""The table that ships."""
MOST_PJ = 10**9
_DECIMAL = re.compile(r"(0|[1-9][0-9]{0,9})(\.[0-9]{1,6})?")
_ROWS = {"spm_read": 8, "spm_write": 8, "acc_read": 32, "acc_write": 32}
"""Bits of a value in a row, of which there are ``dim``."""
_RULE = ("fixed", "per_dim", "per_pe")
_FLIP_FLOPS = (*_RULE, *PRESETS)
_FIELDS = {"cycle": "pj_per_flip_flop"} | dict.fromkeys(_ROWS, "pj_per_bit")


class EnergyError(ValueError):
    """A table that breaks a rule; the message names file, line, value, rule and fix."""


@dataclass(frozen=True)
class Price:
    """What an event takes: attojoules, and attojoules times the size of what it touches."""

    fixed: int
    by_size: int
    """Per bit of a memory's row; per flip-flop of the device for a cycle."""
    per: str
    source: str


@dataclass(frozen=True)
class EnergyTable:
    """A price for every event of :data:`EVENTS`."""

    name: str
    process: str
    prices: Mapping[str, Price]
    flip_flops: Mapping[str, int]
    """Of each preset; of another device ``fixed``, ``per_dim``, and ``per_pe`` (``dim * dim``)."""

    def flip_flops_of(self, config: Config) -> int:
        """Flip-flops that a device of this configuration is taken to have."""
        return self.flip_flops[config.name] if config.name in PRESETS else self.flip_flops_by_rule(config.dim)

    def flip_flops_by_rule(self, dim: int) -> int:
        """Those of a device that is no preset."""
        fixed, per_dim, per_pe = (self.flip_flops[name] for name in _RULE)
        return fixed + per_dim * dim + per_pe * dim ** 2

    def price(self, event: str, config: Config) -> int:
        """Attojoules of one event on a device."""
        price = self.prices[event]
        if event == "cycle":
            return price.fixed + price.by_size * self.flip_flops_of(config)
        return price.fixed + price.by_size * _ROWS.get(event, 0) * config.dim

    def energy(self, events: Mapping[str, int], config: Config) -> Energy:
        """The energy of counts of events."""
        prices = {event: self.price(event, config) for event in EVENTS}
        return Energy(self.name, {event: (events[event], prices[event]) for event in EVENTS})


@dataclass(frozen=True)
class Energy:
    """Counts of events and what each took."""

    table: str
    events: Mapping[str, tuple[int, int]]
    """By name: (count, attojoules of one)."""

    @property
    def atto(self) -> int:
        """Attojoules of everything."""
        return sum(count * price for count, price in self.events.values())

    @property
    def pj(self) -> float:
        """Picojoules of everything."""
        return self.atto / ATTO

    @property
    def by_part(self) -> dict[str, int]:
        """Attojoules by part of the device; they add up to :attr:`atto`."""
        found = dict.fromkeys(PARTS, 0)
        for event, (count, price) in self.events.items():
            found[EVENTS[event][0]] += count * price
        return found


def load_energy(path: Path | None = None) -> EnergyTable:
    """The table of a YAML file; by default the one that ships.

    Raises:
        EnergyError: with one sentence that names the file and line, the value, the rule and the fix.
    """
    path = path or DEFAULT
    try:
        return _table(read_yaml(path))
    except ReadError as error:
        raise EnergyError(f"energy: {named(path, error.line)}: {error}") from None


def _table(file: YamlFile) -> EnergyTable:
    values, lines = file.values, file.lines
    _only(values, ("name", "process", "flip_flops", "events"), "", lines)
    sizes, events = values["flip_flops"], values["events"]
    for name, found in (("flip_flops", sizes), ("events", events)):
        if not isinstance(found, dict):
            raise ReadError(f"{name} must hold fields, not {shown(found)}", lines[name])
    _only(sizes, _FLIP_FLOPS, "flip_flops.", lines)
    for name, count in sizes.items():
        if type(count) is not int or not 0 <= count < 10**9:
            raise ReadError(f"flip_flops.{name} must be an integer from 0 to 10**9 - 1, not {shown(count)}",
                            lines[f"flip_flops.{name}"])
    _only(events, tuple(EVENTS), "events.", lines)
    return EnergyTable(
        _text(values["name"], "name", lines), _text(values["process"], "process", lines),
        {event: _price(event, events[event], lines) for event in EVENTS},
        {name: sizes[name] for name in _FLIP_FLOPS})


def _only(values: Mapping[str, Any], names: tuple[str, ...], above: str, lines: Mapping[str, int]) -> None:
    """Exactly these fields."""
    line = lines.get(above[:-1])
    for name in names:
        if name not in values:
            raise ReadError(f"{above}{name} is missing: write it", line)
    for name in values:
        if name not in names:
            raise ReadError(f"{above}{name} is not known: it must be one of {', '.join(names)}", lines[above + name])


def _text(value: object, name: str, lines: Mapping[str, int]) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ReadError(f"{name} must be text, not {shown(value)}", lines[name])
    return value


def _price(event: str, values: object, lines: Mapping[str, int]) -> Price:
    above, size = f"events.{event}.", _FIELDS.get(event)
    if not isinstance(values, dict):
        raise ReadError(f"events.{event} must hold pj, per and source, not {shown(values)}", lines[above[:-1]])
    _only(values, ("pj", *([size] if size else []), "per", "source"), above, lines)
    by_size = _atto(values[size], above + size, lines) if size else 0
    per, source = (_text(values[name], above + name, lines) for name in ("per", "source"))
    return Price(_atto(values["pj"], f"{above}pj", lines), by_size, per, source)


def _atto(value: object, name: str, lines: Mapping[str, int]) -> int:
    """Attojoules of a price in pJ."""
    found = _DECIMAL.fullmatch(str(value)) if type(value) in (int, str) else None
    whole, _, decimals = found[0].partition(".") if found else ("", "", "")
    if not found or int(whole) >= MOST_PJ:
        raise ReadError(f'{name} must be pJ from 0 to 10**9 with at most six decimals, in quotes such as "1.25", '
                        f"not {shown(value)}", lines[name])
    return int(whole) * ATTO + int(decimals.ljust(6, "0"))
