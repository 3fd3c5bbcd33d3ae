"""An encoder from which rows and heads leave layer by layer, in integers: the golden of pruned programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from gemmule.compiler.ir.cache import Attended, Cache
from gemmule.compiler.ir.graph import Network
from gemmule.compiler.ir.head_pruning import chosen_heads, head_importance
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
        kept_heads: by sequence and layer, which heads it leaves, in order  # int64 [heads].
    """

    def __init__(self, network: Network, pruning: TokenPruning) -> None:
        super().__init__(network)
        pruning.check(network.graph, network.graph.positions)
        self.pruning, self.shift = pruning, importance_shift(network.graph, pruning)
        self.heads = pruning.heads.schedule(network.graph) if pruning.heads else None
        self.kept: list[np.ndarray] = []
        self.kept_heads: dict[int, list[np.ndarray]] = {}

    @property
    def left(self) -> Rows:
        return self._rows

    def choose(self, importance: np.ndarray, kept: int) -> np.ndarray:
        """Rows of one sequence that stay, in order."""
        return chosen_rows(importance, kept, self.pruning, self.shift)

    def choose_heads(self, importance: np.ndarray, kept: int) -> np.ndarray:
        """Heads of one sequence that stay, in order."""
        return chosen_heads(importance, kept, self.heads.shift if self.heads else 0)

    def steps(self, rows: Rows, cache: Cache, feed: Mapping[str, np.ndarray] = MappingProxyType({}),
              ) -> Iterator[tuple[Node, np.ndarray]]:
        self.kept, fed = [], dict(feed)
        sizes = np.bincount(rows.sequences)
        self._scheduled = [self.pruning.rows(int(size)) if size else [] for size in sizes]
        self._sums: dict[int, np.ndarray] = {}
        self._head_sums: dict[int, np.ndarray] = {}
        self.kept_heads = {sequence: [] for sequence in np.unique(rows.sequences).tolist()}
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
            return self._heads_leave(node, sequence, super()._attend(node, query, part))
        self._importance = {}
        try:
            found = super()._attend(node, query, part)
            importance = self._importance[node.name][self._present(node, sequence)].sum(axis=0)
        finally:
            self._importance = None
        if not self.pruning.begins(layer):
            importance = importance + self._sums[sequence]
        self._sums[sequence] = importance
        own = part.own
        if layer in self.pruning.pruning:
            own = own[self.choose(importance, self._scheduled[sequence][layer])]
        self._chosen.append(own)
        return self._heads_leave(node, sequence, found)

    def _present(self, node: Attention, sequence: int) -> np.ndarray:
        """Heads of a sequence that have not left before this layer, in order."""
        before = self.kept_heads[sequence]
        return before[-1] if before else np.arange(node.heads)

    def _heads_leave(self, node: Attention, sequence: int, contexts: np.ndarray) -> np.ndarray:
        """Contexts of the heads that are there, 0 those of others; behind them the layer's choice  # int64."""
        if not self.heads or node.layer is None:
            return contexts
        present = self._present(node, sequence)
        found = np.zeros((len(contexts), node.heads, node.head_dim), dtype=np.int64)
        found[:, present] = contexts.reshape(found.shape)[:, present]
        sums = self._head_sums.get(sequence, 0) + head_importance(found, node.heads)
        self._head_sums[sequence] = sums
        if node.layer in self.heads.choosing:
            present = self.choose_heads(sums, self.heads.left[node.layer])
        self.kept_heads[sequence].append(present)
        return found.reshape(contexts.shape)
