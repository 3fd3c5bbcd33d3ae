"""Where a run of tokens stands in a large text, and what follows it there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["DEPTH", "Datastore", "Places"]

DEPTH = 32
"""Tokens that the order of places goes by: of a run and what follows it together."""
LOOKED = 4096
"""Places of a run that are looked at for what follows; of more, so many evenly over all."""


class Places(NamedTuple):
    """Where a run of ``length`` tokens stands: places of the suffix array from ``first`` to before ``end``."""

    first: int
    end: int
    length: int

    @property
    def times(self) -> int:
        """How often."""
        return self.end - self.first


class Datastore:
    """Tokens of texts, a separator behind each, and the places in their order.

    Attributes:
        tokens: unsigned integers; the largest one is the separator  # [length].
        order: places, as of :func:`gemmule.sw.datastore.suffix_array.suffix_array`, uint32 [length].
        separator: the id between texts, which is no token.
        digest: SHA-256 of what it was made of.
    """

    def __init__(self, tokens: np.ndarray, order: np.ndarray, separator: int, digest: str) -> None:
        self.tokens, self.order, self.separator, self.digest = tokens, order, separator, digest

    def longest(self, ids: Sequence[int], most: int, least: int) -> Places | None:
        """The longest run of last tokens, ``least`` to ``most``, that stands somewhere; None: not even the least."""
        low, found = least, None
        high = min(most, len(ids), DEPTH)
        while low <= high:  # where a run stands, all that are shorter do
            length = (low + high) // 2
            places = self.places(ids[len(ids) - length:])
            if places is None:
                high = length - 1
            else:
                low, found = length + 1, places
        return found

    def places(self, run: Sequence[int]) -> Places | None:
        """Where a run of at most :data:`DEPTH` tokens stands; None: nowhere."""
        wanted, length = tuple(run), len(run)

        def at(place: np.integer) -> tuple[int, ...]:
            return tuple(self.tokens[int(place):int(place) + length].tolist())

        first = bisect_left(self.order, wanted, key=at)
        end = bisect_right(self.order, wanted, lo=first, key=at)
        return Places(first, end, length) if end > first else None

    def behind(self, run: Places, widest: int) -> list[tuple[int, float, Places]]:
        """The likeliest tokens behind a run, each with its share and the places of the run with it.

        None behind runs of :data:`DEPTH` tokens, whose places are in no order; the separator is left out.
        """
        first, end, length = run
        if length >= DEPTH:
            return []
        looked = np.arange(first, end) if run.times <= LOOKED else np.linspace(first, end - 1, LOOKED).astype(np.int64)
        following = self.tokens[self.order[looked].astype(np.int64) + length]
        tokens, counts = np.unique(following, return_counts=True)
        best = np.argsort(-counts, kind="stable")[:widest + 1]
        return [(token, count / len(looked), self._narrowed(run, token))
                for token, count in zip(tokens[best].tolist(), counts[best].tolist())
                if token != self.separator][:widest]

    def _narrowed(self, run: Places, token: int) -> Places:
        """The places where a token follows."""
        def at(place: np.integer) -> int:
            return int(self.tokens[int(place) + run.length])

        first = bisect_left(self.order, token, run.first, run.end, key=at)
        return Places(first, bisect_right(self.order, token, first, run.end, key=at), run.length + 1)
