"""Reference of the vector unit for its benches: memories, operands and cycles, written from the documents alone.

What a command stores is ``gemmule.numerics`` on the operands of docs/numerics.md; what is read and written in
which cycle is docs/timing.md, section Vector. Nothing here comes from the unit.
"""

from __future__ import annotations

import numpy as np

from gemmule import numerics
from gemmule.config import Config
from gemmule.isa import VectorFlag as F
from gemmule.isa import VOp

__all__ = ["Command", "Device", "is_wide", "parameter_rows", "reads_of", "stride1", "trace"]

Command = dict[str, int]
WRITE, STAT, RMS, SOFTMAX = 9, 12, 36, 19
STATISTICS = (VOp.RMS_STAT, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP)
SCALED, STORED = (VOp.REQUANT, VOp.ROPE), (VOp.REQUANT, VOp.ADD)


def flags_of(c: Command) -> set[F]:
    """Flags that are set (bit 6 once, whatever it means)."""
    return {f for f in F if c["flags"] >> f & 1}


def parameter_rows(c: Command) -> int:
    """P: parameter rows of a column group."""
    if c["op"] == VOp.RMS_APPLY:
        return 2
    return (3 * (F.COLUMN in flags_of(c)) + 4 * (F.BIAS in flags_of(c))) * (c["op"] in SCALED)


def is_wide(c: Command) -> bool:
    """Whether the result is int16."""
    return c["op"] in STORED and (F.WIDE in flags_of(c) or (c["op"] == VOp.REQUANT and F.RESIDUAL in flags_of(c)))


