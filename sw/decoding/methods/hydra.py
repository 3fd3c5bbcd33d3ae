"""Heads one behind the other, each of which reads the token before its own (Hydra).

Ankner et al. 2024. Medusa's heads do not know what the heads before them said. Here head i reads the hidden row of the
last token that the target has read, and the tokens since: the one that the target chose, and those drafted before. The
heads share their weights: each reads the row that the one before left, in which all that is, and the token before its
own. So each level of the tree is a pass, behind the candidates of the level before, as those of `eagle`; there is no
attention, so nothing of the text is kept, and a pass has a row for each candidate that it answers behind, no more. What
the tree takes, and when drafting ends, is as of `eagle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.heads import HeadsDrafter
from gemmule.sw.decoding.methods.eagle import Eagle
from gemmule.sw.decoding.methods.method import DRAFT, TREE, Method, Option, Request
from gemmule.sw.decoding.trained import TrainedModel, trained_model
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.compiler.ir import Rows
    from gemmule.config import Host
    from gemmule.sw.decoding.adaptive.shapes import Place
    from gemmule.sw.decoding.candidates.levels import Candidate
    from gemmule.sw.step import Asking, Forward

__all__ = ["METHOD", "Hydra"]


class Hydra(HeadsDrafter, Eagle):
    """Drafts a tree level by level, from one row of the target."""

    def __init__(self, drafter: TrainedModel, most: int, *, top: int = 4, width: int = 4, depth: int = 5,
                 first: int = 0, kept: bool = True, host: Host | None = None,
                 shape: tuple[Place, ...] | None = None) -> None:
        """``top``, ``width``, ``depth``, ``shape``: as of :class:`Eagle`."""
        Eagle.__init__(self, drafter, most, top=top, width=width, depth=depth, kept=kept, host=host, shape=shape)
        self.first = first - drafter.model.first

    def behind_text(self, ids: list[int]) -> Asking[Forward]:
        from gemmule.compiler.ir import Rows

        rows = Rows.chain(ids[-1:], 0).borrowing([self.read_row(ids)])
        return (yield from self.cache.branches(rows, self._want(1)))

    def ordered(self, paths: list[Candidate]) -> list[Candidate]:
        return paths

    def rows_behind(self, ordered: list[Candidate], ids: list[int]) -> Rows:
        from gemmule.compiler.ir import Rows

        return Rows.chain([one.token for one in ordered], 0)


def _make(request: Request) -> Hydra:
    options, drafter = request.options, trained_model(request, "hydra", "hydra")
    most = min(request.lengths.most(), drafter.model.program.max_rows)
    return Hydra(drafter, most, top=options["hydra_top"], width=options["hydra_width"], depth=options["hydra_depth"],
                 first=request.target.first, kept=request.kept, host=request.host, shape=request.shape(
                     most=most, behind=options["hydra_top"], levels=options["hydra_depth"]))


METHOD = Method(
    name="hydra", make=_make, trained="hydra", scheduled=False, labels=(DRAFT,),
    says="trained heads one behind the other, which draft a tree from the target's last row",
    cuts="layers: a level of the tree is a small MLP on the row of the level before",
    source="Ankner et al. 2024, Hydra (arXiv 2402.05109)",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        Option(name="--hydra-top", limits=Range(1, 8, "tokens"), default=4,
               help="Candidates behind one path, a head's largest logits."),
        Option(name="--hydra-width", limits=Range(1, 15, "paths"), default=4,
               help="Paths that one pass of the heads answers behind."),
        Option(name="--hydra-depth", limits=Range(1, 8, "heads"), default=5,
               help="Heads of a step, a pass each, at most."),
        TREE))
