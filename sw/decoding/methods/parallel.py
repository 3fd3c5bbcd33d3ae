"""A trained drafter that proposes a chain in one pass, from the target's hidden rows (PARD, P-EAGLE).

An et al. 2025; the drafter is of :mod:`gemmule.sw.training.drafters`. A row of the text has the token that follows it
and the target's hidden rows at its position; behind the last row that the target has read stand masks, one for each
further token, which have the same hidden rows. All are one causal pass, and the masks' rows are then forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.decoding.one_pass import OnePass
    from gemmule.sw.step import Asking

__all__ = ["METHOD", "OnePassDrafter"]


class OnePassDrafter(Paced):
    """Drafts a chain with the masks' answers. Its cache has a row for each token that the target has read."""

    def __init__(self, drafter: OnePass, lengths: Lengths | int, host: Host | None = None, kept: bool = True) -> None:
        """``lengths``: as of :class:`Paced`; ``kept``: its KV cache keeps rows."""
        super().__init__(lengths, host)
        self.drafter, self.cache = drafter, drafter.model.kv(kept=kept)

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None]:
        if self.cache.kept and len(ids) > 1:
            yield from self.cache.begin(ids[1:])

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        from gemmule.sw.step import Want

        count = min(self.lengths.most(), budget, 1 + len(self.drafter.masks))
        if count < 1 or len(ids) < 2:  # the target has read nothing yet
            self.drafted = 0
            return Tree.chain(ids[-1], [])
        out = yield from self.cache.ahead_of(ids[1:], self.drafter.masks[:count - 1], Want(last=count))
        self.drafted = count
        self.costs.draft = (out.cycles + self.host.launch_cycles * len(out.results)) // count
        return Tree.chain(ids[-1], self.drafter.tokens[out.argmax].tolist())


def _make(request: Request) -> OnePassDrafter:
    if request.one_pass is None:
        raise InputError("--method parallel needs a drafter that was trained on the target's hidden rows: take --model "
                         "smollm2, or another --method")
    if not request.rule.want(1, request.lengths.needs_confidence).plain:
        raise InputError("--method parallel reads hidden rows that greedy passes leave: use --temperature 0 without "
                         "--draft-lengths confidence")
    return OnePassDrafter(request.one_pass, request.lengths, request.host, request.kept)


METHOD = Method(
    name="parallel",
    cuts="fewer layers, and length: all drafts in one pass of a small network",
    source="An et al. 2025, PARD (arXiv 2504.18583)",
    says="a trained drafter that proposes several tokens in one pass, from the target's hidden rows",
    make=_make, needs_one_pass=True, labels=(DRAFT,),
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=7, help="Tokens drafted per step."))
