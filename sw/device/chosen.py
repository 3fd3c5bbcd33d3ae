"""Chooses rows of a text's cache by the integer interpreter: the lists of the device's selecting passes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmule import numerics
from gemmule.compiler.ir import Cache, IntegerInterpreter, Pages, Rows
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.kv.pruning import Pruning

__all__ = ["InterpretedChooser", "chosen_rows", "listed_chunks", "sorted_rows"]


def chosen_rows(importance: np.ndarray, kept: int, pruning: Pruning) -> np.ndarray:
    """The rows of largest importance of each KV head, rising; of equal ones the first  # int64 [KV heads, kept].

    ``importance``: int64 [KV heads, rows]. The first and last rows that a schedule always keeps count as the largest.
    """
    first, last = pruning.first, pruning.last
    keys = [numerics.heavy_keys(row, first, last) if pruning.score == "heavy" else
            numerics.importance_keys(row, 0, first, last) for row in importance]
    return np.stack([numerics.top_k(row, kept) for row in keys])


def listed_chunks(scores: np.ndarray, count: int, pages: Pages) -> np.ndarray:
    """The rows of the first chunks and of those of largest score of each KV head, ``count`` chunks in all, rising; of
    equal ones the oldest  # int64 [KV heads, count * page].

    ``scores``: of 16 bits, int64 [KV heads, chunks].
    """
    keys = scores.copy()
    keys[:, :pages.sinks] = 1 << 15
    chunks = np.stack([numerics.top_k(row + (1 << 15), count) for row in keys])
    return (chunks[:, :, None] * pages.page + np.arange(pages.page)).reshape(len(chunks), -1)


def sorted_rows(importance: np.ndarray, kept: int, pairs: int, pruning: Pruning) -> tuple[np.ndarray, np.ndarray]:
    """:func:`chosen_rows` in two classes: ``2 * pairs`` rows of 4 bits, the least important ones; and those of 8 bits.
    """
    every, whole = (chosen_rows(importance, count, pruning) for count in (kept, kept - 2 * pairs))
    return np.stack([np.setdiff1d(one, other) for one, other in zip(every, whole, strict=True)]), whole


class InterpretedChooser:
    """Of a model that is not timed (:class:`gemmule.sw.kv.selected.Chooser`): every call takes 0 cycles.

    Attributes:
        dropped: of each selection, the share of the probability that the rows had which were left out.
    """

    top_k_cycles = top_k_exposed = 0

    def __init__(self, model: InterpretedModel, pruning: Pruning, observed: int) -> None:
        """``observed``: rows of a selecting pass."""
        self.model, self.pruning, self.observed = model, pruning, observed
        self.most = model.room
        self.observer = IntegerInterpreter(model.network)
        """Selecting passes leave out no values."""
        self.whole, self.kept = model.cache, Cache(model.network.graph)
        self.dropped: list[float] = []
        self.sums: dict[str, np.ndarray] = {}
        """Running sums of each attention, int64 [KV heads, counted rows], where these choose."""
        self.pairs = 0

    def on(self, model: Any, *, kept: bool) -> Any:
        made = copy.copy(model)
        made.cache = self.kept if kept else self.whole
        made.beside = 2 * self.pairs - self.pruning.four_of.stand(self.pairs) if kept else 0
        return made

    def count(self, tokens: Sequence[int], before: int) -> int:
        first, later = self.model.first, Cache(self.model.network.graph)
        later.begin_with(self.whole, 0)
        self.whole.truncate(first + before)
        found = self.observer.importance(Rows.chain(tokens, before).behind(first), self.whole, numerics.counted)
        self.whole.append(later, first + before + len(tokens))
        for name, more in found.items():
            sums = self.sums.get(name, more[:, :0]) if before else more[:, :0]
            self.sums[name] = more + np.pad(sums, ((0, 0), (0, more.shape[1] - sums.shape[1])))
        return 0

    def _importance(self, tokens: Sequence[int], before: int, behind: int) -> dict[str, np.ndarray]:
        """What rows are chosen by, by attention node."""
        if self.pruning.score == "heavy":
            self.count(tokens, before)
            return {name: np.pad(sums, ((0, 0), (0, behind))) for name, sums in self.sums.items()}
        self.whole.truncate(self.model.first + before)
        return self.observer.importance(Rows.chain(tokens, before).behind(self.model.first), self.whole)

    def choose(self, tokens: Sequence[int], before: int, kept: int, pairs: int = 0, behind: int = 0) -> int:
        if chunks := self.pruning.chunks:
            self.whole.truncate(self.model.first + before)
            scores = self.observer.chunk_scores(Rows.chain(tokens, before).behind(self.model.first), self.whole, chunks)
            self._keep({name: listed_chunks(found, kept // chunks.page, chunks) for name, found in scores.items()})
            return 0
        importance = self._importance(tokens, before, behind)
        halves, whole = self._sorted(importance, kept, pairs)
        lists = {name: np.concatenate([halves[name], whole[name]], axis=1) for name in whole}
        every = sum(int(found.sum()) for found in importance.values())
        stays = sum(int(np.take_along_axis(importance[name], index, axis=1).sum()) for name, index in lists.items())
        self.dropped.append(1 - stays / max(1, every))
        self._keep(lists)
        self.pairs = pairs
        self.kept.pack(2 * pairs, self.pruning.four_of.packed, lower=self.pruning.four_of.lower)
        return 0

    def _sorted(self, importance: dict[str, np.ndarray], kept: int,
                pairs: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Lists of rows of 4 bits and of 8 bits."""
        if not pairs:
            lists = {name: self.chosen(name, found, kept) for name, found in importance.items()}
            return {name: found[:, :0] for name, found in lists.items()}, lists
        both = {name: sorted_rows(found, kept, pairs, self.pruning) for name, found in importance.items()}
        return {name: halves for name, (halves, _) in both.items()}, {name: whole for name, (_, whole) in both.items()}

    def chosen(self, node: str, importance: np.ndarray, kept: int) -> np.ndarray:
        """The lists of an attention's KV heads, of importance int64 [KV heads, rows]  # int64 [KV heads, kept]."""
        return chosen_rows(importance, kept, self.pruning)

    def move(self, source: int, target: int, rows: int, *, to_kept: bool) -> int:
        first = self.model.first
        if not to_kept:
            self.whole.truncate(first + target)
            source += 2 * self.pairs - self.pruning.four_of.stand(self.pairs)  # rows may have two positions
            self.kept.truncate(first + source + rows)
            self.whole.append(self.kept, first + source)
            return 0
        if target == 0:
            self.kept = Cache(self.model.network.graph)
            self.kept.begin_with(self.whole, 0)
        part = Cache(self.model.network.graph)
        part.begin_with(self.whole, 0)
        part.truncate(first + source + rows)
        self.kept.truncate(first + target)
        self.kept.append(part, first + source)
        return 0

    def _keep(self, lists: dict[str, np.ndarray]) -> None:
        prefix = np.arange(self.model.first)
        self.kept = Cache(self.model.network.graph)
        self.kept.begin_with(self.whole, 0)
        self.kept.keep_by_head({
            name: np.concatenate([np.tile(prefix, (len(index), 1)), index + len(prefix)], axis=1)
            for name, index in lists.items()})
