"""int16 planes to the accumulator, by products with diagonals: low bytes with 1, high bytes with 127, 127 and 2.

What the vector unit takes from the accumulator alone (scores, what is rotated) comes from int16 rows so, exactly.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product

import numpy as np

from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder
from gemmule.config import Config
from gemmule.isa import Length, MatrixFlag, Unit

__all__ = ["HIGH", "diagonals", "load_diagonals", "widen"]

HIGH = (127, 127, 2)
"""256 as sums of int8."""
DIAGONALS = 1 + len(HIGH)


def diagonals(dim: int) -> np.ndarray:
    """Those of 1 and of :data:`HIGH`  # int8 [4 * dim, dim]."""
    one = np.eye(dim, dtype=np.int8)
    return np.concatenate([one, *(one * part for part in HIGH)])


@dataclass(frozen=True)
class _Diagonals:
    """:func:`diagonals` in DRAM."""

    size: int

    @property
    def key(self) -> Hashable:
        return "diagonals"

    def groups(self, dim: int) -> tuple[_Diagonals]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        return diagonals(config.dim).view(np.uint8).reshape(-1)


def load_diagonals(b: Builder) -> At:
    """The diagonals in the scratchpad, for :func:`widen`."""
    dim = b.config.dim
    at = At(Buffer("diagonals", DIAGONALS * dim, Bank.STREAM, b.config.preload))
    b.load_constants(STATIC, [_Diagonals(DIAGONALS * dim * dim)], at, "diagonals")
    return at


def widen(b: Builder, units: At, planes: At, sums: At, groups: int, m: Length) -> None:
    """Column groups of planes, low and high one behind the other, to sums; a diagonal stays in the mesh for all."""
    dim = b.config.dim
    for unit, g in product(range(DIAGONALS), range(groups)):
        flags = {MatrixFlag.ACCUMULATE if unit else MatrixFlag.A_UNSIGNED} | ({MatrixFlag.REUSE} if g else set())
        b.add(Unit.MATRIX, "high bytes" if unit else "low bytes", flags=flags,
              a_row=planes + (2 * g + (unit > 0)) * b.rows, a_stride=b.rows, b_row=units + unit * dim, b_stride=dim,
              c_row=sums + b.rows * g, c_stride=b.rows, m=m, n=Length(dim), k=Length(dim))
