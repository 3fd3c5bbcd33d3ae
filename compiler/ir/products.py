"""Products of few rows with int8 weights, as the mesh computes them: each weight is read once, and as a byte.

BLAS wants float32 weights, four times the bytes, and few rows wait for these alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from gemmule.sim.compiled import kept

__all__ = ["FEW_ROWS", "few_rows"]

FEW_ROWS = 64
"""Up to so many rows this is quicker than BLAS."""


@cache
def _compiled() -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
    @kept("products of few rows")
    def products(x: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
        for column in range(weight.shape[0]):
            for row in range(x.shape[0]):
                total = np.int32(0)
                for i in range(x.shape[1]):
                    total += np.int32(x[row, i]) * np.int32(weight[column, i])
                out[row, column] = total

    found: Callable[[np.ndarray, np.ndarray, np.ndarray], None] = products
    return found


def few_rows(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``x @ weight.T`` of 8-bit numbers x [rows, depth] and int8 weights [columns, depth], int32 [rows, columns].

    Sums wrap modulo 2**32, as in the accumulator.
    """
    out = np.empty((len(x), len(weight)), dtype=np.int32)
    _compiled()(np.ascontiguousarray(x, dtype=np.int16), np.ascontiguousarray(weight), out)
    return out
