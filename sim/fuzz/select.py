"""Random select commands: short runs near either end of the unit's memories, so that commands meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmule.isa import MAX_LENGTH, NUM_PREDICATES, Command, CompareFlag, Dyn, ImportanceFlag, KeysFlag, SOp, Unit
from gemmule.sim.fuzz.draw import Draw, Note, run_reach, sets_of

__all__ = ["draw_select"]

STORM = 12
"""Commands of a storm, each of which takes a cycle a row."""


def draw_select(draw: Draw) -> tuple[Command, Sequence[Note]]:
    """A command and the predicate that it sets."""
    config = draw.config
    op = SOp(int(draw.random.choice(len(SOp), p=draw.select_ops)))
    if draw.wished is SOp.IMPORTANCE:
        return _storm(draw), []
    flags: frozenset[int] = draw.choice(sets_of(config, Unit.SELECT, op))
    m, n = min(draw.size(2), config.stat_rows), min(draw.size(4), run_reach(config))
    k = draw.choice([draw.size(1), draw.integer(0, n + 2)])
    if op is SOp.COMPARE and draw.chance(0.5):  # a few bytes are seldom all small, and seldom one is large
        m, n = min(m, 2), min(n, 3)
    if op is SOp.IMPORTANCE and draw.long(config.spm_rows, STORM, 0.6):
        return _storm(draw), []
    if n and op in (SOp.ARGMAX, SOp.COMPARE) and (columns := draw.long(MAX_LENGTH, 1 / config.dim)):
        m, n = 1, columns
    planes = 2 if op in (SOp.ARGMAX, SOp.KEYS) or ImportanceFlag.WIDE in flags else 1  # COMPARE: the same bit
    values = _places(draw, op, flags, m, n) | {
        "src0": draw.row(), "src0_stride": draw.stride(m, planes=planes),
        "shift": draw.choice([0, draw.integer(0, 24), draw.integer(0, 63)]),
        "number": draw.integer(1, NUM_PREDICATES - 1),
    }
    which = draw.choice([(Dyn.SRC0, "src0"), (Dyn.SRC1, "first"), (Dyn.DST, "dst")])
    dyn = draw.dynamic(which[0], values, which[1])
    command = Command.make(
        Unit.SELECT, op=op, flags=flags, dyn=dyn, m=draw.length(m), n=draw.length(n), k=draw.length(k), **values)
    return command, [("predicate", values["number"], 0)] if op is SOp.COMPARE and m and n else []


def _storm(draw: Draw) -> Command:
    """The first of several commands that add up ever the same rows: importance far beyond what few rows bring."""
    dim, rows = draw.config.dim, min(draw.config.spm_rows, draw.long_cycles // STORM)
    draw.asked = rows * STORM
    command = Command.make(
        Unit.SELECT, op=SOp.IMPORTANCE, flags=[ImportanceFlag.WIDE], first=draw.run(draw.config.select_keys, dim),
        m=rows, n=dim, src0_stride=0)
    draw.storm = [command] * (STORM - 1)
    return command


def _places(draw: Draw, op: SOp, flags: frozenset[int], m: int, n: int) -> dict[str, int]:
    """``first``, ``dst`` and ``aux``, which mean something else in every operation."""
    keys, entries, ids = draw.config.select_keys, draw.config.list_entries, 1 << draw.config.index_bits
    first, dst, aux = draw.run(keys, n), draw.run(entries, n), draw.integer(0, 65535)
    if op is SOp.ARGMAX:
        first, dst = draw.choice([0, draw.integer(0, 60), draw.integer(0, ids - 1)]), draw.run(entries, m)
    elif op is SOp.KEYS:
        dst = draw.choice([0, 0, draw.integer(0, run_reach(draw.config) - n)])
        if KeysFlag.FROM_IMPORTANCE not in flags:
            first = draw.choice([0, draw.integer(0, 60), draw.integer(0, ids - n)])
        aux = draw.choice([0, draw.integer(0, 3) | draw.integer(0, 3) << 8, aux])
    elif op is SOp.COMPARE and CompareFlag.WIDE not in flags:
        aux = draw.choice([draw.integer(0, 255), draw.integer(100, 260)])
    elif op is SOp.LIST_LOAD:
        first = draw.integer(0, ids - 1)
    elif op is SOp.LIST_STORE:
        first, dst = draw.run(entries, n), draw.row()
    elif op is SOp.PACK:
        dst = draw.row()
    values: dict[str, Any] = {"first": first, "dst": dst, "aux": aux}
    return values
