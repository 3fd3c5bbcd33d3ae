"""A cache of which passes load only the values that a probability meets; all of its rows stay."""

from __future__ import annotations

from typing import Any

from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.kv.saved_values import SavedValues
from gemmule.sw.kv.selected import row_bytes
from gemmule.sw.kv.text import Pruned, TextKV

__all__ = ["ValuesKV"]


class ValuesKV(ContiguousKV):
    """The cache of one text. What passes leave out is the model's to tell, by the launches that it ran."""

    model: Any

    def __init__(self, model: Any, least: int, room: int) -> None:
        """``model``: whose passes leave values out by probabilities below ``least``; ``room``: rows of a pass."""
        super().__init__(model, room)
        self.least, self.saved = least, SavedValues(model)
        self._rows = 0
        """Read by passes so far."""

    def append(self, rows: int) -> int:
        self._rows += self.length
        self.saved.passed(self.length)
        return super().append(rows)

    def pruned(self) -> Pruned:
        graph, found = self.model.program.graph, self.saved.sums
        return Pruned(
            layers=len(graph.attentions), row_bytes=row_bytes(graph), selections=0, kept=self.length, cycles=0,
            rows=self._rows, rows_dense=self._rows, values=self.least, saved=found.saved,
            top_k_cycles=found.top_k_cycles, top_k_exposed=found.top_k_exposed)

    def borrow(self, model: Any) -> TextKV:
        made = ValuesKV(model, self.least, self.room)
        made._length, made.text = self.length, self.text
        made._begin_with(self)
        return made
