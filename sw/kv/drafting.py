"""A small cache in which a model drafts for itself: rows chosen of its whole cache, and all since the choice.

Keys and values are the whole cache's, to the byte: chosen rows come by copies or a gather, and so do those that the
text gains, as soon as they are verified. What drafts add behind them goes with the next step. Rows are chosen anew
after so many tokens (TriForce, Sun et al. 2024, which chooses once, behind the prompt).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.kv.selected import Chooser, Selection, choose_rows

__all__ = ["DraftingKV"]


class DraftingKV(ContiguousKV):
    """The small cache of one text.

    Attributes:
        selections: all that were made.
    """

    model: Any

    def __init__(self, model: Any, chooser: Chooser, pruning: Pruning, room: int) -> None:
        """``model``: on the whole cache, of which ``pruning`` says how many rows are chosen, and how often anew;
        ``room``: rows that a pass can see.
        """
        super().__init__(model, room)
        self.chooser, self.pruning = chooser, pruning
        self.selections: list[Selection] = []
        self._copied: list[int] = []
        """Tokens whose rows in the whole cache are here, or were when rows were chosen."""

    @property
    def place(self) -> int:
        return -1 - self.sequence

    def follow(self, ids: Sequence[int]) -> None:
        """Hold what is to be seen of the whole cache, which has rows of all tokens of the text ``ids`` but the last.

        Raises:
            ValueError: more rows than the device chooses among.
        """
        cached, copied = len(ids) - 1, len(self._copied)
        if self._due(ids):
            self._choose(ids[:cached])
        elif cached > copied:
            self.chooser.move(copied, self._row_of(copied), cached - copied, to_kept=True)
        self._copied, self.ids = list(ids[:cached]), list(ids[:cached])
        self._show()

    def _due(self, ids: Sequence[int]) -> bool:
        """Whether rows are to be chosen: it is time, there are none, or they are of another text."""
        cached, copied = len(ids) - 1, self._copied
        if not self.selections or not self.there() or cached < len(copied) or list(ids[:len(copied)]) != copied:
            return True
        return cached - self.selections[-1].cached >= self.pruning.every and self._takes(cached)

    def _takes(self, cached: int) -> bool:
        """Whether the device can choose among so many rows."""
        return self.pruning.score == "none" or self.pruning.rows(cached) == cached or cached <= self.chooser.most

    def _choose(self, ids: Sequence[int]) -> None:
        cached, kept = len(ids), self.pruning.rows(len(ids))
        if not self._takes(cached):
            raise ValueError(f"this device chooses among at most {self.chooser.most:,} cached rows, not {cached:,}: "
                             "take --retrieve window, a configuration with more select_keys and list_entries, or a "
                             "shorter text")
        if kept < cached:
            cycles = choose_rows(self.chooser, self.pruning, ids)
        else:
            cycles = self.chooser.move(0, 0, cached, to_kept=True) if cached else 0
        self.selections.append(Selection(cached, kept, cycles))

    def _row_of(self, token: int) -> int:
        """The row of a token that came behind the last choice."""
        last = self.selections[-1]
        return last.kept + token - last.cached

    def _show(self) -> None:
        """Passes go on behind the chosen rows and those since."""
        last, cached = self.selections[-1], len(self.ids)
        self.model = self.chooser.on(self.model, kept=True)
        self._length, self._added = self._row_of(cached), 0
        self._of = np.concatenate([np.arange(last.kept), np.arange(last.cached, cached)])
        self.model.owners[self.place] = self.text
