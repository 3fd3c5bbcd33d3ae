"""Building a program: commands that are legal by themselves, with the waits that make them legal together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmule.config import Config
from gemmule.isa import MAX_WAIT, NUM_PREDICATES, TABLE_FIELDS, Command, IsaError, Unit, body_of, encode, table_row
from gemmule.operands import Memory
from gemmule.sim.fuzz.brink import furthest
from gemmule.sim.fuzz.commands import draw_command
from gemmule.sim.fuzz.draw import FAR, Draw
from gemmule.sim.verify.access import accesses
from gemmule.sim.verify.order import Order, Plan
from gemmule.terms import OUT

__all__ = ["Builder", "Candidate", "far", "skipped"]

_WAIT0 = TABLE_FIELDS.index("wait_load")


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
        self.commands.append(candidate.command)

    def must(self, command: Command) -> None:
        """Append a command that is legal by construction."""
        candidate = self.plan(command)
        if candidate is None:
            raise AssertionError(f"fuzz: fixed command is not legal: {command}")
        self.accept(candidate)

    def _writes_program(self, plan: Plan) -> bool:
        return any(access.write and access.memory is Memory.DRAM
                   and access.spans[0, 0] < self.program.stop and access.spans[-1, 1] > self.program.start
                   for access in accesses(plan.row, plan.out, self.config))

    def _writes_upper(self, plan: Plan) -> bool:
        half = {Memory.SPM: self.config.spm_rows // 2, Memory.ACC: self.config.acc_rows // 2}
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


def skipped(builder: Builder, draw: Draw, commands: int) -> None:
    """Commands on predicates that nothing has set: they are resolved, at the brink of a fault, and do nothing.

    So they may be as long as can be, and anywhere in the address space.
    """
    for _ in range(commands):
        command, _ = draw_command(draw)
        if "base" in command.fields and draw.chance(0.5):
            at = draw.integer(0, (1 << draw.integer(4, 32)) - 1)
            command = replace(command, fields={**command.fields, "base": draw.choice(FAR), "offset": at})
        command = far(builder, draw, command, [name for name, _ in body_of(command.unit)])
        found = builder.plan(replace(command, predicate=draw.integer(1, NUM_PREDICATES - 1)))
        if found:
            builder.accept(found)
    draw.storm = []
