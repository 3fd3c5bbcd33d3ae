"""Suffix arrays by the first tokens alone: enough to find a run of so many tokens, and quick to make."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["suffix_array"]


def suffix_array(tokens: np.ndarray, depth: int) -> NDArray[np.uint32]:
    """Places of a text in the order of the tokens that stand from there on, of equal ones the earlier place first.

    Ranks by 1, 2, 4, .. tokens, each from the ranks before (Manber and Myers 1993), until ``depth`` tokens count. The
    text's end comes before every token.

    Args:
        tokens: the text, integers from 0 on  # [length].
        depth: tokens that the order goes by; what is equal up to there stays in the order of the text.
    """
    rank = tokens.astype(np.int64) + 1
    length = 1
    order = np.argsort(rank, kind="stable")
    while length < depth:
        behind = np.zeros_like(rank)
        behind[:-length] = rank[length:]
        keys = rank * (int(rank.max(initial=0)) + 1) + behind
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        rank[order] = np.cumsum(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[:len(rank)]
        length *= 2
    return order.astype(np.uint32)
