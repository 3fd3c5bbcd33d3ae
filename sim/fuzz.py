"""Random legal programs: all command kinds and modes, ragged and empty shapes, just enough waits.

A program fills the scratchpad and the accumulator from random DRAM bytes, runs random commands
that share banks and rows freely, and stores the whole scratchpad at its end. Waits come from
the verifier's order tracker: for every race one wait, none that another wait already implies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import (
    COMMAND_BYTES,
    MAX_WAIT,
    NUM_BASES,
    NUM_LENGTHS,
    Command,
    IsaError,
    Unit,
    VectorFlag,
    VOp,
    decode_table,
    encode,
    encode_program,
)
from gemmule.resolve import OUT, OUT_FIELDS, config_vector, resolve_row
from gemmule.sim.access import accesses
from gemmule.sim.fuzz_commands import Draw
from gemmule.sim.verify import Order, check_alone

__all__ = ["FuzzCase", "generate"]

SOURCE = 1 << 17
"""Bytes of random data that loads read; stores go above."""
TARGET = 1 << 16


@dataclass(frozen=True)
class FuzzCase:
    """A program with everything it needs; the same on every back end."""

    name: str
    seed: int
    image: bytes
    program: int
    """DRAM address of the program."""
    dram: np.ndarray
    bases: np.ndarray
    limits: np.ndarray
    lengths: np.ndarray
    faulty: bool = False
    """Some command in the middle faults on purpose; the verifier would refuse the program."""


class _Builder:
    """Adds commands that are legal by themselves, with the waits that make them legal together."""

    def __init__(self, config: Config, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray,
                 random: np.random.Generator) -> None:
        self.config, self.random = config, random
        self.bases, self.limits, self.lengths = bases, limits, lengths
        self.commands: list[Command] = []
        self.order = Order(config, 4096)
        self._vector = config_vector(config)

    def add(self, command: Command, strengthen: float = 0.0) -> bool:
        """Append a command with its waits; False when it is not legal by itself."""
        try:
            row = decode_table(encode(command).to_bytes(COMMAND_BYTES, "little"))[0]
        except IsaError:
            return False
        out = np.zeros(len(OUT_FIELDS), dtype=np.int64)
        resolve_row(row, self.bases, self.limits, self.lengths, self._vector, out)
        if out[OUT["fault"]]:
            return False
        found = accesses(row, out, self.config)
        if check_alone(out, found):
            return False
        waits: dict[Unit, int] = {}
        unit, zero = int(out[OUT["unit"]]), bool(out[OUT["zero"]])
        if self.random.random() < strengthen:
            other = Unit(int(self.random.integers(4)))
            count = len(self.order.members[other])
            if count:
                waits[other] = int(self.random.integers(1, min(count, 12) + 1))
        clock = self.order.clock(unit, zero, waits)
        while races := {race.unit: race for race in self._latest(row, out, found, clock)}:
            race = races[list(races)[self.random.integers(len(races))]]
            members = self.order.members[race.unit]
            distance = min(len(members) - members.index(race.command), MAX_WAIT)
            waits[race.unit] = min(distance, waits.get(race.unit, distance))
            clock = self.order.clock(unit, zero, waits)
        self.order.push(row, out, found, clock)
        self.commands.append(replace(command, waits=waits))
        return True

    def _latest(self, row, out, found, clock):  # type: ignore[no-untyped-def]
        """The latest race with each unit."""
        seen: set[int] = set()
        for race in self.order.conflicts(row, out, found, clock):
            if race.unit not in seen:
                seen.add(race.unit)
                yield race


def _fill(config: Config, draw: Draw) -> Iterator[Command]:
    """Loads of every bank and matrix commands over the whole accumulator."""
    bank_rows = config.spm_bank_rows
    size = config.spm_bank_rows * config.dim
    for bank in range(config.spm_banks):
        offset = int(draw.integer(0, max(0, (SOURCE - size) // config.bus_bytes))) * config.bus_bytes
        yield Command.make(Unit.LOAD, offset=offset, bytes=size, row=bank * config.spm_bank_rows,
                           row_stride=1, block_stride=1, rows=1)
    rows = min(config.acc_bank_rows, config.spm_bank_rows)
    for first in range(0, config.acc_bank_rows, rows):
        yield Command.make(
            Unit.MATRIX, a_row=0, a_stride=0, b_row=bank_rows, b_stride=config.preload, c_row=first,
            c_stride=config.acc_bank_rows, m=min(rows, config.acc_bank_rows - first),
            n=config.dim * config.acc_banks, k=draw.integer(1, config.dim))


def _dump(config: Config, draw: Draw, address: int) -> Iterator[Command]:
    """Requantise the accumulator into the first bank's end, then store the whole scratchpad."""
    bank_rows = config.spm_bank_rows
    rows = min(config.acc_bank_rows, bank_rows // 2)
    for first in range(0, config.acc_rows, rows):
        place = draw.integer(0, config.spm_banks - 1) * bank_rows
        yield Command.make(
            Unit.VECTOR, op=VOp.REQUANT, flags=[VectorFlag.WIDE], src0=first, src0_stride=rows, dst=place,
            dst_stride=2 * rows, m=min(rows, config.acc_rows - first), n=config.dim, mult=1,
            shift=int(draw.choice([0, 2, 6, 10, 14])))
    size = bank_rows * config.dim
    for bank in range(config.spm_banks):
        yield Command.make(Unit.STORE, offset=address + bank * size, bytes=size, row=bank * bank_rows,
                           row_stride=1, block_stride=1, rows=1)


def _registers(config: Config, random: np.random.Generator,
               end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Base 0 sees everything; the others start somewhere. Few lengths are empty or large."""
    bus = config.bus_bytes
    bases = np.zeros(NUM_BASES, dtype=np.int64)
    bases[1:] = random.integers(0, SOURCE // bus, NUM_BASES - 1) * bus
    bases[16:] = SOURCE + random.integers(0, TARGET // 2 // bus, NUM_BASES - 16) * bus
    limits = np.where(np.arange(NUM_BASES) < 16, SOURCE, SOURCE + TARGET) - bases
    limits[0] = end
    lengths = random.integers(0, 4 * config.dim, NUM_LENGTHS)
    lengths[random.integers(1, NUM_LENGTHS, 2)] = 0
    lengths[random.integers(1, NUM_LENGTHS, 2)] = random.integers(200, 4000, 2)
    return bases, limits, lengths.astype(np.int64)


def generate(config: Config, seed: int, commands: int = 150, *, faults: float = 0.0) -> FuzzCase:
    """A random program of ``commands`` commands between its fill and its dump.

    With chance ``faults`` one more command, somewhere, faults.
    """
    random = np.random.default_rng([seed, config.dim, config.spm_kib])
    dump = SOURCE + TARGET
    program = dump + config.spm_kib * 1024
    end = program + (commands + 256) * COMMAND_BYTES
    end += -end % 4096
    bases, limits, lengths = _registers(config, random, end)
    draw = Draw(config, random, lengths)
    builder = _Builder(config, bases, limits, lengths, random)

    def must(command: Command) -> None:
        if not builder.add(command):
            raise AssertionError(f"fuzz: fixed command is not legal: {command}")

    for command in _fill(config, draw):
        must(command)
    target = len(builder.commands) + commands
    strengthen = float(random.choice([0.0, 0.1, 0.5]))
    while len(builder.commands) < target:
        command, note = draw.command()
        if builder.add(command, strengthen):
            draw.accept(note)
    for command in _dump(config, draw, dump):
        must(command)
    dram = random.integers(0, 256, end, dtype=np.uint8)
    if random.random() < 0.5:  # small values: sums that do not always saturate
        dram[:SOURCE] = random.integers(-9, 10, SOURCE).astype(np.int8).view(np.uint8)
    image = encode_program(builder.commands)
    faulty = random.random() < faults
    if faulty:
        at = int(random.integers(1, len(builder.commands))) * COMMAND_BYTES
        image = image[:at] + _broken(config, random) + image[at:]
    return FuzzCase(f"fuzz-{seed}", seed, image, program, dram, bases, limits, lengths, faulty)


def _broken(config: Config, random: np.random.Generator) -> bytes:
    """A command that faults when it is resolved, whatever the registers hold."""
    move: dict[str, Any] = {"bytes": config.dim, "rows": 1, "row_stride": 1, "block_stride": 1}
    kinds = (
        Command.make(Unit.SELECT),
        Command.make(Unit.LOAD, op=int(random.integers(1, 32))),
        Command.make(Unit.VECTOR, op=int(random.integers(8, 32))),
        Command.make(Unit.STORE, **(move | {"row": config.spm_rows - 1, "rows": 2})),
        Command.make(Unit.LOAD, **(move | {"offset": (1 << 32) - config.dim})),
        Command.make(Unit.STORE, **(move | {"offset": config.bus_bytes // 2})),
        Command.make(Unit.LOAD, **(move | {"stride": config.bus_bytes // 2})),
        Command.make(Unit.MATRIX, m=1, n=1, k=1, c_row=config.acc_rows),
        Command.make(Unit.VECTOR, op=VOp.RMS_STAT, m=config.stat_rows + 1, n=1),
        Command.make(Unit.VECTOR, op=VOp.REQUANT, flags=[VectorFlag.COLUMN], m=1, n=1,
                     src1=config.spm_rows - 2),
    )
    return encode(kinds[random.integers(len(kinds))]).to_bytes(COMMAND_BYTES, "little")
