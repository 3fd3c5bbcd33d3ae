"""Row statistics alone: extremes the memories of test_vector do not reach, divider order, contexts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gemmule import numerics
from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.vector.ops import token_layout, traits_layout, traits_of
from gemmule.hw.vector.stats import STAGES, VectorStats
from gemmule.isa import NormFlag as N
from gemmule.isa import VOp
from gemmule.numerics.norm import norm_fraction, norm_statistic

from ...thinned import some
from ..bench import run_bench

SEED = 5


def config(dim: int, dividers: int) -> Config:
    return Config(dim=dim, bus_bytes=dim, spm_kib=64, acc_kib=64, preload=1, stat_rows=16, stat_contexts=4,
                  dividers=dividers)


class Driver:
    """Feeds tokens with their lane values at the stages where the unit expects them."""

    def __init__(self, cfg: Config, dut: VectorStats, ctx) -> None:
        self.layout, self.command, self.dut, self.ctx = token_layout(cfg), vector_layout(cfg), dut, ctx
        self.idle = self.layout.from_bits(0), None
        self.pipe = [self.idle] * (STAGES + 1)
        self.shown: list[object] = [None] * (STAGES + 1)
        self.cycle = 0
        self.done: list[int] = []
        self.plain: list[int] | None = None

    def _set(self, ports, values: list[int] | None) -> None:
        if values is not None:
            for port, value in zip(ports, values):
                self.ctx.set(port, value)

    async def begin(self, **fields: int) -> None:
        self.ctx.set(self.dut.command, self.command.const(fields))
        decoded = traits_of(self.dut.command)
        self.ctx.set(self.dut.traits, traits_layout().const(
            {name: self.ctx.get(getattr(decoded, name)) for name, _ in traits_layout()}))
        self.ctx.set(self.dut.begin, 1)
        await self.step()
        self.ctx.set(self.dut.begin, 0)
        self.done = []

    async def step(self, item=None) -> None:
        self.pipe = [item or self.idle, *self.pipe[:-1]]
        for i, (token, _) in enumerate(self.pipe):
            if self.shown[i] is not token:
                self.ctx.set(self.dut.token[i], token)
                self.shown[i] = token
        for stage, ports in ((3, self.dut.factor), (5, self.dut.score), (8, self.dut.power)):
            self._set(ports, self.pipe[stage][1])
        self._set(self.dut.plain, self.plain)
        if self.ctx.get(self.dut.done):
            self.done.append(self.cycle)
        await self.ctx.tick()
        self.cycle += 1

    async def rows(self, rows: list[list[list[int]]], mask: int, last_mask: int | None = None,
                   gap: int = 0) -> int:
        """One token a column group, the last one after a ``gap`` and with its own mask. The first one's cycle."""
        first = self.cycle
        token, kind = self.idle[0], None
        for i, groups in enumerate(rows):
            for g, values in enumerate(groups):
                final = g == len(groups) - 1
                if (i, g == 0, final) != kind:
                    kind = i, g == 0, final
                    token = self.layout.const({
                        "valid": 1, "first": g == 0, "final": final, "row": i,
                        "last": i == len(rows) - 1 and final,
                        "mask": last_mask if final and last_mask is not None else mask})
                for _ in range(gap if final else 0):
                    await self.step()
                await self.step((token, values))
        return first

    async def read(self, row: int) -> tuple[int, int]:
        """Multiplier and shift of a row."""
        await self.step((self.layout.const({"valid": 1, "row": row}), None))
        await self.step()
        await self.step()
        found = self.ctx.get(self.dut.row_mult), self.ctx.get(self.dut.row_shift)
        await self.step()
        return found


