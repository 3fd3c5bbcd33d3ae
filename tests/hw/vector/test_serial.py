# amaranth: UnusedElaboratable=no
"""Serial divider, square root and reciprocal engine against integer arithmetic, cycle by cycle."""

from __future__ import annotations

import random
from math import isqrt

import pytest

from gemmule.hw.vector.serial import NORM_BITS, ReciprocalEngine, SerialDivider, SerialRoot

from ..bench import run_bench

SEED = 20240611


async def finish(ctx, dut):
    """Cycles from the start cycle (start is set, before the tick) to the one in which done is high."""
    cycles = 0
    while True:
        await ctx.tick()
        ctx.set(dut.start, 0)
        cycles += 1
        if ctx.get(dut.done):
            return cycles
        assert ctx.get(dut.busy)


def test_divider() -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    dut = SerialDivider(width=9, bits=7)

    async def bench(ctx):
        cases = [(0, 1), (510, 511), (255, 256), (1, 511)]
        for _ in range(100):
            divisor = rng.randrange(1, 512)
            cases.append((rng.randrange(divisor), divisor))
        for partial, divisor in cases:  # the next start comes with done
            ctx.set(dut.start, 1)
            ctx.set(dut.partial, partial)
            ctx.set(dut.divisor, divisor)
            assert await finish(ctx, dut) == 8
            assert ctx.get(dut.quotient) == (partial << 7) // divisor
            if rng.random() < 0.3:
                await ctx.tick().repeat(2)
                assert not ctx.get(dut.done)
                assert ctx.get(dut.quotient) == (partial << 7) // divisor

    run_bench(dut, bench, cycles=3000)


@pytest.mark.parametrize("width", [8, 32])
def test_root(width: int) -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    dut = SerialRoot(width=width)

    async def bench(ctx):
        top = 1 << width
        values = [0, 1, 3, 4, top - 1, top >> 2, (top >> 2) - 1]
        for _ in range(40):
            root = rng.randrange(1 << width // 2)
            values += [root * root, max(0, root * root - 1), rng.randrange(top)]
        for value in values:
            ctx.set(dut.start, 1)
            ctx.set(dut.value, value)
            assert await finish(ctx, dut) == width // 2 + 1
            assert ctx.get(dut.root) == isqrt(value)

    run_bench(dut, bench, cycles=5000)


def test_engine() -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    dut = ReciprocalEngine()

    async def bench(ctx):
        top = 1 << NORM_BITS - 1
        cases = [(0, top), (0, 2 * top - 1), (0, 0), (1, top), (1, top >> 1), (1, 2 * top - 1)]
        cases += [(0, rng.randrange(top, 2 * top)) for _ in range(30)]
        cases += [(1, rng.randrange(top >> 1, 2 * top)) for _ in range(30)]
        rng.shuffle(cases)
        for root, norm in cases:
            code = rng.randrange(64)
            ctx.set(dut.start, 1)
            ctx.set(dut.root, root)
            ctx.set(dut.norm, norm)
            ctx.set(dut.code, code)
            assert await finish(ctx, dut) == (36 if root else 19)
            if norm == 0:
                expected = 0
            else:
                expected = (1 << 32) // isqrt(norm >> 5) if root else (1 << 52) // norm
            assert ctx.get(dut.quotient) == expected
            assert ctx.get(dut.exponent) == code
            if not root:
                assert ctx.get(dut.top) == norm >> NORM_BITS - 16

    run_bench(dut, bench, cycles=5000)


def test_parameters() -> None:
    with pytest.raises(ValueError, match="even and positive, not 7"):
        SerialRoot(width=7)
    with pytest.raises(ValueError, match="not 0 and 4"):
        SerialDivider(width=0, bits=4)
