"""Random programs for the timing tests: legal or nearly so, crowded into few banks; data do not matter."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from gemmule.config import Config, Dram, load_config
from gemmule.isa import COMMAND_BYTES, Command, Dyn, Length, Unit, VOp, encode_program
from gemmule.sim.run import Model
from gemmule.timing import Timing

ODD = Config(
    name="odd", dim=8, bus_bytes=4, spm_kib=8, spm_banks=4, acc_kib=4, acc_banks=2, preload=2, burst_bytes=32,
    read_bursts=2, load_commands=2, write_bursts=1, unit_queue=4, dividers=3, stat_rows=32,
    dram=Dram(latency=7, banks=2, row_bytes=256, row_miss=9, turnaround=3, refresh_cycles=23,
              refresh_period=610))
WIDE = Config(
    name="wide", dim=64, bus_bytes=64, spm_kib=64, spm_banks=2, acc_kib=64, acc_banks=4, preload=4,
    burst_bytes=128, read_bursts=3, load_commands=1, write_bursts=2, dividers=1,
    dram=Dram(latency=13, refresh_period=0))
CONFIGS = {"tiny": load_config("tiny"), "base": load_config("base"), "odd": ODD, "wide": WIDE}


def random_command(rng: random.Random, config: Config, faulty: bool) -> Command:
    d, rows = config.dim, config.spm_rows
    waits = {Unit(u): rng.choice((1, 1, 2, 3, 7)) for u in range(4) if rng.random() < 0.2}

    def size(top: int) -> int | Length:
        kind = rng.random()
        if kind < 0.07:
            return 0
        if kind < 0.25:
            return Length(cap=rng.randint(1, top), reg=rng.randint(1, 3), offset=rng.randint(0, 20))
        return rng.randint(1, top)

    def place(memory: int, need: int) -> int:
        near = rng.choice((0, memory // 2, memory - need))  # many commands meet in the same banks
        return min(max(0, near + rng.randint(-d, d)), max(0, memory - need)) if not faulty else memory - 1

    unit = Unit(rng.choice((0, 0, 1, 1, 2, 2, 3, 3)))
    if unit < 2:
        bus, count, length = config.bus_bytes, rng.randint(1, 5), rng.choice((1, d, 3 * d + 1, 8 * d, 70))
        length = 0 if rng.random() < 0.04 else rng.randint(1, length)
        blocks = -(-length // d)
        return Command.make(
            unit, waits=waits, base=rng.randint(0, 3), offset=bus * rng.randint(0, 200),
            stride=bus * rng.randint(0, 300), bytes=length, row_stride=blocks, block_stride=1,
            row=place(rows, 6 * blocks), rows=size(count))
    if unit == Unit.MATRIX:
        m, n, k = size(2 * d), size(2 * d), size(2 * d)
        p, need = config.preload, 4 * d
        return Command.make(
            unit, waits=waits, flags=[rng.choice((0, 1, 2))], m=m, n=n, k=k,
            a_row=place(rows, need), a_stride=2 * d, b_row=place(rows, need) // p * p, b_stride=2 * d,
            c_row=place(config.acc_rows, need) if config.acc_rows >= need else 0,
            c_stride=min(2 * d, config.acc_rows - 2 * d))
    op = VOp(rng.randint(0, 7))
    top = min(config.stat_rows, 2 * d)
    flags = [f for f in (0, 1, 2, 3, 4, 5, 6) if rng.random() < 0.25]
    source = config.acc_rows if op in (VOp.REQUANT, VOp.ROPE, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP) else rows
    return Command.make(
        unit, op=op, waits=waits, flags=flags, m=size(top), n=size(2 * d), context=rng.randint(0, 3),
        src0=place(source, min(source, 256 // d + 4 * d)), src0_stride=min(2 * d, source - 2 * d),
        src1=place(rows, 4 * d), aux=place(rows, 4 * d) if op == VOp.ROPE else 2 * d, period=0,
        dst=place(rows, 6 * d), dst_stride=2 * d,
        dyn=(Dyn.SRC0, rng.randint(1, 3), 1) if op == VOp.PRODUCT else (Dyn.NONE, 0, 0))


def random_timing(rng: random.Random, config: Config) -> Timing:
    """Every constant moved, so that two that are mixed up cannot agree by chance."""
    changes = {name: rng.randint(1, 5) for name in (
        "fetch_start", "done", "load_first", "load_write", "load_zero", "store_first", "store_send",
        "store_zero", "matrix_first", "matrix_zero", "matrix_rmw", "vector_first", "vector_zero",
        "matrix_commands", "store_commands")}
    changes |= {name: rng.randint(3, 12) for name in ("vector_write", "vector_stat")}
    changes |= {name: rng.randint(2, 40) for name in ("rms_serial", "softmax_serial")}
    return replace(Timing.of(config), **changes)


def random_case(seed: int, config: Config) -> tuple[Model, bytes, int]:
    rng = random.Random(seed)
    timing = Timing.of(config) if rng.random() < 0.4 else random_timing(rng, config)
    model = Model(config, timing)
    model.limits[:] = 1 << 20
    model.bases[1:4] = [4096, 1 << 16, 3 << 16]
    model.lengths[1:4] = [rng.randint(0, 30) for _ in range(3)]
    count = rng.choice((1, 5, 12, 30, 45))
    bad = rng.randrange(count) if rng.random() < 0.15 else -1
    program = [random_command(rng, config, i == bad) for i in range(count)]
    return model, encode_program(program), COMMAND_BYTES * rng.randint(0, 40)


@pytest.fixture(scope="session")
def configs() -> dict[str, Config]:
    return CONFIGS


@pytest.fixture(scope="session")
def case() -> Callable[[int, Config], tuple[Model, bytes, int]]:
    """``case(seed, config)``: a model with its registers set, a program image and its address."""
    return random_case
