"""Reference of the vector unit for its benches: memories and operands, written from the documents alone.

What a command stores is ``gemmule.numerics`` on the operands of docs/numerics.md. Nothing here comes from the unit.
"""

from __future__ import annotations

import numpy as np

from gemmule import numerics
from gemmule.config import Config
from gemmule.isa import NormFlag as N
from gemmule.isa import ProductFlag as P
from gemmule.isa import RequantFlag as R
from gemmule.isa import SoftmaxFlag as S
from gemmule.isa import VOp
from gemmule.numerics import norm, softmax, table
from gemmule.numerics.ibert import i_gelu_unit
from gemmule.numerics.online import rescale

from .trace import NORM_OPS, Command, flags_of, is_late, is_wide, parameter_rows, stride1

__all__ = ["Device"]


class Device:
    """Scratchpad (uint8), accumulator (int32), tables and contexts, and what a command does to them."""

    def __init__(self, config: Config, rng: np.random.Generator) -> None:
        self.dim, self.rng, self.dividers = config.dim, rng, config.dividers
        self.comparison_modes = config.comparison_modes
        self.spm = rng.integers(0, 256, (config.spm_rows, self.dim)).astype(np.uint8)
        self.acc = rng.integers(-(1 << 31), 1 << 31, (config.acc_rows, self.dim))
        self.table = np.zeros(256, dtype=np.uint8)
        self.words = np.zeros(table.WORD_TABLE_ENTRIES, dtype=np.int64)
        shape = (config.stat_contexts, config.stat_rows)
        self.maximum, self.rise, self.total, self.R, self.L, self.s, self.r, self.h = (
            np.zeros(shape, dtype=np.int64) for _ in range(8))

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

    def wide_rows(self, c: Command, values: np.ndarray) -> dict[int, np.ndarray]:
        """Rows of one plane, or of two with a result of 16 bits."""
        if not is_wide(c):
            return self.rows(c, values)
        low, high = numerics.split_planes(values)
        return self.rows(c, low) | self.rows(c, high, c["dst_stride"] // 2)

    @staticmethod
    def int32(planes: list[np.ndarray]) -> np.ndarray:
        """Byte planes, lowest first, as int32 values (int64)."""
        return sum(plane << 8 * i for i, plane in enumerate(planes)).astype(np.int32).astype(np.int64)  # type: ignore

    def scaled(self, c: Command, n: int) -> tuple[np.ndarray, np.ndarray | int, np.ndarray | int]:
        """Accumulator (with bias), multipliers and shifts of REQUANT, ROPE and I_GELU; n columns."""
        acc = self.matrix(self.acc, c["src0"], c["src0_stride"], c["m"], n)
        rows = self.parameters(c["src1"], parameter_rows(c), n)
        mult: np.ndarray | int = c["mult"]
        shift: np.ndarray | int = c["shift"]
        if R.COLUMN in flags_of(c):
            mult, shift, rows = rows[0] | rows[1] << 8, rows[2], rows[3:]
        if R.BIAS in flags_of(c):
            acc = (acc + self.int32(rows)).astype(np.int32).astype(np.int64)
        return acc, mult, shift

    def store(self, c: Command, value: np.ndarray) -> dict[int, np.ndarray]:
        """Result stage of REQUANT and ADD."""
        flags, residual, limits = flags_of(c), None, None
        if c["op"] == VOp.REQUANT and R.RESIDUAL in flags:
            residual = self.int16(c["dst"], c["dst_stride"], c["m"], c["n"])
            if R.RESCALE in flags:
                residual = numerics.requant(residual, c["aux"], c["shift2"])
        elif c["op"] == VOp.REQUANT and R.CLAMP in flags:
            low, high = np.array([c["aux"] & 255, c["aux"] >> 8], dtype=np.uint8).view(np.int8)
            limits = int(low), int(high)
        if is_late(c):
            result = numerics.requant_store(value, relu=R.RELU in flags, wide=True)
            return self.wide_rows(c, table.interpolate(result, self.words))
        result = numerics.requant_store(
            value, relu=R.RELU in flags, wide=is_wide(c), residual=residual, limits=limits,
            table=self.table if R.LOOKUP in flags else None)
        return self.wide_rows(c, result)

    def run(self, c: Command) -> dict[int, np.ndarray]:
        """Expected rows by address (RESCALE: rows of the accumulator); contexts and table are updated."""
        op, m, n, dim = VOp(c["op"]), c["m"], c["n"], self.dim
        context = (c["context"], slice(0, m))
        if op is VOp.TABLE:
            self.table = self.spm[c["src0"]:c["src0"] + 256 // dim].reshape(-1).copy()
            return {}
        if op is VOp.WORD_TABLE:
            plane = -(-table.WORD_TABLE_ENTRIES // dim)
            low, high = (self.spm[c["src0"] + at:c["src0"] + at + plane].reshape(-1) for at in (0, plane))
            self.words = numerics.join_planes(low, high)[:table.WORD_TABLE_ENTRIES]
            return {}
        if op is VOp.REQUANT:
            acc, mult, shift = self.scaled(c, n)
            if R.ROW in flags_of(c):
                return self.store(c, numerics.requant_row(
                    acc, self.R[context], self.L[context], c["mult"], c["shift"]))
            return self.store(c, numerics.requant(acc, mult, shift))
        if op is VOp.PRODUCT and P.WIDE in flags_of(c):
            return self.word_product(c)
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
        if op is VOp.I_GELU:
            return self.rows(c, i_gelu_unit(numerics.saturate(numerics.requant(*self.scaled(c, n)), 16), c["shift2"]))
        if op in NORM_OPS:
            return self.norm(c, context)
        if op is VOp.RESCALE:
            return {c["dst"] + g * c["dst_stride"] + row: rescale(
                        self.acc[c["src0"] + g * c["src0_stride"] + row], self.rise[c["context"], row])
                    for g in range(-(-n // dim)) for row in range(m)}
        acc = self.matrix(self.acc, c["src0"], c["src0_stride"], m, n)
        if op is VOp.ABSMAX:
            largest = softmax.row_absmax(acc)
            self.R[context], self.L[context] = softmax.softmax_reciprocal(largest)
            following = (c["context"] + 1, slice(0, m))
            self.R[following], self.L[following] = softmax.own_scale(largest)
            return {}
        return self.softmax(c, context, numerics.scores(acc, c["mult"], c["shift"]))

    def word_product(self, c: Command) -> dict[int, np.ndarray]:
        """PRODUCT with WIDE."""
        a = self.int16(c["src0"], c["src0_stride"], c["m"], c["n"])
        b = self.int16(c["src1"], c["aux"], c["m"], c["n"])
        return self.wide_rows(c, numerics.saturate(numerics.requant(a * b, c["mult"], c["shift"]), 16))

    def norm(self, c: Command, context: tuple[int, slice]) -> dict[int, np.ndarray]:
        """NORM_STAT and NORM_APPLY."""
        x, flags = self.int16(c["src0"], c["src0_stride"], c["m"], c["n"]), flags_of(c)
        mean = N.MEAN in flags
        if c["op"] == VOp.NORM_STAT:
            self.s[context], self.r[context], self.h[context] = norm.norm_statistic(
                x, c["mult"], c["shift"], mean=mean, round_mean=N.ROUND in flags)
            return {}
        planes = self.parameters(c["src1"], parameter_rows(c), c["n"])
        gamma = numerics.join_planes(*(p.astype(np.uint8) for p in planes[:2]))
        return self.wide_rows(c, norm.normalize(
            x, self.s[context] * mean, self.r[context], self.h[context], gamma, c["shift"],
            beta=self.int32(planes[2:]) if N.BIAS in flags else None, bits=16 if N.WIDE in flags else 8))

    def softmax(self, c: Command, context: tuple[int, slice], scores: np.ndarray) -> dict[int, np.ndarray]:
        """SOFTMAX_MAX, SOFTMAX_EXP and SOFTMAX_NORM."""
        m, n, flags = c["m"], c["n"], flags_of(c)
        onward, online, wide = S.CONTINUE in flags, S.ONLINE in flags, S.WIDE in flags
        if S.TREE in flags:
            seen = softmax.tree_mask(self.spm[c["src1"]:c["src1"] + m], m, n, c["after"])
        else:
            seen = softmax.visible(m, n, S.CAUSAL in flags, c["after"])
        if c["op"] == VOp.SOFTMAX_MAX:
            before = self.maximum[context] if onward else softmax.EMPTY
            if online:
                self.maximum[context], self.rise[context] = softmax.octave_max(scores, seen, before)
            else:
                self.maximum[context] = softmax.row_max(scores, seen, before)
            return {}
        if c["op"] == VOp.SOFTMAX_NORM:
            return self.wide_rows(c, softmax.row_normalized(
                scores, self.maximum[context], seen, self.R[context], self.L[context], wide=wide, kind=c["period"]))
        total = self.total[context] if onward else np.zeros(m, dtype=np.int64)
        weights, total = softmax.row_probabilities(
            scores, self.maximum[context], seen, wide=wide, kind=c["period"],
            before=rescale(total, self.rise[context]) if online else total)
        if S.MORE in flags:
            self.total[context] = total
        else:
            self.R[context], self.L[context] = softmax.softmax_reciprocal(total)
        return self.wide_rows(c, weights)
