"""Adaptive verification: how many candidates a step drafts and verifies, and whether it drafts at all.

It stands between a drafter and the loop, and works with any. Candidates are taken as long as the tokens that one more
is expected to win are worth more than what it costs: its row in the pass of the target, exactly as that pass takes
longer on this device behind this context, and what moving its path would take. A token is worth the cycles that one has
taken so far. How likely a candidate is accepted is learned from the text
(:mod:`gemmule.sw.decoding.adaptive.acceptance`).

A drafter that runs models, or wants more of the target than tokens, costs something before anything is proposed.
Whether and how much it drafts is decided by what as many candidates have won before
(:mod:`gemmule.sw.decoding.adaptive.won`). Where it is left out, what is known fades, so that it is tried again from
time to time. A drafter that is never asked caches nothing.

A step drafts no more than what keeps each text, were nothing of it accepted, within a limit of the cycles of
autoregressive decoding, whose passes are known as exactly (:mod:`gemmule.sw.decoding.adaptive.account`). Texts of a
batch, which share passes, decide together (:mod:`gemmule.sw.decoding.adaptive.steps`).

Where a drafter tells how sure it is of each token, a draft within that ends where one more token would not pay
(:mod:`gemmule.sw.decoding.adaptive.paying`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeVar

from gemmule.sw.decoding.adaptive.acceptance import Acceptance
from gemmule.sw.decoding.adaptive.won import Won
from gemmule.sw.decoding.tree import Drafter, Tree

if TYPE_CHECKING:
    from gemmule.sw.decoding.adaptive.account import Text
    from gemmule.sw.decoding.adaptive.paying import Paying
    from gemmule.sw.decoding.adaptive.steps import Steps
    from gemmule.sw.step import Asking, Forward, Want

__all__ = ["Adaptive"]

T = TypeVar("T")


class Adaptive(Drafter):
    """Asks a drafter when it pays, and has as many of its candidates verified as pay.

    Attributes:
        tree: what the step has verified, or before that what was proposed.
        count: candidates that the drafter is asked for in this step; or of a draft that ended earlier, those.
        budget: that it may be asked for at most.
        cached: rows before the step.
        drafted: cycles in which models drafted for the step.
        began: whether the drafter passed tokens of the text first.
        first: whether the drafter was never asked.
        branches: whether it has proposed a tree with siblings.
        ends: whether it has ended a draft by how sure it was.
        answered: whether the text has got its tokens since it last came.
        entry: the text in the account.
    """

    def __init__(self, inner: Drafter, steps: Steps, place: Callable[[], int] = lambda: 0,
                 pace: Paying | None = None) -> None:
        """``steps``: of all texts that share passes; ``place``: of this one among them; ``pace``: the drafter's, where
        it may end drafts by how sure it is.
        """
        self.inner, self.steps, self.place, self.pace = inner, steps, place, pace
        self.launches = inner.launches
        self.acceptance, self.won = Acceptance(), Won(steps.rows * inner.launches - 1)
        self.tree = Tree.chain(0, [])
        self.count = self.budget = self.cached = self.drafted = 0
        self.first, self.began, self.branches, self.ends, self.answered = True, False, False, False, False
        self.entry: Text | None = None
        self._behind = True
        """Whether the drafter lacks tokens of the text."""
        self._dropped = 0

    @property
    def asked(self) -> bool:
        """Whether the step drafts."""
        return self.count > 0

    def want(self) -> Want | None:
        return self.steps.want

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        """The drafter begins when it is asked."""
        self._dropped, self._behind = dropped, True
        self.steps.enter(self, len(ids) - 1)

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        from gemmule.sw.step import Meeting

        self.cached, self.budget = len(ids) - 1, min(budget, len(self.won.tried))
        self.tree, self.count, self.began = Tree.chain(ids[-1], []), 0, False
        if self.steps.underway:
            self._behind = True
            return self.tree
        self.steps.come(self)
        yield Meeting()
        self.steps.count()
        if self.asked:
            yield from self._ask(ids)
        else:
            self._behind = True
        yield Meeting()
        self.steps.choose()
        return self.tree

    def _ask(self, ids: list[int]) -> Asking[None]:
        """The drafter proposes."""
        if self._behind:
            yield from _asked(self.inner.begin(ids, self._dropped))
            self.began, self._behind, self.first = True, False, False
        if self.pace:
            self.pace.begin(self.acceptance, self.won.chances(), self.steps.terms(self.count))
        before = self.steps.drafted()
        self.tree = yield from _asked(self.inner.propose(ids, self.count))
        self.drafted = self.steps.drafted() - before
        self.branches |= len(set(self.tree.parent)) < len(self.tree.parent)
        if self.pace and self.pace.asked:
            self.ends, self.count = True, len(self.tree.tokens) - 1
        self.steps.propose(self)

    def verify(self, tree: Tree) -> None:
        """These of the candidates are verified."""
        self.tree = tree
        self.inner.trimmed(tree)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.steps.observe(self, out, len(new))
        if not self.asked:
            self.won.fade()
            return
        self.won.observe(self.count, len(path) - 1)
        self.acceptance.observe(self.tree, path)
        self.inner.observe(out, path, new)


def _asked(found: Asking[T] | T) -> Asking[T]:
    """What a drafter comes to, whether it asks for it or just says it."""
    return (yield from found) if isinstance(found, Generator) else found
