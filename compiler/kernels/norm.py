"""LayerNorm and RMSNorm of the residual stream to int8 rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmule.compiler.ir import Norm
from gemmule.compiler.kernels.constants import GammaRows
from gemmule.compiler.kernels.layout import Span, in_order
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder
from gemmule.isa import NormFlag, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["normalize_rows"]


def normalize_rows(b: Builder, node: Norm, residual: At) -> Span:
    """int8 rows of a norm of the residual planes."""
    dim = b.config.dim
    groups = ceil_div(node.columns, dim)
    gamma = At(Buffer(f"{node.name} gamma", GammaRows.rows(node) * groups, Bank.STATE))
    normed = At(Buffer(node.name, groups * b.rows, Bank.OPERAND))
    shift, eps_mult, eps_shift = (int(v) for v in np.asarray(b.network.tensor(node, "scalars")))
    b.load_constants(STATIC, [GammaRows.of(node, dim)], gamma, f"{node.name}: gamma")
    source: dict[str, Any] = {"src0": residual, "src0_stride": 2 * b.rows, "m": b.m, "n": node.columns}
    b.add(Unit.VECTOR, f"{node.name}: sums", op=VOp.NORM_STAT, mult=eps_mult, shift=eps_shift,
          flags={NormFlag.MEAN} if node.mean else (), **source)
    b.add(Unit.VECTOR, f"{node.name}: scale", op=VOp.NORM_APPLY, shift=shift, src1=gamma, dst=normed, dst_stride=b.rows,
          flags={NormFlag.MEAN, NormFlag.BIAS} if node.mean else (), **source)
    return Span(normed, b.rows, in_order(node.columns, dim))
