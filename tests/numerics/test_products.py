"""Products through BLAS are those of integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gemmule.numerics.products import exact_matmul


@given(st.integers(1, 3000), st.sampled_from([(1, 1), (127, 127), (128, 128), (255, 128), (32768, 128)]),
       st.integers(0, 2**32))
def test_products_are_exact(depth: int, most: tuple[int, int], seed: int) -> None:
    """Of every depth and width, extremes among them: in one piece, in several, and in float64."""
    random = np.random.default_rng(seed)
    a, b = (random.integers(-peak, peak + 1, shape) for peak, shape in zip(most, ((3, depth), (depth, 4)), strict=True))
    a[0], b[:, 0] = -most[0], -most[1]
    np.testing.assert_array_equal(exact_matmul(a, b), a @ b)
    stacked = np.stack([b, b[::-1]])
    np.testing.assert_array_equal(exact_matmul(np.stack([a, a]), stacked), a @ stacked)
