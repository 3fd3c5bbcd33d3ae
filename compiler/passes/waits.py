"""Waits: a generic pass that makes any command list race-free in its program order.

Row sets are read off the commands themselves, at the largest value of every length and over the
whole range of a dynamic address, so a program stays correct for all register values within bounds.
A wait already implied by an earlier one (of the unit itself, or of a command that was waited for)
is left out. Commands of one unit need none, but for accumulating loads: each unit keeps its own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.passes.footprints import Bounds, Footprint, footprints
from gemmule.config import Config
from gemmule.isa import CONTROL, MAX_WAIT, NUM_PREDICATES, Command, MoveFlag, Unit
from gemmule.operands import Memory

__all__ = ["place_straight_waits", "place_waits"]


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


class _Part(NamedTuple):
    """Rows that a command reads or writes, and who wrote and touched each row of that memory, by unit."""

    write: bool
    writers: np.ndarray
    users: np.ndarray
    rows: slice


class _Rows:
    """Of every row the number (from 1) of each unit's last command that wrote it, and that touched it at all."""

    def __init__(self, config: Config, bounds: Bounds) -> None:
        self.config, self.bounds = config, bounds
        self.sizes = {Memory.SPM: config.spm_rows, Memory.ACC: config.acc_rows, Memory.LIST: config.list_entries,
                      Memory.PREDICATE: NUM_PREDICATES}
        self.wrote, self.touched = ({memory: np.zeros((len(Unit), size), dtype=np.int64)
                                     for memory, size in self.sizes.items()} for _ in range(2))
        self._seen: dict[tuple[object, ...], list[_Part]] = {}  # commands come again and again, in loops and rings

    def of(self, command: Command) -> list[_Part]:
        """What a command reads and writes."""
        key = _key(command)
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = [
                _Part(part.write, self.wrote[part.memory], self.touched[part.memory], rows)
                for part in footprints(command, self.config, self.bounds)
                for rows in _rows(part, command, self.sizes)]
        return found


def _needed(command: Command, parts: Iterable[_Part]) -> np.ndarray:
    """By unit the last command that must have finished before this one issues; 0: none.

    One that reads needs those that wrote, one that writes all. Its own unit keeps its order.
    """
    needed = np.zeros(len(Unit), dtype=np.int64)
    for part in parts:
        before = part.users if part.write else part.writers
        np.maximum(needed, before[:, part.rows].max(axis=1), out=needed)
    if command.unit is not Unit.LOAD or MoveFlag.ADD not in command.flags:
        needed[int(command.unit)] = 0  # an accumulating load reads before the write of the load before it is done
    return needed


def _note(parts: Iterable[_Part], unit: Unit, number: int) -> None:
    """The command of this number of a unit touches its rows."""
    for part in parts:
        part.users[unit, part.rows] = number
        if part.write:
            part.writers[unit, part.rows] = number


class _Clocks:
    """What has finished when a command issues, of every one so far: a wait that follows from others is not needed.

    A clock tells by unit how many of its commands, from the first on, have finished.
    """

    def __init__(self) -> None:
        self.known: list[list[np.ndarray]] = [[] for _ in Unit]
        """By unit the clock of each of its commands."""

    def place(self, unit: Unit, needed: np.ndarray) -> dict[Unit, int]:
        """The waits of the next command of a unit, as distances; with them all that it needs has finished."""
        own = self.known[unit]
        clock = own[-1].copy() if own else np.zeros(len(Unit), dtype=np.int64)  # a unit issues in order
        waits = self._fewest(clock, needed)
        distances: dict[Unit, int] = {}
        for other, wanted in sorted(waits.items()):
            count = len(self.known[other])
            distances[other] = min(count - wanted + 1, MAX_WAIT)
            clock[other] = max(clock[other], count - distances[other] + 1)  # a clamped distance waits for more
        own.append(clock)
        return distances

    def _fewest(self, clock: np.ndarray, needed: np.ndarray) -> dict[Unit, int]:
        """Commands to wait for, by unit, none of which the clock or another of them implies; the clock then holds them.

        The most recent dependency comes first: it implies the most.
        """
        waits: dict[Unit, int] = {}
        for unit in sorted(Unit, key=lambda unit: -needed[unit]):
            wanted = int(needed[unit])
            if wanted > clock[unit]:
                waits[unit] = wanted
                np.maximum(clock, self.known[unit][wanted - 1], out=clock)
                clock[unit] = max(clock[unit], wanted)
        implied = [unit for unit in waits if any(
            self.known[other][waits[other] - 1][unit] >= waits[unit] for other in waits if other is not unit)]
        return {unit: wanted for unit, wanted in waits.items() if unit not in implied}


def place_waits(commands: Iterable[Command], config: Config, bounds: Bounds) -> list[Command]:
    """The commands with minimal waits for their order (waits they already carry are replaced)."""
    commands = list(commands)
    _check_memory(commands)
    rows, clocks = _Rows(config, bounds), _Clocks()
    placed = []
    for command in commands:
        unit, parts = Unit(command.unit), rows.of(command)
        waits = clocks.place(unit, _needed(command, parts))
        _note(parts, unit, len(clocks.known[unit]))
        placed.append(replace(command, waits=waits))
    return placed


def place_straight_waits(commands: Sequence[Command], config: Config, bounds: Bounds) -> list[Command]:
    """The waits of the commands as they stand, each body once; control commands have none."""
    placed = iter(place_waits([command for command in commands if command.unit != CONTROL], config, bounds))
    return [command if command.unit == CONTROL else next(placed) for command in commands]
