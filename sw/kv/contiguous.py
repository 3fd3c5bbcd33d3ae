"""A cache whose rows stand one behind the other in the device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gemmule.sw.kv.text import TextKV
from gemmule.sw.step import KV

__all__ = ["ContiguousKV", "Mover"]


class Mover(Protocol):
    """Moves rows of the caches on a device; each call returns cycles, host work included."""

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int: ...

    def copy_rows(self, source: tuple[int, int], target: tuple[int, int], rows: int) -> int:
        """``rows`` rows from one (sequence, first row) to another, in all layers."""

    def gather_rows(self, sequence: int, slots: np.ndarray) -> int:
        """Rows ``slots`` of a sequence to its first ones."""


class ContiguousKV(TextKV):
    """A cache whose rows stand one behind the other in each layer's and KV head's own run.

    Raises:
        ValueError: rows that are not there.
    """

    model: Mover

    def __init__(self, model: Mover, room: int, sequence: int = 0, *, kept: bool = True) -> None:
        """``room``: rows that it can take; ``kept``: as of :class:`TextKV`."""
        super().__init__(model, sequence, kept=kept)
        self.room, self._length, self._added = room, 0, 0
        self.text: object | None = object()
        """Stands for the text whose rows these are; None: rows that nobody reads."""

    @property
    def length(self) -> int:
        """Cached rows."""
        return self._length

    def borrow(self, model: Any) -> TextKV:
        made = type(self)(model, self.room, self.sequence, kept=self.kept)
        made._length, made.text = self.length, self.text
        made._begin_with(self)
        return made

    @property
    def place(self) -> int:
        """A number for where the rows stand, by which texts notice each other."""
        return self.sequence

    def there(self) -> bool:
        """Whether the rows are still this text's: another one of the same sequence may have written over them."""
        owners: dict[int, object] = getattr(self.model, "owners", {})
        return owners.get(self.place, self.text) is self.text

    def append(self, rows: int) -> int:
        """Free: the pass has stored them where they belong."""
        if not 0 <= rows <= self.room - self.length:
            raise ValueError(f"sequence {self.sequence} has room for {self.room - self.length} more rows, not {rows}: "
                             "evict some, or shorten the text")
        self._length += rows
        self._added = rows
        if self.text is not None and (owners := getattr(self.model, "owners", None)) is not None:
            owners[self.place] = self.text
        return 0

    def commit(self, path: Sequence[int]) -> int:
        """A launch where kept rows are not in place, else free."""
        first = self.length - self._added
        cycles = self.model.commit(first, list(path), self.sequence)
        self._length, self._added = first + len(path), 0
        return cycles

    def truncate(self, length: int) -> int:
        """Free: what stands behind is seen by nobody."""
        if not 0 <= length <= self.length:
            raise ValueError(f"a cache of {self.length} rows can be cut to 0 to as many, not {length}")
        self._cut(length)
        self._length, self._added = length, 0
        return 0

    def fork(self, other: KV) -> int:
        """One launch that copies what is used.

        Raises:
            ValueError: the other is this one, or of another kind.
        """
        if not isinstance(other, ContiguousKV) or other is self:
            raise ValueError(f"a fork must be another contiguous cache of the same batch, not {type(other).__name__}"
                             + " itself" * (other is self))
        cycles = self.model.copy_rows((self.sequence, 0), (other.sequence, 0), self.length) if self.length else 0
        other.truncate(0)
        other.append(self.length)
        other._begin_with(self)
        return cycles

    def gather(self, slots: np.ndarray) -> int:
        """One launch; the rows of each layer and head may be others, but as many."""
        index = np.asarray(slots, dtype=np.int64)
        kept = index.shape[-1]
        if kept and not 0 <= index.min() <= index.max() < self.length:
            raise ValueError(f"rows to keep must be from 0 to {self.length - 1}, not {index.min()} to {index.max()}")
        if (np.diff(index, axis=-1) <= 0).any():
            raise ValueError("rows to keep must rise: each is moved to a place before its own, or stays")
        cycles = 0 if (index == np.arange(kept)).all() else self.model.gather_rows(self.sequence, index)
        self._left(index.reshape(-1, kept).max(axis=0) if kept else index.reshape(-1)[:0])
        self._length, self._added = kept, 0
        return cycles

    def evict(self, first: int, count: int) -> int:
        """One launch that moves the rows behind; free at the end."""
        if not 0 <= first <= first + count <= self.length:
            raise ValueError(f"rows to drop must lie within 0 to {self.length}, not {first} to {first + count}")
        left = self.length - first - count
        cycles = self.model.copy_rows((self.sequence, first + count), (self.sequence, first), left) \
            if left and count else 0
        self._left(np.delete(np.arange(self.length), np.s_[first:first + count]))
        self._length, self._added = self.length - count, 0
        return cycles
