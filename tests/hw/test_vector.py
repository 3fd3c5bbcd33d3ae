# amaranth: UnusedElaboratable=no
"""Vector unit: every operation bit for bit and cycle for cycle, with the memories in the bench.

The loops, layouts and cycle counts of docs/timing.md and docs/numerics.md are written here once more, by
hand; the arithmetic is gemmule.numerics.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule import numerics
from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.testing import run_bench
from gemmule.hw.vector import Vector
from gemmule.isa import VectorFlag, VOp
from gemmule.timing import Timing, serial_finish

WRITE, STAT, RMS, SOFTMAX = 9, 12, 36, 19
F = VectorFlag
REQUANT_FLAGS = [
    [], [F.RELU], [F.WIDE], [F.RESIDUAL], [F.LOOKUP], [F.ROW], [F.COLUMN], [F.COLUMN, F.RELU, F.LOOKUP],
    [F.COLUMN, F.WIDE], [F.COLUMN, F.RESIDUAL, F.RELU], [F.COLUMN, F.ROW], [F.ROW, F.RESIDUAL],
    [F.RESIDUAL, F.WIDE, F.LOOKUP], [F.ROW, F.LOOKUP, F.RELU], [F.WIDE, F.RELU, F.CAUSAL],
]


def small(dim: int, dividers: int) -> Config:
    return Config(
        dim=dim, bus_bytes=dim, spm_kib=dim, spm_banks=2, acc_kib=dim, acc_banks=2, preload=1,
        stat_rows=16, stat_contexts=2, dividers=dividers)


class Device:
    """Memories and contexts as the documents state them, and what a command does to them."""

    def __init__(self, config: Config, rng: np.random.Generator) -> None:
        self.dim, self.rng, self.dividers = config.dim, rng, config.dividers
        self.spm = rng.integers(0, 256, (config.spm_rows, self.dim)).astype(np.uint8)
        self.acc = rng.integers(-(1 << 31), 1 << 31, (config.acc_rows, self.dim))
        self.table = np.zeros(256, dtype=np.uint8)
        shape = (config.stat_contexts, config.stat_rows)
        self.maximum, self.R, self.L, self.r, self.h = (np.zeros(shape, dtype=np.int64) for _ in range(5))

    def matrix(self, memory: np.ndarray, row: int, stride: int, m: int, n: int) -> np.ndarray:
        groups = -(-n // self.dim)
        parts = [memory[row + g * stride:row + g * stride + m] for g in range(groups)]
        return np.concatenate(parts, axis=1)[:, :n]

    def parameters(self, row: int, per_group: int, n: int) -> list[np.ndarray]:
        groups = -(-n // self.dim)
        rows = self.spm[row:row + per_group * groups].reshape(groups, per_group, self.dim)
        return [rows[:, i].reshape(-1)[:n].astype(np.int64) for i in range(per_group)]

    def int16(self, row: int, stride: int, m: int, n: int) -> np.ndarray:
        low, high = (self.matrix(self.spm, row + p, stride, m, n) for p in (0, stride // 2))
        return numerics.join_planes(low, high)

    def run(self, c: dict[str, int]) -> dict[int, np.ndarray]:
        """Expected rows by address; contexts and table are updated."""
        op, flags, m, n, dim = VOp(c["op"]), _flags(c), c["m"], c["n"], self.dim
        context = (c["context"], slice(0, m))
        if op is VOp.TABLE:
            self.table = self.spm[c["src0"]:c["src0"] + 256 // dim].reshape(-1).copy()
            return {}
        mult: np.ndarray | int = c["mult"]
        shift: np.ndarray | int = c["shift"]
        if op in (VOp.REQUANT, VOp.ROPE) and F.COLUMN in flags:
            low, high, shift = self.parameters(c["src1"], 3, n)
            mult = low | high << 8
        if op in (VOp.REQUANT, VOp.ROPE, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP):
            acc = self.matrix(self.acc, c["src0"], c["src0_stride"], m, n)
        if op is VOp.REQUANT:
            if F.ROW in flags:
                value = numerics.requant_row(acc, self.R[context], self.L[context], c["mult"], c["shift"])
            else:
                value = numerics.requant(acc, mult, shift)
            wide = F.WIDE in flags or F.RESIDUAL in flags
            result = numerics.requant_store(
                value, relu=F.RELU in flags, wide=wide, table=self.table if F.LOOKUP in flags else None,
                residual=self.int16(c["dst"], c["dst_stride"], m, n) if F.RESIDUAL in flags else None)
            if wide:
                low, high = numerics.split_planes(result)
                return self.rows(c, low) | self.rows(c, high, c["dst_stride"] // 2)
            return self.rows(c, result)
        if op is VOp.PRODUCT:
            a = self.matrix(self.spm, c["src0"], c["src0_stride"], m, n).view(np.int8)
            b = self.matrix(self.spm, c["src1"], c["aux"], m, n).view(np.int8)
            return self.rows(c, numerics.product(a, b, c["mult"], c["shift"]))
        if op is VOp.ROPE:
            padded = -(-n // dim) * dim  # the other lane of an odd last column is computed, not stored
            acc = self.matrix(self.acc, c["src0"], c["src0_stride"], m, padded)
            if F.COLUMN in flags:
                low, high, shift = self.parameters(c["src1"], 3, padded)
                mult = low | high << 8
            x = numerics.saturate(numerics.requant(acc, mult, shift), 16)
            period = 1 << c["period"]
            tables = self.spm[c["aux"]:c["aux"] + m * 4 * period].reshape(m, period, 4, dim)
            groups = [g % period for g in range(padded // dim)]
            part = [tables[:, groups, i].reshape(m, padded) for i in range(4)]
            rotated = numerics.rope(x, numerics.join_planes(*part[:2]), numerics.join_planes(*part[2:]),
                                    c["shift2"])
            return self.rows(c, rotated[:, :n])
        if op is VOp.RMS_STAT:
            x = self.int16(c["src0"], c["src0_stride"], m, n)
            self.r[context], self.h[context] = numerics.rms_statistic(x, c["mult"], c["shift"])
            return {}
        if op is VOp.RMS_APPLY:
            x = self.int16(c["src0"], c["src0_stride"], m, n)
            gamma = numerics.join_planes(*(p.astype(np.uint8) for p in self.parameters(c["src1"], 2, n)))
            return self.rows(c, numerics.rms_apply(x, self.r[context], self.h[context], gamma, c["shift"]))
        scores = numerics.scores(acc, c["mult"], c["shift"])
        count = numerics.visible(m, n, F.CAUSAL in flags)
        if op is VOp.SOFTMAX_MAX:
            self.maximum[context] = numerics.row_max(scores, count)
            return {}
        weights, total = numerics.row_weights(scores, self.maximum[context], count)
        self.R[context], self.L[context] = numerics.softmax_reciprocal(total)
        return self.rows(c, weights)

    def rows(self, c: dict[str, int], values: np.ndarray, offset: int = 0) -> dict[int, np.ndarray]:
        out = {}
        for g in range(-(-c["n"] // self.dim)):
            for row in range(c["m"]):
                line = np.zeros(self.dim, dtype=np.uint8)
                part = values[row, g * self.dim:(g + 1) * self.dim]
                line[:len(part)] = part.astype(np.int64) & 255
                out[c["dst"] + offset + g * c["dst_stride"] + row] = line
        return out

    def trace(self, c: dict[str, int]) -> tuple[list[dict[str, int]], dict[int, int], int]:
        """Reads by cycle after issue (port: row), writes (cycle: row), cycles from issue to finish."""
        op, flags, m, n, dim = VOp(c["op"]), _flags(c), c["m"], c["n"], self.dim
        reads: list[dict[str, int]] = [{}]  # cycle t itself
        writes: dict[int, int] = {}
        if op is VOp.TABLE:
            reads += [{"r0": c["src0"] + i} for i in range(256 // dim)]
            return reads, writes, len(reads) - 1 + WRITE
        residual = op is VOp.REQUANT and F.RESIDUAL in flags
        wide = op is VOp.REQUANT and (residual or F.WIDE in flags)
        by_rows = op in (VOp.RMS_STAT, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP)
        per_group = 2 if op is VOp.RMS_APPLY else 3 * (F.COLUMN in flags and op in (VOp.REQUANT, VOp.ROPE))
        groups = range(-(-n // dim))
        order = [(g, i) for i in range(m) for g in groups] if by_rows else [
            (g, i) for g in groups for i in range(m)]
        ready = []
        for g, i in order:
            if i == 0 and not by_rows:
                reads += [{"r1": c["src1"] + g * per_group + p} for p in range(per_group)]
            at0 = c["src0"] + g * c["src0_stride"] + i
            at2 = c["dst"] + g * c["dst_stride"] + i
            if op is VOp.PRODUCT:
                reads.append({"r0": at0, "r1": c["src1"] + g * c["aux"] + i})
            elif op in (VOp.RMS_STAT, VOp.RMS_APPLY):
                reads += [{"r0": at0}, {"r0": at0 + c["src0_stride"] // 2}]
            elif op is VOp.ROPE:
                entry = c["aux"] + i * (4 << c["period"]) + g % (1 << c["period"]) * 4
                reads += [{"acc": at0, "r1": entry}, *({"r1": entry + k} for k in (1, 2, 3))]
            elif wide:
                residue = ({"r1": at2}, {"r1": at2 + c["dst_stride"] // 2}) if residual else ({}, {})
                reads += [{"acc": at0} | residue[0], residue[1]]
            else:
                reads.append({"acc": at0})
            last = len(reads) - 1
            if wide:
                writes[last + WRITE - 1] = at2
                writes[last + WRITE] = at2 + c["dst_stride"] // 2
            elif op not in (VOp.RMS_STAT, VOp.SOFTMAX_MAX):
                writes[last + WRITE] = at2
            if g == groups[-1]:
                ready.append(last + STAT)
        if op is VOp.SOFTMAX_MAX:
            finish = len(reads) - 1 + STAT
        elif by_rows:
            serial, ends = RMS if op is VOp.RMS_STAT else SOFTMAX, [0] * self.dividers
            for i, cycle in enumerate(ready):
                ends[i % self.dividers] = max(cycle, ends[i % self.dividers]) + serial
            finish = max(ends)
            period = (len(reads) - 1) // m
            assert finish == serial_finish(period + STAT, period, m, self.dividers, serial)
        else:
            finish = max(writes)
        return reads, writes, finish


def _flags(c: dict[str, int]) -> set[F]:
    return {f for f in F if c["flags"] >> f & 1}


def make(device: Device, op: VOp, flags: list[F], *, m: int, n: int) -> dict[str, int]:
    """A random command of this shape: sources in the lower half of the scratchpad, dst above."""
    rng, dim = device.rng, device.dim
    half, groups = len(device.spm) // 2, -(-n // dim)
    c = {name: int(rng.integers(0, 1 << width)) for name, width in (
        ("mult", 16), ("shift", 6), ("shift2", 6), ("aux", 5))}
    if rng.random() < 0.8:  # near the result's width, so that few values saturate or vanish
        c["shift"] = int(rng.integers(18, 42)) if op is not VOp.PRODUCT else int(rng.integers(14, 26))
        c["shift2"] = int(rng.integers(14, 24))
    c |= {f"{name}_stride": 2 * m + 2 * int(rng.integers(0, 3)) for name in ("src0", "dst")}
    c |= {"op": int(op), "flags": sum(1 << f for f in flags), "m": m, "n": n, "zero": 0,
          "context": int(rng.integers(0, 2)), "period": int(rng.integers(0, 3))}
    c["src1"] = int(rng.integers(0, half - max(3, m) * groups - 4 * m))
    c["dst"] = half + int(rng.integers(0, half - groups * c["dst_stride"]))
    from_acc = op not in (VOp.PRODUCT, VOp.RMS_STAT, VOp.RMS_APPLY, VOp.TABLE)
    limit = len(device.acc) if from_acc else half
    span = 256 // dim if op is VOp.TABLE else groups * c["src0_stride"]
    c["src0"] = int(rng.integers(0, limit - span + 1))
    if op is VOp.ROPE:
        c["aux"] = int(rng.integers(0, half - (m * 4 << c["period"]) + 1))
    elif op is VOp.PRODUCT:
        c["aux"] = m + int(rng.integers(0, 3))
    if op is VOp.RMS_APPLY:
        c["shift"] = int(rng.integers(8, 20))
    if op is VOp.RMS_STAT and rng.random() < 0.5:
        c["shift"] = int(rng.integers(0, 12))
    if op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP):
        c["shift"] = 32 if rng.random() < 0.7 else int(rng.integers(28, 47))
        c["mult"] = int(rng.integers(1, 20000))
    return c


def play(config: Config, seed: int, commands) -> None:
    """Run commands one after the other; check every read, write and control signal of every cycle.

    ``commands(device)`` yields them lazily, so that it may prepare memory for each.
    """
    print("seed", seed)
    rng = np.random.default_rng(seed)
    device = Device(config, rng)
    dut = Vector(config=config, timing=Timing.of(config))
    control, dim = dut.control, config.dim
    layout = vector_layout(config)
    ports = {"r0": dut.r0, "r1": dut.r1, "acc": dut.acc}
    bits = {"r0": 8 * dim, "r1": 8 * dim, "acc": 32 * dim}

    def word(port: str, row: int) -> int:
        if port == "acc":
            return int.from_bytes(device.acc[row].astype("<i4").tobytes(), "little")
        return int.from_bytes(device.spm[row].tobytes(), "little")

    async def bench(ctx):
        for c in commands(device):
            expected = device.run(c)
            reads, writes, finish = device.trace(c)
            assert ctx.get(control.ready), c
            ctx.set(control.command, layout.const(c))
            ctx.set(control.start, 1)
            seen = {}
            for cycle in range(finish + 1):
                wanted = reads[cycle] if cycle < len(reads) else {}
                got = {name: ctx.get(port.row) for name, port in ports.items() if ctx.get(port.en)}
                assert got == wanted, (cycle, c)
                if ctx.get(dut.w.en):
                    row = ctx.get(dut.w.row)
                    assert writes.get(cycle) == row, (cycle, row, c)
                    assert ctx.get(dut.w.mask) == (1 << dim) - 1
                    line = np.frombuffer(ctx.get(dut.w.data).to_bytes(dim, "little"), dtype=np.uint8)
                    assert line.tolist() == expected[row].tolist(), (cycle, row, c)
                    seen[cycle] = row
                    device.spm[row] = line
                assert ctx.get(control.finish) == (cycle == finish), (cycle, finish, c)
                assert ctx.get(control.release) == (7 if cycle == finish else 0)
                assert ctx.get(control.ready) == (cycle == 0), (cycle, c)
                answers = {name: word(name, row) for name, row in got.items()}
                await ctx.tick()
                if cycle == 0:
                    ctx.set(control.start, 0)
                    ctx.set(control.command, layout.from_bits(int(rng.integers(1 << 60))))
                for name, port in ports.items():  # noise where nothing was read
                    noise = int.from_bytes(rng.bytes(bits[name] // 8), "little")
                    ctx.set(port.data, answers.get(name, noise))
            assert seen == writes, c
            if rng.random() < 0.2:
                await ctx.tick().repeat(int(rng.integers(1, 12)))
                assert not ctx.get(control.finish)

    run_bench(dut, bench, cycles=200000)


def shape(rng: np.random.Generator, dim: int) -> tuple[int, int]:
    return int(rng.choice([1, 1, 2, 3, 5, 9])), int(rng.choice([1, 2, dim - 1, dim, dim + 1, 3 * dim - 2]))


def scale(device: Device, c: dict[str, int]) -> None:
    """Give a command's accumulator rows a random magnitude."""
    span = -(-c["n"] // device.dim) * c["src0_stride"]
    bits = int(device.rng.integers(8, 32))
    rows = device.acc[c["src0"]:c["src0"] + span]
    rows[:] = device.rng.integers(-(1 << bits - 1), 1 << bits - 1, rows.shape)
    rows[device.rng.random(rows.shape) < 0.05] = -(1 << 31)


def test_requant() -> None:
    def commands(device: Device):
        for repeat in range(3):
            for flags in REQUANT_FLAGS:
                m, n = shape(device.rng, device.dim)
                if F.LOOKUP in flags:
                    yield make(device, VOp.TABLE, [], m=1, n=1)
                if F.ROW in flags:
                    exp = make(device, VOp.SOFTMAX_EXP, [], m=m, n=n)
                    scale(device, exp)
                    yield exp
                c = make(device, VOp.REQUANT, flags, m=m, n=n)
                scale(device, c)
                if F.ROW in flags:
                    c["context"] = exp["context"]
                    c["shift"] = [0, 63, int(device.rng.integers(16, 40))][repeat]
                yield c

    play(small(4, 1), 11, commands)


@pytest.mark.parametrize("dividers", [1, 2])
def test_softmax(dividers: int) -> None:
    def commands(device: Device):
        for i in range(12):
            m, n = shape(device.rng, device.dim) if i else (16, 7)
            flags = [F.CAUSAL] if i % 2 else []
            c = make(device, VOp.SOFTMAX_MAX, flags, m=m, n=n)
            scale(device, c)
            yield c
            yield c | {"op": int(VOp.SOFTMAX_EXP)}
            use = make(device, VOp.REQUANT, [F.ROW], m=m, n=5)
            yield use | {"context": c["context"]}

    play(small(4, dividers), 21, commands)


@pytest.mark.parametrize("dividers", [1, 2])
def test_rms(dividers: int) -> None:
    def commands(device: Device):
        for i in range(9):
            m, n = shape(device.rng, device.dim) if i else (16, 6)
            c = make(device, VOp.RMS_STAT, [F.CAUSAL] if i % 2 else [], m=m, n=n)
            c["src0"] = min(c["src0"], 60)
            if i in (2, 3):  # V = 1 and a small V
                device.spm[:150] = i - 2
                c["mult"] = 0
            if i == 4:  # the largest squares
                device.spm[:c["src0"] + c["src0_stride"] // 2] = 0
                device.spm[c["src0"] + c["src0_stride"] // 2:150] = 128
            if i == 5:  # epsilon alone, its shift limited to 40
                device.spm[:150] = 0
                c |= {"mult": 1, "shift": 63}
            yield c
            device.spm[:150] = device.rng.integers(0, 256, (150, device.dim))  # other rows, same statistics
            use = make(device, VOp.RMS_APPLY, [], m=m, n=n)
            yield use | {"src0": c["src0"], "src0_stride": c["src0_stride"], "context": c["context"]}

    play(small(4, dividers), 31, commands)


def test_rope_product_table() -> None:
    def commands(device: Device):
        for i in range(14):
            m, n = shape(device.rng, device.dim)
            rope = make(device, VOp.ROPE, [F.COLUMN] if i % 2 else [], m=m, n=n)
            scale(device, rope)
            yield rope
            m, n = shape(device.rng, device.dim)
            yield make(device, VOp.PRODUCT, [], m=m, n=n)
            if i % 3 == 0:
                yield make(device, VOp.TABLE, list(F), m=7, n=3)

    play(small(4, 2), 41, commands)


def test_random_mix() -> None:
    """Any operation after any other, stale contexts included."""
    def commands(device: Device):
        for _ in range(60):
            op = VOp(int(device.rng.integers(0, 8)))
            flags = [f for f in F if device.rng.random() < 0.3]
            m, n = shape(device.rng, device.dim)
            yield make(device, op, flags, m=m, n=n)

    play(small(4, 2), 51, commands)


def test_dim_16() -> None:
    def commands(device: Device):
        for op in (*VOp, VOp.REQUANT):
            flags = [F.COLUMN, F.LOOKUP] if op is VOp.REQUANT else []
            yield make(device, op, flags, m=3, n=37)
        yield make(device, VOp.REQUANT, [F.ROW, F.RESIDUAL], m=2, n=20)

    play(small(16, 4), 61, commands)


def test_constants() -> None:
    config = small(4, 1)
    assert Timing.of(config).vector_write == WRITE
    with pytest.raises(ValueError, match="softmax_serial must be 19, as built, not 20"):
        Vector(config=config, timing=replace(Timing.of(config), softmax_serial=20))