@pytest.mark.parametrize(("mean", "value"), some([(False, -32768), (True, 32767), (True, -32768)], 2))
def test_largest_norm(mean: bool, value: int) -> None:
    """n = 65535 columns and the largest epsilon: V has 63 bits; with MEAN the largest sum, and the largest variance."""
    cfg = config(64, 1)
    dut = VectorStats(config=cfg)
    n, mult, shift = 65535, 65535, 63
    other = {32767: -32768}.get(value, value)  # of the odd lanes

    async def bench(ctx):
        driver = Driver(cfg, dut, ctx)
        flags = mean << N.MEAN
        await driver.begin(op=int(VOp.NORM_STAT), flags=flags, m=1, n=n, mult=mult, shift=shift, context=3)
        driver.plain = [value, other] * 32
        groups = [[v * v for v in driver.plain]] + [None] * 1023  # the lanes keep their values
        await driver.rows([groups], (1 << 64) - 1, last_mask=(1 << 63) - 1, gap=1)
        last = driver.cycle - 1
        while not driver.done:
            await driver.step()
        assert driver.done == [last + 12 + 4 * mean + 36]
        x = np.tile(np.array([value, other]), n // 2 + 1)[None, :n]
        s, r, h = norm_statistic(x, mult, shift, mean=mean)
        least = 32 - norm_fraction(n)
        for context, wanted in ((3, (int(s[0]), -int(r[0]), least + int(h[0]))), (2, (0, 0, least))):
            await driver.begin(op=int(VOp.NORM_APPLY), flags=1 << N.MEAN, m=1, n=n, context=context)
            await driver.step((driver.layout.const({"valid": 1, "row": 0}), None))
            await driver.step()
            assert ctx.get(dut.mean) == wanted[0]
            await driver.begin(op=int(VOp.NORM_APPLY), flags=0, m=1, n=n, context=context)
            assert await driver.read(0) == wanted[1:]
            assert ctx.get(dut.mean) == 0

    run_bench(dut, bench, cycles=6000)


@pytest.mark.parametrize("dividers", some([3, 1, 16]))
def test_sums(dividers: int) -> None:
    """Every row's reciprocal, the extremes 0, 1 and all ones included, and the order of the dividers."""
    print("seed", SEED)
    rng = random.Random(SEED)
    cfg = config(4, dividers)
    dut = VectorStats(config=cfg)

    async def bench(ctx):
        driver = Driver(cfg, dut, ctx)
        for case, (count, period) in enumerate(((16, 1), (1, 1), (7, 3), (16, 9), (16, 25))):
            rows = [[[rng.randrange((1 << 20) + 1) >> rng.randrange(21) for _ in range(4)]
                     for _ in range(period)] for _ in range(count)]
            if case == 0:
                rows[0], rows[1], rows[2] = [[0] * 4], [[0, 1, 0, 0]], [[1 << 20] * 4]
            context = case % 4
            await driver.begin(op=int(VOp.SOFTMAX_EXP), m=count, n=4 * period, context=context)
            first = await driver.rows(rows, 15)
            while not driver.done:
                await driver.step()
            ends = [0] * dividers
            for i in range(count):
                ready = first + (i + 1) * period - 1 + 12
                ends[i % dividers] = max(ready, ends[i % dividers]) + 19
            assert driver.done == [max(ends)]
            totals = np.array([sum(map(sum, row)) for row in rows])
            R, L = numerics.softmax_reciprocal(totals)
            for mult, shift in ((65535, 30), (1, 0), (40000, 63), (32768, 12)):
                await driver.begin(op=int(VOp.REQUANT), m=count, mult=mult, shift=shift, context=context)
                m, s = numerics.row_multiplier(R, L, mult, shift)
                for i in range(count):
                    assert await driver.read(i) == (int(m[i]), int(s[i])), (rows[i], mult, shift)

    run_bench(dut, bench, cycles=20000)


def test_maxima() -> None:
    """Masked lanes and rows without a visible column; two contexts do not disturb each other."""
    print("seed", SEED)
    rng = random.Random(SEED)
    cfg = config(4, 1)
    dut = VectorStats(config=cfg)
    low = -(1 << 23)

    async def bench(ctx):
        driver = Driver(cfg, dut, ctx)
        expected = {}
        for context, mask in ((0, 0b0111), (1, 0), (2, 0b0001), (0, 0b1111), (3, 0b0011)):
            rows = [[[rng.randrange(low, -low) >> rng.randrange(20) for _ in range(4)] for _ in range(3)]
                    for _ in range(16)]
            await driver.begin(op=int(VOp.SOFTMAX_MAX), m=16, n=12, context=context)
            await driver.rows(rows, mask)
            for _ in range(12):
                await driver.step()
            expected[context] = [
                max([low, *(v for group in row for i, v in enumerate(group) if mask >> i & 1)])
                for row in rows]
        for context, maxima in expected.items():
            await driver.begin(op=int(VOp.SOFTMAX_EXP), m=16, n=12, context=context)
            for row, value in enumerate(maxima):
                await driver.step((driver.layout.const({"valid": 1, "row": row}), None))
                for _ in range(4):
                    await driver.step()
                assert ctx.get(dut.maximum) == value
            for _ in range(60):
                await driver.step()

    run_bench(dut, bench, cycles=5000)
