"""A smaller model drafts (Leviathan et al. 2023; Chen et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.candidates.chains import draft_chain
from gemmule.sw.decoding.methods.method import DRAFT, VOCABULARY, Method, Option, Request
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.decoding.verify import Rule
    from gemmule.sw.device.runtime import LoadedModel
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.step import Asking, Forward

__all__ = ["METHOD", "DraftModel"]


class DraftModel(Paced):
    """A smaller model drafts a chain, choosing tokens as the rule has it.

    When every draft of a step is accepted, the last one was never fed to the draft model, so the next step's first
    pass feeds two rows: that draft and the pending token.
    """

    def __init__(self, model: LoadedModel, lengths: Lengths | int, rule: Rule | None = None,
                 host: Host | None = None, kept: bool = True, *, cache: TextKV | None = None) -> None:
        """``lengths``: as of :class:`Paced`; ``kept``: its KV cache keeps rows; ``cache``: one of another kind."""
        from gemmule.sw.decoding.verify import GREEDY

        super().__init__(lengths, host)
        self.rule, self.model, self.cache = rule or GREEDY, model, cache or model.kv(kept=kept)
        self._committed = self._dropped = 0

    def drafting(self, count: int) -> int:
        return count * self.model.program.graph.parameters

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None]:
        self._dropped = dropped
        if self.cache.kept:
            yield from self.cache.begin(ids)

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self._committed = len(ids)
        count = min(self.lengths.most(), budget)
        want = self.rule.want(1, self.lengths.needs_confidence)
        if want.plain and count:
            out = yield from self.cache.greedy(ids, count, want)
            self._cost(out, count)
            self.drafted = count
            return Tree.chain(ids[-1], out.argmax)
        tree, outs = yield from draft_chain(self.cache, ids, count, self.rule, self.lengths, dropped=self._dropped)
        self.drafted = len(outs)
        if outs:
            self.costs.draft = outs[-1].cycles + self.host.launch_cycles
        return tree

    def _cost(self, out: Forward, drafted: int) -> None:
        """Of a draft, by the last launch; one with a pass of the target in it counts as the target's."""
        device = int(out.results[-1].cycles) if out.results else 0
        launch = 0 if out.others else self.host.launch_cycles
        self.costs.draft = (device - out.others + launch) * max(1, len(out.results)) // drafted

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.cache.rewind(self._committed + len(new) - 1)  # rows of rejected drafts
        super().observe(out, path, new)


def _make(request: Request) -> DraftModel:
    if request.draft is None:
        raise InputError("--method draft needs a draft model: give --draft-model FILE, or --method ar")
    request.check_vocabulary()
    return DraftModel(request.draft, request.lengths, request.rule, request.host, request.kept)


METHOD = Method(
    name="draft",
    cuts="fewer layers and less width: another, smaller network",
    source="Leviathan et al. 2023 (arXiv 2211.17192); Chen et al. 2023 (arXiv 2302.01318)",
    says="where a small model proposes and the large one verifies", make=_make, needs_draft=True,
    confident=True, verify="rejection", labels=(DRAFT,),
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=5, help="Tokens drafted per step."),
    options=(VOCABULARY,))
