"""An encoder from which rows leave layer by layer, in integers: the golden of pruned programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from gemmule.compiler.ir.cache import Attended, Cache
from gemmule.compiler.ir.graph import Network
from gemmule.compiler.ir.integer_interpreter import IntegerInterpreter
from gemmule.compiler.ir.nodes import Attention, Node
from gemmule.compiler.ir.rows import Rows
from gemmule.compiler.ir.token_pruning import TokenPruning, chosen_rows, importance_shift

__all__ = ["PruningInterpreter"]


class PruningInterpreter(IntegerInterpreter):
    """:class:`IntegerInterpreter` of an encoder and a schedule; the output has the rows that are left.

    Attributes:
        kept: by named layer, which of a pass's rows it leaves, in order  # int64 [rows].
        left: the rows of the output.
    """

    def __init__(self, network: Network, pruning: TokenPruning) -> None:
        super().__init__(network)
        pruning.check(network.graph, network.graph.positions)
        self.pruning, self.shift = pruning, importance_shift(network.graph, pruning)
        self.kept: list[np.ndarray] = []

    @property
    def left(self) -> Rows:
        return self._rows

    def choose(self, importance: np.ndarray, kept: int) -> np.ndarray:
        """Rows of one sequence that stay, in order."""
        return chosen_rows(importance, kept, self.pruning, self.shift)

    def steps(self, rows: Rows, cache: Cache, feed: Mapping[str, np.ndarray] = MappingProxyType({}),
              ) -> Iterator[tuple[Node, np.ndarray]]:
        self.kept, fed = [], dict(feed)
        sizes = np.bincount(rows.sequences)
        self._scheduled = [self.pruning.rows(int(size)) if size else [] for size in sizes]
        self._sums: dict[int, np.ndarray] = {}
        where = np.arange(len(rows))
        for node, value in super().steps(rows, cache, fed):
            yield node, value
            if isinstance(node, Attention) and node.layer is not None and node.layer < len(self.pruning.layers):
                index = np.sort(np.concatenate(self._chosen))
                fed[node.name] = fed.get(node.name, value)[index]
                self._values.take(index)
                self._rows, where = self._rows.take(index), where[index]
                self.kept.append(where)

    def _value(self, node: Node) -> np.ndarray:
        if isinstance(node, Attention):
            self._chosen: list[np.ndarray] = []
        return super()._value(node)

    def _attend(self, node: Attention, query: np.ndarray, part: Attended) -> np.ndarray:
        layer, sequence = node.layer, int(self._rows.sequences[part.own[0]])
        if layer is None or not self.pruning.adds(layer):
            self._chosen.append(part.own)
            return super()._attend(node, query, part)
        self._importance = {}
        try:
            found = super()._attend(node, query, part)
            importance = self._importance[node.name].sum(axis=0)
        finally:
            self._importance = None
        if not self.pruning.begins(layer):
            importance = importance + self._sums[sequence]
        self._sums[sequence] = importance
        own = part.own
        if layer in self.pruning.pruning:
            own = own[self.choose(importance, self._scheduled[sequence][layer])]
        self._chosen.append(own)
        return found
