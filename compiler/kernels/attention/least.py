"""A least probability: 8-bit ones below it become 0, each for itself, so that they meet no value.

What a row sees depends on no other row of its pass. Contexts are divided by the sum of those that are left, which is a
product with a row of equal numbers; its reciprocal is ABSMAX's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder
from gemmule.config import Config
from gemmule.isa import AddFlag, Length, Unit, VOp
from gemmule.numerics import BYTE_TABLE_ENTRIES, KEPT_UNIT, at_least
from gemmule.timing import ceil_div

__all__ = ["drop_small", "load_least"]

LEAST = "least probability"
"""Region of the table, the same for all layers."""


@dataclass(frozen=True)
class _LeastTable:
    """The byte table that makes numbers 0 .. 255 below ``least`` 0; and a row of what sums are multiplied by."""

    least: int
    dim: int

    @property
    def size(self) -> int:
        return BYTE_TABLE_ENTRIES + self.dim

    @property
    def key(self) -> Hashable:
        return LEAST, self.least

    def groups(self, dim: int) -> Sequence[_LeastTable]:
        return [self]

    def pack(self, network: Network, config: Config) -> np.ndarray:
        table = at_least(np.arange(BYTE_TABLE_ENTRIES), self.least)
        return np.concatenate([table, np.full(self.dim, KEPT_UNIT)]).astype(np.uint8)


def load_least(b: Builder, name: str, least: int) -> At:
    """Make the table of ``least`` the vector unit's; returns the row of equal numbers."""
    table = _LeastTable(least, b.config.dim)
    rows = At(Buffer(f"{name} least", table.size // b.config.dim, Bank.STATE, b.config.preload))
    b.load_constants(LEAST, [table], rows, f"{name}: least probability")
    b.add(Unit.VECTOR, f"{name}: least probability", op=VOp.TABLE, src0=rows)
    return rows + BYTE_TABLE_ENTRIES // b.config.dim


def drop_small(b: Builder, name: str, rows: At, stride: int, m: Length, n: Length) -> None:
    """Pass ``m`` rows of ``n`` probabilities through the table, in place; ``stride``: rows from a group to the next.

    What is added to them is multiplied by 0. It stands in other banks, which makes the sum twice as fast.
    """
    nothing = At(Buffer(f"{name} times 0", ceil_div(n.cap, b.config.dim) * stride, Bank.STATE))
    b.add(Unit.VECTOR, f"{name}: least probability", op=VOp.ADD, flags={AddFlag.LOOKUP}, src0=rows, src0_stride=stride,
          src1=nothing, dst=rows, dst_stride=stride, m=m, n=n, mult=1, aux=0, shift=0)
