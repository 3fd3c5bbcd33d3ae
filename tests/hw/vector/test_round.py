"""Rounding shift of a lane against exact integers."""

from __future__ import annotations

import random

import pytest

from gemmule.hw.vector.round import RoundingShift, fits

from ..bench import run_bench

SEED = 211
SIZES = (8, 9, 16, 17, 24, 32)


@pytest.mark.parametrize("width", [38, 51])
def test_shift(width: int) -> None:
    """Every shift, both signs, numbers of every size: the result where 33 bits hold it unrounded, else a flag;
    and which sizes it fits."""
    print("seed", SEED)
    rng = random.Random(SEED)
    top = 1 << width - 1
    dut = RoundingShift(width)

    async def bench(ctx):
        within = beyond = 0
        for _ in range(40):
            for shift in range(48):
                size = 1 << rng.randrange(width)
                value = rng.choice([rng.randrange(-size, size), size - 1, -size, top - 1, -top, 0, -1])
                if rng.random() < 0.3:  # at the ends of what fits, in halves
                    edge = (rng.choice((-1, 1)) << rng.choice(SIZES)) + rng.randrange(-3, 3)
                    value = max(-top, min(top - 1, edge << shift >> 1))
                flip, add = rng.choice([(0, 1), (0, 1), (0, -1), (1, 0), (0, 1 + 2 * rng.randrange(-32768, 32768))])
                for member, setting in ((dut.value, value), (dut.shift, shift), (dut.flip, flip), (dut.add, add)):
                    ctx.set(member, setting)
                await ctx.tick()
                doubled = 2 * value >> shift
                assert ctx.get(dut.sign) == (value < 0)
                held = -(1 << 32) <= doubled >> 1 < 1 << 32
                assert ctx.get(dut.over) == (not held), (value, shift)
                beyond += not held
                if held:
                    assert ctx.get(dut.result) == (~doubled if flip else doubled) + add >> 1, (value, shift, flip, add)
                    low = ~doubled if flip else doubled
                    assert (ctx.get(dut.floor), ctx.get(dut.half)) == (low >> 1, low & 1)
                    for bits in SIZES:
                        assert ctx.get(fits(dut.floor, dut.half, bits)) == (
                            -(1 << bits - 1) <= low + 1 >> 1 < 1 << bits - 1), (value, shift, flip, bits)
                    within += 1
        assert within > 500
        assert beyond > 30

    run_bench(dut, bench, cycles=2500)
