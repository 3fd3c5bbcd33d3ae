"""A cache that is pruned at fixed positions: passes see the rows that were chosen last, and those since then.

The whole cache stays in DRAM, so what is dropped now may be chosen later. What a row sees depends on the text before it
and on nothing else: rows are chosen where the number of cached ones is a multiple of ``every`` (and at the end of a
first prompt), and no pass reaches across such a position. So a pruned model decodes the same text by every lossless
method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gemmule.compiler.ir import Graph
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.kv.saved_values import SavedValues
from gemmule.sw.kv.text import Pruned, Reading, TextKV
from gemmule.sw.step import KV, Asking

__all__ = ["Chooser", "SelectedKV", "Selection", "choose_rows", "row_bytes"]


class Chooser(Protocol):
    """A model with two caches, the whole one and one of kept rows. Calls return cycles, host work included."""

    observed: int
    """Rows whose attention chooses."""
    most: int
    """Rows among which it can choose."""
    top_k_cycles: int
    """Of choosing so far, those of TOP_K."""
    top_k_exposed: int
    """Of these, with no command of another unit under way."""

    def on(self, model: Any, *, kept: bool) -> Any:
        """A model of the same program on one of the caches."""

    def choose(self, tokens: Sequence[int], before: int, kept: int, pairs: int = 0, behind: int = 0) -> int:
        """The last ``tokens`` of a text, behind ``before`` rows of the whole cache, choose ``kept`` rows of all these,
        which go to the kept cache: the least important ones, ``pairs`` pairs, as rows of 4 bits. By chunks ``kept``
        are rows of whole chunks. Where running sums choose, ``behind`` more rows follow, which are not counted yet."""

    def count(self, tokens: Sequence[int], before: int) -> int:
        """The probabilities of some ``tokens`` of a text, behind ``before`` rows, are added to the running sums, which
        have those of all rows before; with none before, the sums begin anew."""

    def move(self, source: int, target: int, rows: int, *, to_kept: bool) -> int:
        """Copy ``rows`` rows of one cache, from ``source`` on, to the other one, from ``target`` on."""


def row_bytes(graph: Graph) -> int:
    """Of a cached row's keys and values in all layers."""
    return sum(2 * node.kv_heads * node.head_dim for node in graph.attentions)


def choose_rows(chooser: Chooser, pruning: Pruning, ids: Sequence[int], before: tuple[int, int] | None = None,
                counted: int = 0) -> int:
    """Fill the kept cache with rows of a text by a schedule; returns cycles, host work included.

    ``ids``: the tokens of all cached rows, of which those that choose are passed again: the last ones, or, where
    running sums choose, all behind the ``counted`` ones. ``before``: rows of the text at the last selection, and those
    that it kept: rows since then first go back to the whole cache.

    Raises:
        ValueError: more rows than the device chooses among.
    """
    cached, cycles = len(ids), 0
    kept = pruning.rows(cached)
    if before is not None:
        since, stood = before
        cycles += chooser.move(stood, since, cached - since, to_kept=False)
    if pruning.score == "none":
        if first := min(pruning.first, kept):
            cycles += chooser.move(0, 0, first, to_kept=True)
        return cycles + chooser.move(cached - (kept - first), first, kept - first, to_kept=True)
    if cached > chooser.most:
        raise ValueError(f"{cached} cached rows are more than the {chooser.most} among which this device chooses: take "
                         "a configuration with more select_keys and list_entries, or a shorter text")
    if chunks := pruning.chunks:  # the newest rows, from the last whole chunk on, go with those chosen
        observed = ids[-chooser.observed:]
        listed, settled = ((chunks.sinks + chunks.chosen(cached)) * chunks.page, chunks.settled(cached) * chunks.page)
        cycles += chooser.choose(observed, cached - len(observed), listed)
        return cycles + chooser.move(settled, listed, cached - settled, to_kept=True)
    *passes, last = pruning.selecting(cached, counted, chooser.observed)
    cycles += sum(chooser.count(ids[first:first + chooser.observed], first) for first in passes)
    tokens = ids[last:last + chooser.observed]
    return cycles + chooser.choose(tokens, last, kept, pruning.pairs(cached), cached - last - len(tokens))


@dataclass(frozen=True)
class Selection:
    """One choice."""

    cached: int
    """Rows of the text then."""
    kept: int
    """Of each layer and KV head."""
    cycles: int


