"""Random legal programs: all command kinds and modes, ragged and empty shapes, just enough waits.

A program fills part of the scratchpad and the accumulator with random DRAM bytes, runs random commands
that share banks and rows freely, and brings everything that they can have changed to DRAM at its end
(``frame.py``). Waits come from the verifier's order tracker: for every race one wait, none that
another wait already implies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    body_of,
    encode,
    encode_program,
    table_row,
)
from gemmule.operands import Memory
from gemmule.sim.errors import SimulationError
from gemmule.sim.fuzz.brink import PLACES, beyond, ends_of, furthest
from gemmule.sim.fuzz.commands import draw_command
from gemmule.sim.fuzz.draw import HOLLOW, Draw, Note
from gemmule.sim.fuzz.faults import faulty_commands
from gemmule.sim.fuzz.frame import Frame
from gemmule.sim.launch import Launch
from gemmule.sim.verify.access import accesses
from gemmule.sim.verify.order import Order, Plan
from gemmule.terms import OUT

__all__ = ["generate"]

_WAIT0 = TABLE_FIELDS.index("wait_load")


@dataclass(frozen=True)
class _Candidate:
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


class _Builder:
    """Adds commands that are legal by themselves, with the waits that make them legal together."""

    def __init__(self, config: Config, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray,
                 random: np.random.Generator) -> None:
        self.config, self.random = config, random
        self.commands: list[Command] = []
        self.order = Order(config, bases, limits, lengths)
        self.sealed = False
        """The memories' upper halves have been dumped: nothing may write there any more."""

    def plan(self, command: Command, strengthen: float = 0.0) -> _Candidate | None:
        """The command with its waits, as if it came next; None when it is not legal by itself."""
        try:
            encode(command)
        except IsaError:
            return None
        plan = self.order.plan(row := table_row(command))
        if not plan.legal or (self.sealed and self._writes_upper(plan)):
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
        return _Candidate(replace(command, waits=waits), plan)

    def accept(self, candidate: _Candidate) -> None:
        """Append a command that was planned last."""
        self.order.push(candidate.plan)
        self.commands.append(candidate.command)

    def must(self, command: Command) -> None:
        """Append a command that is legal by construction."""
        candidate = self.plan(command)
        if candidate is None:
            raise AssertionError(f"fuzz: fixed command is not legal: {command}")
        self.accept(candidate)

    def _writes_upper(self, plan: Plan) -> bool:
        half = {Memory.SPM: self.config.spm_rows // 2, Memory.ACC: self.config.acc_rows // 2}
        return any(access.write and access.memory in half and access.spans[-1, 1] > half[access.memory]
                   for access in accesses(plan.row, plan.out, self.config))


def _body(builder: _Builder, draw: Draw, commands: int, between: Sequence[Command] = ()) -> None:
    """Random commands, the given ones spread between them.

    Of a few candidates the one that its waits hold up least: units then work side by side.
    """
    strengthen = draw.choice([0.0, 0.0, 0.0, 0.1, 0.3])
    tries = draw.choice([2, 4, 5])
    for i in range(commands):
        for command in between[i * len(between) // commands:(i + 1) * len(between) // commands]:
            builder.must(command)
        best: _Candidate | None = None
        notes: Sequence[Note] = ()
        left = 1 if draw.hollow else tries
        while left or best is None:
            command, about = draw_command(draw)
            if not draw.asked and draw.chance(0.03):
                command = _far(builder, draw, command)
            found = builder.plan(replace(command, predicate=draw.predicate()), strengthen)
            if found is None:
                continue
            left -= 1
            if draw.asked:
                best, notes = found, () if found.command.predicate else about
                break
            # Empty commands need no waits; they must not win by that.
            if best is None or found.cost < best.cost and not found.empty:
                best, notes = found, () if found.command.predicate else about
            if not best.command.waits:
                break
        builder.accept(best)
        draw.accept(notes)


def _far(builder: _Builder, draw: Draw, command: Command) -> Command:
    """The command with one of its places as far out as may be."""
    name = draw.choice([name for name, _ in body_of(command.unit) if name in PLACES])
    try:
        encode(command)
    except IsaError:
        return command  # not legal anyway
    return furthest(builder.order, command, name) or command


def _registers(frame: Frame, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Base 0 sees everything, 15 the last bytes of the DRAM; the others start somewhere, odd ones at any byte.

    Few lengths are empty or large.
    """
    bus, source, target = frame.config.bus_bytes, frame.source, frame.target
    bases = np.zeros(NUM_BASES, dtype=np.int64)
    bases[1:] = random.integers(0, source // bus, NUM_BASES - 1) * bus
    bases[16:] = source + random.integers(0, target // 2 // bus, NUM_BASES - 16) * bus
    bases[1::2] += random.integers(0, bus, NUM_BASES // 2)
    limits = np.where(np.arange(NUM_BASES) < 16, source, source + target) - bases
    bases[15] = frame.end - random.integers(1, 4096)
    limits[[0, 15]] = min(frame.end, (1 << frame.config.address_bits) - 1), frame.end - bases[15]
    lengths = random.integers(0, 4 * frame.config.dim, NUM_LENGTHS)
    lengths[random.integers(1, NUM_LENGTHS, 2)] = 0
    lengths[random.integers(1, NUM_LENGTHS, 2)] = random.integers(200, 4000, 2)
    return bases, limits, lengths.astype(np.int64)


def generate(config: Config, seed: int, commands: int = 150, *, faults: float = 0.0) -> Launch:
    """A random program of ``commands`` commands between its fill and its dump.

    Half of the limits end where the program's last access does. With chance ``faults`` one more command, somewhere,
    faults, or a limit register is a byte short.

    Raises:
        SimulationError: the address space has no room for so many.
    """
    random = np.random.default_rng([seed, config.dim, config.spm_kib])
    frame = Frame(config, commands)
    if commands > frame.most:
        raise SimulationError(
            f"fuzz: {commands} commands a program do not fit address_bits = {config.address_bits} (at most "
            f"{max(frame.most, 0)}): use fewer --commands, more address_bits or smaller memories")
    bases, limits, lengths = _registers(frame, random)
    draw = Draw(config, random, bases, lengths)
    builder = _Builder(config, bases, limits, lengths, random)
    if draw.chance(0.25):
        draw.hollow = HOLLOW
        _body(builder, draw, HOLLOW)
    for command in frame.fill(draw):
        builder.must(command)
    early, draw.due = commands // 3, draw.taken + commands * 9 // 10
    _body(builder, draw, early)
    draw.sealed = builder.sealed = True
    _body(builder, draw, commands - early, frame.dump_upper())
    builder.sealed = False
    for command in frame.dump_lower(table=draw.table, words=draw.words):
        builder.must(command)
    dram, start = frame.memory(random), frame.program
    image = encode_program(builder.commands)
    faulty = random.random() < faults
    ends = ends_of(builder.order, builder.commands, bases, config)
    limits = np.where((ends > 0) & (random.random(NUM_BASES) < 0.5), ends, limits)
    if faulty and draw.chance(0.2):
        short = draw.choice(np.flatnonzero(ends).tolist())  # some command now ends a byte too late
        limits[short] = ends[short] - 1
    elif faulty:
        at = int(random.integers(1, len(builder.commands))) * COMMAND_BYTES
        broken = (draw.choice(faulty_commands(config, bases, random)) if draw.chance(0.5) else
                  beyond(builder.order, builder.commands, random))
        image = image[:at] + encode(broken).to_bytes(COMMAND_BYTES, "little") + image[at:]
    if draw.chance(0.7):  # anywhere in a burst
        start += COMMAND_BYTES * draw.integer(0, 2 * config.burst_bytes // COMMAND_BYTES - 1)
    elif draw.chance(0.3):  # up to the last byte
        start = frame.end - len(image)
    return Launch(f"fuzz-{seed}", seed, image, start, dram, bases, limits, lengths, faulty)