class Device:
    """Scratchpad (uint8), accumulator (int32), byte table and contexts, and what a command does to them."""

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
        """Each parameter row of all column groups, side by side."""
        groups = -(-n // self.dim)
        rows = self.spm[row:row + per_group * groups].reshape(groups, per_group, self.dim)
        return [rows[:, i].reshape(-1)[:n].astype(np.int64) for i in range(per_group)]

    def int16(self, row: int, stride: int, m: int, n: int) -> np.ndarray:
        low, high = (self.matrix(self.spm, row + p, stride, m, n) for p in (0, stride // 2))
        return numerics.join_planes(low, high)

    def rows(self, c: Command, values: np.ndarray, offset: int = 0) -> dict[int, np.ndarray]:
        out = {}
        for g in range(-(-c["n"] // self.dim)):
            for row in range(c["m"]):
                line = np.zeros(self.dim, dtype=np.uint8)
                part = values[row, g * self.dim:(g + 1) * self.dim]
                line[:len(part)] = part.astype(np.int64) & 255
                out[c["dst"] + offset + g * c["dst_stride"] + row] = line
        return out

    def scaled(self, c: Command, n: int) -> tuple[np.ndarray, np.ndarray | int, np.ndarray | int]:
        """Accumulator (with bias), multipliers and shifts of REQUANT and ROPE; n columns."""
        acc = self.matrix(self.acc, c["src0"], c["src0_stride"], c["m"], n)
        rows = self.parameters(c["src1"], parameter_rows(c), n)
        mult: np.ndarray | int = c["mult"]
        shift: np.ndarray | int = c["shift"]
        if F.COLUMN in flags_of(c):
            mult, shift, rows = rows[0] | rows[1] << 8, rows[2], rows[3:]
        if F.BIAS in flags_of(c):
            acc = (acc + sum(plane << 8 * i for i, plane in enumerate(rows))).astype(np.int32).astype(np.int64)
        return acc, mult, shift

    def store(self, c: Command, value: np.ndarray) -> dict[int, np.ndarray]:
        """Result stage of REQUANT and ADD."""
        flags, residual, limits = flags_of(c), None, None
        if c["op"] == VOp.REQUANT and F.RESIDUAL in flags:
            residual = self.int16(c["dst"], c["dst_stride"], c["m"], c["n"])
            if F.RESCALE in flags:
                residual = numerics.requant(residual, c["aux"], c["shift2"])
        elif c["op"] == VOp.REQUANT and F.CLAMP in flags:
            low, high = np.array([c["aux"] & 255, c["aux"] >> 8], dtype=np.uint8).view(np.int8)
            limits = int(low), int(high)
        result = numerics.requant_store(
            value, relu=F.RELU in flags, wide=is_wide(c), residual=residual, limits=limits,
            table=self.table if F.LOOKUP in flags else None)
        if not is_wide(c):
            return self.rows(c, result)
        low_plane, high_plane = numerics.split_planes(result)
        return self.rows(c, low_plane) | self.rows(c, high_plane, c["dst_stride"] // 2)

    def run(self, c: Command) -> dict[int, np.ndarray]:
        """Expected rows by address; contexts and table are updated."""
        op, m, n, dim = VOp(c["op"]), c["m"], c["n"], self.dim
        context = (c["context"], slice(0, m))
        if op is VOp.TABLE:
            self.table = self.spm[c["src0"]:c["src0"] + 256 // dim].reshape(-1).copy()
            return {}
        if op is VOp.REQUANT:
            acc, mult, shift = self.scaled(c, n)
            if F.ROW in flags_of(c):
                return self.store(c, numerics.requant_row(
                    acc, self.R[context], self.L[context], c["mult"], c["shift"]))
            return self.store(c, numerics.requant(acc, mult, shift))
        if op in (VOp.PRODUCT, VOp.ADD):
            a = self.matrix(self.spm, c["src0"], c["src0_stride"], m, n).view(np.int8)
            b = self.matrix(self.spm, c["src1"], stride1(c), m, n).view(np.int8)
            if op is VOp.ADD:
                return self.store(c, numerics.add(a, b, c["mult"], c["aux"], c["shift"]))
            return self.rows(c, numerics.product(a, b, c["mult"], c["shift"]))
        if op is VOp.ROPE:
            padded = -(-n // dim) * dim  # the other lane of an odd last column is computed, not stored
            x = numerics.saturate(numerics.requant(*self.scaled(c, padded)), 16)
            period = 1 << c["period"]
            tables = self.spm[c["aux"]:c["aux"] + m * 4 * period].reshape(m, period, 4, dim)
            groups = [g % period for g in range(padded // dim)]
            part = [tables[:, groups, i].reshape(m, padded) for i in range(4)]
            cosine, sine = numerics.join_planes(*part[:2]), numerics.join_planes(*part[2:])
            return self.rows(c, numerics.rope(x, cosine, sine, c["shift2"])[:, :n])
        if op in (VOp.RMS_STAT, VOp.RMS_APPLY):
            x = self.int16(c["src0"], c["src0_stride"], m, n)
            if op is VOp.RMS_STAT:
                self.r[context], self.h[context] = numerics.rms_statistic(x, c["mult"], c["shift"])
                return {}
            gamma = numerics.join_planes(*(p.astype(np.uint8) for p in self.parameters(c["src1"], 2, n)))
            return self.rows(c, numerics.rms_apply(x, self.r[context], self.h[context], gamma, c["shift"]))
        acc = self.matrix(self.acc, c["src0"], c["src0_stride"], m, n)
        scores = numerics.scores(acc, c["mult"], c["shift"])
        count = numerics.visible(m, n, F.CAUSAL in flags_of(c))
        if op is VOp.SOFTMAX_MAX:
            self.maximum[context] = numerics.row_max(scores, count)
            return {}
        weights, total = numerics.row_weights(scores, self.maximum[context], count)
        self.R[context], self.L[context] = numerics.softmax_reciprocal(total)
        return self.rows(c, weights)


def stride1(c: Command) -> int:
    """Group stride of src1 of PRODUCT and ADD."""
    return c["aux"] if c["op"] == VOp.PRODUCT else c["src0_stride"]


def reads_of(c: Command, dim: int) -> int:
    """Cycles with reads: the table of docs/timing.md."""
    op, m, groups = VOp(c["op"]), c["m"], -(-c["n"] // dim)
    if op is VOp.TABLE:
        return max(1, 256 // dim)
    if op in STATISTICS:
        return m * groups * (2 if op is VOp.RMS_STAT else 1)
    apart = c["apart"] and op in (VOp.PRODUCT, VOp.ADD)
    each = 4 if op is VOp.ROPE else 2 if op is VOp.RMS_APPLY or is_wide(c) or apart else 1
    return groups * (parameter_rows(c) + m * each)


def trace(c: Command, dim: int, dividers: int) -> tuple[list[dict[str, int]], dict[int, int], int]:
    """Reads by cycle after issue (port: row), writes (cycle: row), cycles from issue to finish."""
    op, m, params = VOp(c["op"]), c["m"], parameter_rows(c)
    reads: list[dict[str, int]] = [{}]  # cycle t itself
    writes: dict[int, int] = {}
    if op is VOp.TABLE:
        reads += [{"r0": c["src0"] + i} for i in range(256 // dim)]
        return reads, writes, reads_of(c, dim) + WRITE
    groups = range(-(-c["n"] // dim))
    order = [(g, i) for i in range(m) for g in groups] if op in STATISTICS else [
        (g, i) for g in groups for i in range(m)]
    for g, i in order:
        if i == 0 and op not in STATISTICS:
            reads += [{"r1": c["src1"] + g * params + p} for p in range(params)]
        at0 = c["src0"] + g * c["src0_stride"] + i
        at2 = c["dst"] + g * c["dst_stride"] + i
        if op in (VOp.PRODUCT, VOp.ADD):
            at1 = c["src1"] + g * stride1(c) + i
            both = [{"r0": at0}, {"r1": at1}] if c["apart"] else [{"r0": at0, "r1": at1}, {}]
            reads += both if c["apart"] or is_wide(c) else both[:1]
        elif op in (VOp.RMS_STAT, VOp.RMS_APPLY):
            reads += [{"r0": at0}, {"r0": at0 + c["src0_stride"] // 2}]
        elif op is VOp.ROPE:
            entry = c["aux"] + i * (4 << c["period"]) + g % (1 << c["period"]) * 4
            reads += [{"acc": at0, "r1": entry}, *({"r1": entry + k} for k in (1, 2, 3))]
        elif is_wide(c):
            residual = F.RESIDUAL in flags_of(c)
            reads += [{"acc": at0, "r1": at2}, {"r1": at2 + c["dst_stride"] // 2}] if residual else [{"acc": at0}, {}]
        else:
            reads.append({"acc": at0})
        last = len(reads) - 1
        if is_wide(c):
            writes[last + WRITE - 1] = at2
            writes[last + WRITE] = at2 + c["dst_stride"] // 2
        elif op not in (VOp.RMS_STAT, VOp.SOFTMAX_MAX):
            writes[last + WRITE] = at2
    assert len(reads) - 1 == reads_of(c, dim)
    if op is VOp.SOFTMAX_MAX:
        return reads, writes, reads_of(c, dim) + STAT
    if op not in STATISTICS:
        return reads, writes, reads_of(c, dim) + WRITE
    serial, period = (RMS if op is VOp.RMS_STAT else SOFTMAX), reads_of(c, dim) // m
    ends = [0] * dividers
    for i in range(m):
        ends[i % dividers] = max((i + 1) * period + STAT, ends[i % dividers]) + serial
    return reads, writes, max(*ends, *writes, 0)
