"""The cache of several texts that begin alike: a list of rows for each, and every row that is the same, once.

All rows are those of one cache. A text is a list that names the row of each of its positions. A fork copies the list
and no row, and the order of texts changes with their lists. What a pass adds takes rows that no list names any more,
the lowest first. Rows are handed out one by one, so a page has one row, and no row that is shared is ever written:
nothing has to be copied for a write, and nothing moves on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.step import Forward, Want

__all__ = ["Branches", "Shared"]


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Rows of a cache that several texts share.

    Attributes:
        rows: named by any list, when most were.
        apart: sum of the lists' lengths, when it was largest: rows of a copy for each text.
        used: the longest prefix of the cache that ever held a row; passes read so many.
        forks: texts that began with all rows of another one.
        copied: rows copied on the device.
    """

    rows: int
    apart: int
    used: int
    forks: int
    copied: int = 0


class Branches:
    """Texts that go on from what a cache holds, one at first.

    Attributes:
        lists: rows of the cache by text and position.
    """

    def __init__(self, kv: ContiguousKV) -> None:
        self.kv = kv
        self.lists: list[list[int]] = [list(range(kv.length))]
        self._rows = self._apart = self._used = kv.length
        self._made = 0

    def fork(self, parents: Sequence[int]) -> None:
        """The texts are from now on those with these numbers, any of them several times or never.

        Raises:
            ValueError: there is no such text.
        """
        if any(not 0 <= parent < len(self.lists) for parent in parents):
            raise ValueError(f"texts are 0 to {len(self.lists) - 1}, not {list(parents)}: fork one of those")
        self._made += len(parents) - len(set(parents))
        self.lists = [[*self.lists[parent]] for parent in parents]

    def forward(self, tokens: Sequence[int], want: Want) -> Forward:
        """A pass over one more token of each text, whose rows are answered.

        Raises:
            ValueError: not one token for each text, or no room in the cache.
        """
        if len(tokens) != len(self.lists):
            raise ValueError(f"each of {len(self.lists)} texts must go on by one token, not {len(tokens)}")
        count, cached = len(tokens), self.kv.length
        named = np.zeros((count, cached), dtype=bool)
        for number, rows in enumerate(self.lists):
            named[number, rows] = True
        free = np.flatnonzero(~named.any(axis=0))[:count]
        places = [*free.tolist(), *range(cached, cached + count - len(free))]
        new = Rows(tokens=np.array(tokens, dtype=np.int64), mask=np.eye(count, dtype=bool),
                   positions=np.array([len(rows) for rows in self.lists], dtype=np.int64),
                   sequences=np.zeros(count, dtype=np.int64)).branching(named, np.array(places))
        out: Forward = self.kv.model.forward(new, want, self.kv)  # type: ignore[attr-defined]
        self.kv.truncate(cached + count - len(free))
        for rows, place in zip(self.lists, places, strict=True):
            rows.append(place)
        self._rows = max(self._rows, len({row for rows in self.lists for row in rows}))
        self._apart = max(self._apart, sum(map(len, self.lists)))
        self._used = max(self._used, self.kv.length)
        return out

    def shared(self) -> Shared:
        """What there was so far."""
        return Shared(rows=self._rows, apart=self._apart, used=self._used, forks=self._made)
