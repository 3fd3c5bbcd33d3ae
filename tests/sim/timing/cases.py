"""Random programs for the timing engine: every command kind and flag, crowded into few banks; bodies; no data."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gemmule.config import Config, Dram, load_config
from gemmule.isa import (
    COMMAND_BYTES,
    CONTROL,
    Command,
    Dyn,
    Length,
    MatrixFlag,
    MoveFlag,
    RequantFlag,
    SOp,
    Unit,
    VOp,
    decode_table,
    encode,
    encode_program,
    legal_flags,
)
from gemmule.operations import OPERATIONS
from gemmule.resolve import OUT, OUT_FIELDS, TERMS, config_vector, resolve_row
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sim.stream import Stream, Streams
from gemmule.timing import Timing

from ...nests import Nests, interpret

LONGEST = 300
"""Commands of a launch, repeated ones each time."""

ODD = Config(
    name="odd", dim=8, bus_bytes=4, spm_kib=8, spm_banks=4, acc_kib=4, acc_banks=2, preload=2, burst_bytes=32,
    read_bursts=3, read_beats=11, load_commands=2, write_bursts=1, unit_queue=4, dividers=3, stat_rows=32,
    dram=Dram(latency=7, banks=2, row_bytes=256, row_miss=9, turnaround=3, refresh_cycles=23,
              refresh_period=610))
CONFIGS = {
    "tiny": load_config("tiny"),
    "base": load_config("base"),
    "odd": ODD,
    "wide": Config(
        name="wide", dim=64, bus_bytes=64, spm_kib=64, spm_banks=2, acc_kib=64, acc_banks=4, preload=4,
        burst_bytes=128, read_bursts=3, load_commands=1, write_bursts=2, dividers=1,
        dram=Dram(latency=13, refresh_period=0)),
    "two": Config(  # the smallest mesh and bus, one bank of each memory
        name="two", dim=2, bus_bytes=2, spm_kib=1, spm_banks=1, acc_kib=1, acc_banks=1, preload=1,
        burst_bytes=32, read_bursts=5, read_beats=37, load_commands=8, write_bursts=3, unit_queue=4, dividers=2,
        stat_rows=16,
        dram=Dram(latency=4, banks=1, row_bytes=512, row_miss=3, turnaround=0)),
    "slow": Config(
        name="slow", dim=8, bus_bytes=8, spm_kib=8, spm_banks=8, acc_kib=8, acc_banks=4, preload=4,
        burst_bytes=64, read_bursts=4, read_beats=1, write_bursts=2, dividers=2,
        dram=Dram(latency=21, banks=4, row_bytes=1024, beat_cycles=3, refresh_cycles=300, refresh_period=1712)),
}


class Draw:
    """Commands that do not fault, of one device with its registers."""

    def __init__(self, rng: random.Random, model: Simulator) -> None:
        self.rng, self.config, self.model = rng, model.config, model
        self.vector = config_vector(model.config)

    def size(self, top: int) -> int | Length:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.06:
            return 0
        if kind < 0.2:
            return Length(cap=rng.randint(1, top), reg=rng.randint(1, 3), offset=rng.randint(0, 20))
        return rng.randint(1, top)

    def place(self, memory: int, need: int) -> int:
        """Many commands meet in the same banks."""
        near = self.rng.choice((0, memory // 2, memory - need))
        return min(max(0, near + self.rng.randint(-self.config.dim, self.config.dim)), max(0, memory - need))

    def flags(self, unit: Unit, op: int) -> list[int]:
        some = OPERATIONS[unit, op].flags
        share = 0.25 if len(some) > 5 else 0.5
        while True:
            flags = {int(flag) for flag in some if self.rng.random() < share}
            if legal_flags(unit, op, sum(1 << flag for flag in flags)):
                return sorted(flags)

    def move(self, unit: Unit) -> Command:
        rng, config = self.rng, self.config
        bus, d = config.bus_bytes, config.dim
        flags = self.flags(unit, 0)
        words = MoveFlag.ACCUMULATOR in flags and MoveFlag.NARROW not in flags
        empty, most = rng.random() < 0.04, rng.choice((1, 2 * bus, d, 3 * d + 1, 8 * d, 70))
        length = 0 if empty else rng.randint(1, most)
        length += -length % bus if most in (2 * bus, 8 * d) else 0  # whole beats, which join
        length += -length % 4 if words else 0
        unaligned = rng.random() < 0.5 and MoveFlag.BROADCAST not in flags
        blocks = -(-length // (4 * d if words else d))
        step = 1 if unaligned else bus
        memory = config.acc_rows if MoveFlag.ACCUMULATOR in flags else config.spm_rows
        return Command.make(
            unit, flags=flags, base=rng.randint(0, 3), offset=rng.randint(0, 200 * bus // step) * step,
            stride=rng.choice((length, rng.randint(0, 300) * step)), bytes=length, row_stride=blocks,
            block_stride=1, row=self.place(memory, 6 * blocks), rows=self.size(rng.choice((2, 5, 9))),
            list=rng.randint(0, 40), last_index=rng.randint(0, 20))

    def matrix(self) -> Command:
        rng, config = self.rng, self.config
        d, rows, p, flags = config.dim, config.spm_rows, config.preload, self.flags(Unit.MATRIX, 0)
        top = d if MatrixFlag.REUSE in flags else 3 * d
        return Command.make(
            Unit.MATRIX, flags=flags, m=self.size(rng.choice((2, 3 * d))), n=self.size(top), k=self.size(top),
            a_row=self.place(rows, 6 * d), a_stride=rng.choice((0, d, 2 * d)), b_row=self.place(rows, 6 * d) // p * p,
            b_stride=2 * d, c_row=self.place(config.acc_rows, 4 * d), group=rng.randint(0, 3),
            c_stride=rng.choice((0, d)))

    def vector_command(self) -> Command:
        rng, config = self.rng, self.config
        d, rows = config.dim, config.spm_rows
        op = rng.choice([*VOp, VOp.REQUANT, VOp.NORM_STAT, VOp.NORM_APPLY, VOp.SOFTMAX_EXP, VOp.I_GELU])
        flags = self.flags(Unit.VECTOR, op)
        if op == VOp.REQUANT and rng.random() < 0.3:
            flags = [RequantFlag.WIDE, RequantFlag.LOOKUP, *flags[:1]]
        softmax = op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
        of_acc = softmax or op in (VOp.REQUANT, VOp.ROPE, VOp.ABSMAX, VOp.RESCALE, VOp.I_GELU)
        source, target = (config.acc_rows if inside else rows for inside in (of_acc, op == VOp.RESCALE))
        return Command.make(
            Unit.VECTOR, op=op, flags=flags, m=self.size(2 * d),
            n=self.size(2 * d), context=rng.randint(0, 3), src0=self.place(source, 4 * d),
            src0_stride=rng.choice((0, 2 * d)), src1=self.place(rows, 14),
            period=rng.choice((0, 1, 2)) if softmax else 0, aux=self.place(rows, 8 * d) if op == VOp.ROPE else 2 * d,
            dst=self.place(target, 6 * d), dst_stride=rng.choice((0, 2 * d)),
            dyn=(Dyn.SRC0, rng.randint(1, 3), 1) if op == VOp.PRODUCT else (Dyn.NONE, 0, 0))

    def select(self) -> Command:
        rng, config = self.rng, self.config
        d, rows, op = config.dim, config.spm_rows, rng.choice(list(SOp))
        return Command.make(
            Unit.SELECT, op=op, flags=self.flags(Unit.SELECT, op), m=self.size(rng.choice((2, 9))),
            n=self.size(4 * d), k=self.size(9), src0=self.place(rows, 8 * d), src0_stride=rng.choice((2, 20)),
            dst=self.place(rows, 9) if op in (SOp.LIST_STORE, SOp.PACK) else rng.randint(0, 40),
            first=rng.randint(0, 30), number=rng.randint(1, 3))

    def broken(self) -> Command:
        config = self.config
        move = {"bytes": config.dim, "rows": 1, "row_stride": 1, "block_stride": 1}
        return self.rng.choice((
            Command.make(Unit.SELECT, op=SOp.COMPARE), Command.make(Unit.LOAD, flags=[MoveFlag.NARROW]),
            Command.make(Unit.STORE, **(move | {"row": config.spm_rows - 1, "rows": 2})),
            Command.make(Unit.LOAD, **(move | {"offset": (1 << 32) - config.dim})),
            Command.make(Unit.LOAD, flags=[MoveFlag.BROADCAST], **(move | {"offset": 1})),
        ))

    def faults(self, command: Command) -> bool:
        row = decode_table(encode(command).to_bytes(COMMAND_BYTES, "little"))[0]
        out = np.zeros(len(OUT_FIELDS), dtype=np.int64)
        terms = np.zeros(TERMS, dtype=np.int64)
        resolve_row(row, self.model.bases, self.model.limits, self.model.lengths, self.vector, out, terms)
        return bool(out[OUT["fault"]])

    def command(self, nothing: bool = False) -> Command:
        if nothing:
            return Command.make(self.rng.choice(list(Unit)))
        while True:
            kind = self.rng.choice(list(Unit))
            command = (self.move(kind) if kind < 2 else self.matrix() if kind == Unit.MATRIX
                       else self.vector_command() if kind == Unit.VECTOR else self.select())
            if not self.faults(command):
                waits = {unit: self.rng.choice((1, 1, 2, 3, 7)) for unit in Unit if self.rng.random() < 0.2}
                predicate = self.rng.randint(1, 3) if self.rng.random() < 0.15 else 0
                return replace(command, waits=waits, predicate=predicate)


def random_timing(rng: random.Random, config: Config) -> Timing:
    """Every constant moved, so that two that are mixed up cannot agree by chance."""
    changes = {name: rng.randint(1, 5) for name in (
        "fetch_start", "resolve", "control", "done", "load_first", "load_write", "load_zero", "load_fill",
        "store_first", "store_send", "store_zero", "matrix_first", "matrix_zero", "matrix_rmw", "vector_first",
        "vector_zero", "matrix_commands", "store_commands", "select_first", "select_zero", "vector_mean",
        "vector_rescale")}
    changes |= {name: rng.randint(3, 12) for name in (
        "vector_write", "vector_stat", "select_write", "select_pack", "select_result", "index_cycles")}
    changes |= {name: rng.randint(2, 40) for name in ("norm_serial", "softmax_serial")}
    changes["resolve"] += 1  # a stage before the queue
    changes |= {"unit_start": changes["load_first"] % 3, "unit_report": changes["store_first"] % 4}
    changes["registers"] = rng.randint(1, 120)
    return replace(Timing.of(config), **changes)


class Case(NamedTuple):
    """A model with its registers set, a program image and its address, and what depends on data."""

    model: Simulator
    image: bytes
    address: int
    skipped: np.ndarray
    """bool[commands], in the order in which they run; what stands beyond counts as False"""
    indices: dict[int, np.ndarray]
    """DRAM rows of some of the INDEXED moves; the others have theirs in order."""

    def run(self, model: Simulator) -> Result:
        """The program's cycles on ``model``, which may be another one than its own."""
        if model is not self.model:
            model.bases, model.limits, model.lengths = self.model.bases, self.model.limits, self.model.lengths
        model.load_program(self.image, self.address)
        count = stream_on(model, self.image).count
        skipped = np.zeros(count, dtype=bool)
        skipped[:len(self.skipped)] = self.skipped[:count]
        return model.run(timing_only=True, skipped=skipped, indices=self.indices)


