"""A cache of which each row reads the pages that it chooses: whole, in the device's memory, with representatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmule.compiler.ir import Pages
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.kv.text import Pruned, TextKV
from gemmule.sw.step import KV

__all__ = ["PagesKV"]


class PagesKV(ContiguousKV):
    """The cache of one text. Rows stay where they are: representatives are those of pages in place."""

    model: Any

    def __init__(self, model: Any, pages: Pages, room: int) -> None:
        """``model``: whose rows choose; ``room``: rows that a pass can see."""
        super().__init__(model, room)
        self.pages = pages
        self._rows = self._rows_dense = 0
        """Read by passes so far."""

    def append(self, rows: int) -> int:
        self._rows += sum(self.pages.rows(self.length + i + 1) - 1 for i in range(rows))
        self._rows_dense += sum(self.length + i for i in range(rows))
        return super().append(rows)

    def pruned(self) -> Pruned:
        nodes = self.model.program.graph.attentions
        return Pruned(
            layers=len(nodes), row_bytes=sum(2 * node.kv_heads * node.head_dim for node in nodes), selections=0,
            kept=self.pages.rows(self.length) if self.length else 0, cycles=0, rows=self._rows,
            rows_dense=self._rows_dense, top_k_cycles=0, top_k_exposed=0, by_rows=True)

    def borrow(self, model: Any) -> TextKV:
        made = PagesKV(model, self.pages, self.room)
        made._length, made.text = self.length, self.text
        made._begin_with(self)
        return made

    def fork(self, other: KV) -> int:
        """Raises ValueError: whatever the other is."""
        raise ValueError("a cache whose rows choose pages begins no other one: decode its text alone")

    def gather(self, slots: np.ndarray) -> int:
        """Raises ValueError: pages are in place."""
        raise ValueError("rows of a cache with pages stay where they are: take a cache without a schedule")

    def evict(self, first: int, count: int) -> int:
        """Raises ValueError: as of :meth:`gather`."""
        return self.gather(np.arange(first))
