"""Waits: a generic pass that makes any command list race-free in its program order.

Row sets are read off the commands themselves, at the largest value of every length and over the
whole range of a dynamic address, so a program stays correct for all register values within bounds.
A wait already implied by an earlier one (of the unit itself, or of a command that was waited for)
is left out. Commands of one unit need none, but for accumulating loads: each unit keeps its own order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.config import Config
from gemmule.isa import (
    MAX_LENGTH,
    MAX_WAIT,
    NUM_PREDICATES,
    Command,
    Dyn,
    ImportanceFlag,
    KeysFlag,
    MatrixFlag,
    MoveFlag,
    NormFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Unit,
    VOp,
)
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES

__all__ = ["Bounds", "Footprint", "footprints", "place_waits"]

Bounds = Mapping[int, tuple[int, int]]
"""Lowest and highest value of each length register in use."""

SPM, ACC, LIST, PREDICATE = range(4)


@dataclass(frozen=True)
class Footprint:
    """Rows ``start + i * stride .. + size`` for i < count, of a memory (scratchpad, accumulator, lists, predicates)."""

    space: int
    write: bool
    start: int
    size: int
    stride: int = 0
    count: int = 1

    def slices(self) -> list[slice]:
        return [slice(at, at + self.size) for at in
                range(self.start, self.start + self.count * self.stride, self.stride)
                ] if self.count > 1 else [slice(self.start, self.start + self.size)]


def _largest(command: Command, name: str, bounds: Bounds) -> int:
    values = command.fields
    reg, offset, cap = (values.get(f"{name}_{part}", 0) for part in ("reg", "offset", "cap"))
    high = MAX_LENGTH if reg == 0 else bounds[reg][1]
    return min(max(high - offset, 0), cap)


def footprints(command: Command, config: Config, bounds: Bounds) -> list[Footprint]:
    """Every row that the command may read or write within ``bounds``; empty when it never does."""
    found = _footprints(command, config, bounds)
    if found and command.predicate:
        found.append(Footprint(PREDICATE, False, command.predicate, 1))
    return found


def _footprints(command: Command, config: Config, bounds: Bounds) -> list[Footprint]:
    f, dim = command.fields, config.dim
    get = lambda name: f.get(name, 0)  # noqa: E731
    which, reg, stride = command.dyn
    low, high = (0, 0) if which is Dyn.NONE else bounds[reg]

    def rows(space: int, write: bool, start: int, size: int, step: int = 0, count: int = 1,
             moved: Dyn = Dyn.NONE) -> Footprint:
        if moved is which and which is not Dyn.NONE:
            start, size = start + low * stride, size + (high - low) * stride
        return Footprint(space, write, start, size, step, count)

    if command.unit in (Unit.LOAD, Unit.STORE):
        load = command.unit is Unit.LOAD
        accumulator = MoveFlag.ACCUMULATOR in command.flags
        space = ACC if accumulator else SPM
        width = 4 * dim if accumulator and MoveFlag.NARROW not in command.flags else dim
        count, blocks = _largest(command, "rows", bounds), -(-get("bytes") // width)
        moved = Dyn.DST if load else Dyn.SRC0
        if not count or not blocks:
            return []
        listed = [rows(LIST, False, get("list"), count)] if MoveFlag.INDEXED in command.flags else []
        if get("block_stride") == 1:  # one run of rows per DRAM row
            return [*listed, rows(space, load, get("row"), blocks, get("row_stride"), count, moved)]
        if get("row_stride") == 1:
            return [*listed, rows(space, load, get("row"), count, get("block_stride"), blocks, moved)]
        return [*listed, *(rows(space, load, get("row") + i * get("row_stride"), 1, get("block_stride"), blocks, moved)
                           for i in range(count))]
    m, n = (_largest(command, name, bounds) for name in ("m", "n"))
    groups = -(-n // dim)
    if command.unit is Unit.SELECT:
        k = _largest(command, "k", bounds)
        return _select(command, m, n, min(n, k), dim, rows)
    if command.unit is Unit.MATRIX:
        k = _largest(command, "k", bounds)
        if not m or not n or not k:
            return []
        deep = -(-k // dim)
        transposed = MatrixFlag.B_TRANSPOSED in command.flags
        inner = n if transposed else k
        if MatrixFlag.B_INT4 in command.flags:
            inner = -(-inner // 2)
        if MatrixFlag.GROUP_SCALES in command.flags:
            inner = deep * (dim // 2) + (deep - 1 >> get("group")) + 1
        found = [rows(ACC, True, get("c_row"), m, get("c_stride"), groups)]
        if MatrixFlag.A_TRANSPOSED in command.flags:
            found.append(rows(SPM, False, get("a_row"), k, get("a_stride"), -(-m // dim), Dyn.SRC0))
        else:
            found.append(rows(SPM, False, get("a_row"), m, get("a_stride"), deep, Dyn.SRC0))
        if MatrixFlag.REUSE not in command.flags:
            found.append(rows(SPM, False, get("b_row"), inner, get("b_stride"),
                              deep if transposed else groups, Dyn.SRC1))
        return found
    op = VOp(command.op)
    if op in (VOp.TABLE, VOp.WORD_TABLE):
        size = -(-BYTE_TABLE_ENTRIES // dim) if op is VOp.TABLE else 2 * -(-WORD_TABLE_ENTRIES // dim)
        return [rows(SPM, False, get("src0"), size, moved=Dyn.SRC0)]
    if not m or not n:
        return []
    space = SPM if op in (VOp.PRODUCT, VOp.ADD, VOp.NORM_STAT, VOp.NORM_APPLY) else ACC
    found = [rows(space, False, get("src0"), m, get("src0_stride"), groups, Dyn.SRC0)]
    if op in (VOp.NORM_STAT, VOp.NORM_APPLY):
        found.append(rows(SPM, False, get("src0") + get("src0_stride") // 2, m, get("src0_stride"), groups,
                          Dyn.SRC0))
    if op in (VOp.REQUANT, VOp.ROPE, VOp.I_GELU):
        parameters = 3 * (RequantFlag.COLUMN in command.flags) + 4 * (RequantFlag.BIAS in command.flags)
        if parameters:
            found.append(rows(SPM, False, get("src1"), parameters * groups, moved=Dyn.SRC1))
    if op is VOp.NORM_APPLY:
        parameters = 2 + 4 * (NormFlag.BIAS in command.flags)
        found.append(rows(SPM, False, get("src1"), parameters * groups, moved=Dyn.SRC1))
    if op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM) and SoftmaxFlag.TREE in command.flags:
        found.append(rows(SPM, False, get("src1"), m, moved=Dyn.SRC1))
    if op in (VOp.PRODUCT, VOp.ADD):
        stride1 = get("aux") if op is VOp.PRODUCT else get("src0_stride")
        found.append(rows(SPM, False, get("src1"), m, stride1, groups, Dyn.SRC1))
    if op is VOp.ROPE:
        found.append(rows(SPM, False, get("aux"), m << (get("period") + 2)))
    if op in (VOp.NORM_STAT, VOp.SOFTMAX_MAX, VOp.ABSMAX):
        return found
    residual = op is VOp.REQUANT and RequantFlag.RESIDUAL in command.flags
    wide = residual or RequantFlag.WIDE in command.flags
    target = ACC if op is VOp.RESCALE else SPM
    for plane in range(2 if wide else 1):
        start = get("dst") + plane * (get("dst_stride") // 2)
        found.append(rows(target, True, start, m, get("dst_stride"), groups, Dyn.DST))
        if residual:
            found.append(replace(found[-1], write=False))
    return found


def _select(command: Command, m: int, n: int, k: int, dim: int,
            rows: Callable[..., Footprint]) -> list[Footprint]:
    """What a select command shares with other units: scratchpad rows, list entries, predicates."""
    f, op, flags = command.fields, SOp(command.op), command.flags
    get = lambda name: f.get(name, 0)  # noqa: E731
    m = m if op in (SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE) else 1
    if not m or not n or (op is SOp.TOP_K and not k):
        return []
    groups, listed = -(-n // dim), -(-n // (dim // 2))
    found = []
    wide = op in (SOp.ARGMAX, SOp.KEYS) or ImportanceFlag.WIDE in flags
    if op in (SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE) or (
            op is SOp.KEYS and KeysFlag.FROM_IMPORTANCE not in flags):
        for plane in range(2 if wide else 1):
            found.append(rows(SPM, False, get("src0") + plane * (get("src0_stride") // 2), m, get("src0_stride"),
                              groups, Dyn.SRC0))
    if op is SOp.LIST_LOAD:
        found += [rows(SPM, False, get("src0"), listed, moved=Dyn.SRC0), rows(LIST, True, get("dst"), n, moved=Dyn.DST)]
    if op is SOp.LIST_STORE:
        found += [rows(SPM, True, get("dst"), listed, moved=Dyn.DST), rows(LIST, False, get("first"), n)]
    if op is SOp.ARGMAX:
        found.append(rows(LIST, True, get("dst"), m, moved=Dyn.DST))
    if op is SOp.TOP_K:
        found.append(rows(LIST, True, get("dst"), k, moved=Dyn.DST))
    if op is SOp.COMPARE:
        found.append(rows(PREDICATE, True, get("number"), 1))
    return found or [rows(PREDICATE, False, 0, 1)]


def _check_memory(commands: Sequence[Command]) -> None:
    """Loads and stores must use different base registers: DRAM regions are then apart by layout."""
    used = {unit: {c.fields.get("base", 0) for c in commands if c.unit is unit}
            for unit in (Unit.LOAD, Unit.STORE)}
    shared = used[Unit.LOAD] & used[Unit.STORE]
    if shared:
        raise CompileError(
            f"base register {min(shared)} is both loaded from and stored to: give stores a base of their own")


def place_waits(commands: Iterable[Command], config: Config, bounds: Bounds) -> list[Command]:
    """The commands with minimal waits for their order (waits they already carry are replaced)."""
    commands = list(commands)
    _check_memory(commands)
    units, sizes = len(Unit), (config.spm_rows, config.acc_rows, config.list_entries, NUM_PREDICATES)
    # Number (from 1) of the last command of each unit that wrote / touched a row.
    wrote = [np.zeros((units, size), dtype=np.int64) for size in sizes]
    touched = [np.zeros((units, size), dtype=np.int64) for size in sizes]
    count = [0] * units
    # known[u][i][v]: commands of v that have finished when the i-th command of u issues.
    known: list[list[np.ndarray]] = [[] for _ in range(units)]
    placed = []
    for command in commands:
        own = int(command.unit)
        needed = np.zeros(units, dtype=np.int64)
        prints = footprints(command, config, bounds)
        for part in prints:
            last = touched[part.space] if part.write else wrote[part.space]
            for rows in part.slices():
                if rows.stop > sizes[part.space]:
                    raise CompileError(
                        f"{command.unit.label} command {command.note!r} must stay below row "
                        f"{sizes[part.space]}, not reach {rows.stop - 1}: give it a smaller tile")
                np.maximum(needed, last[:, rows].max(axis=1), out=needed)
        clock = known[own][-1].copy() if known[own] else np.zeros(units, dtype=np.int64)
        if command.unit is not Unit.LOAD or MoveFlag.ADD not in command.flags:
            needed[own] = 0  # an accumulating load reads before the write of the load before it is done
        waits = {}
        # The most recent dependency first: what it implies need not be waited for.
        for other in sorted(range(units), key=lambda u: -needed[u]):
            wanted = int(needed[other])
            if wanted > clock[other]:
                waits[Unit(other)] = wanted
                np.maximum(clock, known[other][wanted - 1], out=clock)
                clock[other] = max(clock[other], wanted)
        for unit in [u for u in waits if any(
                known[v][waits[v] - 1][u] >= waits[u] for v in waits if v is not u)]:
            del waits[unit]
        distances = {unit: min(count[unit] - wanted + 1, MAX_WAIT) for unit, wanted in sorted(waits.items())}
        for unit, distance in distances.items():  # a clamped distance waits for more
            wanted = count[unit] - distance + 1
            clock[unit] = max(clock[unit], wanted)
        known[own].append(clock)
        count[own] += 1
        for part in prints:
            for rows in part.slices():
                touched[part.space][own, rows] = count[own]
                if part.write:
                    wrote[part.space][own, rows] = count[own]
        placed.append(replace(command, waits=distances))
    return placed