def stream_on(model: Simulator, image: bytes) -> Stream:
    """The commands of a first launch with the registers of ``model``."""
    return Streams(model.config, model.timing).follow(decode_table(image), model.bases, model.limits, model.lengths)


def program_of(rng: random.Random, model: Simulator, bodies: float) -> list[Command]:
    """Straight, or at times with bodies and registers that change."""
    draw = Draw(rng, model)
    if rng.random() >= bodies:
        program = [draw.command() for _ in range(rng.choice((1, 5, 12, 30, 45)))]
    else:
        wild = rng.random() < 0.2
        quick = rng.choice((0, 0, 0.9, 1))  # units that are done at once let fetch fall behind
        nests = Nests(rng, model.config, lambda: draw.command(nothing=rng.random() < quick),
                      bytes=model.config.bus_bytes, wild=wild)
        model.lengths[4:] = [rng.choice((0, 1, 7, 40, 65535)) for _ in range(12)]
        while True:
            program = nests.commands(rng.choice((3, 8, 20, 40, 60, 100, 130)))
            if interpret(program, model.config, model.lengths.tolist(), most=LONGEST).whole:
                break
    if rng.random() < 0.15:
        program[rng.randrange(len(program))] = draw.broken()
    return program


def random_case(seed: int, config: Config, bodies: float = 0.15) -> Case:
    """``bodies``: how often one has control commands."""
    rng = random.Random(seed)
    model = Simulator(config, Timing.of(config) if rng.random() < 0.4 else random_timing(rng, config))
    model.limits[:] = 1 << 20
    model.bases[1:4] = [4096, (1 << 16) + 1, (3 << 16) + config.bus_bytes]
    model.lengths[1:4] = [rng.randint(0, 30) for _ in range(3)]
    program = program_of(rng, model, bodies)
    image = encode_program(program)
    stream = stream_on(model, image)
    commands = [program[place] for place in stream.places]
    skipped = np.array([command.unit != CONTROL and command.predicate > 0 and rng.random() < 0.5
                        for command in commands])
    indices = {
        c: np.array([rng.randint(0, 20) for _ in range(stream.resolved[c, OUT["m"]])], dtype=np.int64)
        for c, command in enumerate(commands[:stream.good])
        if command.unit <= Unit.STORE and MoveFlag.INDEXED in command.flags and rng.random() < 0.8}
    return Case(model, image, COMMAND_BYTES * rng.randint(0, 40), skipped, indices)
