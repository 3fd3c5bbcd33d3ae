"""A text with a pruned cache by the integer interpreter: what a device gives, and how well a text is predicted."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from gemmule import numerics
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.sw.kv.pruning import Pruning

__all__ = ["PrunedText", "chosen_rows", "losses"]

KEY_MAX = (1 << numerics.KEY_BITS) - 1


def chosen_rows(importance: np.ndarray, kept: int, pruning: Pruning) -> np.ndarray:
    """The rows of largest importance of each KV head, rising; of equal ones the first  # int64 [KV heads, kept].

    ``importance``: int64 [KV heads, rows]. The first and last rows that a schedule always keeps count as the largest.
    """
    keys = np.minimum(importance, KEY_MAX)
    keys[:, :pruning.first] = KEY_MAX
    keys[:, keys.shape[1] - pruning.last:] = KEY_MAX
    return np.stack([numerics.top_k(row, kept) for row in keys])


class PrunedText:
    """One text, whose cache is pruned by a schedule as :class:`gemmule.sw.kv.selected.SelectedKV` does it."""

    def __init__(self, network: Network, pruning: Pruning, observed: int) -> None:
        """``observed``: rows of a selecting pass."""
        self.interpreter, self.graph = IntegerInterpreter(network), network.graph
        self.pruning, self.observed = pruning, observed
        self.whole, self.kept = Cache(network.graph), Cache(network.graph)
        self.since: int | None = None
        self.ids: list[int] = []
        self.lists: dict[str, np.ndarray] = {}
        """By attention node, of the last selection  # int64 [KV heads, kept]."""

    def extend(self, tokens: Sequence[int], *, entered: bool = False) -> np.ndarray:
        """Logits of these tokens' rows, int64 [tokens, vocab]; ``entered``: they are a first prompt, passed whole."""
        found, at = [], 0
        while at < len(tokens):
            count = len(tokens) - at
            if not entered or self.since is not None:
                count = min(count, self.pruning.ahead(len(self.ids)) + 1)
            found.append(self._pass(tokens[at:at + count]))
            at += count
            if self.pruning.due(len(self.ids), self.since, entered=entered):
                self._choose()
        return np.concatenate(found)

    def _rows(self, tokens: Sequence[int], first: int) -> Rows:
        return Rows.chain(tokens, first).behind(self.graph.prefix)

    def _pass(self, tokens: Sequence[int]) -> np.ndarray:
        cache = self.whole if self.since is None else self.kept
        logits = self.interpreter.forward(self._rows(tokens, len(self.ids)), cache)
        self.ids += tokens
        return logits

    def _choose(self) -> None:
        prefix, cached = self.graph.prefix, len(self.ids)
        if self.since is not None:
            self.whole.append(self.kept, self.kept.length() - (cached - self.since))
        kept = self.pruning.rows(cached)
        if self.pruning.score == "none":
            first = min(self.pruning.first, kept)
            index = np.r_[:first, cached - (kept - first):cached]
            lists = {node.name: np.tile(index, (node.kv_heads, 1)) for node in self.graph.attentions}
        else:
            before = cached - self.observed
            self.whole.truncate(prefix + before)
            importance = self.interpreter.importance(self._rows(self.ids[before:], before), self.whole)
            lists = {name: chosen_rows(found, kept, self.pruning) for name, found in importance.items()}
        self.lists, self.since = lists, cached
        self.kept = copy.deepcopy(self.whole)
        self.kept.keep_by_head({
            name: np.concatenate([np.tile(np.arange(prefix), (len(index), 1)), index + prefix], axis=1)
            for name, index in lists.items()})


def losses(network: Network, window: np.ndarray, pruning: Pruning | None, observed: int) -> np.ndarray:
    """Nats of each token of a window behind the first, float64 [tokens - 1]; no ``pruning``: the whole cache."""
    schedule = pruning or Pruning(keep=1.0, whole=1 << 16)
    text, scale = PrunedText(network, schedule, observed), network.graph.by_name[network.graph.output].type.scale
    assert isinstance(scale, float)
    logits = text.extend(window[:-1].tolist()) * scale
    largest = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - largest).sum(axis=1)) + largest[:, 0]
    found: np.ndarray = total - logits[np.arange(len(logits)), window[1:]]
    return found
