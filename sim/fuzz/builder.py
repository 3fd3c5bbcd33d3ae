"""Building a program: commands that are legal by themselves, with the waits that make them legal together.

Of a repeated body that goes for every turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from gemmule.config import Config
from gemmule.control import Loop, set_displacement
from gemmule.control import Sequence as Place
from gemmule.isa import (
    CONTROL,
    MAX_WAIT,
    TABLE_FIELDS,
    Command,
    COp,
    IsaError,
    Unit,
    control_columns,
    encode,
    table_row,
)
from gemmule.operands import Memory
from gemmule.sim.fuzz.brink import furthest
from gemmule.sim.fuzz.control import turns_of
from gemmule.sim.fuzz.draw import Draw
from gemmule.sim.verify.access import accesses
from gemmule.sim.verify.order import Order, Plan
from gemmule.sim.verify.state import FAULT, FINE, RACE
from gemmule.terms import OUT

__all__ = ["Builder", "Candidate", "far"]

_WAIT0 = TABLE_FIELDS.index("wait_load")
_CAP = control_columns(COp.REPEAT)["times_cap"]


@dataclass(frozen=True)
class Candidate:
    """A command that is legal by itself, with the waits that it needs now."""

    command: Command
    plan: Plan

    @property
    def cost(self) -> float:
        """How much the waits hold it up: one for the latest command of a unit most, one for a predicate less."""
        return sum(1 / distance for distance in self.command.waits.values()) / (1 + (self.command.predicate > 0))

    @property
    def empty(self) -> bool:
        return bool(self.plan.out[OUT["zero"]])


class Builder:
    """Adds commands that are legal by themselves, with the waits that make them legal together."""

    def __init__(self, config: Config, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray,
                 random: np.random.Generator) -> None:
        self.config, self.random = config, random
        self.commands: list[Command] = []
        self.order = Order(config, bases, limits, lengths)
        self.sealed = False
        """The memories' upper halves have been dumped: nothing may write there any more."""
        self.program = range(0)
        """Bytes of DRAM in which the program will lie: nothing may be stored there."""
        self.mark = -1
        """At so many commands ``marked`` is kept."""
        self.marked: tuple[int, Order] | None = None
        """Commands and their order when there were so many, or a few more."""

    def trial(self) -> Builder:
        """Another one, without commands, that goes on from here."""
        return self.branch(self.order)

    def branch(self, order: Order) -> Builder:
        """Another one, without commands, that goes on from a copy of this order."""
        other = copy(self)
        other.commands, other.order, other.mark = [], order.copy(), -1
        return other

    def plan(self, command: Command, strengthen: float = 0.0) -> Candidate | None:
        """The command with its waits, as if it came next; None when it is not legal by itself."""
        try:
            encode(command)
        except IsaError:
            return None
        plan = self.order.plan(row := table_row(command))
        if (not plan.legal or (self.sealed and self._writes_upper(plan))
                or (command.unit is Unit.STORE and self._writes_program(plan))):
            return None
        waits: dict[Unit, int] = {}
        if self.random.random() < strengthen:
            other = Unit(int(self.random.integers(len(Unit))))
            # Now and then one that reaches back beyond the unit's first command, or as far as a wait can.
            most = MAX_WAIT if self.random.random() < 0.1 else min(self.order.count(other) + 1, 12)
            waits[other] = int(self.random.integers(1, most + 1))
            row[_WAIT0 + other] = waits[other]
        while races := self.order.races(plan):
            unit, distance = races[self.random.integers(len(races))]
            waits[unit] = min(distance, MAX_WAIT, waits.get(unit, distance))
            row[_WAIT0 + unit] = waits[unit]
        return Candidate(replace(command, waits=waits), plan)

    def accept(self, candidate: Candidate) -> None:
        """Append a command that was planned last."""
        self.order.push(candidate.plan)
        self._extend([candidate.command])

    def control(self, command: Command) -> bool:
        """Append a SET or PARAMS, if it is legal."""
        try:
            encode(command)
        except IsaError:
            return False
        if self.order.run(table_row(command)[None])[1] != FINE:
            return False
        self._extend([command])
        return True

    def repeat(self, piece: Sequence[Command], most: int, *, until_fault: bool = False) -> int:
        """Append a REPEAT and its body, with more waits and fewer turns where one of them asks for it.

        At most ``most`` commands then run. Their number, or 0 where not even one turn is legal. ``until_fault``: only
        a piece that faults behind a legal turn, of some body in it, is taken.
        """
        rows = np.stack([table_row(command) for command in piece])
        turns = turns_of(piece[0], self.order.local.lengths)
        while True:
            order = self.order.copy()
            end = self._all_turns(order, rows, most)
            sealed = self.sealed and any(order.wrote(self.order, memory, half, 2 * half)
                                         for memory, half in self._halves().items())
            done = turns // 2
            if end != FINE:
                done = turns - int(order.local.loops[0, Loop.TURNS]) if order.local.sequence[Place.DEPTH] else 0
            if until_fault:
                if end != FAULT or not len(piece) <= order.taken < most:
                    return 0
                break
            if end == FINE and not sealed:
                break
            if not done:
                return 0
            rows[0, _CAP] = turns = done
        self.order = order
        self._extend([self._with(command, row) for command, row in zip(piece, rows)])
        return order.taken

    def _all_turns(self, order: Order, rows: np.ndarray, most: int) -> int:
        """How a piece ends whose commands get the waits that they lack."""
        place, end, races = order.run(rows, program=self.program, most=most)
        while end == RACE:
            unit, distance = races[self.random.integers(len(races))]
            have = int(rows[place, _WAIT0 + unit])
            rows[place, _WAIT0 + unit] = min(distance, have or MAX_WAIT, MAX_WAIT)
            place, end, races = order.resume(rows, program=self.program)
        return end

    @staticmethod
    def _with(command: Command, row: np.ndarray) -> Command:
        """The command with the waits of a row, or with its turns."""
        if command.unit is CONTROL:
            changed = command.op == COp.REPEAT and row[_CAP] != command.fields["times_cap"]
            return replace(command, fields={**command.fields, "times_cap": int(row[_CAP])}) if changed else command
        waits = {unit: int(row[_WAIT0 + unit]) for unit in Unit if row[_WAIT0 + unit]}
        return command if waits == command.waits else replace(command, waits=waits)

    def _extend(self, commands: Sequence[Command]) -> None:
        self.commands += commands
        if 0 <= self.mark <= len(self.commands):
            self.mark, self.marked = -1, (len(self.commands), self.order.copy())

    def must(self, command: Command) -> None:
        """Append a command that is legal by construction; its base register is put back before, if it was moved."""
        base = command.fields.get("base", 0)
        if command.unit <= Unit.STORE and self.order.local.displacements[base]:
            self.control(set_displacement(base))
        candidate = self.plan(command)
        if candidate is None:
            raise AssertionError(f"fuzz: fixed command is not legal: {command}")
        self.accept(candidate)

    def _writes_program(self, plan: Plan) -> bool:
        return any(access.write and access.memory is Memory.DRAM
                   and access.spans[0, 0] < self.program.stop and access.spans[-1, 1] > self.program.start
                   for access in accesses(plan.row, plan.out, self.config))

    def _halves(self) -> dict[Memory, int]:
        return {Memory.SPM: self.config.spm_rows // 2, Memory.ACC: self.config.acc_rows // 2}

    def _writes_upper(self, plan: Plan) -> bool:
        half = self._halves()
        return any(access.write and access.memory in half and access.spans[-1, 1] > half[access.memory]
                   for access in accesses(plan.row, plan.out, self.config))


def far(builder: Builder, draw: Draw, command: Command, names: Sequence[str]) -> Command:
    """The command with one of these fields as large as may be."""
    name = draw.choice(names)
    try:
        encode(command)
    except IsaError:
        return command  # not legal anyway
    return furthest(builder.order, command, name) or command
