"""A trained drafter of one layer that goes on from its own rows, level by level, in a tree (EAGLE-3, EAGLE-2).

Li et al. 2025, 2024; the drafter is of :mod:`gemmule.sw.training.drafters`. A row of the text has the token that
follows it and the target's hidden rows at its position, from three depths. The first pass of a step takes in the rows
of the tokens that the last step committed, and answers behind the text with the largest logits. Behind a candidate the
target has no hidden row yet: the layer's own output behind the token before takes its place. So each level of the tree
is a pass, which reads the layer, the listed tokens' part of the head, and what the passes before have left.

A candidate's chance is the product of the drafter's own probabilities on its path. Each pass answers behind the
``--eagle-width`` best candidates so far that have nothing behind them, with ``--eagle-top`` candidates each. Drafting
ends after ``--eagle-depth`` passes, or when another one would not pay: the tokens that it may win, as a share of those
that are expected, are less than its cycles as a share of the step's. Of the best candidates as many are proposed as are
worth their rows (:mod:`gemmule.sw.decoding.adaptive.worth`). One candidate a path and one path a pass are a chain. With
``--tree`` it has the shape that is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

from gemmule.sw.decoding.candidates.levels import Candidate, Levels, rows_of, with_ancestors
from gemmule.sw.decoding.methods.method import DRAFT, TREE, Method, Option, Request
from gemmule.sw.decoding.trained import WIDEST, TrainedDrafter, TrainedModel, trained_model
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.compiler.ir import Rows
    from gemmule.config import Host
    from gemmule.sw.decoding.adaptive.shapes import Place
    from gemmule.sw.step import Asking, Forward, Want

__all__ = ["METHOD", "Eagle"]


class Eagle(TrainedDrafter):
    """Drafts a tree level by level."""

    def __init__(self, drafter: TrainedModel, most: int, *, top: int = 4, width: int = 4, depth: int = 7,
                 kept: bool = True, host: Host | None = None, shape: tuple[Place, ...] | None = None) -> None:
        """``most``: candidates of a step; ``top``: behind one path; ``width``: paths that a pass answers behind;
        ``depth``: passes of a step at most; ``kept``: its KV cache keeps rows; ``shape``: of each tree, None: each
        grows as it is likely.
        """
        TrainedDrafter.__init__(self, drafter, most, kept=kept, host=host)
        self.top, self.width, self.depth, self.shape = top, width, depth, shape
        self._first, self._asked = 0.0, 0
        """Chances of the likeliest token behind the paths that were asked, added up, and how many those are."""
        self.level = self.blocks = 0
        """Cycles of the last pass behind candidates, and launches of the step that left rows."""

    def drafting(self, count: int) -> int:
        return min(count, self.depth) * super().drafting(count)

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self.pending, self.spent = len(ids) - 1, 0
        most = min(self.most, budget)
        levels = Levels(most, self.shape)
        if most < 1 or len(ids) < 2:  # the target has read nothing yet
            return levels.proposed(ids[-1]).tree
        program = self.drafter.model.program
        out = yield from self.behind_text(ids)
        self.elsewhere = {}
        self.spend(out)
        left: dict[Candidate | None, int] = {None: self._left(out)[-1]}
        """Where the row behind a path stands, by the pass that was last over it."""
        self._behind(levels, None, out, 0)
        for _ in range(1, self.depth):
            paths = levels.waiting(self.width, program.max_rows)
            if not paths or not (levels.shape or self._pays(levels, paths)):
                break
            ordered = self.ordered(paths)
            rows = self.rows_behind(ordered, ids).borrowing([left[one.parent] for one in ordered])
            out = yield from self.cache.branches(rows, self._want(len(paths)))
            self.level = self.spend(out)
            left |= dict(zip(ordered, self._left(out)))
            for place, path in enumerate(paths):
                self._behind(levels, path, out, place)
        self._leave_none()
        if levels.shape:
            return levels.proposed(ids[-1]).tree
        return self.worth.chosen(lambda count: levels.proposed(ids[-1], count), most, self.spent).tree

    def behind_text(self, ids: list[int]) -> Asking[Forward]:
        """The pass that takes in what was committed, and answers behind it."""
        if len(self.cache.missing(ids[1:])) > self.drafter.model.program.max_rows:
            yield from self.cache.begin(ids[1:])
        return (yield from self.cache.ahead_of(ids[1:], [], self._want(1), self.elsewhere))

    def ordered(self, paths: list[Candidate]) -> list[Candidate]:
        """Candidates that are rows of a pass behind these paths, which come last."""
        return with_ancestors(paths)

    def rows_behind(self, ordered: list[Candidate], ids: list[int]) -> Rows:
        """Their rows."""
        return rows_of(ordered, len(ids) - 1)

    def _want(self, last: int) -> Want:
        """The answers of a pass, and its rows left for the next one."""
        from gemmule.sw.step import Want

        program = self.drafter.model.program
        return Want(last=last, top=min(WIDEST, len(self.drafter.tokens)), hidden=(program.graph.layers,))

    def _left(self, out: Forward) -> Sequence[int]:
        """Where the rows of a pass stand, as other rows borrow them."""
        model = self.drafter.model
        lent = model.program.borrows
        assert lent is not None
        (hidden,) = out.hidden.values()
        self.blocks += len(hidden.stamps)
        found: list[int] = (hidden.slots + lent.positions - model.first).tolist()
        return found

    def _leave_none(self) -> None:
        """The next step's rows stand where this one's do, so that its cycles do not depend on the steps before."""
        slots = self.drafter.model.slots
        assert slots is not None
        slots.drop(self.blocks)
        self.blocks = 0

    def _behind(self, levels: Levels, path: Candidate | None, out: Forward, place: int) -> None:
        """The likeliest tokens behind a path."""
        assert out.top is not None
        logits = (out.top.logits[place] * self.drafter.model.logit_scale).tolist()
        weights = [exp(logit - logits[0]) for logit in logits]
        self._first, self._asked = self._first + 1 / sum(weights), self._asked + 1
        levels.behind(path, self.drafter.tokens[out.top.tokens[place][:self.top]].tolist(),
                      [weight / sum(weights) for weight in weights])

    def _pays(self, levels: Levels, paths: list[Candidate]) -> bool:
        """Whether a pass that answers behind these paths wins a larger share of tokens than it takes of cycles."""
        if not self.worth.seen or not self.level:
            return True
        step = self.spent + self.host.step_cycles + self.worth.cost(levels.most + 1)
        return levels.gain(paths, self._first / self._asked) > self.level / step


def _make(request: Request) -> Eagle:
    if not request.kept:
        raise InputError("--method eagle goes on from rows of its cache, not with --kv-cache none: drop one of the two")
    options, drafter = request.options, trained_model(request, "eagle", "eagle")
    most = min(request.lengths.most(), drafter.model.program.max_rows)
    return Eagle(drafter, most, top=options["eagle_top"], width=options["eagle_width"], depth=options["eagle_depth"],
                 host=request.host, shape=request.shape(
                     most=most, behind=options["eagle_top"], levels=options["eagle_depth"]))


METHOD = Method(
    name="eagle", says="a trained layer that drafts a tree from the target's hidden rows, then from its own",
    cuts="fewer layers: a pass of one layer for each level of the tree",
    source="Li et al. 2025, EAGLE-3 (arXiv 2503.01840); Li et al. 2024, EAGLE-2 (arXiv 2406.16858)",
    make=_make, trained="eagle", scheduled=False, labels=(DRAFT,),
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        Option(name="--eagle-top", limits=Range(1, 8, "tokens"), default=4,
               help="Candidates behind one path, the drafter's largest logits."),
        Option(name="--eagle-width", limits=Range(1, 15, "paths"), default=4,
               help="Paths that one pass of the drafter answers behind."),
        Option(name="--eagle-depth", limits=Range(1, 8, "passes"), default=7,
               help="Passes of the drafter in a step, at most."),
        TREE))
