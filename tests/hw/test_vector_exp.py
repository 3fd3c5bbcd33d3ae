"""Exponential of a lane against numerics.exp2, at full rate and with gaps."""

from __future__ import annotations

import random

import numpy as np

from gemmule import numerics
from gemmule.hw.testing import run_bench
from gemmule.hw.vector_exp import Exponential

SEED = 77


def test_exponential() -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    low, high = -(1 << 23), (1 << 23) - 1
    cases = [(0, 0, 1), (low, high, 1), (high, low, 1), (0, 40960, 1), (0, 40961, 1), (0, 1, 1), (5, 0, 1)]
    for n in range(1200):
        score = rng.randrange(low, high - 65536)
        delta = rng.choice([rng.randrange(-5, 1100), rng.randrange(12000), rng.randrange(65536)])
        cases.append((score, score + delta, n % 7 != 0))
    expected = [int(numerics.exp2(np.int64(m - s))) if v else 0 for s, m, v in cases]
    dut = Exponential()
    got: list[tuple[int, int]] = []

    async def bench(ctx):
        queue, stages = list(cases), [None, None, None]  # what the three stage registers hold
        while queue or any(stages[:2]):
            item = queue.pop(0) if queue and (len(queue) > 600 or rng.random() < 0.7) else None
            ctx.set(dut.enable, bool(item) | bool(stages[0]) << 1 | bool(stages[1]) << 2)
            if item:
                ctx.set(dut.score, item[0])
                ctx.set(dut.maximum, item[1])
            else:
                ctx.set(dut.score, rng.randrange(low, high))
            ctx.set(dut.visible, stages[1][2] if stages[1] else 1)
            await ctx.tick()
            stages = [item, *stages[:2]]
            if stages[2]:
                got.append((ctx.get(dut.p), ctx.get(dut.weight)))

    run_bench(dut, bench, cycles=5000)
    assert [p for p, _ in got] == expected
    assert [w for _, w in got] == [min(255, int(numerics.rshr(p, 12))) for p in expected]
    assert max(w for _, w in got) == 255
