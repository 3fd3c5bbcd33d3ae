"""Norms of the heads of q and k between their product and their rotation (Qwen3).

A head's sums become int16 planes, which are normed where they lie. Rotation reads the accumulator, to which the planes
go by products with diagonals. All of it is per head, so a head's rows are whole before its norm begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Linear, Norm
from gemmule.compiler.kernels.constants import ColumnRows, GammaRows
from gemmule.compiler.kernels.epilogue import ROPE_SHIFT, Heads
from gemmule.compiler.kernels.linear import Tile
from gemmule.compiler.kernels.spill import spill
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder
from gemmule.compiler.kernels.widen import widen
from gemmule.isa import NormFlag, RequantFlag, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["HeadNorm"]


@dataclass(frozen=True)
class HeadNorm:
    """A norm of each head of a linear, and the rotation behind it."""

    b: Builder
    linear: Linear
    norm: Norm
    heads: Heads
    angles: At
    diagonals: At

    def write(self, tiles: Iterable[Tile]) -> None:
        """Take the linear's sums, tile by tile; each head goes to its place when its last columns are there."""
        b, dim, head_dim = self.b, self.b.config.dim, self.heads.head_dim
        groups, rows = ceil_div(head_dim, dim), ColumnRows.rows(self.linear)
        gamma = At(Buffer(f"{self.norm.name} gamma", GammaRows.rows(self.norm) * groups * len(self.heads.order),
                          Bank.STATE))
        b.load_constants(STATIC, [GammaRows.of(self.norm, dim)], gamma, f"{self.norm.name}: gamma")
        flags = {RequantFlag.COLUMN, RequantFlag.WIDE} | ({RequantFlag.BIAS} if self.linear.bias else set())
        planes = self._planes(groups)
        for tile in tiles:
            spill(b, f"{self.linear.name}: sums", tile.acc, tile.groups, tile.stride)
            at = tile.first
            while at < tile.first + tile.groups:
                number, inside = divmod(at, groups)
                count, done = min(groups - inside, tile.first + tile.groups - at), at - tile.first
                b.add(Unit.VECTOR, f"{self.linear.name}: head {self.heads.order[number]}", op=VOp.REQUANT, flags=flags,
                      src0=tile.acc + done * tile.stride, src0_stride=tile.stride, src1=tile.parameters + done * rows,
                      dst=planes + 2 * inside * b.rows, dst_stride=2 * b.rows, m=b.m,
                      n=min(count * dim, head_dim - inside * dim))
                at += count
                if inside + count == groups:
                    self._finish(number, planes, gamma + GammaRows.rows(self.norm) * groups * number, groups)
                    planes = self._planes(groups)

    def _planes(self, groups: int) -> At:
        return At(Buffer(f"{self.linear.name}: a head", 2 * groups * self.b.rows, Bank.OPERAND))

    def _finish(self, number: int, planes: At, gamma: At, groups: int) -> None:
        """Norm a whole head where it lies, and rotate it to its place."""
        b, heads, head = self.b, self.heads, self.heads.order[number]
        shift, eps_mult, eps_shift = (int(v) for v in np.asarray(b.network.tensor(self.norm, "scalars")))
        b.add(Unit.VECTOR, f"{self.norm.name}: sums of head {head}", op=VOp.NORM_STAT, mult=eps_mult, shift=eps_shift,
              src0=planes, src0_stride=2 * b.rows, m=b.m, n=heads.head_dim)
        b.add(Unit.VECTOR, f"{self.norm.name}: scale head {head}", op=VOp.NORM_APPLY, flags={NormFlag.WIDE},
              shift=shift, src0=planes, src0_stride=2 * b.rows, src1=gamma, dst=planes, dst_stride=2 * b.rows, m=b.m,
              n=heads.head_dim)
        spill(b, self.norm.name, planes, 2 * groups, b.rows)
        sums = At(Buffer(f"{self.norm.name}: a head", groups * b.rows, Bank.ACCUMULATOR))
        widen(b, self.diagonals, planes, sums, groups, b.m)
        step = (groups - 1).bit_length()
        parts = [(0, 0, b.m)] if heads.pitch is None else [
            (i * b.each, i * heads.pitch, b.m_each) for i in range(b.batch)]
        for from_row, to_row, m in parts:
            b.add(Unit.VECTOR, f"{self.norm.name}: rotate head {head}", op=VOp.ROPE, src0=sums + from_row,
                  src0_stride=b.rows, mult=1, shift=0, dst=heads.place(head) + to_row, dst_stride=heads.stride, m=m,
                  n=heads.head_dim, dyn=heads.dyn, aux=self.angles + (from_row * 4 << step), period=step,
                  shift2=ROPE_SHIFT)
