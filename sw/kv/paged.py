"""Paged caches: sequences share a pool of rows, each names its own by list, and pages come and go as texts grow.

A list names single rows, so rows of a page may be of several sequences: a fork shares all of its rows, the half-filled
page included, without a copy, and an accepted path of a tree is kept by leaving the others out of the list. Pages are
what is handed out and given back (PagedAttention, Kwon et al. 2023, whose blocks are copied when shared ones are
written; here none ever is).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmule.sw.kv.text import TextKV
from gemmule.sw.step import KV

__all__ = ["NobodyKV", "PagePool", "PagedKV"]


class PagePool:
    """Rows of a cache in pages, and how many lists name each page's rows.

    Raises:
        ValueError: no whole page fits; a row is wanted and no page is free.
    """

    def __init__(self, rows: int, page: int, constant: int = 0) -> None:
        """``rows`` of the pool, ``page`` rows a page; rows beyond the last whole page are not used.

        ``constant``: first rows, and the pages that they stand in, which are never handed out.
        """
        if not 1 <= page <= rows:
            raise ValueError(f"a page must have 1 to {rows} rows (the pool), not {page}")
        self.page = page
        self.named = np.zeros(rows // page * page, dtype=np.int64)
        """Entries of all lists by row."""
        self.share(range(-(-constant // page) * page))

    @property
    def free_pages(self) -> int:
        """Pages of which no list names a row."""
        return int((self._by_page() == 0).sum())

    def _by_page(self) -> np.ndarray:
        found: np.ndarray = self.named.reshape(-1, self.page).sum(axis=1)
        return found

    def take(self, after: int | None) -> int:
        """A row that no list names: in the page of row ``after``, else the first one of a free page."""
        if after is not None:
            first = after // self.page * self.page
            if len(free := np.flatnonzero(self.named[first:first + self.page] == 0)):
                return self._given(first + int(free[0]))
        if len(pages := np.flatnonzero(self._by_page() == 0)):
            return self._given(int(pages[0]) * self.page)
        raise ValueError(f"all {len(self.named) // self.page} pages of {self.page} rows are in use: truncate or end a "
                         "sequence, or compile for a larger pool")

    def _given(self, row: int) -> int:
        self.share([row])
        return row

    def share(self, rows: Sequence[int]) -> None:
        """One more list names these rows."""
        np.add.at(self.named, np.asarray(rows, dtype=np.int64), 1)

    def drop(self, rows: Sequence[int]) -> None:
        """A list names these rows no more."""
        np.subtract.at(self.named, np.asarray(rows, dtype=np.int64), 1)


class NobodyKV:
    """The cache of a sequence of a batch without a text: its row goes where nobody reads."""

    def __init__(self, model: Any, row: int, sequence: int) -> None:
        self.model, self.row, self.sequence, self.length = model, row, sequence, 0

    def places(self, count: int) -> np.ndarray:
        """That row for each new one  # int64 [count]"""
        return np.full(count, self.row, dtype=np.int64)

    def append(self, rows: int) -> int:
        """Nothing stays."""
        return 0


class PagedKV(TextKV):
    """A sequence's rows of a pool. Nothing is ever moved on the device, so every operation is free.

    Raises:
        ValueError: rows that are not there; a full pool or context.
    """

    def __init__(self, model: Any, pool: PagePool, room: int, sequence: int = 0, *, kept: bool = True) -> None:
        """``room``: rows that a pass can see; ``kept``: as of :class:`TextKV`."""
        super().__init__(model, sequence, kept=kept)
        self.pool, self.room = pool, room
        self.rows: list[int] = []
        self._reserved: list[int] = []
        self._added = 0

    @property
    def length(self) -> int:
        """Cached rows."""
        return len(self.rows)

    def places(self, count: int) -> np.ndarray:
        """Rows of the pool for the cached positions and the next ``count``, which are taken now  # int64."""
        if not 0 <= count <= self.room - self.length:
            raise ValueError(f"the cache has room for {self.room - self.length} more rows, not {count}: evict some, or "
                             "shorten the text")
        while len(self._reserved) < count:
            before = self._reserved or self.rows
            self._reserved.append(self.pool.take(before[-1] if before else None))
        return np.array([*self.rows, *self._reserved[:count]], dtype=np.int64)

    def lacking(self, count: int) -> int:
        """Free pages that so many more rows take at most: those of its last page are its own where nobody shares it."""
        free, page = 0, self.pool.page
        if self.rows:
            first = self.rows[-1] // page * page
            named = self.pool.named[first:first + page]
            if int(named.sum()) == sum(first <= row < first + page for row in self.rows):
                free = int((named == 0).sum())
        return -(-max(0, count - free) // page)

    def append(self, rows: int) -> int:
        """The pass has stored so many new rows where :meth:`places` said."""
        if rows > len(self._reserved):
            self.places(rows)
        self.rows += self._reserved[:rows]
        self.pool.drop(self._reserved[rows:])
        self._reserved, self._added = [], rows
        return 0

    def commit(self, path: Sequence[int]) -> int:
        """Rows of the last pass that are not on the path leave the list."""
        first = self.length - self._added
        if any(not 0 <= row < self._added for row in path) or any(b <= a for a, b in zip(path, path[1:])):
            raise ValueError(f"a path must rise within 0 to {self._added - 1}, not {list(path)}")
        return self._keep([*range(first), *(first + row for row in path)])

    def truncate(self, length: int) -> int:
        """Keep the first rows."""
        if not 0 <= length <= self.length:
            raise ValueError(f"a cache of {self.length} rows can be cut to 0 to as many, not {length}")
        self._cut(length)
        return self._keep(range(length))

    def fork(self, other: KV) -> int:
        """Let another sequence of the pool begin with these rows, which both name from then on."""
        if not isinstance(other, PagedKV) or other.pool is not self.pool or other is self:
            raise ValueError("a fork must be of the same pool, and another cache: make it with the same model's kv()")
        other.truncate(0)
        if self.model is not None:
            self.model.forked(self.sequence, other.sequence)
        self.pool.share(self.rows)
        other.rows = list(self.rows)
        other._begin_with(self)
        return 0

    def gather(self, slots: np.ndarray) -> int:
        """Keep these rows, rising  # int [kept], the same in all layers and heads."""
        index = np.asarray(slots, dtype=np.int64)
        if index.ndim != 1:
            raise ValueError(f"rows of a pool are the same in all layers and heads: a list, not of shape {index.shape}")
        if len(index) and (index.min() < 0 or index.max() >= self.length or (np.diff(index) <= 0).any()):
            raise ValueError(f"rows to keep must rise within 0 to {self.length - 1}")
        self._left(index)
        return self._keep(index.tolist())

    def evict(self, first: int, count: int) -> int:
        """Drop ``count`` rows from ``first`` on."""
        if not 0 <= first <= first + count <= self.length:
            raise ValueError(f"rows to drop must lie within 0 to {self.length}, not {first} to {first + count}")
        index = [*range(first), *range(first + count, self.length)]
        self._left(np.array(index, dtype=np.int64))
        return self._keep(index)

    def _keep(self, index: Sequence[int]) -> int:
        if self.model is not None and any(row != place for place, row in enumerate(index)):
            self.model.relisted(self.sequence, index)
        kept = [self.rows[i] for i in index]
        self.pool.share(kept)
        self.pool.drop([*self.rows, *self._reserved])
        self.rows, self._reserved, self._added = kept, [], 0
        return 0
