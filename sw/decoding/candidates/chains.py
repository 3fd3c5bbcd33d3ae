"""Drafting a chain token by token: each is chosen by the rule from the answer behind those before it. Light.

:class:`SelfDraft` does so in the target's own KV cache, by some of its layers or by a copy of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Tree

if TYPE_CHECKING:
    import numpy as np

    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.decoding.verify import Rule
    from gemmule.sw.device.runtime import LoadedModel
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.step import Asking, Forward, LayerRange

__all__ = ["SelfDraft", "draft_chain"]


def draft_chain(cache: TextKV, ids: list[int], most: int, rule: Rule, lengths: Lengths, *, dropped: int = 0,
                layers: Sequence[LayerRange] | None = None) -> Asking[tuple[Tree, list[Forward]]]:
    """Candidates after ``ids``, at most so many, by the model and the cache of ``cache``, and the answers behind them.

    ``lengths`` says when to stop; ``dropped``: tokens of the text in front of ``ids``; ``layers``: those that draft.
    """
    drafted: list[int] = []
    weights: list[np.ndarray | None] = []
    chances: list[float] = []
    outs: list[Forward] = []
    want = rule.want(1, lengths.needs_confidence)
    for _ in range(most):
        text = ids + drafted
        out = yield from cache.chain(text, want, layers)
        chosen = rule.propose(out, cache.model.logit_scale, dropped + len(text))
        drafted.append(chosen.token)
        weights.append(chosen.weights)
        chances.append(chosen.confidence)
        outs.append(out)
        if not lengths.goes_on(chosen.confidence):
            break
    return Tree.chain(ids[-1], drafted, weights, chances if lengths.needs_confidence else ()), outs


class SelfDraft(Paced):
    """Drafts a chain behind the rows that the target has cached; the pass that verifies overwrites what this adds."""

    def __init__(self, model: LoadedModel, cache: TextKV, lengths: Lengths | int, rule: Rule, host: Host | None = None,
                 *, layers: Sequence[tuple[int, int]] = ()) -> None:
        """``model``: charged as a draft; ``cache``: the target's, of this text; ``lengths``: as of :class:`Paced`;
        ``layers``: first and number of each range of layers that draft, () for all.
        """
        super().__init__(lengths, host)
        self.model, self.cache, self.rule, self.layers = model, cache, rule, layers
        self._dropped = 0

    def drafting(self, count: int) -> int:
        graph = self.model.program.graph
        return count * graph.parameters * (sum(number for _, number in self.layers) or graph.layers) // graph.layers

    def prompt_weights(self) -> int:
        return 0  # it goes on in the target's cache

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self._dropped = dropped

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        from gemmule.sw.step import LayerRange

        layers = [LayerRange(first=first, count=count) for first, count in self.layers]
        tree, outs = yield from draft_chain(
            self.cache.borrow(self.model), ids, min(self.lengths.most(), budget), self.rule, self.lengths,
            dropped=self._dropped, layers=layers or None)
        self.drafted = len(outs)
        if outs:
            self.costs.draft = outs[-1].cycles + self.host.launch_cycles * len(outs[-1].results)
        return tree
