"""A smaller model drafts a tree: several tokens behind each of its likeliest paths (SpecInfer, EAGLE-2).

Miao et al. 2024; Li et al. 2024. The first pass of a step answers behind the text with the ``--draft-tree-top`` largest
logits. Each pass more goes over a tree: of the best candidates so far, by the product of the draft's probabilities on
their paths, the ``--draft-tree-width`` best that have nothing behind them get candidates of their own. A pass goes over
their ancestors once more, because rows of the cache are seen by all; as few rows cost what one costs, that is free. The
best candidates of all, as many as a pass of the target verifies, are proposed.

Drafting ends after ``--draft-tree-depth`` passes, or when another one would not pay: no path is likely enough that
what follows it displaced a candidate, or the tokens that may be won are worth less than the pass takes, measured in
cycles of the step.

With ``--draft-tree-form static`` every tree has the same shape, level by level: that of the most tokens a cycle, by how
often each rank of the draft was right (:data:`RANKS`) and what passes of both models cost on this device. With
``--tree`` it has the shape that is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import exp
from typing import TYPE_CHECKING

from gemmule.sw.decoding.adaptive.shapes import Place, cost_shape
from gemmule.sw.decoding.candidates.levels import Candidate, Levels, rows_of, with_ancestors
from gemmule.sw.decoding.methods.method import DRAFT, TREE, Method, Option, Request
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.device.runtime import LoadedModel
    from gemmule.sw.step import Asking, Forward

__all__ = ["METHOD", "RANKS", "DraftTree"]

RANKS = (0.63, 0.1, 0.04, 0.02)
"""How often the draft's likeliest, second likeliest, .. token behind an accepted path was right."""


class DraftTree(Paced):
    """A smaller model drafts a tree, greedily whatever the rule: a fixed candidate is verified by any."""

    def __init__(self, model: LoadedModel, lengths: Lengths | int, host: Host | None = None, *, top: int = 4,
                 width: int = 3, depth: int = 7, kept: bool = True,
                 shape_of: Callable[[int], tuple[Place, ...]] | None = None) -> None:
        """``lengths``: candidates of a step; ``top``: behind one path; ``width``: paths that a pass answers behind;
        ``depth``: passes of a step at most; ``kept``: the KV cache keeps rows; ``shape_of``: that of all trees, behind
        so many tokens, None: each tree grows as it is likely.
        """
        super().__init__(lengths, host)
        self.model, self.cache = model, model.kv(kept=kept)
        self.top, self.width, self.depth, self.shape_of = top, width, depth, shape_of
        self._first, self._asked = 0.0, 0
        """Chances of the likeliest token behind the paths that were asked, added up, and how many those are."""

    def drafting(self, count: int) -> int:
        return min(count, self.depth) * self.model.program.graph.parameters

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None]:
        if self.cache.kept:
            yield from self.cache.begin(ids)

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        from gemmule.sw.step import Want

        most = min(self.lengths.most(), budget)
        levels = Levels(most, None if self.shape_of is None else self.shape_of(len(ids)))
        if most:
            out = yield from self.cache.chain(ids, Want(last=1, top=self.top))
            self._behind(levels, None, out, 0)
        for _ in range(1, self.depth if most else 0):
            paths = levels.waiting(self.width, self.model.program.max_rows)
            if not paths or not (levels.shape or self._pays(levels, paths)):
                break
            out = yield from self.cache.branches(rows_of(with_ancestors(paths), len(ids)),
                                                 Want(last=len(paths), top=self.top))
            self.costs.draft = out.cycles + self.host.launch_cycles
            for place, path in enumerate(paths):
                self._behind(levels, path, out, place)
        tree = levels.proposed(ids[-1]).tree
        self.drafted = len(tree.tokens) - 1
        return tree

    def _behind(self, levels: Levels, path: Candidate | None, out: Forward, place: int) -> None:
        """The likeliest tokens behind a path; their chances are of the largest logits alone."""
        assert out.top is not None
        logits = out.top.logits[place][:self.top].tolist()
        weights = [exp((logit - logits[0]) * self.model.logit_scale) for logit in logits]
        self._first, self._asked = self._first + 1 / sum(weights), self._asked + 1
        levels.behind(path, out.top.tokens[place].tolist(), [weight / sum(weights) for weight in weights])

    def _pays(self, levels: Levels, paths: list[Candidate]) -> bool:
        """Whether a pass that answers behind these paths wins more than it takes."""
        step = self.costs.of(levels.most + 1) + self.costs.step if self.costs.verify else 0.0
        return levels.gain(paths, self._first / self._asked) > (self.costs.draft / step if step else 0.0)


def _make(request: Request) -> DraftTree:
    if request.draft is None:
        raise InputError("--method draft-tree needs a draft model: give --draft-model FILE, or --method ar")
    options = request.options
    shape = request.shape(most=min(request.lengths.most(), request.draft.program.max_rows),
                          behind=options["draft_tree_top"], levels=options["draft_tree_depth"])
    shape_of: Callable[[int], tuple[Place, ...]] | None = None
    if shape is not None:
        shape_of = partial(_given, shape)
    elif options["draft_tree_form"] == "static":
        shape_of = _shape_of(request, request.draft)
    return DraftTree(request.draft, request.lengths, request.host, top=options["draft_tree_top"],
                     width=options["draft_tree_width"], depth=options["draft_tree_depth"], kept=request.kept,
                     shape_of=shape_of)


def _given(shape: tuple[Place, ...], tokens: int) -> tuple[Place, ...]:
    """One shape behind any number of tokens."""
    return shape


def _shape_of(request: Request, draft: LoadedModel) -> Callable[[int], tuple[Place, ...]]:
    """The best shape behind so many tokens, one for every 64.

    Raises:
        InputError: what passes cost is not known beforehand.
    """
    from gemmule.sw.device.costs.cost_curve import CostCurve
    from gemmule.sw.step import Want

    curve, top = request.curve, request.options["draft_tree_top"]
    if curve is None:
        raise InputError("--draft-tree-form static takes one text with its whole cache, not --batch or --prune: take "
                         "grown")
    drafts, most = CostCurve(draft), min(request.lengths.most(), draft.program.max_rows)

    @cache
    def at(cached: int) -> tuple[Place, ...]:
        level = drafts.of(min(2, draft.program.max_rows), cached, Want(top=top))
        return cost_shape(curve, RANKS[:top], most, cached, request.rule.want(), request.host.step_cycles,
                          lambda levels: levels * level).places

    return lambda tokens: at(tokens // 64 * 64)


METHOD = Method(
    name="draft-tree", make=_make, needs_draft=True, needs_general=True, scheduled=False, labels=(DRAFT,),
    cuts="fewer layers and less width: another, smaller network",
    source="Miao et al. 2024, SpecInfer (arXiv 2305.09781); Li et al. 2024, EAGLE-2 (arXiv 2406.16858)",
    says="where a small model proposes a tree of its likeliest tokens and the large one verifies",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        Option(name="--draft-tree-top", limits=Range(1, 8, "tokens"), default=4,
               help="Candidates behind one path, the draft's largest logits."),
        Option(name="--draft-tree-width", limits=Range(1, 15, "paths"), default=3,
               help="Paths that one pass of the draft answers behind."),
        Option(name="--draft-tree-depth", limits=Range(1, 15, "passes"), default=7,
               help="Passes of the draft in a step, at most."),
        Option(name="--draft-tree-form", limits=("grown", "static"), default="grown",
               help="Whether a tree grows where the draft is sure, or all have the shape of the most tokens a cycle."),
        TREE))
