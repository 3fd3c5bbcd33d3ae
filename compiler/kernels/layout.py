"""Where the columns of a value lie: groups of DIM columns, heads padded to whole groups, rows of a group together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.compiler.kernels.virtual import At
from gemmule.timing import ceil_div

__all__ = ["PAD", "Span", "by_heads", "in_order"]

PAD = -1
"""A column that holds nothing."""


@dataclass(frozen=True, eq=False)
class Span:
    """Column groups of an int8 value, as one product reads them as A: ``groups`` blocks of rows, ``stride`` apart.

    Of an int16 value the low planes; the high ones stand half a stride behind them.
    """

    at: At
    stride: int
    columns: np.ndarray
    """The value's column by lane of the span, int64 [groups * dim]; ``PAD`` where a lane holds none."""
    pitch: int | None = None
    """Rows from a sequence of the batch to the next where others stand between them."""
    wide: bool = False
    """int16: two planes."""

    def groups(self, dim: int) -> int:
        """Column groups."""
        return len(self.columns) // dim


def in_order(columns: int, dim: int) -> np.ndarray:
    """Columns by lane of a value without heads  # int64, a multiple of dim."""
    lanes = np.full(ceil_div(columns, dim) * dim, PAD, dtype=np.int64)
    lanes[:columns] = np.arange(columns)
    return lanes


def by_heads(heads: np.ndarray, head_dim: int, dim: int) -> np.ndarray:
    """Columns by lane where each of ``heads`` (numbers, in this order) begins a group  # int64."""
    lanes = np.full((len(heads), ceil_div(head_dim, dim) * dim), PAD, dtype=np.int64)
    lanes[:, :head_dim] = heads[:, None] * head_dim + np.arange(head_dim)
    return lanes.reshape(-1)
