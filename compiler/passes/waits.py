"""Waits: a generic pass that makes any command list race-free in its program order.

Row sets are read off the commands themselves, at the largest value of every length and over the
whole range of a dynamic address, so a program stays correct for all register values within bounds.
A wait already implied by an earlier one (of the unit itself, or of a command that was waited for)
is left out. Commands of one unit need none, but for accumulating loads: each unit keeps its own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.passes.footprints import Bounds, Footprint, footprints
from gemmule.config import Config
from gemmule.isa import MAX_WAIT, NUM_PREDICATES, Command, MoveFlag, Unit
from gemmule.operands import Memory

__all__ = ["place_waits"]


def _check_memory(commands: Sequence[Command]) -> None:
    """Loads and stores must use different base registers: DRAM regions are then apart by layout."""
    used = {unit: {c.fields.get("base", 0) for c in commands if c.unit is unit}
            for unit in (Unit.LOAD, Unit.STORE)}
    shared = used[Unit.LOAD] & used[Unit.STORE]
    if shared:
        raise CompileError(
            f"base register {min(shared)} is both loaded from and stored to: give stores a base of their own")


def _key(command: Command) -> tuple[object, ...]:
    """What the rows of a command depend on: everything but its place in DRAM and what it waits for."""
    fields = tuple(item for item in command.fields.items() if item[0] not in ("base", "offset"))
    return command.unit, command.op, command.flags, command.dyn, command.predicate, fields


def _rows(part: Footprint, command: Command, sizes: Mapping[Memory, int]) -> Iterator[slice]:
    """The rows of a footprint, which must lie in its memory."""
    for rows in part.slices():
        if rows.stop > sizes[part.memory]:
            raise CompileError(f"{command.unit.label} command {command.note!r} must stay below row "
                               f"{sizes[part.memory]}, not reach {rows.stop - 1}: give it a smaller tile")
        yield rows


def place_waits(commands: Iterable[Command], config: Config, bounds: Bounds) -> list[Command]:
    """The commands with minimal waits for their order (waits they already carry are replaced)."""
    commands = list(commands)
    _check_memory(commands)
    units, sizes = len(Unit), {Memory.SPM: config.spm_rows, Memory.ACC: config.acc_rows,
                               Memory.LIST: config.list_entries, Memory.PREDICATE: NUM_PREDICATES}
    # Number (from 1) of the last command of each unit that wrote / touched a row.
    wrote = {memory: np.zeros((units, size), dtype=np.int64) for memory, size in sizes.items()}
    touched = {memory: np.zeros((units, size), dtype=np.int64) for memory, size in sizes.items()}
    count = [0] * units
    # known[u][i][v]: commands of v that have finished when the i-th command of u issues.
    known: list[list[np.ndarray]] = [[] for _ in range(units)]
    placed = []
    # Buffers come again and again, in loops and rings.  # (written, where each unit wrote and touched, rows)
    seen: dict[tuple[object, ...], list[tuple[bool, np.ndarray, np.ndarray, slice]]] = {}
    for command in commands:
        own = int(command.unit)
        needed = np.zeros(units, dtype=np.int64)
        key = _key(command)
        prints = seen.get(key)
        if prints is None:
            prints = seen[key] = [
                (part.write, wrote[part.memory], touched[part.memory], rows)
                for part in footprints(command, config, bounds) for rows in _rows(part, command, sizes)]
        for write, writers, users, rows in prints:
            np.maximum(needed, (users if write else writers)[:, rows].max(axis=1), out=needed)
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
        for write, writers, users, rows in prints:
            users[own, rows] = count[own]
            if write:
                writers[own, rows] = count[own]
        placed.append(replace(command, waits=distances))
    return placed
