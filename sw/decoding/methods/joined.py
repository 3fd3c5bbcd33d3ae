"""A trained one-pass drafter and all that needs no training, in one tree: guesses where the text repeats nothing.

Candidates are those of :mod:`gemmule.sw.decoding.methods.chooser`. Where the drafter
(:mod:`gemmule.sw.decoding.methods.parallel`) has guesses, they stand in the place of the target's last answers. What a
datastore says is mixed in before them, and behind them the runs of last tokens that stood before in the text, by how
often what followed a run of that length follows it again (:data:`TRUST`), the shortest run first, so that long runs
decide. The tree has the candidates with the largest products of chances, as many as are worth their rows
(:mod:`gemmule.sw.decoding.adaptive.worth`).

Behind a run of ``--joined-min-match`` tokens or more the drafter's pass is left out. Its cache then lacks the rows of
the committed tokens, which the next pass that runs takes in, as few rows cost what one costs. That wants the target's
hidden rows to stand where the tokens do, so a step whose accepted candidates the target had read elsewhere is followed
by a pass of the drafter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gemmule.sw.decoding.candidates.stored import Stored
from gemmule.sw.decoding.methods import chooser, parallel, suffix
from gemmule.sw.decoding.methods.chooser import Chooser, Path, stored_of
from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.decoding.methods.parallel import Guesses, OnePassDrafter
from gemmule.sw.decoding.methods.recycling import Table
from gemmule.sw.decoding.methods.suffix import Texts, texts_of
from gemmule.sw.decoding.trained import trained_model
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.sw.step import Asking, Forward

__all__ = ["METHOD", "TRUST", "Joined", "guesses_at"]

TRUST = (0.075, 0.225, 0.375, 0.525, 0.6)
"""How much what followed a run of 1, 2, .. tokens counts beside the drafter; the last one for all longer ones."""


class Guesser(OnePassDrafter):
    """The drafter, with costs that are known beforehand: a first tree of as many rows as there can be would say nothing
    of fewer ones.
    """

    foreseeing = True


class Joined(Chooser):
    """Drafts from the drafter's guesses and from texts; where there are no guesses, from the table of last answers."""

    trust = TRUST

    def __init__(self, drafter: Guesser, texts: Texts, *, least_match: int = 6,
                 stored: Stored | None = None) -> None:
        """``least_match``: tokens of a run behind which the drafter's pass is left out; ``stored``: other texts."""
        super().__init__(drafter.most, texts, Table(1), prompts=False, stored=stored, worth=drafter.worth)
        self.drafter, self.least_match = drafter, least_match
        self.guesses: Guesses = []

    def drafting(self, count: int) -> int:
        return self.drafter.drafting(count)

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None]:
        super().begin(ids, dropped)
        yield from self.drafter.begin(ids, dropped)

    def guessed(self, path: Path) -> Mapping[int, float]:
        return guesses_at(self.guesses, path)

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        first, drafter = self.place(ids), self.drafter
        drafter.pending, drafter.spent, self.guesses = len(ids) - 1, 0, []
        if first.run < self.least_match or drafter.elsewhere or not drafter.cache.kept:
            self.guesses = yield from drafter.guesses(ids, budget)
        return self.chosen(ids, budget, first, self.mixed, drafter.spent)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        super().observe(out, path, new)
        self.drafter.observe(out, path, new)


def guesses_at(guesses: Guesses, path: Path) -> Mapping[int, float]:
    """What a one-pass drafter says behind a path: it knows the path's length alone."""
    return dict(guesses[len(path)]) if len(path) < len(guesses) else {}


def _make(request: Request) -> Joined:
    options = request.options
    drafter = Guesser(trained_model(request, "parallel", "joined"), request.lengths.most(),
                      top=options["parallel_top"], form=options["parallel_form"], kept=request.kept, host=request.host)
    return Joined(drafter, texts_of(request), least_match=options["joined_min_match"], stored=stored_of(request))


METHOD = Method(
    name="joined", make=_make, trained="parallel", scheduled=False, labels=(DRAFT,),
    cuts="fewer layers, and length: all drafts in one pass of a small network, or none where the text repeats",
    source="An et al. 2025, PARD (arXiv 2504.18583); Oliaro et al. 2024, SuffixDecoding (arXiv 2411.04975)",
    says="a trained one-pass drafter, what followed the last tokens in the text and in a datastore, in one tree",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        *parallel.OPTIONS, *suffix.OPTIONS, chooser.CORPUS,
        Option(name="--joined-min-match", limits=Range(1, 256, "tokens"), default=6,
               help="Tokens of a run of last tokens behind which the drafter's pass is left out.")))
