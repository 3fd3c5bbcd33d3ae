"""Bench of the matrix unit: commands, their schedule by docs/timing.md, and what they must leave in the accumulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from amaranth.hdl import Module, ResetInserter, Signal

from gemmule.config import load_config
from gemmule.hw.matrix.matrix import Matrix
from gemmule.isa import Unit, legal_flags
from gemmule.timing import Timing

from ..bench import Simulated

UNSIGNED, B_T, ACCUMULATE, OS, A_T, INT4, SCALES, REUSE = (1 << i for i in range(8))
REGION = 128  # accumulator rows of one result region
COLUMN_BLOCK = 42
LEGAL = [flags for flags in range(256) if legal_flags(Unit.MATRIX, 0, flags)]
SPM_ROWS = 2048


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


def up(a, b):
    return -(-a // b)


def a_of(spm, f, dim):
    """[m, k]; a command that reuses weights sees whole rows."""
    wide = dim if f["flags"] & REUSE else f["k"]
    a = np.zeros((f["m"], wide), dtype=np.int64)
    for m in range(f["m"]):
        for k in range(wide):
            if f["flags"] & A_T:
                byte = spm[f["a_row"] + m // dim * f["a_stride"] + k, m % dim]
            else:
                byte = spm[f["a_row"] + k // dim * f["a_stride"] + m, k % dim]
            a[m, k] = byte if f["flags"] & UNSIGNED or byte < 128 else int(byte) - 256
    return a


def b_of(spm, f, dim):
    """[k, n], unpacked and scaled."""
    b = np.zeros((f["k"], f["n"]), dtype=np.int64)
    for k in range(f["k"]):
        for n in range(f["n"]):
            inner, outer = (n, k) if f["flags"] & B_T else (k, n)
            block = f["b_row"] + outer // dim * f["b_stride"]
            if not f["flags"] & INT4:
                value = int(spm[block + inner, outer % dim])
                b[k, n] = value - 256 * (value > 127)
                continue
            value = int(spm[block + inner // 2, outer % dim]) >> 4 * (inner % 2) & 15
            b[k, n] = value - 16 * (value > 7)
            if f["flags"] & SCALES:
                row = block + up(f["k"], dim) * dim // 2 + (k // dim >> f["group"])
                b[k, n] *= int(spm[row, outer % dim]) & 15
            else:
                b[k, n] <<= min(4, f["group"])
    return b


@dataclass
class Schedule:
    """What must happen in which cycle: a read in the cycle after its step, all behind it three cycles later."""

    dim: int
    preload: int
    preload_free: int = 0
    stream_free: int = 0
    weights: np.ndarray | None = None
    finish: list[int] = field(default_factory=list)
    release: tuple[list[int], list[int], list[int]] = field(default_factory=lambda: ([], [], []))
    streams: list[tuple[int, int]] = field(default_factory=list)
    reads_a: dict[int, int] = field(default_factory=dict)
    reads_b: dict[int, int] = field(default_factory=dict)
    reads_c: dict[int, int] = field(default_factory=dict)
    writes: dict[int, int] = field(default_factory=dict)
    last_write: dict[int, int] = field(default_factory=dict)  # of the last command: row -> cycle

    def issue(self, t, f):
        self.last_write = {}
        dim, items, drain = self.dim, self.dim // self.preload, 2 * self.dim + 3
        flags = f["flags"]
        if flags & OS:
            tiles, slot, load = up(f["n"], dim) * up(f["m"], dim) * up(f["k"], dim), dim, 1
            last = dim
        else:
            tiles = up(f["n"], dim) * up(f["k"], dim)
            stream = max(up(f["m"], dim) * dim if flags & A_T else f["m"], 2)
            load = 1 if flags & REUSE else items + bool(flags & SCALES)
            slot = stream if flags & REUSE else max(stream, items)
            last = slot
            if f["apart"]:
                slot, last = stream + load, stream
        s = max(t + 1 + load, self.stream_free)
        e = s + (tiles - 1) * slot + last
        self.preload_free = s if flags & (OS | REUSE) else s + (tiles - 1) * slot
        self.stream_free = e
        finish = e + drain + (dim if flags & OS else 0)
        self.finish.append(finish)
        self.streams.append((s, e))
        for stream, cycle in enumerate((e - 1, e - 1 if flags & OS else self.preload_free - 1, finish)):
            self.release[stream].append(cycle)
        self._outputs(s, f) if flags & OS else self._weights(t, s, slot, last, f)

    def _write(self, cycle, row, add):
        self.writes[cycle] = row
        self.last_write[row] = cycle
        if add:
            self.reads_c[cycle - 1] = row

    def _weights(self, t, s, slot, last, f):
        dim, preload, items, flags = self.dim, self.preload, self.dim // self.preload, f["flags"]
        k_tiles, j = up(f["k"], dim), 0
        for nb in range(up(f["n"], dim)):
            for kb in range(k_tiles):
                begin = s + j * slot
                scales = flags & SCALES
                # Loading of this tile's weights.
                own_cycle = scales and (j == 0 or f["apart"] or items == 1)
                load = t + 1 if j == 0 else begin - slot + (last if f["apart"] else 0)
                item = load + (1 if own_cycle else 0)
                if scales:
                    self.reads_b[item] = (
                        f["b_row"] + nb * f["b_stride"] + k_tiles * dim // 2 + (kb >> f["group"]))
                inner, outer = (nb, kb) if flags & B_T else (kb, nb)
                for i in range(0 if flags & REUSE else items):
                    number = inner * dim + i * preload
                    fresh = not flags & INT4 or items == 1 or i % 2 == 0
                    if number < (f["n"] if flags & B_T else f["k"]) and fresh:
                        row = number // 2 if flags & INT4 else number
                        self.reads_b[item + i + 1] = f["b_row"] + outer * f["b_stride"] + row
                # The stream.
                for m in range(f["m"]):
                    if not flags & A_T:
                        self.reads_a[begin + m + 1] = f["a_row"] + kb * f["a_stride"] + m
                    self._write(begin + m + 2 * dim + 4, f["c_row"] + nb * f["c_stride"] + m,
                                kb or flags & ACCUMULATE)
                if flags & A_T:
                    for block in range(up(f["m"], dim)):
                        for k in range(min(dim, f["k"] - kb * dim)):
                            self.reads_a[begin + block * dim + k + 1] = (
                                f["a_row"] + block * f["a_stride"] + kb * dim + k)
                j += 1

    def _outputs(self, s, f):
        dim, flags, at = self.dim, f["flags"], s
        for nb in range(up(f["n"], dim)):
            for mb in range(up(f["m"], dim)):
                for kb in range(up(f["k"], dim)):
                    m, n, k = (f[name] - b * dim for name, b in (("m", mb), ("n", nb), ("k", kb)))
                    for r in range(dim):
                        if flags & A_T and r < k:
                            self.reads_a[at + r + 1] = f["a_row"] + mb * f["a_stride"] + kb * dim + r
                        if not flags & A_T and r < m:
                            self.reads_a[at + r + 1] = f["a_row"] + kb * f["a_stride"] + mb * dim + r
                        if flags & B_T and r < n:
                            self.reads_b[at + r + 1] = f["b_row"] + kb * f["b_stride"] + nb * dim + r
                        if not flags & B_T and r < k:
                            self.reads_b[at + r + 1] = f["b_row"] + nb * f["b_stride"] + kb * dim + r
                    at += dim
                for r in range(min(dim, f["m"] - mb * dim)):
                    self._write(at + 2 * dim + 4 + r, f["c_row"] + nb * f["c_stride"] + mb * dim + r,
                                flags & ACCUMULATE)


def apply(expected, weights, spm, f, dim):
    """The command's effect on the accumulator; returns the weights in the mesh after it."""
    flags = f["flags"]
    a = a_of(spm, f, dim)
    c_wide = up(f["n"], dim) * dim
    if flags & REUSE:
        c = a @ weights
    else:
        b = b_of(spm, f, dim)
        c = np.zeros((f["m"], c_wide), dtype=np.int64)
        c[:, :f["n"]] = a @ b
        if not flags & OS:
            k0, n0 = (up(f[name], dim) * dim - dim for name in "kn")
            weights = np.zeros((dim, dim), dtype=np.int64)
            weights[:f["k"] - k0, :f["n"] - n0] = b[k0:, n0:]
    for block in range(c_wide // dim):
        at = f["c_row"] + block * f["c_stride"]
        here = expected[at:at + f["m"]]
        old = here.astype(np.int64) if flags & ACCUMULATE else 0
        here[:] = (c[:, block * dim:(block + 1) * dim] + old).astype(np.int32)
    return weights


@lru_cache(maxsize=8)
def simulated(config):
    """The unit, what resets it, and the simulator of both."""
    dut, top, reset = Matrix(config=config, timing=Timing.of(config)), Module(), Signal()
    top.submodules.dut = ResetInserter(reset)(dut)
    return dut, reset, Simulated(top)


def play(config, works, seed, *, before=None):
    """Run the commands; return the schedule, after comparing memory and every cycle.

    ``before``: (command, cycle): it is started first, and the unit is reset in that cycle after it.
    """
    dim, preload = config.dim, config.preload
    dut, reset, unit = simulated(config)
    rng = np.random.default_rng(seed)
    spm = rng.integers(0, 256, (SPM_ROWS, dim), dtype=np.uint8)
    acc = rng.integers(-2**31, 2**31, (2 * REGION, dim), dtype=np.int64).astype(np.int32)
    expected = acc.copy()
    plan = Schedule(dim, preload)
    weights = np.zeros((dim, dim), dtype=np.int64)
    finish, release = [], ([], [], [])
    reads_a, reads_b, reads_c, writes = {}, {}, {}, {}
    spare = rng.integers(0, 256, (16, 4 * dim), dtype=np.uint8)
    final = {}  # cycle of a command's last write to a row -> what it must write

    def as_int(array):
        return int.from_bytes(array.tobytes(), "little")

    def group(row):
        return row // preload * preload

    async def crash(ctx, command, cycles):
        ctx.set(dut.control.command, command)
        ctx.set(dut.control.start, 1)
        for cycle in range(cycles):
            ctx.set(dut.a.data, as_int(spare[cycle % 16][:dim]))
            ctx.set(dut.b.data, as_int(np.tile(spare[cycle % 13][:dim], preload)))
            await ctx.tick()
            ctx.set(dut.control.start, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)

    async def bench(ctx):
        nonlocal weights, final
        if before:
            await crash(ctx, *before)
        queue, outputs = list(works), 0
        gap = queue[0].gap
        t = 0
        data_a = data_b = data_c = None
        while queue or t <= max(plan.finish) + 3:
            # Inputs of cycle t; a port without a read shows garbage.
            junk = spare[t % 16]
            ctx.set(dut.a.data, as_int(junk[:dim] if data_a is None else data_a))
            ctx.set(dut.b.data, as_int(np.tile(junk[:dim], preload) if data_b is None else data_b))
            ctx.set(dut.acc_read.data, as_int(junk if data_c is None else data_c))
            ready = ctx.get(dut.control.ready)
            assert ready == (t >= plan.preload_free - 1), f"ready in cycle {t}"
            idle = all(f < t for f in plan.finish)
            turns = bool(queue) and outputs != queue[0].fields["flags"] & OS
            go = bool(queue) and ready and gap <= 0 and (idle or not (turns or queue[0].alone))
            if queue and ready:
                gap -= 1
            ctx.set(dut.control.start, int(go))
            ctx.set(dut.control.command, queue[0].fields if queue else {"m": 7, "n": 7, "k": 7, "flags": t % 256})
            if go:
                f = queue.pop(0).fields
                plan.issue(t, f)
                outputs = f["flags"] & OS
                gap = queue[0].gap if queue else 0
                weights = apply(expected, weights, spm, f, dim)
                final |= {cycle: expected[row].copy() for row, cycle in plan.last_write.items()}
            # Outputs of cycle t.
            data_a = data_b = data_c = None
            if ctx.get(dut.a.en):
                reads_a[t] = row = ctx.get(dut.a.row)
                data_a = spm[row]
            if ctx.get(dut.b.en):
                row = ctx.get(dut.b.row)
                reads_b[t] = group(row)
                data_b = spm[group(row):group(row) + preload]
            if ctx.get(dut.acc_read.en):
                reads_c[t] = row = ctx.get(dut.acc_read.row)
                data_c = acc[row].copy()
            if ctx.get(dut.acc_write.en):
                writes[t] = row = ctx.get(dut.acc_write.row)
                assert ctx.get(dut.acc_write.mask) == (1 << dim) - 1
                word = ctx.get(dut.acc_write.data)
                acc[row] = np.frombuffer(word.to_bytes(4 * dim, "little"), dtype=np.int32)
                if t in final:
                    np.testing.assert_array_equal(acc[row], final.pop(t), f"write in cycle {t}")
            if ctx.get(dut.control.finish):
                finish.append(t)
            pulses = ctx.get(dut.control.release)
            for stream in range(3):
                if pulses >> stream & 1:
                    release[stream].append(t)
            await ctx.tick()
            t += 1

    unit.run(bench, cycles=60000)
    assert finish == plan.finish
    assert release == plan.release
    assert reads_a == plan.reads_a
    assert reads_b == {cycle: group(row) for cycle, row in plan.reads_b.items()}
    assert reads_c == plan.reads_c
    assert writes == plan.writes
    assert not final
    np.testing.assert_array_equal(acc, expected)
    if len(works) == 1 and works[0].fields["apart"]:
        assert not set(reads_a) & set(reads_b)
    return plan


def random_work(rng, dim, preload, flags, *, gap=None):
    pick = rng.integers
    m, n, k = (int(rng.choice([1, dim, 2 * dim, pick(1, 3 * dim + 1)])) for _ in range(3))
    if flags & REUSE:
        n, k = (int(pick(1, dim + 1)) for _ in range(2))
    even = lambda low, high: int(pick(low, high)) // preload * preload  # noqa: E731
    return Work({
        "m": min(m, COLUMN_BLOCK), "n": n, "k": k, "flags": flags, "zero": 0,
        "a_row": int(pick(0, 200)), "a_stride": int(pick(0, 64)),
        "b_row": even(0, 200), "b_stride": even(0, 64),
        "c_row": REGION * int(pick(0, 2)), "c_stride": COLUMN_BLOCK, "group": int(rng.choice([0, 1, 2, 4, 15])),
        "apart": int(not flags & (OS | REUSE) and rng.random() < 0.2),
    }, gap=int(rng.choice([0, 0, 0, pick(0, 3 * dim)])) if gap is None else gap, alone=rng.random() < 0.05)


def random_works(rng, dim, preload, count):
    """Commands with runs of one dataflow, at full rate most of the time."""
    works, outputs = [], 0
    while len(works) < count:
        outputs ^= OS if rng.random() < 0.2 else 0
        flags = int(rng.choice([flags for flags in LEGAL if flags & OS == outputs]))
        works.append(random_work(rng, dim, preload, flags))
    return works


def fixed(dim, flags=0, **values):
    return {"m": dim, "n": dim, "k": dim, "flags": flags, "zero": 0, "a_row": 3, "a_stride": 64, "b_row": 128,
            "b_stride": 64, "c_row": 0, "c_stride": COLUMN_BLOCK, "group": 0, "apart": 0} | values
