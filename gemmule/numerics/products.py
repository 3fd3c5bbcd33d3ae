"""Products of integers through BLAS, exactly: numpy itself multiplies integers one by one."""

from __future__ import annotations

import numpy as np

__all__ = ["exact_matmul", "largest_of"]

EXACT = 1 << 24
"""Integers below this are exact as float32."""
LEAST_PIECE = 256
"""Depth of a piece of a product that pays in float32."""


def largest_of(x: np.ndarray) -> float:
    """Largest magnitude; 0 of nothing."""
    return max(float(x.max(initial=0)), -float(x.min(initial=0)))


def exact_matmul(a: np.ndarray, b: np.ndarray, largest: float | None = None) -> np.ndarray:
    """``a @ b`` of integers, int64; sums must stay below 2**53.

    In pieces of the depth whose sums are exact in float32; where such pieces are short, in float64. ``b`` may hold its
    integers in any type; ``largest``: magnitude of its largest one, where that is known.
    """
    depth, most = a.shape[-1], max(1.0, largest_of(a) * (largest_of(b) if largest is None else largest))
    piece = int((EXACT - 1) / most)
    if piece < min(depth, LEAST_PIECE):
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    a, b = a.astype(np.float32), b.astype(np.float32, copy=False)
    found = (a[..., :piece] @ b[..., :piece, :]).astype(np.int64)
    for at in range(piece, depth, piece):
        found += (a[..., at:at + piece] @ b[..., at:at + piece, :]).astype(np.int64)
    return found
