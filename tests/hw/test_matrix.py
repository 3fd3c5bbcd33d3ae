# amaranth: UnusedElaboratable=no
"""The matrix unit against numpy and, cycle by cycle, against docs/timing.md written once more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import gemmule.hw.matrix as matrix_module
from gemmule.config import load_config
from gemmule.hw.matrix import Matrix
from gemmule.hw.testing import run_bench
from gemmule.timing import Timing

UNSIGNED, TRANSPOSED, ACCUMULATE = 1, 2, 4
REGION = 128  # accumulator rows of one result region
COLUMN_BLOCK = 42


def small(dim, preload):
    """A configuration whose memories the bench plays itself."""
    return load_config({"dim": dim, "bus_bytes": 2, "spm_kib": max(1, dim * 512 // 1024), "spm_banks": 2,
                        "acc_kib": 4 * dim, "acc_banks": 1, "preload": preload, "burst_bytes": 32})


@dataclass
class Work:
    """A command, the idle cycles before it, and whether it waits for everything before it."""

    fields: dict[str, int]
    gap: int = 0
    alone: bool = False


def random_work(rng, dim, preload, *, most_m=None, gap=None):
    pick = rng.integers
    if rng.random() < 0.08:
        return Work({"zero": 1, "m": int(pick(0, 3))}, alone=True)
    m = int(rng.choice([1, 2, dim, dim + 1, pick(1, (most_m or 3 * dim) + 1)]))
    n, k = (int(rng.choice([1, dim, 2 * dim, 3 * dim, pick(1, 3 * dim + 1)])) for _ in range(2))
    flags = int(pick(0, 8))
    even = lambda low, high: int(pick(low, high)) // preload * preload  # noqa: E731
    return Work({
        "m": m, "n": n, "k": k, "flags": flags, "zero": 0,
        "a_row": int(pick(0, 200)), "a_stride": int(pick(0, 64)),
        "b_row": even(0, 200), "b_stride": even(0, 64),
        "c_row": REGION * int(pick(0, 2)), "c_stride": COLUMN_BLOCK,
    }, gap=int(rng.choice([0, 0, 0, pick(0, 30)])) if gap is None else gap, alone=rng.random() < 0.05)


def product(spm, f, dim):
    """A . B of a command from scratchpad bytes, as the ISA lays them out."""
    a = np.zeros((f["m"], f["k"]), dtype=np.int64)
    b = np.zeros((f["k"], f["n"]), dtype=np.int64)
    for k in range(f["k"]):
        at = f["a_row"] + k // dim * f["a_stride"]
        lane = spm[at:at + f["m"], k % dim]
        a[:, k] = lane if f["flags"] & UNSIGNED else lane.view(np.int8)
        for n in range(f["n"]):
            if f["flags"] & TRANSPOSED:
                b[k, n] = spm.view(np.int8)[f["b_row"] + k // dim * f["b_stride"] + n, k % dim]
            else:
                b[k, n] = spm.view(np.int8)[f["b_row"] + n // dim * f["b_stride"] + k, n % dim]
    return a @ b


class Schedule:
    """docs/timing.md, section Matrix: what must happen in which cycle."""

    def __init__(self, dim, preload, drain):
        self.dim, self.items, self.drain, self.preload = dim, dim // preload, drain, preload
        self.preload_free = self.stream_free = 0
        self.finish, self.release = [], ([], [], [])
        self.reads_a, self.reads_b, self.reads_c, self.writes = {}, {}, {}, {}

    def issue(self, t, f):
        if f["zero"]:
            self.finish.append(t + 2)
            return
        dim, items = self.dim, self.items
        n_tiles, k_tiles = -(-f["n"] // dim), -(-f["k"] // dim)
        slot, tiles = max(f["m"], items, 2), n_tiles * k_tiles
        s = max(t + 1 + items, self.stream_free)
        e = s + tiles * slot
        self.preload_free, self.stream_free = s + (tiles - 1) * slot, e
        self.finish.append(e + self.drain)
        for stream, cycle in enumerate((e - 1, self.preload_free - 1, e + self.drain)):
            self.release[stream].append(cycle)
        for j in range(tiles):
            nb, kb = divmod(j, k_tiles)
            begin = t + 1 if j == 0 else s + (j - 1) * slot
            for i in range(items):
                inside = i * self.preload + (nb if f["flags"] & TRANSPOSED else kb) * dim
                if inside < (f["n"] if f["flags"] & TRANSPOSED else f["k"]):
                    along = (kb if f["flags"] & TRANSPOSED else nb) * f["b_stride"]
                    self.reads_b[begin + i] = f["b_row"] + along + inside
            for r in range(f["m"]):
                read = s + j * slot + r
                self.reads_a[read] = f["a_row"] + kb * f["a_stride"] + r
                row = f["c_row"] + nb * f["c_stride"] + r
                self.writes[read + self.drain + 1] = row
                if kb or f["flags"] & ACCUMULATE:
                    self.reads_c[read + self.drain] = row


def play(config, works, seed):
    """Run the commands; return what happened, after comparing memory and every cycle."""
    dim, preload = config.dim, config.preload
    timing = Timing.of(config)
    dut = Matrix(config=config, timing=timing)
    rng = np.random.default_rng(seed)
    spm = rng.integers(0, 256, (512, dim), dtype=np.uint8)
    acc = rng.integers(-2**31, 2**31, (2 * REGION, dim), dtype=np.int64).astype(np.int32)
    expected = acc.copy()
    plan = Schedule(dim, preload, timing.matrix_drain)
    finish, release = [], ([], [], [])
    reads_a, reads_b, reads_c, writes = {}, {}, {}, {}
    spare = rng.integers(0, 256, (16, 4 * dim), dtype=np.uint8)

    def as_int(array):
        return int.from_bytes(array.tobytes(), "little")

    async def bench(ctx):
        queue = list(works)
        gap = queue[0].gap
        t = issued = 0
        data_a = data_b = data_c = None
        while queue or t <= max(plan.finish) + 3:
            # Inputs of cycle t; a port without a read shows garbage.
            junk = spare[t % 16]
            ctx.set(dut.a.data, as_int(junk[:dim] if data_a is None else data_a))
            ctx.set(dut.b.data, as_int(np.tile(junk[:dim], preload) if data_b is None else data_b))
            ctx.set(dut.acc_read.data, as_int(junk if data_c is None else data_c))
            ready = ctx.get(dut.control.ready)
            assert ready == (t >= plan.preload_free), f"ready in cycle {t}"
            idle = all(f < t for f in plan.finish)
            go = bool(queue) and ready and gap <= 0 and (idle or not queue[0].alone)
            if queue and ready:
                gap -= 1
            ctx.set(dut.control.start, int(go))
            command = queue[0].fields if queue else {"m": 7, "n": 7, "k": 7}
            ctx.set(dut.control.command, command)
            if go:
                f = queue.pop(0).fields
                issued += 1
                plan.issue(t, f)
                gap = queue[0].gap if queue else 0
                if not f["zero"]:
                    c = product(spm, f, dim)
                    for n in range(f["n"]):
                        at = f["c_row"] + n // dim * f["c_stride"]
                        here = expected[at:at + f["m"], n % dim]
                        old = here.astype(np.int64) if f["flags"] & ACCUMULATE else 0
                        here[:] = (c[:, n] + old).astype(np.int32)
                    if f["n"] % dim and not f["flags"] & ACCUMULATE:  # lanes beyond N become zero
                        expected[at:at + f["m"], f["n"] % dim:] = 0
            # Outputs of cycle t.
            data_a = data_b = data_c = None
            if ctx.get(dut.a.en):
                reads_a[t] = row = ctx.get(dut.a.row)
                data_a = spm[row]
            if ctx.get(dut.b.en):
                reads_b[t] = row = ctx.get(dut.b.row)
                assert row % preload == 0
                data_b = spm[row:row + preload]
            if ctx.get(dut.acc_read.en):
                reads_c[t] = row = ctx.get(dut.acc_read.row)
                data_c = acc[row].copy()
            if ctx.get(dut.acc_write.en):
                writes[t] = row = ctx.get(dut.acc_write.row)
                word = ctx.get(dut.acc_write.data)
                acc[row] = np.frombuffer(word.to_bytes(4 * dim, "little"), dtype=np.int32)
            if ctx.get(dut.control.finish):
                finish.append(t)
            pulses = ctx.get(dut.control.release)
            for stream in range(3):
                if pulses >> stream & 1:
                    release[stream].append(t)
            await ctx.tick()
            t += 1
        assert issued == len(works)

    run_bench(dut, bench, cycles=60000)
    assert finish == plan.finish
    assert release == plan.release
    assert reads_a == plan.reads_a
    assert reads_b == plan.reads_b
    assert reads_c == plan.reads_c
    assert writes == plan.writes
    np.testing.assert_array_equal(acc, expected)
    return plan


@pytest.mark.parametrize(("dim", "preload", "count"), [
    (2, 1, 40), (2, 2, 40), (4, 1, 40), (4, 2, 40), (4, 4, 40), (8, 1, 6), (8, 2, 6), (8, 4, 6),
])
def test_random_commands(dim, preload, count):
    print("seed", seed := 1000 * dim + preload)
    rng = np.random.default_rng(seed)
    works = [random_work(rng, dim, preload) for _ in range(count)]
    play(small(dim, preload), works, seed)


def test_long_rows_and_every_flag():
    """M up to 40 on DIM 4, all eight flag combinations, ragged K and N."""
    rng = np.random.default_rng(5)
    works = []
    for flags in range(8):
        work = random_work(rng, 4, 2, gap=0)
        while work.fields["zero"]:
            work = random_work(rng, 4, 2, gap=0)
        work.fields |= {"flags": flags, "m": 40 - flags, "n": 5 + flags % 3, "k": 9 - flags % 4}
        works.append(work)
    play(small(4, 2), works, 5)


def test_base_mesh():
    """One pass of DIM 16 with preload 2: normal and transposed, ragged."""
    common = {"zero": 0, "a_row": 3, "a_stride": 20, "b_row": 100, "b_stride": 48, "c_row": 0,
              "c_stride": COLUMN_BLOCK}
    works = [
        Work(common | {"m": 17, "n": 19, "k": 30, "flags": UNSIGNED}),
        Work(common | {"m": 1, "n": 16, "k": 33, "flags": TRANSPOSED | ACCUMULATE}),
    ]
    plan = play(small(16, 2), works, 16)
    # Issue in 0, stream from 1 + 8, four tiles of 17 rows, drain 2 * 16.
    assert plan.finish[0] == 9 + 4 * 17 + 32


def test_full_rate():
    """M = DIM > DIM / preload: a row of A and a result in every cycle, also across commands."""
    fields = {"m": 4, "n": 8, "k": 12, "flags": ACCUMULATE, "zero": 0, "a_row": 0, "a_stride": 4,
              "b_row": 100, "b_stride": 12, "c_row": 0, "c_stride": COLUMN_BLOCK}
    works = [Work(fields | {"flags": i}) for i in range(6)]
    plan = play(small(4, 2), works, 6)
    busy = sorted(plan.reads_a)
    assert busy == list(range(busy[0], busy[0] + 6 * 6 * 4))


def test_single_rows_are_bound_by_preload():
    """M = 1: one tile per DIM / preload cycles, also across commands of one tile."""
    fields = {"m": 1, "n": 4, "k": 4, "flags": TRANSPOSED, "zero": 0, "a_row": 0, "a_stride": 1,
              "b_row": 8, "b_stride": 4, "c_row": 0, "c_stride": 1}
    works = [Work(fields | {"c_row": i}) for i in range(10)]
    plan = play(small(4, 2), works, 7)
    steps = np.diff(plan.finish)
    assert set(steps.tolist()) == {3}  # two preload reads and the cycle from issue to the first one


def test_bench_finds_a_late_capture(monkeypatch):
    """The bench fails when weights are captured one cycle off."""
    class Late(matrix_module.Stairs):
        def __init__(self, *, delays):
            delays = list(delays)
            super().__init__(delays=[d + (max(delays) >= len(delays)) for d in delays])

    monkeypatch.setattr(matrix_module, "Stairs", Late)
    fields = {"m": 3, "n": 4, "k": 4, "flags": 0, "zero": 0, "a_row": 0, "a_stride": 1,
              "b_row": 8, "b_stride": 4, "c_row": 0, "c_stride": 1}
    with pytest.raises(AssertionError):
        play(small(4, 2), [Work(fields)], 8)


def test_rejects_other_timing():
    config = small(4, 1)
    with pytest.raises(ValueError, match="not 9"):
        Matrix(config=config, timing=Timing(matrix_drain=9))
    with pytest.raises(ValueError, match="matrix_rmw >= 2"):
        Matrix(config=config, timing=Timing(matrix_drain=8, matrix_rmw=1))
