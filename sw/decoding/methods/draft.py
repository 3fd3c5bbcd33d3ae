"""A smaller model drafts (Leviathan et al. 2023; Chen et al. 2023)."""

from __future__ import annotations

import numpy as np

from gemmule.config import Host
from gemmule.sw.decoding.asking import Asking, alone
from gemmule.sw.decoding.lengths import Constant, Costs, Lengths
from gemmule.sw.decoding.methods.method import Method, Request
from gemmule.sw.decoding.prefix import Prefix
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import GREEDY, Rule
from gemmule.sw.device.runtime import Forward, LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS_DEFAULT

__all__ = ["METHOD", "DraftModel"]


class DraftModel:
    """A smaller model drafts a chain, choosing tokens as the rule has it.

    When every draft of a step is accepted, the last one was never fed to the draft model, so the next step's first
    pass feeds two rows: that draft and the pending token.
    """

    def __init__(self, model: LoadedModel, lengths: Lengths | int, rule: Rule = GREEDY,
                 host: Host | None = None, kept: bool = True) -> None:
        """``lengths``: how many tokens are drafted; a number: always as many. ``kept``: its KV cache keeps rows."""
        self.model, self.rule, self.host = model, rule, host or Host()
        self.lengths = Constant(lengths) if isinstance(lengths, int) else lengths
        self.costs = Costs(step=self.host.step_cycles)
        self.cached = Prefix(model, kept)
        self.catch_up_rows = self.drafted = 0
        self._committed = self._dropped = 0

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        alone(self.beginning(ids, dropped))

    def beginning(self, ids: list[int], dropped: int = 0) -> Asking[None]:
        self._dropped = dropped
        if self.cached.kept:
            yield from self.cached.begin(ids)

    def propose(self, ids: list[int], budget: int) -> Tree:
        return alone(self.proposing(ids, budget))

    def proposing(self, ids: list[int], budget: int) -> Asking[Tree]:
        self._committed = len(ids)
        count = min(self.lengths.most(), budget)
        if self.model.loop and count:
            return (yield from self._together(ids, count))
        drafted: list[int] = []
        weights: list[np.ndarray | None] = []
        for _ in range(count):
            text = ids + drafted
            out, rows = yield from self.cached.chain(text, self.rule.want(1, self.lengths.needs_confidence))
            self.catch_up_rows += rows - 1
            self.costs.draft = out.cycles + self.host.launch_cycles
            chosen = self.rule.propose(out, self.model.logit_scale, self._dropped + len(text))
            drafted.append(chosen.token)
            weights.append(chosen.weights)
            if not self.lengths.goes_on(chosen.confidence):
                break
        self.drafted = len(drafted)
        return Tree.chain(ids[-1], drafted, weights)

    def _together(self, ids: list[int], count: int) -> Asking[Tree]:
        """All greedy steps in one launch, and in it the target's pass over them too, where there is a program for it.

        What the cache lacks goes before: in the same launch a row, else, and where there are more, in its own.
        """
        verified: Forward | None = None
        if self.model.step and self.rule.want().plain:
            if len(lacking := self.cached.lacking(ids)) > 1:
                self.catch_up_rows += yield from self.cached.begin(ids)
                lacking = []
            self.catch_up_rows += len(lacking)
            out, verified = self.model.draft_and_verify(ids[-1], len(ids) - 1, count, *lacking)
            self.cached.ids += lacking
            self.costs.draft = out.cycles // count
        else:
            self.catch_up_rows += yield from self.cached.begin(ids)
            out = self.model.greedy(ids[-1], len(self.cached), count)
            self.costs.draft = (out.cycles + self.host.launch_cycles) // count
        self.cached.ids += [ids[-1], *out.argmax[:-1]]
        self.drafted = count
        return Tree.chain(ids[-1], out.argmax, verified=verified)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.cached.truncate(self._committed + len(new) - 1)  # rows of rejected drafts
        self.costs.verify[self.drafted + 1] = out.cycles + self.host.launch_cycles
        self.lengths.observe(self.drafted, len(path) - 1, self.costs)


def _make(request: Request) -> DraftModel:
    if request.draft is None:
        raise InputError("--method draft needs a draft model: give --draft-model FILE, or --method ar")
    return DraftModel(request.draft, request.lengths, request.rule, request.host, request.kept)


METHOD = Method(name="draft", make=_make, option="--num-speculative-tokens", num_tokens=DRAFTS_DEFAULT)