class SelectedKV(ContiguousKV):
    """The cache of one text, pruned by a schedule.

    Attributes:
        selections: all that were made.
    """

    model: Any

    def __init__(self, model: Any, chooser: Chooser, pruning: Pruning, room: int) -> None:
        """``model``: whose passes fill it, on the whole cache; ``room``: rows that a pass can see."""
        super().__init__(model, room)
        self.chooser, self.pruning = chooser, pruning
        self.since: int | None = None
        """Rows of the text at the last selection; None: passes see the whole cache."""
        self.selections: list[Selection] = []
        self.counted = 0
        """Rows whose probabilities the running sums have, where these choose."""
        self._rows = self._rows_dense = 0
        """Read by passes so far."""
        self._spared = self._spares = 0
        """Bytes of these that were not read, so far and by each pass: half of values of 4 bits beside keys of 8."""
        self.saved = SavedValues(model)

    def ahead(self, position: int) -> int:
        return self.pruning.ahead(position)

    def begin(self, ids: Sequence[int], reading: Reading | None = None) -> Asking[int]:
        """Cache all of a text but its last token, and choose where it is time.

        A first prompt is passed whole; what comes behind a selection goes piece by piece.
        """
        passed = 0
        while left := len(self.missing(ids)) - 1:
            some = left if self.since is None else min(left, self.pruning.ahead(len(self.ids)) + 1)
            passed += yield from super().begin(ids[:len(self.ids) + some + 1], reading)
            self._choose_if_due(entered=True)
        self._choose_if_due(entered=False)
        return passed

    def append(self, rows: int) -> int:
        self._rows += self.length
        self._spared += self._spares
        self._rows_dense += len(self.ids)
        self.saved.passed(self.length)
        return super().append(rows)

    def pruned(self) -> Pruned:
        made, graph, chooser, saved = self.selections, self.model.program.graph, self.chooser, self.saved.sums
        return Pruned(
            layers=len(graph.attentions), row_bytes=row_bytes(graph),
            selections=len(made), kept=made[-1].kept if made else 0, cycles=sum(one.cycles for one in made),
            rows=self._rows, rows_dense=self._rows_dense, top_k_cycles=chooser.top_k_cycles + saved.top_k_cycles,
            top_k_exposed=chooser.top_k_exposed + saved.top_k_exposed, values=self.pruning.values,
            halved=2 * self.pruning.pairs(made[-1].cached) if made else 0, saved=saved.saved + self._spared)

    def _choose_if_due(self, *, entered: bool) -> None:
        if self.pruning.due(cached := len(self.ids), self.since, entered=entered):
            self._choose(cached)

    def _choose(self, cached: int) -> None:
        """Rows since the last selection go back to the whole cache, then the kept cache is filled anew."""
        pruning, since = self.pruning, self.since
        before = None if since is None else (since, self.length - (cached - since))
        cycles, kept = choose_rows(self.chooser, pruning, self.ids, before, self.counted), pruning.rows(cached)
        self._rows += sum(pruning.selecting(cached, self.counted, self.chooser.observed))
        self.since, self.counted = cached, pruning.counted(cached)
        self._show(kept=True, length=pruning.stand(cached))
        self._spares = pruning.spared(cached, row_bytes(self.model.program.graph))
        self.selections.append(Selection(cached, kept, cycles))

    def _show(self, *, kept: bool, length: int) -> None:
        """Passes go on behind the first ``length`` rows of one of the caches."""
        self.model = self.chooser.on(self.model, kept=kept)
        self._length, self._added = length, 0
        self._of = np.arange(length) if kept else None  # any tokens before the selection

    def rewind(self, count: int) -> None:
        if count < self.counted:  # nothing is subtracted from sums: they begin anew
            self.counted = 0
        if self.since is None or count >= self.since:
            super().rewind(count)
            return
        del self.ids[count:]  # rows of the whole cache are those of the text up to the selection
        self.since, self._spares = None, 0
        self._show(kept=False, length=count)

    def borrow(self, model: Any) -> TextKV:
        made = ContiguousKV(self.chooser.on(model, kept=self.since is not None), self.room, self.sequence)
        made._length, made.text = self.length, self.text
        made._begin_with(self)
        return made

    def fork(self, other: KV) -> int:
        """Raises ValueError: whatever the other is."""
        raise ValueError("a pruned cache begins no other one: decode its text alone")

    def gather(self, slots: np.ndarray) -> int:
        """Raises ValueError: rows are chosen by the schedule."""
        raise ValueError("rows of a pruned cache are chosen by its schedule: take a contiguous cache")

    def evict(self, first: int, count: int) -> int:
        """Raises ValueError: as of :meth:`gather`."""
        return self.gather(np.arange(first))
