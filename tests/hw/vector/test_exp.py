"""Exponentials of a lane against numerics.exponential, at full rate and with gaps."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gemmule import numerics
from gemmule.hw.vector.exp import DIVIDE_BY_LN2, Exponential
from gemmule.numerics.exponential import EXPONENTIAL

from ..bench import run_bench

SEED = 77
LOW, HIGH = -(1 << 23), (1 << 23) - 1
Case = tuple[int, int, int]
"""Score, maximum, visible."""


def play(kind: int, cases: list[Case], *, modes: bool, rate: float) -> tuple[list[int], list[int]]:
    """(p, weight) of each case; ``rate``: share of cycles with an operand, after the first 600 at full rate."""
    rng = random.Random(SEED)
    dut = Exponential(comparison_modes=modes)
    got: list[tuple[int, int]] = []

    async def bench(ctx):
        ctx.set(dut.kind, kind)
        queue, stages = list(reversed(cases)), [None, None, None]  # what the three stage registers hold
        while queue or any(stages[:2]):
            item = queue.pop() if queue and (len(cases) - len(queue) < 600 or rng.random() < rate) else None
            ctx.set(dut.enable, bool(item) | bool(stages[0]) << 1 | bool(stages[1]) << 2)
            if item:
                ctx.set(dut.score, item[0])
                ctx.set(dut.maximum, item[1])
            else:
                ctx.set(dut.score, rng.randrange(LOW, HIGH))
            ctx.set(dut.visible, stages[1][2] if stages[1] else 1)
            await ctx.tick()
            stages = [item, *stages[:2]]
            if stages[2]:
                got.append((ctx.get(dut.p), ctx.get(dut.weight)))
        ctx.set(dut.enable, 0)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert ctx.get(dut.p) == 0

    run_bench(dut, bench, cycles=4 * len(cases) + 10)
    return [p for p, _ in got], [w for _, w in got]


@pytest.mark.parametrize(("kind", "modes"), [(0, False), (0, True), (1, True), (2, True)])
def test_exponential(kind: int, modes: bool) -> None:
    """Ends of the operands, distances of every size, masked columns."""
    print("seed", SEED)
    rng = random.Random(SEED)
    cases = [(0, 0, 1), (LOW, HIGH, 1), (HIGH, LOW, 1), (0, 40960, 1), (0, 40961, 1), (0, 1, 1), (5, 0, 1)]
    cases += [(0, (1 << bits) + i, 1) for bits in range(10, 23) for i in (-1, 0, 1)]
    for n in range(1200):
        score = rng.randrange(LOW, HIGH - 65536)
        delta = rng.choice([rng.randrange(-5, 1100), rng.randrange(12000), rng.randrange(65536)])
        cases.append((score, score + delta, n % 7 != 0))
    p, weights = play(kind, cases, modes=modes, rate=0.7)
    expected = [int(EXPONENTIAL[kind](np.int64(m - s))) if v else 0 for s, m, v in cases]
    assert p == expected
    assert weights == [min(255, int(numerics.rshr(x, 12))) for x in expected]
    assert max(weights) == 255


@pytest.mark.parametrize(("kind", "last"), [(0, 3 * 1024), (1, 30 * 425 + 20), (2, 3 * 1024)])
def test_every_distance(kind: int, last: int) -> None:
    """Every place in an octave, and for I-BERT's every distance up to its limit."""
    distances = [*range(last), *range(last, 42000, 101)]
    p, _ = play(kind, [(-d, 0, 1) for d in distances], modes=True, rate=1)
    assert p == EXPONENTIAL[kind](np.array(distances)).tolist()


def test_division_by_ln2() -> None:
    """The multiplication that stands for d // 425 is exact over the whole range."""
    d = np.arange(30 * 425 + 1)
    times, by = DIVIDE_BY_LN2
    assert (d * times >> by == d // 425).all()
