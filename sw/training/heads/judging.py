"""What is told of heads: how often each is right, tokens a step of chains and trees, the paths that are right most."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmule.sw.training.drafters.ranks import TOP, path_shares

__all__ = ["PATHS", "judged_numbers", "looping"]

PATHS = 24
"""That are told of."""


def looping(text: NDArray[np.int64]) -> bool:
    """Whether at least half of its 4-grams stand in it before."""
    grams = [tuple(text[i:i + 4]) for i in range(len(text) - 3)]
    return len(set(grams)) * 2 <= len(grams)


def judged_numbers(ranks: NDArray[np.int8]) -> dict[str, Any]:
    """Shares at which each head is right at rank 0 to 7, and tokens a step of chains and trees, the mean over anchors;
    of no anchor nothing.
    """
    if not len(ranks):
        return {}
    right = np.cumprod(ranks == 0, axis=1).mean(0)
    shares = path_shares(ranks)
    return {"ranks": [[round(float((ranks[:, i] == r).mean()), 4) for r in range(TOP)] for i in range(ranks.shape[1])],
            "chain_tokens": round(1 + float(right.sum()), 4),
            "tree_tokens": {str(n): round(1 + sum(share for _, share in shares[:n]), 4) for n in (7, 15, 31, 63)},
            "paths": [[list(path), round(share, 4)] for path, share in shares[:PATHS]]}
