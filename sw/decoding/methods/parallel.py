"""A trained drafter that proposes several tokens in one pass, from the target's hidden rows (PARD, P-EAGLE).

An et al. 2025; the drafter is of :mod:`gemmule.sw.training.drafters`. A row of the text has the token that follows it
and the target's hidden rows at its position; behind the last row that the target has read stand masks, one for each
further token, which have the same hidden rows. All are one causal pass, and the masks' rows are then forgotten.

Of each position the device gives the ``--parallel-top`` largest logits. A mask does not know which tokens stand before
it, so the tree has at each depth the same candidates, whatever they stand behind: it takes the paths with the largest
products of chances. With ``--parallel-form confident`` a chance comes from the logits, as the drafter's own softmax at
a temperature of each position (:data:`TEMPERATURES`); with ``fixed`` from position and rank alone (:data:`RANKS`), so
that each step has a tree of the same shape. With ``--tree`` it has the shape that is given (as Medusa's trees, Cai et
al. 2024). One candidate a position is a chain, whose pass needs no logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import exp
from typing import TYPE_CHECKING

from gemmule.sw.decoding.candidates.branches import fill, grow
from gemmule.sw.decoding.methods.method import DRAFT, TREE, Method, Option, Request
from gemmule.sw.decoding.trained import WIDEST, TrainedDrafter, trained_model
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.adaptive.shapes import Place
    from gemmule.sw.decoding.trained import TrainedModel
    from gemmule.sw.step import Asking

__all__ = ["METHOD", "OPTIONS", "RANKS", "TEMPERATURES", "Guesses", "OnePassDrafter"]

TEMPERATURES = (1.0, 1.0, 1.0, 1.0, 0.9, 0.9, 0.8)
"""By position, those at which the drafter's softmax is closest to what the target says, given the tokens before."""
RANKS = (
    (0.654, 0.099, 0.037, 0.025, 0.017, 0.008, 0.007, 0.005), (0.649, 0.082, 0.043, 0.022, 0.020, 0.012, 0.008, 0.006),
    (0.669, 0.087, 0.033, 0.020, 0.014, 0.015, 0.011, 0.010), (0.713, 0.070, 0.036, 0.014, 0.013, 0.011, 0.011, 0.004),
    (0.738, 0.079, 0.025, 0.015, 0.008, 0.008, 0.003, 0.013), (0.755, 0.073, 0.035, 0.014, 0.010, 0.000, 0.007, 0.000),
    (0.722, 0.066, 0.052, 0.014, 0.000, 0.014, 0.005, 0.009))
"""By position, how often each rank is right where the tokens before are. `benchmarks.drafted` finds both tables."""
Guesses = list[list[tuple[int, float]]]
"""By position the likeliest tokens, each with its chance where the ones before are right."""
Chances = Callable[[int, Sequence[float]], Sequence[float]]
"""Of the candidates of a position, by number and their logits, the largest first."""


def confident(position: int, logits: Sequence[float]) -> Sequence[float]:
    """By the drafter's own softmax over these."""
    temperature = TEMPERATURES[min(position, len(TEMPERATURES) - 1)]
    weights = [exp((logit - logits[0]) / temperature) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def fixed(position: int, logits: Sequence[float]) -> Sequence[float]:
    """By rank."""
    return RANKS[min(position, len(RANKS) - 1)]


FORMS: dict[str, Chances] = {"confident": confident, "fixed": fixed}
"""What chances come from, by name."""


class OnePassDrafter(TrainedDrafter):
    """Drafts a tree with the masks' answers."""

    def __init__(self, drafter: TrainedModel, most: int, *, top: int, form: str = "confident", kept: bool = True,
                 host: Host | None = None, shape: tuple[Place, ...] | None = None) -> None:
        """``most``: candidates of a step; ``top``: of a position; ``form``: of :data:`FORMS`; ``kept``: its KV cache
        keeps rows; ``shape``: of each tree, None: as large as is worth its rows.
        """
        super().__init__(drafter, most, kept=kept, host=host)
        self.top, self.chances, self.shape = top, FORMS[form], shape

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self.pending = len(ids) - 1
        guesses = yield from self.guesses(ids, budget)
        follow = partial(self.behind, guesses)
        if self.shape is not None:
            return fill(ids[-1], self.shape[:budget], 0, follow)
        return self.worth.chosen(lambda count: grow(ids[-1], count, 0, follow), min(self.most, budget),
                                 self.spent).tree

    @staticmethod
    def behind(guesses: Guesses, depth: int) -> list[tuple[int, float, int]]:
        """Candidates of a position, as :func:`gemmule.sw.decoding.candidates.branches.grow` takes them."""
        return [(token, chance, depth + 1) for token, chance in guesses[depth]] if depth < len(guesses) else []

    def guesses(self, ids: list[int], budget: int) -> Asking[Guesses]:
        """The likeliest tokens behind a text, position by position; ``budget``: positions at most."""
        from gemmule.sw.step import Want

        self.spent = 0
        count = min(self.most, budget, 1 + len(self.drafter.masks))
        if count < 1 or len(ids) < 2:  # the target has read nothing yet
            return []
        want = Want(last=count, top=min(WIDEST, len(self.drafter.tokens)) if self.top > 1 else 0)
        out = yield from self.cache.ahead_of(ids[1:], self.drafter.masks[:count - 1], want, self.elsewhere)
        self.elsewhere = {}
        self.spend(out)
        if out.top is None:
            return [[(token, RANKS[min(position, len(RANKS) - 1)][0])]
                    for position, token in enumerate(self.drafter.tokens[out.argmax].tolist())]
        scale = self.drafter.model.logit_scale
        return [list(zip(tokens, self.chances(position, logits)))[:self.top]
                for position, (tokens, logits) in enumerate(zip(
                    self.drafter.tokens[out.top.tokens].tolist(), (out.top.logits * scale).tolist()))]


def _make(request: Request) -> OnePassDrafter:
    options, drafter, most = request.options, trained_model(request, "parallel", "parallel"), request.lengths.most()
    return OnePassDrafter(drafter, most, top=options["parallel_top"], form=options["parallel_form"], kept=request.kept,
                          host=request.host, shape=request.shape(
                              most=most, behind=options["parallel_top"], levels=1 + len(drafter.masks)))


OPTIONS = (
    Option(name="--parallel-top", limits=Range(1, 8, "tokens"), default=4,
           help="Candidates of a position: the drafter's largest logits; 1: a chain."),
    Option(name="--parallel-form", limits=tuple(FORMS), default="confident",
           help="Whether a candidate's chance comes from the drafter's logits, or from position and rank alone."))
"""Of the tree."""

METHOD = Method(
    name="parallel", says="a trained drafter that proposes a tree in one pass, from the target's hidden rows",
    cuts="fewer layers, and length: all drafts in one pass of a small network",
    source="An et al. 2025, PARD (arXiv 2504.18583)",
    make=_make, trained="parallel", scheduled=False, labels=(DRAFT,),
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(*OPTIONS, TREE))
