"""Which token of a first text each token of an edited copy of it comes from."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["aligned"]


@numba.njit(cache=True)
def _aligned(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    costs = np.zeros((len(first) + 1, len(second) + 1), dtype=np.int32)
    costs[0] = np.arange(len(second) + 1)  # what of ``first`` stands before and behind the copied part costs nothing
    for i in range(1, len(first) + 1):
        for j in range(1, len(second) + 1):
            costs[i, j] = min(costs[i - 1, j - 1] + (first[i - 1] != second[j - 1]), costs[i - 1, j] + 1,
                              costs[i, j - 1] + 1)
    places = np.full(len(second), -1, dtype=np.int64)
    i, j = len(first) - int(costs[::-1, -1].argmin()), len(second)
    while i and j:
        if costs[i, j] == costs[i - 1, j - 1] + (first[i - 1] != second[j - 1]):
            i, j = i - 1, j - 1
            if first[i] == second[j]:
                places[j] = i
        elif costs[i, j] == costs[i - 1, j] + 1:
            i -= 1
        else:
            j -= 1
    return places


def aligned(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place in ``first`` of each token of ``second``, on the way of fewest edits from a part of it to ``second``.

    -1 where a token was put in or is another one. Of several such parts the last. Takes len(first) x len(second) steps.
    """
    return _aligned(first, second)
