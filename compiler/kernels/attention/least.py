"""A least probability: 8-bit ones below it become 0, each for itself, so that they meet no value.

What a row sees depends on no other row of its pass. Sums by which contexts are divided stay those of all probabilities.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder
from gemmule.config import Config
from gemmule.isa import AddFlag, Length, Unit, VOp
from gemmule.numerics import BYTE_TABLE_ENTRIES, at_least
from gemmule.timing import ceil_div

__all__ = ["drop_small", "load_least"]

LEAST = "least probability"
"""Region of the table, the same for all layers."""


@dataclass(frozen=True)
class _LeastTable:
    """The byte table that makes numbers 0 .. 255 below ``least`` 0."""

    least: int
    size: int = BYTE_TABLE_ENTRIES

    @property
    def key(self) -> Hashable:
        return LEAST, self.least

    def groups(self, dim: int) -> Sequence[_LeastTable]:
        return [self]

    def pack(self, network: Network, config: Config) -> np.ndarray:
        return at_least(np.arange(self.size), self.least).astype(np.uint8)


def load_least(b: Builder, name: str, least: int) -> None:
    """Make the table of ``least`` the vector unit's."""
    table = _LeastTable(least)
    rows = At(Buffer(f"{name} least", table.size // b.config.dim, Bank.STATE))
    b.load_constants(LEAST, [table], rows, f"{name}: least probability")
    b.add(Unit.VECTOR, f"{name}: least probability", op=VOp.TABLE, src0=rows)


def drop_small(b: Builder, name: str, rows: At, stride: int, m: Length, n: Length) -> None:
    """Pass ``m`` rows of ``n`` probabilities through the table, in place; ``stride``: rows from a group to the next.

    What is added to them is multiplied by 0. It stands in other banks, which makes the sum twice as fast.
    """
    nothing = At(Buffer(f"{name} times 0", ceil_div(n.cap, b.config.dim) * stride, Bank.STATE))
    b.add(Unit.VECTOR, f"{name}: least probability", op=VOp.ADD, flags={AddFlag.LOOKUP}, src0=rows, src0_stride=stride,
          src1=nothing, dst=rows, dst_stride=stride, m=m, n=n, mult=1, aux=0, shift=0)
