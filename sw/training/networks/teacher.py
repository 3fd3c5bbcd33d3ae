"""What teaches the encoder: a bigram model of each class.

p(b | a, class) = (n(a, b) + k u(b)) / (n(a) + k), with the class's unigrams u for what was not seen, every class as
likely beforehand. The score of a window is a sum over its pairs of neighbouring tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gemmule.sw.training.data.folds import CLASSES, Labelled
from gemmule.sw.training.yardstick import Tokens

__all__ = ["evidence", "pairs", "score"]

BACKING = 20.0
"""How many bigrams the unigrams are worth behind each token: k."""


def pairs(tokens: Tokens, vocab: int) -> NDArray[np.int64]:
    """How often each token follows each  # [vocab, vocab]: first token, second."""
    return np.bincount(tokens[:-1] * vocab + tokens[1:], minlength=vocab * vocab).reshape(vocab, vocab)


def evidence(files: Sequence[Labelled], vocab: int) -> NDArray[np.float32]:
    """What a pair of tokens says for each class: log likelihoods less their mean  # [vocab, vocab, classes]."""
    found = np.empty((vocab, vocab, len(CLASSES)), dtype=np.float32)
    for label in range(len(CLASSES)):
        counts = sum((pairs(file.tokens, vocab) for file in files if file.label == label),
                     np.zeros((vocab, vocab), dtype=np.int64))
        unigrams = (counts.sum(0) + 1) / (counts.sum() + vocab)
        found[:, :, label] = np.log((counts + BACKING * unigrams) / (counts.sum(1, keepdims=True) + BACKING))
    return found - found.mean(-1, keepdims=True)


def score(table: NDArray[np.float32], windows: Tokens) -> NDArray[np.float32]:
    """Sums over the windows' pairs, their first token left out  # [windows, classes]."""
    return np.stack([table[row[1:-1], row[2:]].sum(0) for row in windows])
