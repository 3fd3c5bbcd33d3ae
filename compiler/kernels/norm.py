"""LayerNorm and RMSNorm of the residual stream to int8 rows, of post-norm layers to int16 rows too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.ir import Norm
from gemmule.compiler.kernels.constants import GammaRows
from gemmule.compiler.kernels.layout import Span, in_order
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder
from gemmule.isa import Length, NormFlag, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["RowNorm", "normalize_rows"]


@dataclass(frozen=True)
class RowNorm:
    """A norm of rows of the residual planes, which stand ``b.rows`` apart; its factors are loaded first."""

    b: Builder
    node: Norm
    twin: Norm | None
    """The same at int16."""
    gamma: At
    """The factors of both, one behind the other."""

    @staticmethod
    def of(b: Builder, node: Norm, twin: Norm | None = None) -> RowNorm:
        """With a buffer for the factors."""
        rows = (2 if twin else 1) * RowNorm._rows(b, node)
        return RowNorm(b, node, twin, At(Buffer(f"{node.name} gamma", rows, Bank.STATE)))

    @staticmethod
    def _rows(b: Builder, node: Norm) -> int:
        return GammaRows.rows(node) * ceil_div(node.columns, b.config.dim)

    def load(self) -> None:
        """Load the factors."""
        nodes = [self.node, *([self.twin] if self.twin else [])]
        self.b.load_constants(STATIC, [GammaRows.of(node, self.b.config.dim) for node in nodes], self.gamma,
                              f"{self.node.name}: gamma")

    def sums(self, rows: At, m: Length) -> None:
        """The rows' statistics."""
        node, (_, eps_mult, eps_shift) = self.node, self._scalars(self.node)
        self.b.add(Unit.VECTOR, f"{node.name}: sums", op=VOp.NORM_STAT, mult=eps_mult, shift=eps_shift,
                   flags={NormFlag.MEAN} if node.mean else (), **self._source(rows, m))

    def scale(self, rows: At, m: Length, to: At, stride: int) -> None:
        """Normalised int8 rows at ``to``, ``stride`` rows a group."""
        self._apply(self.node, f"{self.node.name}: scale", self.gamma, set(), rows, m, to, stride)

    def scale_wide(self, rows: At, m: Length) -> None:
        """The twin's int16 planes in the place of the rows."""
        assert self.twin is not None
        self._apply(self.twin, f"{self.node.name}: scale to int16", self.gamma + self._rows(self.b, self.node),
                    {NormFlag.WIDE}, rows, m, rows, 2 * self.b.rows)

    def _apply(self, node: Norm, note: str, gamma: At, flags: set[NormFlag], rows: At, m: Length, to: At,
               stride: int) -> None:
        flags = flags | ({NormFlag.MEAN, NormFlag.BIAS} if node.mean else set())
        self.b.add(Unit.VECTOR, note, op=VOp.NORM_APPLY, shift=self._scalars(node)[0], src1=gamma, dst=to,
                   dst_stride=stride, flags=flags, **self._source(rows, m))

    def _scalars(self, node: Norm) -> tuple[int, int, int]:
        shift, eps_mult, eps_shift = (int(v) for v in np.asarray(self.b.network.tensor(node, "scalars")))
        return shift, eps_mult, eps_shift

    def _source(self, rows: At, m: Length) -> dict[str, Any]:
        return {"src0": rows, "src0_stride": 2 * self.b.rows, "m": m, "n": self.node.columns}


def normalize_rows(b: Builder, node: Norm, residual: At) -> Span:
    """int8 rows of a norm of the residual planes."""
    normed = At(Buffer(node.name, ceil_div(node.columns, b.config.dim) * b.rows, Bank.OPERAND))
    norm = RowNorm.of(b, node)
    norm.load()
    norm.sums(residual, b.m)
    norm.scale(residual, b.m, normed, b.rows)
    return Span(normed, b.rows, in_order(node.columns, b.config.dim))
