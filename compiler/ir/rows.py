"""The rows of one pass: tokens of any number of sequences at any positions, and which of them see each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from gemmule.compiler.errors import CompileError

__all__ = ["Rows"]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """New rows, in the order in which their keys and values enter the cache.

    A row sees every cached position of its sequence (within a window where the network has one) and the new rows
    that ``mask`` allows. In an encoder it sees all rows of its sequence, whatever ``mask`` says.
    """

    tokens: np.ndarray
    """Token ids, int64 [rows]."""
    positions: np.ndarray
    """Position of each in its sequence, int64 [rows]; rows of a tree may share one."""
    sequences: np.ndarray
    """Number of each row's sequence, int64 [rows]."""
    mask: np.ndarray
    """bool [rows, rows]: row i sees new row j. Never another sequence's; always itself."""
    types: np.ndarray | None = None
    """Token type of each, int64 [rows] (BERT's first and second sentence); None: all 0."""
    hidden: np.ndarray | None = None
    """Slot of the hidden row that stands in the place of a token's embedding, int64 [rows]; -1: the token's."""
    borrowed: np.ndarray | None = None
    """Position of the other network's row that each reads, int64 [rows], where a network reads any; None: its own."""
    seen: np.ndarray | None = None
    """bool [rows, cached]: row i sees cached row j of its sequence, constant rows aside, of which it sees all; None: it
    sees every cached row."""
    places: np.ndarray | None = None
    """Number of the cached row whose place each takes, or the next ones behind them, int64 [rows]; None: those behind
    the cached ones, in order. With ``seen`` alone."""

    def __post_init__(self) -> None:
        count = len(self.tokens)
        if count == 0:
            raise CompileError("a pass must have at least one row")
        if not len(self.positions) == len(self.sequences) == count or self.mask.shape != (count, count):
            raise CompileError(
                f"tokens, positions, sequences and both sides of the mask must be equally long, not {count}, "
                f"{len(self.positions)}, {len(self.sequences)} and {self.mask.shape}")
        if self.positions.min() < 0 or self.tokens.min() < 0:
            raise CompileError("tokens and positions must be at least 0")
        if not self.mask.diagonal().all():
            raise CompileError(f"row {int(np.argmin(self.mask.diagonal()))} must see itself")
        if self.types is not None and (len(self.types) != count or self.types.min() < 0):
            raise CompileError(f"each of {count} rows must have a type of at least 0, not {self.types.tolist()}")
        if self.hidden is not None and (len(self.hidden) != count or self.hidden.min() < -1):
            raise CompileError(f"each of {count} rows must have a hidden row's slot, or -1, not {self.hidden.tolist()}")
        if self.borrowed is not None and (len(self.borrowed) != count or self.borrowed.min() < 0):
            raise CompileError(f"each of {count} rows must borrow a row of at least 0, not {self.borrowed.tolist()}")
        if (self.mask & (self.sequences[:, None] != self.sequences[None])).any():
            raise CompileError("a row must see no row of another sequence")
        if (self.seen is None) != (self.places is None):
            raise CompileError("rows that see some of the cached ones must have places: give seen and places, or "
                               "neither")
        if self.seen is not None and self.places is not None:
            self._check_places(self.seen, self.places)

    def _check_places(self, seen: np.ndarray, places: np.ndarray) -> None:
        """Whether rows of a single sequence take places of their own that none of them sees."""
        count, cached = len(self.tokens), seen.shape[-1]
        if self.sequences.any() or seen.shape != (count, cached) or len(places) != count:
            raise CompileError(f"places and what rows see of the cache must be those of {count} rows of one sequence, "
                               f"not {len(places)} and an array of shape {seen.shape}")
        behind = sorted(int(place) for place in places if place >= cached)
        if places.min() < 0 or len(set(places.tolist())) < count or behind != [*range(cached, cached + len(behind))]:
            raise CompileError(f"places must be different ones of {cached} cached rows, or the next ones behind them, "
                               f"not {places.tolist()}")
        if seen[:, places[places < cached]].any():
            raise CompileError("a row must see no cached row whose place a new one takes")

    def __len__(self) -> int:
        return len(self.tokens)

    def table_rows(self, positions: int) -> np.ndarray:
        """Row of each in a table of ``positions`` rows for each token type: ``type * positions + position``."""
        return self.positions if self.types is None else self.types * positions + self.positions

    def visible(self, own: np.ndarray, cached: np.ndarray, window: int | None) -> np.ndarray:
        """Which rows of one sequence each of its new rows sees: the cached ones, then the new ones.

        Args:
            own: indices of the sequence's rows, int64 [new].
            cached: positions of its cached rows, int64 [cached].
            window: a row sees only the last so many positions, its own among them; None: all.

        Returns:
            bool [new, cached + new].
        """
        every = np.ones((len(own), len(cached)), dtype=bool)
        if self.seen is not None:  # constant rows come first
            every[:, len(cached) - self.seen.shape[1]:] = self.seen[own]
        seen = np.concatenate([every, self.mask[np.ix_(own, own)]], axis=1)
        if window is not None:
            positions = self.positions[own]
            seen &= np.concatenate([cached, positions])[None] > positions[:, None] - window
        return seen

    def take(self, index: np.ndarray) -> Self:
        """Some of the rows, in this order  # int [taken]."""
        return type(self)(
            tokens=self.tokens[index], positions=self.positions[index], sequences=self.sequences[index],
            mask=self.mask[np.ix_(index, index)], types=None if self.types is None else self.types[index],
            hidden=None if self.hidden is None else self.hidden[index],
            borrowed=None if self.borrowed is None else self.borrowed[index],
            seen=None if self.seen is None else self.seen[index],
            places=None if self.places is None else self.places[index])

    def behind(self, count: int) -> Self:
        """The same rows ``count`` positions further on."""
        if not count:
            return self
        return replace(self, positions=self.positions + count,
                       borrowed=None if self.borrowed is None else self.borrowed + count)

    @property
    def lent(self) -> np.ndarray:
        """Positions of the other network's rows that they read, int64 [rows]."""
        return self.positions if self.borrowed is None else self.borrowed

    def entering(self, hidden: np.ndarray) -> Self:
        """The same rows, each with the hidden row of a slot in the place of its token; -1: by its token."""
        return replace(self, hidden=np.asarray(hidden, dtype=np.int64))

    def borrowing(self, positions: Sequence[int] | np.ndarray) -> Self:
        """The same rows, each with another network's row of such a position."""
        return replace(self, borrowed=np.asarray(positions, dtype=np.int64))

    def branching(self, seen: np.ndarray, places: np.ndarray) -> Self:
        """The same rows, each of which sees some of the cached ones, and takes such a place among them.

        Args:
            seen: bool [rows, cached]
            places: int64 [rows]
        """
        return replace(self, seen=np.asarray(seen, dtype=bool), places=np.asarray(places, dtype=np.int64))

    def typed(self, types: Sequence[int] | np.ndarray) -> Self:
        """The same rows with these token types."""
        return replace(self, types=np.asarray(types, dtype=np.int64))

    @classmethod
    def ragged(cls, tokens: Sequence[Sequence[int]], first: Sequence[int]) -> Self:
        """Chains of several sequences: ``tokens[s]`` at positions ``first[s]``, ``first[s] + 1``, ..."""
        if not tokens or len(first) != len(tokens):
            raise CompileError(
                f"each of at least one sequences must have a first position, not {len(first)} of {len(tokens)}")
        sequences = np.repeat(np.arange(len(tokens)), [len(part) for part in tokens])
        positions = np.concatenate([at + np.arange(len(part)) for part, at in zip(tokens, first, strict=True)])
        same = sequences[:, None] == sequences[None]
        return cls(
            tokens=np.array([token for part in tokens for token in part], dtype=np.int64),
            positions=positions.astype(np.int64), sequences=sequences.astype(np.int64),
            mask=same & (positions[:, None] >= positions[None]))

    @classmethod
    def chain(cls, tokens: Sequence[int], first: int = 0) -> Self:
        """One sequence's tokens from position ``first`` on."""
        return cls.ragged([tokens], [first])

    @classmethod
    def batch(cls, parts: Sequence[Self]) -> Self:
        """Rows of several sequences: part i, of one sequence, becomes sequence i. None of them by hidden row."""
        counts = [len(part) for part in parts]
        mask = np.zeros((sum(counts), sum(counts)), dtype=bool)
        for part, end in zip(parts, np.cumsum(counts)):
            mask[end - len(part):end, end - len(part):end] = part.mask
        return cls(tokens=np.concatenate([part.tokens for part in parts]),
                   positions=np.concatenate([part.positions for part in parts]),
                   sequences=np.repeat(np.arange(len(parts)), counts), mask=mask,
                   borrowed=np.concatenate([part.lent for part in parts]) if any(
                       part.borrowed is not None for part in parts) else None)

    @classmethod
    def tree(cls, tokens: Sequence[int], parents: Sequence[int], first: int) -> Self:
        """Candidates of one sequence: node i follows node ``parents[i]`` (-1: the cache), parents before children."""
        count = len(tokens)
        if len(parents) != count:
            raise CompileError(f"each of {count} nodes must have a parent, not {len(parents)}")
        mask, positions = np.zeros((count, count), dtype=bool), np.zeros(count, dtype=np.int64)
        for i, parent in enumerate(parents):
            if not -1 <= parent < i:
                raise CompileError(f"the parent of node {i} must be a node before it, or -1, not {parent}")
            if parent >= 0:
                mask[i] = mask[parent]
            mask[i, i] = True
            positions[i] = first if parent < 0 else positions[parent] + 1
        return cls(tokens=np.array(tokens, dtype=np.int64), positions=positions,
                   sequences=np.zeros(count, dtype=np.int64), mask=mask)
