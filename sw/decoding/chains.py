"""Drafting a chain token by token: each is chosen by the rule from the answer behind those before it. Light."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemmule.sw.decoding.tree import Tree

if TYPE_CHECKING:
    import numpy as np

    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.decoding.verify import Rule
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.step import Asking, Forward, LayerRange

__all__ = ["draft_chain"]


def draft_chain(cache: TextKV, ids: list[int], most: int, rule: Rule, lengths: Lengths, *, dropped: int = 0,
                layers: Sequence[LayerRange] | None = None) -> Asking[tuple[Tree, list[Forward]]]:
    """Candidates after ``ids``, at most so many, by the model and the cache of ``cache``, and the answers behind them.

    ``lengths`` says when to stop; ``dropped``: tokens of the text in front of ``ids``; ``layers``: those that draft.
    """
    drafted: list[int] = []
    weights: list[np.ndarray | None] = []
    outs: list[Forward] = []
    want = rule.want(1, lengths.needs_confidence)
    for _ in range(most):
        text = ids + drafted
        out = yield from cache.chain(text, want, layers)
        chosen = rule.propose(out, cache.model.logit_scale, dropped + len(text))
        drafted.append(chosen.token)
        weights.append(chosen.weights)
        outs.append(out)
        if not lengths.goes_on(chosen.confidence):
            break
    return Tree.chain(ids[-1], drafted, weights), outs
