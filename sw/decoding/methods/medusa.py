"""Heads that each give the likeliest tokens of one of the next places; a static tree of them is verified (Medusa).

Cai et al. 2024, Medusa-1: the target is frozen. Head i reads the target's last row x, as ``x + silu(W x + b)``, through
the target's own head: what comes i places behind the token that the target chose. All heads are one pass with a row
each. Heads know nothing of each other's tokens, so behind any path a level has the same candidates, the
``--medusa-top`` largest logits of its head. The tree takes the paths of ranks that are right most often on held-out
text, which the heads' file tells (section 2.3.3 of the paper multiplies the heads' accuracies instead), so of so many
candidates it always has the same shape. It has as many as are worth their rows. With ``--tree`` it has the shape that
is given. Greedy text is that of `ar`; `medusa-typical` accepts more.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gemmule.sw.decoding.candidates.branches import fill, grow
from gemmule.sw.decoding.heads import HeadsDrafter
from gemmule.sw.decoding.methods.method import DRAFT, TREE, Method, Option, Request
from gemmule.sw.decoding.trained import TrainedModel, trained_model
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.adaptive.shapes import Place
    from gemmule.sw.step import Asking

__all__ = ["METHOD", "OPTIONS", "Medusa", "made"]

Path = tuple[int, ...]
"""Ranks of candidates, head by head."""
SELDOM = 1e-3
"""Of a path that is none of these, behind the path before."""


class Medusa(HeadsDrafter):
    """Proposes the static tree."""

    def __init__(self, drafter: TrainedModel, most: int, *, top: int, first: int = 0, kept: bool = True,
                 host: Host | None = None, shape: tuple[Place, ...] | None = None) -> None:
        """``top``: candidates of a head; ``shape``: of each tree, None: the likeliest paths."""
        super().__init__(drafter, most, first=first, kept=kept, host=host)
        self.top, self.shape = top, shape

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self.pending, self.spent = len(ids) - 1, 0
        heads = min(self.most, budget, len(self.drafter.masks))
        if heads < 1 or len(ids) < 2:  # the target has read nothing yet
            return Tree.chain(ids[-1], [])
        out = yield from self.said(ids, heads, self.top)
        assert out.top is not None
        follow = partial(self.behind, self.drafter.tokens[out.top.tokens].tolist())
        text: Path = ()
        if self.shape is not None:
            return fill(ids[-1], self.shape[:budget], text, follow)
        return self.worth.chosen(lambda count: grow(ids[-1], count, text, follow), min(self.most, budget),
                                 self.spent).tree

    def behind(self, said: list[list[int]], path: Path) -> list[tuple[int, float, Path]]:
        """Candidates of a level, as :func:`gemmule.sw.decoding.candidates.branches.grow` takes them."""
        if len(path) == len(said):
            return []
        shares = self.drafter.shares
        before = shares.get(path, 0.0) if path else 1.0
        found = ((token, (*path, rank)) for rank, token in enumerate(said[len(path)]))
        return [(token, shares[after] / before if after in shares else SELDOM, after) for token, after in found]


Kind = TypeVar("Kind", bound=Medusa)


def made(request: Request, name: str, kind: type[Kind]) -> Kind:
    """The drafter of a request, for the method of this name."""
    options, drafter, most = request.options, trained_model(request, "medusa", name), request.lengths.most()
    return kind(drafter, most, top=options["medusa_top"], first=request.target.first, kept=request.kept,
                host=request.host, shape=request.shape(
                    most=most, behind=options["medusa_top"], levels=len(drafter.masks)))


def _make(request: Request) -> Medusa:
    return made(request, "medusa", Medusa)


OPTIONS = (
    Option(name="--medusa-top", limits=Range(1, 8, "tokens"), default=8,
           help="Candidates of a head: its largest logits; 1: a chain."), TREE)
"""Of the tree."""

METHOD = Method(
    name="medusa", make=_make, trained="medusa", scheduled=False, labels=(DRAFT,),
    says="trained heads whose likeliest tokens make a static tree",
    cuts="layers: each draft is one matrix on the target's last row, behind it the target's head",
    source="Cai et al. 2024, Medusa (arXiv 2401.10774)",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=OPTIONS)
