"""A smaller model drafts (Leviathan et al. 2023; Chen et al. 2023)."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.sw.decoding.methods.method import Method, Request
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import GREEDY, Rule
from gemmule.sw.errors import InputError
from gemmule.sw.runtime import Forward, LoadedModel
from gemmule.sw.step import Want

__all__ = ["METHOD", "DraftModel"]


class DraftModel:
    """A smaller model drafts a chain, choosing tokens as the rule has it.

    Its KV cache holds ``kv`` rows. When every draft of a step is accepted, the last one was never fed
    to the draft model, so the next step's first pass feeds two rows: that draft and the pending token.
    """

    def __init__(self, model: LoadedModel, num_tokens: int, rule: Rule = GREEDY) -> None:
        self.model, self.rule = model, rule
        self.num_tokens = num_tokens
        self.kv = 0
        self.catch_up_rows = 0
        self._committed = 0

    def begin(self, ids: list[int]) -> None:
        self._committed = len(ids)
        if len(ids) > 1:
            self._forward(ids[:-1], Want(last=0))

    def propose(self, ids: list[int], budget: int) -> Tree:
        self._committed = len(ids)
        drafted: list[int] = []
        weights: list[np.ndarray | None] = []
        rows = ids[self.kv:]
        for _ in range(min(self.num_tokens, budget)):
            self.catch_up_rows += len(rows) - 1
            out = self._forward(rows, self.rule.want(1))
            chosen = self.rule.propose(out, self.model.logit_scale, len(ids) + len(drafted))
            drafted.append(chosen.token)
            weights.append(chosen.weights)
            rows = drafted[-1:]
        return Tree.chain(ids[-1], drafted, weights)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        # rows of rejected drafts are forgotten by length; the pending token is never in the cache
        self.kv = min(self.kv, self._committed + len(new) - 1)

    def _forward(self, rows: list[int], want: Want) -> Forward:
        out = self.model.forward(Rows.chain(rows, self.kv), want)
        self.kv += len(rows)
        return out


def _make(request: Request) -> DraftModel:
    if request.draft is None:
        raise InputError("--method draft needs a draft model: give --draft-model FILE, or --method ar")
    return DraftModel(request.draft, request.num_tokens, request.rule)


METHOD = Method(name="draft", make=_make, option="--num-speculative-tokens", num_tokens=3)
