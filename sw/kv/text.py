"""The cache of a text: which of its tokens a model has passed, and the passes that go behind them.

What a new text shares with the cached one is not passed again. A rollback is a shorter prefix: the next pass overwrites
the rows behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.sw.kv.parts import parts_of
from gemmule.sw.step import KV, Ask, Asking, Forward, Keep, LayerRange, Want

__all__ = ["Pruned", "Reading", "TextKV"]

UNBOUNDED = 1 << 30
NOWHERE: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What a cache was pruned by, and what passes have read of it."""

    selections: int
    kept: int
    """Rows of each layer and KV head that the last selection kept; 0: there was none."""
    cycles: int
    """Of all selections, host work included."""
    rows: int
    """Cached rows that passes have read, selecting ones included: the sum over passes."""
    rows_dense: int
    """As many as the same passes would have read of the whole cache, without any selection."""
    top_k_cycles: int
    """Of the select unit's TOP_K."""
    top_k_exposed: int
    """Of these, with no command of another unit under way."""
    layers: int
    row_bytes: int
    """Of a row's keys and values in all layers."""
    by_rows: bool = False
    """Each row chooses pages for itself: there are no selections, and rows that are read are counted row by row."""
    values: int | None = None
    """Least probability that meets a value."""
    halved: int = 0
    """Of the rows that the last selection kept, those of 4 bits."""
    saved: int = 0
    """Bytes of values, of the rows that passes have read, that were not loaded."""

    @property
    def bytes(self) -> int:
        """Of keys and values that passes have read."""
        return self.rows * self.row_bytes - self.saved

    @property
    def bytes_dense(self) -> int:
        """Of the whole cache."""
        return self.rows_dense * self.row_bytes


@dataclass(frozen=True)
class Reading:
    """What is wanted of the rows of a prompt, and who gets it: their tokens, and the answers behind them."""

    want: Want
    read: Callable[[list[int], Forward], None]


