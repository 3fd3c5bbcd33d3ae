"""Parts of the select unit alone: radix passes against numpy, ways to the lanes, and banked runs of entries."""

from __future__ import annotations

import random

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.hw.select.group_memory import GroupMemory
from gemmule.hw.select.radix import Radix
from gemmule.hw.select.route import spread
from gemmule.numerics.select import top_k

from ..bench import rejection, run_bench


@pytest.mark.parametrize("lanes", [2, 8])
def test_survivors_and_cycles(lanes: int) -> None:
    """Kept keys are those of ``top_k``; pass p reads from cycle 1 + p * (groups + 4) on."""
    seed = 11
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    jobs = []
    for bits in (0, 1, 4, 24):
        for n in (1, lanes, 3 * lanes + 1, 40):
            keys = rng.integers(0, 1 << bits, n) << int(rng.integers(0, 25 - bits))
            jobs += [(keys, k) for k in {1, n, n + 1, int(rng.integers(1, n + 1))}]
    dut = Radix(lanes=lanes, entries=64, index_bits=16)

    async def bench(ctx) -> None:  # type: ignore[no-untyped-def]
        for keys, k in jobs:
            n, groups = len(keys), -(-len(keys) // lanes)
            padded = np.concatenate([keys, rng.integers(0, 1 << 24, 2 * lanes)])  # what stands beyond n
            ctx.set(dut.start, 1)
            ctx.set(dut.n, n)
            ctx.set(dut.k, k)
            await ctx.tick()
            ctx.set(dut.start, 0)
            reads, kept, finish = [], [], None
            for x in range(1, 6 * (groups + 4) + groups + 5):
                if ctx.get(dut.valid):
                    at = next(entry for cycle, entry in reads if cycle == x - 3)
                    expected = [i for i in range(lanes) if at + i in set(top_k(keys, k))]
                    assert [i for i in range(lanes) if ctx.get(dut.keep) >> i & 1] == expected
                    assert ctx.get(dut.count) == len(expected)
                    assert [ctx.get(dut.filtered[i]) for i in range(lanes)] == [
                        padded[at + i] | at + i << 24 for i in range(lanes)]
                    kept += [at + i for i in expected]
                if ctx.get(dut.finish):
                    assert finish is None
                    finish = x
                entry = ctx.get(dut.r_entry) if ctx.get(dut.r_en) else None
                if entry is not None:
                    reads.append((x, entry))
                await ctx.tick()
                if entry is not None:
                    for i in range(lanes):
                        ctx.set(dut.keys[i], int(padded[entry + i]) | entry + i << 24)
            assert kept == list(top_k(keys, k)), f"seed {seed}: {keys}, k = {k}"
            assert reads == [(1 + p * (groups + 4) + g, g * lanes) for p in range(7) for g in range(groups)]
            assert finish == 6 * (groups + 4) + groups + 4

    run_bench(dut, bench, cycles=100000)


def test_what_is_not_zero_comes_first() -> None:
    """One filter marks and gives the keys that are not 0, a second one the others; the first begins at once."""
    lanes, rng = 4, np.random.default_rng(12)
    dut = Radix(lanes=lanes, entries=64, index_bits=16)

    async def bench(ctx) -> None:  # type: ignore[no-untyped-def]
        ctx.set(dut.nonzero, 1)
        for n, share in ((1, 0.0), (1, 1.0), (13, 0.4), (40, 0.1), (40, 0.0), (40, 1.0)):
            keys, groups = np.where(rng.random(n) < share, rng.integers(1, 1 << 24, n), 0), -(-n // lanes)
            padded = np.concatenate([keys, rng.integers(0, 1 << 24, 2 * lanes)])
            ctx.set(dut.start, 1)
            ctx.set(dut.n, n)
            ctx.set(dut.k, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            reads, kept, marked = [], [], []
            for x in range(1, 2 * (groups + 4) + 1):
                if ctx.get(dut.valid):
                    at = next(entry for cycle, entry in reads if cycle == x - 3)
                    found = [at + i for i in range(lanes) if ctx.get(dut.keep) >> i & 1]
                    assert ctx.get(dut.count) == len(found)
                    kept += found
                    marked += found if ctx.get(dut.mark) else []
                assert ctx.get(dut.finish) == (x == 2 * (groups + 4))
                entry = ctx.get(dut.r_entry) if ctx.get(dut.r_en) else None
                if entry is not None:
                    reads.append((x, entry))
                await ctx.tick()
                if entry is not None:
                    for i in range(lanes):
                        ctx.set(dut.keys[i], int(padded[entry + i]) | entry + i << 24)
            assert kept == [*np.flatnonzero(keys), *np.flatnonzero(keys == 0)]
            assert marked == list(np.flatnonzero(keys))

    run_bench(dut, bench, cycles=10000)


class Spread(wiring.Component):
    """Eight lanes through :func:`spread`."""

    def __init__(self) -> None:
        super().__init__({"i": In(data.ArrayLayout(8, 8)), "keep": In(8), "to": In(data.ArrayLayout(3, 8)),
                          "o": Out(data.ArrayLayout(8, 8))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, to = [self.i[i] for i in range(8)], [self.to[i] for i in range(8)]
        for i, lane in enumerate(spread(m, lanes, self.keep, to, "lane")):
            m.d.comb += self.o[i].eq(lane)
        return m


def test_every_set_of_lanes_to_every_place() -> None:
    dut = Spread()
    rng = random.Random(13)

    async def bench(ctx) -> None:  # type: ignore[no-untyped-def]
        for i in range(8):
            ctx.set(dut.i[i], 10 + i)
        for kept in range(256):
            lanes = [i for i in range(8) if kept >> i & 1]
            ctx.set(dut.keep, kept)
            for first in range(8):
                for i in range(8):  # where the other lanes would go does not matter
                    ctx.set(dut.to[i], (first + lanes.index(i)) % 8 if i in lanes else rng.randrange(8))
                assert [ctx.get(dut.o[(first + r) % 8]) for r in range(len(lanes))] == [10 + i for i in lanes]

    run_bench(dut, bench)


@pytest.mark.parametrize(("lanes", "entries"), [(2, 64), (4, 16), (16, 16)])
def test_runs_begin_anywhere(lanes: int, entries: int) -> None:
    """A run is written and read at any entry, also when the memory has one row a bank."""
    seed = 12
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    dut = GroupMemory(lanes=lanes, entries=entries, width=12)
    memory = np.zeros(entries, dtype=np.int64)

    async def bench(ctx) -> None:  # type: ignore[no-untyped-def]
        for _ in range(200):
            count = int(rng.integers(0, lanes + 1))
            at, look = int(rng.integers(0, entries - count + 1)), int(rng.integers(0, entries))
            values = rng.integers(0, 4096, count)
            ctx.set(dut.w_en, 1)
            ctx.set(dut.w_entry, at)
            ctx.set(dut.w_count, count)
            for i, value in enumerate(values):
                ctx.set(dut.w_data[(at + i) % lanes], int(value))
            await ctx.tick()
            memory[at:at + count] = values
            ctx.set(dut.w_en, 0)
            ctx.set(dut.r_en, 1)
            ctx.set(dut.r_entry, look)
            await ctx.tick()
            ctx.set(dut.r_en, 0)
            for e in range(look, min(look + lanes, entries)):
                assert ctx.get(dut.r_data[e % lanes]) == memory[e]

    run_bench(dut, bench)


def test_memory_smaller_than_its_lanes_is_refused() -> None:
    message = rejection(lambda: GroupMemory(lanes=64, entries=32, width=4))
    assert message == "entries must be at least lanes = 64, not 32"
