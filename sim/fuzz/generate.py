"""Random legal programs: all command kinds and modes, ragged and empty shapes, just enough waits.

A program fills part of the scratchpad and the accumulator with random DRAM bytes, runs random commands
that share banks and rows freely, and brings everything that they can have changed to DRAM at its end
(``frame.py``). Waits come from the verifier's order tracker: for every race one wait, none that
another wait already implies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gemmule.config import Config
from gemmule.isa import (
    COMMAND_BYTES,
    MAX_WAIT,
    NUM_BASES,
    NUM_LENGTHS,
    TABLE_FIELDS,
    Command,
    IsaError,
    Unit,
    encode,
    encode_program,
)
from gemmule.resolve import OUT, OUT_FIELDS, config_vector, resolve_row
from gemmule.sim.fuzz.commands import draw_command
from gemmule.sim.fuzz.draw import HOLLOW, Draw, Note
from gemmule.sim.fuzz.faults import faulty_commands
from gemmule.sim.fuzz.frame import COMMANDS, SOURCE, TARGET, Frame
from gemmule.sim.launch import Launch
from gemmule.sim.verify.access import ACC, SPM, Access, accesses
from gemmule.sim.verify.verify import Order, check_alone

__all__ = ["generate"]

_F = {name: i for i, name in enumerate(TABLE_FIELDS)}
_DYN = ("dyn_which", "dyn_reg", "dyn_stride")


class _Plan(NamedTuple):
    """A command that is legal by itself, with the waits that it needs now."""

    command: Command
    row: np.ndarray
    out: np.ndarray
    found: list[Access]
    clock: np.ndarray

    @property
    def cost(self) -> float:
        """How much the waits hold it up: one for the latest command of a unit most, one for a predicate less."""
        return sum(1 / distance for distance in self.command.waits.values()) / (1 + (self.command.predicate > 0))


class _Builder:
    """Adds commands that are legal by themselves, with the waits that make them legal together."""

    def __init__(self, config: Config, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray,
                 random: np.random.Generator, capacity: int) -> None:
        self.config, self.random = config, random
        self.bases, self.limits, self.lengths = bases, limits, lengths
        self.commands: list[Command] = []
        self.order = Order(config, capacity)
        self.sealed = False
        """The memories' upper halves have been dumped: nothing may write there any more."""
        self._vector = config_vector(config)

    def plan(self, command: Command, strengthen: float = 0.0) -> _Plan | None:
        """The command with its waits, as if it came next; None when it is not legal by itself."""
        try:
            encode(command)
        except IsaError:
            return None
        row = np.zeros(len(TABLE_FIELDS), dtype=np.int64)
        flags = sum(1 << bit for bit in command.flags)
        head = {"unit": command.unit, "op": command.op, "flags": flags, "predicate": command.predicate}
        for name, value in {**head, **dict(zip(_DYN, command.dyn)), **command.fields}.items():
            row[_F[name]] = value
        out = np.zeros(len(OUT_FIELDS), dtype=np.int64)
        resolve_row(row, self.bases, self.limits, self.lengths, self._vector, out)
        if out[OUT["fault"]]:
            return None
        found = accesses(row, out, self.config)
        if check_alone(out, found) or self.sealed and self._writes_upper(found):
            return None
        waits: dict[Unit, int] = {}
        if self.random.random() < strengthen:
            other = Unit(int(self.random.integers(len(Unit))))
            count = len(self.order.members[other])
            if count:
                waits[other] = int(self.random.integers(1, min(count, 12) + 1))
        clock = self.order.clock(row, out, waits)
        while races := list(self.order.conflicts(row, out, found, clock, latest=True)):
            race = races[self.random.integers(len(races))]
            members = self.order.members[race.unit]
            distance = min(len(members) - members.index(race.command), MAX_WAIT)
            waits[race.unit] = min(distance, waits.get(race.unit, distance))
            clock = self.order.clock(row, out, waits)
        return _Plan(replace(command, waits=waits), row, out, found, clock)

    def accept(self, plan: _Plan) -> None:
        """Append a command that was planned last."""
        self.order.push(plan.row, plan.out, plan.found, plan.clock)
        self.commands.append(plan.command)

    def must(self, command: Command) -> None:
        """Append a command that is legal by construction."""
        plan = self.plan(command)
        if plan is None:
            raise AssertionError(f"fuzz: fixed command is not legal: {command}")
        self.accept(plan)

    def _writes_upper(self, found: list[Access]) -> bool:
        half = {SPM: self.config.spm_rows // 2, ACC: self.config.acc_rows // 2}
        return any(access.write and access.space in half and access.spans[-1, 1] > half[access.space]
                   for access in found)


def _body(builder: _Builder, draw: Draw, commands: int, between: Sequence[Command] = ()) -> None:
    """Random commands, the given ones spread between them.

    Of a few candidates the one that its waits hold up least: units then work side by side.
    """
    strengthen = draw.choice([0.0, 0.0, 0.0, 0.1, 0.3])
    tries = draw.choice([2, 4, 5])
    for i in range(commands):
        for command in between[i * len(between) // commands:(i + 1) * len(between) // commands]:
            builder.must(command)
        best: _Plan | None = None
        notes: Sequence[Note] = ()
        left = 1 if draw.hollow else tries
        while left or best is None:
            command, about = draw_command(draw)
            plan = builder.plan(replace(command, predicate=draw.predicate()), strengthen)
            if plan is None:
                continue
            left -= 1
            # Empty commands need no waits; they must not win by that.
            if best is None or plan.cost < best.cost and not plan.out[OUT["zero"]]:
                best, notes = plan, () if plan.command.predicate else about
            if not best.command.waits:
                break
        builder.accept(best)
        draw.accept(notes)


def _registers(config: Config, random: np.random.Generator,
               end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Base 0 sees everything; the others start somewhere, odd ones at any byte. Few lengths are empty or large."""
    bus = config.bus_bytes
    bases = np.zeros(NUM_BASES, dtype=np.int64)
    bases[1:] = random.integers(0, SOURCE // bus, NUM_BASES - 1) * bus
    bases[16:] = SOURCE + random.integers(0, TARGET // 2 // bus, NUM_BASES - 16) * bus
    bases[1::2] += random.integers(0, bus, NUM_BASES // 2)
    limits = np.where(np.arange(NUM_BASES) < 16, SOURCE, SOURCE + TARGET) - bases
    limits[0] = end
    lengths = random.integers(0, 4 * config.dim, NUM_LENGTHS)
    lengths[random.integers(1, NUM_LENGTHS, 2)] = 0
    lengths[random.integers(1, NUM_LENGTHS, 2)] = random.integers(200, 4000, 2)
    return bases, limits, lengths.astype(np.int64)


def generate(config: Config, seed: int, commands: int = 150, *, faults: float = 0.0) -> Launch:
    """A random program of ``commands`` commands between its fill and its dump.

    With chance ``faults`` one more command, somewhere, faults.
    """
    random = np.random.default_rng([seed, config.dim, config.spm_kib])
    frame = Frame(config, commands)
    bases, limits, lengths = _registers(config, random, frame.end)
    draw = Draw(config, random, bases, lengths)
    builder = _Builder(config, bases, limits, lengths, random, commands + COMMANDS)
    if draw.chance(0.25):
        draw.hollow = HOLLOW
        _body(builder, draw, HOLLOW)
    for command in frame.fill(draw):
        builder.must(command)
    early = commands // 3
    _body(builder, draw, early)
    draw.sealed = builder.sealed = True
    _body(builder, draw, commands - early, frame.dump_upper())
    builder.sealed = False
    for command in frame.dump_lower(table=draw.table, words=draw.words):
        builder.must(command)
    dram = frame.memory(random)
    image = encode_program(builder.commands)
    faulty = random.random() < faults
    if faulty:
        at = int(random.integers(1, len(builder.commands))) * COMMAND_BYTES
        broken = draw.choice(faulty_commands(config, bases, random))
        image = image[:at] + encode(broken).to_bytes(COMMAND_BYTES, "little") + image[at:]
    return Launch(f"fuzz-{seed}", seed, image, frame.program, dram, bases, limits, lengths, faulty)
