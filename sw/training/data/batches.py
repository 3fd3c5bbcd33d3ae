"""Which windows a step sees: a function of recipe, seed and step alone, so that a resumed run is the same."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gemmule.sw.training.data.prepare import Arrays
from gemmule.sw.training.yardstick import Tokens

__all__ = ["Batches", "Epochs", "Pairs", "shuffled"]


class Epochs:
    """Windows of a stream without replacement: every epoch cuts it at another phase and shuffles the pieces."""

    def __init__(self, stream: Tokens, length: int, key: tuple[int, ...]) -> None:
        self.stream = stream
        self.length = length
        self.key = key
        self.count = (len(stream) - length) // length
        if self.count < 1:
            raise ValueError(f"a window of {length} tokens does not fit a stream of {len(stream)}")
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, epoch: int) -> tuple[int, NDArray[np.int64]]:
        random = np.random.default_rng((*self.key, epoch))
        return int(random.integers(self.length)), random.permutation(self.count)

    def window(self, index: int) -> Tokens:
        """The ``index``-th window: ``length`` tokens and the one behind them."""
        phase, order = self._order(index // self.count)
        start = phase + int(order[index % self.count]) * self.length
        return self.stream[start:start + self.length + 1]


class Pairs:
    """Windows that begin with a function whose copy ends in them, further pairs behind."""

    def __init__(self, arrays: Arrays, length: int, key: tuple[int, ...]) -> None:
        self.arrays = arrays
        self.length = length
        self.key = key
        sizes = np.diff(arrays.starts)
        fits = (sizes <= length) & (arrays.starts[:-1] + length < len(arrays.copies))
        self.starts = arrays.starts[:-1][fits]
        if not len(self.starts):
            raise ValueError(f"no function and its copy fit a window of {length} tokens")

    def window(self, index: int) -> Tokens:
        """The ``index``-th window: ``length`` tokens and the one behind them."""
        start = int(self.starts[np.random.default_rng((*self.key, index)).integers(len(self.starts))])
        return self.arrays.copies[start:start + self.length + 1]


class Batches:
    """Rows of a stage's steps: half of the library, ``copies`` of functions and their copies, the rest of packages."""

    def __init__(self, arrays: Arrays, context: int, rows: int, copies: float, key: tuple[int, ...]) -> None:
        self.rows = rows
        self.copies = copies
        self.key = key
        self.library = Epochs(arrays.library, context, (*key, 0))
        self.packages = Epochs(arrays.packages, context, (*key, 1))
        self.pairs = Pairs(arrays, context, (*key, 2)) if copies else None

    def counts(self, step: int) -> tuple[int, int, int]:
        """Rows of a step of the library, of packages, of copies."""
        library = (self.rows + 1) // 2
        copies = self._copies_before(step + 1) - self._copies_before(step)
        return library, self.rows - library - copies, copies

    def _copies_before(self, step: int) -> int:
        return int(step * self.rows * self.copies + 1e-9)

    def step(self, step: int) -> Tokens:
        """The windows of a step in random order  # [rows, context + 1]."""
        library, packages, copies = self.counts(step)
        before = self._copies_before(step)
        first = step * (self.rows - library) - before
        rows = [self.library.window(step * library + i) for i in range(library)]
        rows += [self.packages.window(first + i) for i in range(packages)]
        rows += [self.pairs.window(before + i) for i in range(copies) if self.pairs]
        return np.stack(rows)[np.random.default_rng((*self.key, 3, step)).permutation(self.rows)]


def shuffled(count: int, rows: int, step: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Which ``rows`` of ``count`` texts a step sees: all of them, in another order every epoch."""
    places = np.arange(step * rows, (step + 1) * rows)
    orders = {int(epoch): np.random.default_rng((*key, int(epoch))).permutation(count)
              for epoch in np.unique(places // count)}
    return np.array([orders[int(place // count)][place % count] for place in places])
