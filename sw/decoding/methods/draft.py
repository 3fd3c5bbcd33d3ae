"""A smaller model drafts (Leviathan et al. 2023; Chen et al. 2023)."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.config import Host
from gemmule.sw.decoding.lengths import Constant, Costs, Lengths
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

    def __init__(self, model: LoadedModel, lengths: Lengths | int, rule: Rule = GREEDY,
                 host: Host | None = None) -> None:
        """``lengths``: how many tokens are drafted; a number: always as many."""
        self.model, self.rule, self.host = model, rule, host or Host()
        self.lengths = Constant(lengths) if isinstance(lengths, int) else lengths
        self.costs = Costs(step=self.host.step_cycles)
        self.kv = 0
        self.catch_up_rows = self.drafted = 0
        self._committed = 0

    def begin(self, ids: list[int]) -> None:
        self._committed = len(ids)
        if len(ids) > 1:
            self._forward(ids[:-1], Want(last=0))

    def propose(self, ids: list[int], budget: int) -> Tree:
        self._committed = len(ids)
        count = min(self.lengths.most(), budget)
        if self.model.loop and count:
            return self._together(ids, count)
        drafted: list[int] = []
        weights: list[np.ndarray | None] = []
        rows = ids[self.kv:]
        for _ in range(count):
            self.catch_up_rows += len(rows) - 1
            out = self._forward(rows, self.rule.want(1, self.lengths.needs_confidence))
            self.costs.draft = out.cycles + self.host.launch_cycles
            chosen = self.rule.propose(out, self.model.logit_scale, len(ids) + len(drafted))
            drafted.append(chosen.token)
            weights.append(chosen.weights)
            rows = drafted[-1:]
            if not self.lengths.goes_on(chosen.confidence):
                break
        self.drafted = len(drafted)
        return Tree.chain(ids[-1], drafted, weights)

    def _together(self, ids: list[int], count: int) -> Tree:
        """All greedy steps in one launch, behind one for what the cache lacks."""
        if missing := ids[self.kv:-1]:
            self.catch_up_rows += len(missing)
            self._forward(missing, Want(last=0))
        out = self.model.greedy(ids[-1], self.kv, count)
        self.kv += count
        self.costs.draft = (out.cycles + self.host.launch_cycles) // count
        self.drafted = count
        return Tree.chain(ids[-1], out.argmax)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        # rows of rejected drafts are forgotten by length; the pending token is never in the cache
        self.kv = min(self.kv, self._committed + len(new) - 1)
        self.costs.verify[self.drafted + 1] = out.cycles + self.host.launch_cycles
        self.lengths.observe(self.drafted, len(path) - 1, self.costs)

    def _forward(self, rows: list[int], want: Want) -> Forward:
        out = self.model.forward(Rows.chain(rows, self.kv), want)
        self.kv += len(rows)
        return out


def _make(request: Request) -> DraftModel:
    if request.draft is None:
        raise InputError("--method draft needs a draft model: give --draft-model FILE, or --method ar")
    return DraftModel(request.draft, request.lengths, request.rule, request.host)


METHOD = Method(name="draft", make=_make, option="--num-speculative-tokens", num_tokens=3)
