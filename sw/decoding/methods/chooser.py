"""Suffix decoding and Token Recycling together, without training (the pairing of SAM-Decoding, Hu et al. 2024).

Where the last ``--chooser-min-match`` tokens or more stood somewhere before, what followed them is the better guess;
else the table of Token Recycling is. With ``--chooser-form both`` one tree has both: a candidate's chance is its share
among what followed the run times how much runs of that length are worth (:data:`TRUST`), or that of its place in the
table, whichever is larger, and the tree has the candidates with the largest chances. With ``either`` a step has the
candidates of one of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.branches import grow
from gemmule.sw.decoding.methods import recycling, suffix
from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.methods.recycling import Recycling
from gemmule.sw.decoding.methods.suffix import Texts, likely, texts_of
from gemmule.sw.decoding.suffixes import Node
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.sw.step import Forward

__all__ = ["METHOD", "Chooser"]

FORMS = ("both", "either")
TRUST = (0.3, 0.5, 0.65, 0.75, 0.85)
"""How often what followed a run of 1, 2, .. tokens followed again; the last one for all longer ones."""
Place = tuple[int, Node | None, float]
"""A token, what followed the run that ends with it, and how far that is trusted."""


class Chooser(Recycling):
    """Drafts from texts where they match, and from the table."""

    def __init__(self, most: int, texts: Texts, top: int = 8, *, prompts: bool = True, least_match: int = 2,
                 both: bool = True) -> None:
        """``most``, ``top``, ``prompts``: as of :class:`Recycling`; ``least_match``: tokens of a run that counts;
        ``both``: one tree has the candidates of both.
        """
        super().__init__(most, top, prompts=prompts)
        self.texts, self.least_match, self.both = texts, least_match, both

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self.texts.begin(ids)

    def propose(self, ids: list[int], budget: int) -> Tree:
        length, node = next(iter(self.texts.places(ids)), (0, None))
        if length < self.least_match:
            node = None
        trust = TRUST[min(length, len(TRUST)) - 1]
        follow = self._either if node and not self.both else self._both
        self.tree = grow(ids[-1], min(self.most, budget), (ids[-1], node, trust), follow).tree
        return self.tree

    def _both(self, place: Place) -> list[tuple[int, float, Place]]:
        token, node, trust = place
        found = {after: (chance, None, 0.0) for after, chance, _ in self.table.follow(token)}
        for after, share, behind in likely(node) if node else ():
            chance = max(share * trust, found[after][0] if after in found else 0.0)
            found[after] = chance, behind, TRUST[-1]
        return [(after, chance, (after, behind, further)) for after, (chance, behind, further) in found.items()]

    def _either(self, place: Place) -> list[tuple[int, float, Place]]:
        _, node, trust = place
        return [(after, share * trust, (after, behind, TRUST[-1])) for after, share, behind in likely(node)] if node else []

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        super().observe(out, path, new)
        self.texts.add(new)


def _make(request: Request) -> Chooser:
    options = request.options
    return Chooser(request.lengths.most(), texts_of(request), options["recycling_top"],
                   prompts=options["recycling_prompts"] == "on", least_match=options["chooser_min_match"],
                   both=options["chooser_form"] == "both")


METHOD = Method(
    name="chooser", make=_make, needs_general=True, scheduled=False,
    says="suffix decoding where the last tokens stood before, and Token Recycling, in one tree",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        *suffix.OPTIONS, *recycling.OPTIONS,
        Option(name="--chooser-form", limits=FORMS, default="both",
               help="Whether one tree has candidates of both, or a step those of either."),
        Option(name="--chooser-min-match", limits=Range(1, 16, "tokens"), default=2,
               help="Tokens of a run that counts, at least.")))
