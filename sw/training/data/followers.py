"""Where in a text the longest match of what stands before each token goes on: what prompt lookup would say."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["followers"]

MOST = 16
"""Tokens of a match that are compared."""


@numba.njit(cache=True)
def _followers(tokens: NDArray[np.uint16], least: int) -> NDArray[np.int64]:
    rows, length = tokens.shape[0], tokens.shape[1] - 1
    found = np.full((rows, length), -1, dtype=np.int64)
    for row in range(rows):
        text, before = tokens[row], np.zeros(length + 1, dtype=np.int64)
        for last in range(length):
            best, at = 0, -1
            for place in range(last - 1, -1, -1):  # before[place + 1] is the match that ends at place, one token ago
                matched = 0
                if text[place] == text[last]:
                    matched = min(MOST, before[place] + 1)
                before[place + 1] = matched
                if matched > best:
                    best, at = matched, place
            before[last + 1] = 0
            if best >= least and text[at + 1] == text[last + 1]:
                found[row, last] = at + 1
    return found


def followers(tokens: NDArray[np.uint16], least: int) -> NDArray[np.int64]:
    """For each token but the last the place behind the latest of the longest earlier matches of what ends with it.

    -1 where fewer than ``least`` tokens match, and where another token stands there than the text goes on with.

    Args:
        tokens: texts  # [rows, length + 1].

    Returns:
        Places  # [rows, length].
    """
    return _followers(tokens, least)