class TextKV(ABC):
    """Keys and values of one text. Kinds of caches implement what becomes of rows; the rest is here.

    Attributes:
        model: whose passes fill it.
        sequence: its number in the batch.
        kept: whether rows stay from pass to pass; if not, each pass goes over the whole text anew.
        ids: tokens of the text that have been passed. Rows of some may be gone (:meth:`evict`, :meth:`gather`).
    """

    def __init__(self, model: Any, sequence: int = 0, *, kept: bool = True) -> None:
        self.model, self.sequence, self.kept = model, sequence, kept
        self.ids: list[int] = []
        self._of: np.ndarray | None = None
        """The token of each row, by number, int64 [length]; None: rows and tokens are one to one."""
        self._last: list[int] | None = None
        """Of candidates that went in several launches: those of the last one."""

    # -- the text

    def fit(self, ids: Sequence[int]) -> int:
        """Forget what a text does not share; returns how many of its tokens are cached."""
        self.missing(ids)
        return len(self.ids)

    def missing(self, ids: Sequence[int]) -> list[int]:
        """Tokens behind what the text and the cache share; the last one always is. What they do not share is forgotten.
        """
        if not self.there():
            self.rewind(0)
        most = min(len(self.ids), len(ids) - 1)
        self.rewind(next((i for i in range(most) if self.ids[i] != ids[i]), most))
        return list(ids[len(self.ids):])

    def rewind(self, count: int) -> None:
        """Forget all tokens but the first ``count``."""
        del self.ids[count:]
        if self._of is None:
            self.truncate(min(self.length, len(self.ids)))
        else:
            self.truncate(int(np.searchsorted(self._of, count)))

    def begin(self, ids: Sequence[int], reading: Reading | None = None) -> Asking[int]:
        """Cache all of a text but its last token; returns how many rows were passed for it.

        ``reading``: who gets answers behind them.
        """
        rows = self.missing(ids)[:-1]
        if rows:
            out = yield from self._pass(Rows.chain(rows, len(self.ids)), reading.want if reading else Want(last=0))
            self._passed(rows)
            if reading:
                reading.read(rows, out)
        return len(rows)

    def chain(self, ids: Sequence[int], want: Want, layers: Sequence[LayerRange] | None = None) -> Asking[Forward]:
        """Answers behind a text: its last token is passed, and what is not cached before it."""
        rows = self.missing(ids)
        out = yield from self._pass(Rows.chain(rows, len(self.ids)), want, layers)
        self._passed(rows)
        if not self.kept:
            self.rewind(0)
        return out

    def ahead_of(self, ids: Sequence[int], guesses: Sequence[int], want: Want,
                 elsewhere: Mapping[int, int] = NOWHERE) -> Asking[Forward]:
        """Answers behind a text whose last row is followed by others, which are then forgotten.

        Each row of the text reads the lender's row of its own position, or the one that ``elsewhere`` names for that
        position; ``guesses`` read that of the text's last row.
        """
        rows, first = self.missing(ids), len(self.ids)
        lent = [elsewhere.get(position, position) for position in range(first, len(ids))]
        lent += lent[-1:] * len(guesses)
        out = yield from self._pass(Rows.chain([*rows, *guesses], first).borrowing(lent), want)
        self._passed(rows)
        self.rewind(len(ids) if self.kept else 0)
        return out

    def branches(self, rows: Rows, want: Want) -> Asking[Forward]:
        """Answers behind the nodes of a tree that follows the text; none of them stays."""
        out = yield from self._pass(rows, want)
        self.rewind(len(self.ids) if self.kept else 0)
        return out

    def greedy(self, ids: Sequence[int], steps: int, want: Want) -> Asking[Forward]:
        """The greedy tokens of so many steps behind a text: a pass each, or one launch where the model has a program.

        The last token is not passed.
        """
        if not self.model.loop:
            found: list[int] = []
            launches: tuple[Any, ...] = ()
            for _ in range(steps):
                out = yield from self.chain([*ids, *found], want)
                found.append(out.argmax[-1])
                launches += out.results
            return Forward(found, launches)
        rows = self.missing(ids)
        looped: Forward = yield Ask(self.model, Rows.chain(rows, len(self.ids)), want, self, steps=steps)
        self._passed([*rows, *looped.argmax[:-1]])
        return looped

    def candidates(self, rows: Rows, want: Want) -> Asking[Forward]:
        """Answers behind candidates, whose first row is the text's last token; :meth:`accept` says what stays.

        Where they are more than a launch takes, and no chain, they go in several, each with what its rows see.
        """
        most = self.model.program.max_rows
        chain = len(rows) <= most or np.array_equal(rows.mask, np.tri(len(rows), dtype=bool))
        parts = [] if chain else parts_of(rows.mask, most)
        self._last = parts[-1].tolist() if len(parts) > 1 else None
        if self._last is None:
            return (yield from self._pass(rows, want))
        return (yield from self._in_parts(rows, want, parts))

    def accept(self, tokens: Sequence[int], path: Sequence[int]) -> Asking[None]:
        """Keep of the last candidates those on the path, whose ``tokens`` they are."""
        if self._last is None:
            yield Keep(self, path)
        elif set(path) <= set(self._last):
            yield Keep(self, [self._last.index(node) for node in path])
        else:  # rows of an earlier launch, which later ones have overwritten
            self.truncate(self.length - len(self._last))
            yield from self._pass(Rows.chain(list(tokens), len(self.ids)), Want(last=0))
        self._last = None
        self._passed(tokens)
        if not self.kept:
            self.rewind(0)

    def _passed(self, tokens: Sequence[int]) -> None:
        """The text has these tokens more, whose rows are the last ones."""
        first = len(self.ids)
        self.ids += tokens
        if self._of is not None:
            self._of = np.concatenate([self._of, np.arange(first, len(self.ids))])

    def _in_parts(self, rows: Rows, want: Want, parts: Sequence[np.ndarray]) -> Asking[Forward]:
        """The answers of all rows; of a row that goes in several launches the first one's."""
        found: list[tuple[np.ndarray, Forward]] = []
        for number, index in enumerate(parts):
            out = yield from self._pass(rows.take(index), want)
            found.append((index, out))
            if number < len(parts) - 1:
                self.truncate(self.length - len(index))
        return Forward.merged(found, len(rows))

    def _pass(self, rows: Rows, want: Want, layers: Sequence[LayerRange] | None = None) -> Asking[Forward]:
        out: Forward = yield Ask(self.model, rows, want, self, None if layers is None else tuple(layers))
        return out

    def ahead(self, position: int) -> int:
        """Positions behind this one that a pass over it may reach: rows further on may see other rows of the cache."""
        return UNBOUNDED

    def pruned(self) -> Pruned | None:
        """What a schedule has left out so far; None: nothing ever is."""
        return None

    # -- other caches of the text

    def there(self) -> bool:
        """Whether the cached rows are still this text's."""
        return True

    def borrow(self, model: Any) -> TextKV:
        """A cache with the same rows in the same place, whose length goes its own way: for ``model``, which is this one
        under another name, to draft ahead in. What it adds, the next pass of this one overwrites.
        """
        raise ValueError(f"{type(self).__name__} cannot be borrowed: rows that it hands out are its own")

    def _begin_with(self, other: TextKV) -> None:
        """The text of another one."""
        self.ids, self._of, self._last = [*other.ids], other._of, None

    def _left(self, index: np.ndarray) -> None:
        """Of the rows that there are, those with these numbers stay  # int64 [kept]"""
        known = np.arange(len(self.ids)) if self._of is None else self._of
        more = np.arange(len(self.ids), len(self.ids) + self.length - len(known))  # rows that no text knows of
        self._of = np.concatenate([known, more])[index]

    def _cut(self, length: int) -> None:
        """The first rows stay."""
        if self._of is not None:
            self._of = self._of[:length]

    # -- rows

    @property
    @abstractmethod
    def length(self) -> int:
        """Cached rows."""

    @abstractmethod
    def append(self, rows: int) -> int:
        """A pass has added rows behind the cached ones."""

    @abstractmethod
    def commit(self, path: Sequence[int]) -> int:
        """Keep of the rows that the last pass added those with these numbers, rising, one behind the other."""

    @abstractmethod
    def truncate(self, length: int) -> int:
        """Keep the first rows."""

    @abstractmethod
    def fork(self, other: KV) -> int:
        """Let another sequence begin with these rows."""

    @abstractmethod
    def gather(self, slots: np.ndarray) -> int:
        """Keep these rows, rising, one behind the other  # int [kept], or [layers, KV heads, kept]."""

    @abstractmethod
    def evict(self, first: int, count: int) -> int:
        """Drop ``count`` rows from ``first`` on; those behind move up."""
