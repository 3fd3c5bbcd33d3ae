"""Heads that each say one of the next tokens at once, verified together (blockwise parallel decoding).

Stern et al. 2018. Beside the target's own head there are k others, each behind a feed-forward layer with a residual
connection that reads the target's last row; the target is frozen. *Predict*: head i says the token i places behind the
one that the target itself chose. *Verify*: one pass of the target over all of them. *Accept*: the longest prefix of
tokens that the target would have chosen, and its own choice behind it. The same pass left the row that the heads read
next (section 4 of the paper), so a step is one pass of the target and one of the heads, whose rows share their weights'
loads and the target's head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.heads import HeadsDrafter
from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.decoding.trained import trained_model
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS

if TYPE_CHECKING:
    from gemmule.sw.step import Asking

__all__ = ["METHOD", "Blockwise"]


class Blockwise(HeadsDrafter):
    """Proposes what each head says, as a chain."""

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self.pending, self.spent = len(ids) - 1, 0
        heads = min(self.most, budget, len(self.drafter.masks))
        if heads < 1 or len(ids) < 2:  # the target has read nothing yet
            return Tree.chain(ids[-1], [])
        out = yield from self.said(ids, heads, 0)
        return Tree.chain(ids[-1], self.drafter.tokens[out.argmax].tolist())


def _make(request: Request) -> Blockwise:
    return Blockwise(trained_model(request, "blockwise", "blockwise"), request.lengths.most(),
                     first=request.target.first, kept=request.kept, host=request.host)


METHOD = Method(
    name="blockwise", make=_make, trained="blockwise", scheduled=False, labels=(DRAFT,),
    says="trained heads that say the next tokens at once, as a chain",
    cuts="layers: each draft is a feed-forward layer on the target's last row",
    source="Stern et al. 2018, Blockwise Parallel Decoding (arXiv 1811.03115)",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=4,
                  help="Tokens drafted per step, a head each; no more than there are heads."))
