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
    gamma: At

    @staticmethod
    def of(b: Builder, node: Norm) -> RowNorm:
        """With a buffer for the factors."""
        rows = GammaRows.rows(node) * ceil_div(node.columns, b.config.dim)
        return RowNorm(b, node, At(Buffer(f"{node.name} gamma", rows, Bank.STATE)))

    def load(self) -> None:
        """Load the factors."""
        self.b.load_constants(STATIC, [GammaRows.of(self.node, self.b.config.dim)], self.gamma,
                              f"{self.node.name}: gamma")

    def sums(self, rows: At, m: Length) -> None:
        """The rows' statistics."""
        node, (_, eps_mult, eps_shift) = self.node, self._scalars(self.node)
        self.b.add(Unit.VECTOR, f"{node.name}: sums", op=VOp.NORM_STAT, mult=eps_mult, shift=eps_shift,
                   flags={NormFlag.MEAN} if node.mean else (), **self._source(rows, m))

    def scale(self, rows: At, m: Length, to: At, stride: int, twin: Norm | None = None) -> None:
        """Normalised rows at ``to``, ``stride`` rows a group; of a ``twin`` with the same factors as int16 planes."""
        node = twin or self.node
        flags = ({NormFlag.MEAN, NormFlag.BIAS} if node.mean else set()) | ({NormFlag.WIDE} if twin else set())
        name = f"{self.node.name}: scale" + (" to int16" if twin else "")
        self.b.add(Unit.VECTOR, name, op=VOp.NORM_APPLY, shift=self._scalars(node)[0], src1=self.gamma,
                   dst=to, dst_stride=stride, flags=flags, **self._source(rows, m))

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
