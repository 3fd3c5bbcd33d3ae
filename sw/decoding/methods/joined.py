"""A trained one-pass drafter and suffix decoding, in one tree: trained guesses where the text repeats nothing.

Candidates are those of :mod:`gemmule.sw.decoding.methods.parallel` and what followed the longest runs of last tokens in
the text (:mod:`gemmule.sw.decoding.methods.suffix`). A run's candidates are mixed into the drafter's by how often what
followed a run of that length follows it again (:data:`TRUST`), the shortest run first, so that long runs decide. The
tree has the candidates with the largest products of chances, as many as are worth their rows
(:mod:`gemmule.sw.decoding.adaptive.worth`).

Behind a run of ``--joined-min-match`` tokens or more the drafter's pass is left out. Its cache then lacks the rows of
the committed tokens, which the next pass that runs takes in, as few rows cost what one costs. That wants the target's
hidden rows to stand where the tokens do, so a step whose accepted candidates the target had read elsewhere is followed
by a pass of the drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gemmule.sw.decoding.candidates.branches import grow
from gemmule.sw.decoding.candidates.suffixes import Node
from gemmule.sw.decoding.methods import parallel, suffix
from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.decoding.methods.parallel import Guesses, OnePassDrafter
from gemmule.sw.decoding.methods.suffix import Texts, texts_of
from gemmule.sw.decoding.trained import trained_model
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.trained import TrainedModel
    from gemmule.sw.step import Asking, Forward

__all__ = ["METHOD", "TRUST", "Joined", "mixed"]

TRUST = (0.1, 0.3, 0.5, 0.7, 0.8)
"""How much what followed a run of 1, 2, .. tokens counts beside the drafter; the last one for all longer ones."""
WIDEST = 8
"""Candidates behind one that are looked at."""
Runs = tuple[tuple[int, Node], ...]
"""Runs that end with a token: tokens of each, the shortest first, and what followed."""
Place = tuple[int, Runs]
"""A token's place behind the last one of the text, and the runs that end with it."""


class Joined(OnePassDrafter):
    """Drafts from the drafter's guesses and from texts."""

    def __init__(self, drafter: TrainedModel, texts: Texts, most: int, *, top: int, form: str = "confident",
                 least_match: int = 6, kept: bool = True, host: Host | None = None) -> None:
        """``drafter``, ``most``, ``top``, ``form``, ``kept``: as of :class:`OnePassDrafter`; ``least_match``: tokens of
        a run behind which the drafter's pass is left out.
        """
        super().__init__(drafter, most, top=top, form=form, kept=kept, host=host)
        self.texts, self.least_match = texts, least_match

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None]:
        self.texts.begin(ids)
        yield from super().begin(ids, dropped)

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self.pending, self.spent = len(ids) - 1, 0
        runs: Runs = tuple(reversed(self.texts.places(ids)))
        guesses: Guesses = []
        if not runs or runs[-1][0] < self.least_match or self.elsewhere or not self.cache.kept:
            guesses = yield from self.guesses(ids, budget)
        follow = partial(mixed, guesses, TRUST)
        return self.worth.chosen(lambda count: grow(ids[-1], count, (0, runs), follow), min(self.most, budget),
                                 self.spent).tree

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        super().observe(out, path, new)
        self.texts.add(new)


def mixed(guesses: Guesses, trusted: Sequence[float], place: Place) -> list[tuple[int, float, Place]]:
    """The likeliest candidates of a place, each with the runs that it makes longer; ``trusted``: as :data:`TRUST`."""
    depth, runs = place
    chances = dict(guesses[depth]) if depth < len(guesses) else {}
    for length, node in runs:
        trust = trusted[min(length, len(trusted)) - 1]
        seen = sum(child.count for child in node.children.values())
        chances = {after: (1 - trust) * chance for after, chance in chances.items()}
        for after, child in node.children.items():
            chances[after] = chances.get(after, 0.0) + trust * child.count / seen
    best = sorted(chances.items(), key=lambda item: -item[1])[:WIDEST]
    return [(after, chance, (depth + 1, tuple(
        (length + 1, node.children[after]) for length, node in runs
        if after in node.children and node.children[after].children))) for after, chance in best]


def _make(request: Request) -> Joined:
    options = request.options
    drafter = trained_model(request, "parallel", "joined")
    return Joined(drafter, texts_of(request), request.lengths.most(), top=options["parallel_top"],
                  form=options["parallel_form"], least_match=options["joined_min_match"], kept=request.kept,
                  host=request.host)


METHOD = Method(
    name="joined", make=_make, trained="parallel", scheduled=False, labels=(DRAFT,),
    cuts="fewer layers, and length: all drafts in one pass of a small network, or none where the text repeats",
    source="An et al. 2025, PARD (arXiv 2504.18583); Oliaro et al. 2024, SuffixDecoding (arXiv 2411.04975)",
    says="a trained one-pass drafter and suffix decoding, in one tree",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        *parallel.OPTIONS, *suffix.OPTIONS,
        Option(name="--joined-min-match", limits=Range(1, 256, "tokens"), default=6,
               help="Tokens of a run of last tokens behind which the drafter's pass is left out.")))
