"""Adaptive verification: how many candidates a step drafts and verifies, and whether it drafts at all.

It stands between a drafter and the loop, and works with any. Candidates are taken as long as the tokens that one more
is expected to win are worth more than what it costs: its row in the pass of the target, exactly as that pass takes
longer on this device behind this context (:mod:`gemmule.sw.device.costs.cost_curve`), and what moving its path would
take. A token is worth the cycles that one has taken so far. How likely a candidate is accepted is learned from the
text (:mod:`gemmule.sw.decoding.adaptive.acceptance`).

A drafter that runs models, or wants more of the target than tokens, costs something before anything is proposed.
Whether and how much it drafts is decided by what as many candidates have won before. Where it is left out, what is
known fades, so that it is tried again from time to time. A drafter that is never asked caches nothing.

A step drafts no more than what keeps the text, were nothing of it accepted, within :data:`LIMIT` of the cycles of
autoregressive decoding, whose passes are known as exactly; of a text not shorter than :data:`HORIZON` tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING, Protocol, TypeVar

from gemmule.sw.decoding.adaptive.acceptance import Acceptance
from gemmule.sw.decoding.branches import in_depth
from gemmule.sw.decoding.tree import Drafter, Tree

if TYPE_CHECKING:
    from gemmule.sw.step import Asking, Forward, Want

__all__ = ["HORIZON", "LIMIT", "Adaptive", "Curve"]

T = TypeVar("T")

LIMIT = 0.009
"""Of the cycles of autoregressive decoding, which a text may take more."""
HORIZON = 64
"""Tokens that a text is taken to have at least."""
FADE = 0.99
"""Weight of what is known of a drafter, for each step that leaves it out."""
FORGET, PRIOR, FIRST, NEXT = 0.97, 2.0, 0.6, 0.8
"""Of what candidates won before: weight of a step for each later one; how many observations the prior counts as, and
which share of them was right, of first candidates and of later ones, behind a right one."""
RISK = 0.25
"""Of the cycles that may be lost, those that a step may lose, unless it drafts a single token."""
OVERHEAD = 1.5
"""Cycles of drafting over those that its weights let expect, before it was seen."""
LEARN = 0.3
"""Weight of what drafting took the last time."""
EASE = 4
"""Steps of autoregressive decoding with which the worth of a token begins."""


class Curve(Protocol):
    """Cycles of the target's passes, as of :class:`gemmule.sw.device.costs.cost_curve.CostCurve`."""

    def of(self, rows: int, cached: int, want: Want) -> float: ...
    def move(self, rows: int, cached: int) -> int: ...


class Won:
    """How many candidates in a row were accepted in earlier steps: of each place, how often it was, where the ones
    before were.
    """

    def __init__(self, most: int) -> None:
        self.tried, self.right = [0.0] * most, [0.0] * most

    def fade(self) -> None:
        """Of a step without candidates."""
        self.tried, self.right = ([FADE * one for one in counts] for counts in (self.tried, self.right))

    def observe(self, asked: int, accepted: int) -> None:
        """Of a step for which so many candidates were wanted."""
        for place in range(min(asked, accepted + 1, len(self.tried))):
            self.tried[place] = FORGET * self.tried[place] + 1
            self.right[place] = FORGET * self.right[place] + (place < accepted)

    def expected(self) -> list[float]:
        """Tokens that 0, 1, 2, .. candidates win."""
        found, chance, prior = [0.0], 1.0, FIRST
        for tried, right in zip(self.tried, self.right):
            chance *= (right + PRIOR * prior) / (tried + PRIOR)
            prior = NEXT
            found.append(found[-1] + chance)
        return found


class Adaptive(Drafter):
    """Asks a drafter when it pays, and has as many of its candidates verified as pay.

    Attributes:
        asked: whether the last step drafted.
        tree: what the last step had verified.
    """

    def __init__(self, inner: Drafter, curve: Curve, cycles: Callable[[], int], *, want: Want, rows: int,
                 parameters: int, step: int) -> None:
        """``cycles``: that the text has taken so far; ``want``: what the rule wants of the target's passes.

        ``rows``, ``parameters``: of a pass of the target, and its weights; ``step``: cycles of the host a step.
        """
        self.inner, self.curve, self.cycles, self.plain_want = inner, curve, cycles, want
        self.rows, self.parameters, self.step = rows, parameters, step
        self.launches = inner.launches
        self.acceptance, self.won, self.overhead = Acceptance(), Won(rows * inner.launches - 1), OVERHEAD
        self.asked, self.tree = False, Tree.chain(0, [])
        self._behind = self._first = True
        """Whether the drafter lacks tokens of the text; whether it was never asked."""
        self._branches = False
        """Whether it has proposed a tree with siblings."""
        self._count = self._cached = self._dropped = self._tokens = 0
        self._extra = 0.0
        """Cycles of rows beside the candidates, in the last pass that had any."""
        self._begun = self._seen = cycles()
        self._prompt = self._plain = 0.0
        """Cycles of the prompt, and of autoregressive decoding for what was generated behind it."""

    def want(self) -> Want | None:
        return self.inner.want() if self.asked else None

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        """The drafter begins when it is asked."""
        self._begun = self.cycles()
        self._prompt, self._plain, self._tokens = self._begun - self._seen, 0.0, 0
        self._dropped, self._behind = dropped, True

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self._cached, self.tree = len(ids) - 1, Tree.chain(ids[-1], [])
        self._count = self._wanted(min(budget, len(self.won.tried)))
        self.asked = self._count > 0
        if not self.asked:
            self._behind = True
            return self.tree
        if self._behind:
            yield from _asked(self.inner.begin(ids, self._dropped))
            self._behind = self._first = False
        before = self.cycles()
        proposed = yield from _asked(self.inner.propose(ids, self._count))
        foreseen, drafting = self._drafting(self._count), self.cycles() - before
        if foreseen and drafting:
            self.overhead *= 1 + LEARN * (drafting / foreseen - 1)
        self._branches |= len(set(proposed.parent)) < len(proposed.parent)
        self.tree = proposed if proposed.extra else self._paying(proposed, free=not drafting)
        if self.tree is not proposed:
            self.inner.trimmed(self.tree)
        return self.tree

    # -- what it costs

    def _pass(self, rows: int, want: Want) -> float:
        """Cycles of the target's pass over so many rows."""
        full, rest = divmod(rows - 1, self.rows)
        return full * self.curve.of(self.rows, self._cached, want) + self.curve.of(rest + 1, self._cached, want)

    def _joined(self) -> Want:
        """What a pass over candidates gives back."""
        own = self.inner.want()
        return self.plain_want if own is None else self.plain_want.joined(own)

    def _drafting(self, count: int) -> float:
        """Cycles of drafting so many tokens."""
        return self.overhead * self.inner.drafting(count) / self.parameters * self._pass(1, self.plain_want)

    def _worth(self) -> float:
        """Tokens that a cycle has given so far."""
        step = self._pass(1, self.plain_want) + self.step
        return (self._tokens + EASE) / (self.cycles() - self._begun + EASE * step)

    def _spare(self) -> float:
        """Cycles that may be lost and leave the text within the limit."""
        shortest = HORIZON * (self._pass(1, self.plain_want) + self.step)
        return (LIMIT * (self._prompt + max(self._plain, shortest)) + self._plain - (self.cycles() - self._begun))

    # -- what pays

    def _wanted(self, most: int) -> int:
        """Candidates that the drafter is asked for: all, where asking costs nothing."""
        joined, expected = self._joined(), self.won.expected()
        if joined == self.plain_want and not self._extra and not self.inner.drafting(most):
            return most
        plain, worth, spare = self._pass(1, self.plain_want), self._worth(), self._spare()
        if self._first:  # it passes the prompt
            spare -= self._prompt * self.inner.drafting(1) / self.parameters

        gains = [0.0]
        """By candidates: tokens beyond those that the cycles for them would give otherwise."""
        for count in range(1, most + 1):
            more = self._drafting(count) + self._pass(count + 1, joined) + self._extra - plain
            if more > (spare * RISK if count > 1 else spare):
                break
            gains.append(expected[count] - worth * more)
        if self._branches:  # a tree of more has less to do with one of few, and ends drafting by itself
            return len(gains) - 1 if gains[-1] > 0 else 0
        return max(range(len(gains)), key=gains.__getitem__)

    def _paying(self, tree: Tree, *, free: bool) -> Tree:
        """The candidates of a tree that pay; ``free``: it cost nothing, so that none may be verified to stay within
        the limit.
        """
        chances, joined, worth = self.acceptance.of_paths(tree), self._joined(), self._worth()
        spare = self._spare() if free else float("inf")
        ordered = nlargest(len(chances) - 1, range(1, len(chances)), key=chances.__getitem__)
        alone, move = self._pass(1, joined), self.curve.move(1, self._cached)
        first = {0}
        """Nodes of the path that stands in place."""
        parents: set[int] = set()
        best, count, tokens, moves = 0.0, 0, 0.0, 0.0
        for taken, node in enumerate(ordered, 1):
            parent = tree.parent[node]
            if parent in first:
                if parent in parents:
                    moves += chances[node] * move
                else:
                    first.add(node)
            parents.add(parent)
            tokens += chances[node]
            more = self._pass(taken + 1, joined) - alone + moves
            if more <= spare and tokens - worth * more > best:
                best, count = tokens - worth * more, taken
        return _part(tree, ordered[:count])

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        for place in range(len(new)):
            self._plain += self.curve.of(1, self._cached + place, self.plain_want) + self.step
        self._tokens += len(new)
        self._seen = self.cycles()
        if not self.asked:
            self.won.fade()
            return
        self.won.observe(self._count, len(path) - 1)
        self.acceptance.observe(self.tree, path)
        if self.tree.extra:
            self._extra = max(0.0, out.cycles - self._pass(len(self.tree.tokens), self._joined()))
        self.inner.observe(out, path, new)


def _part(tree: Tree, nodes: list[int]) -> Tree:
    """Some nodes of a tree, the likeliest first, parents before children; of drawn ones, which are a chain, the first.
    """
    if tree.weights:
        return Tree.chain(tree.tokens[0], tree.tokens[1:len(nodes) + 1],
                          [tree.weights.get(node) for node in range(1, len(nodes) + 1)])
    kept = [0, *nodes]
    place = {node: number for number, node in enumerate(kept)}
    own = tree.chances or [1.0] * len(tree.tokens)
    made = in_depth([tree.tokens[node] for node in kept], [place.get(tree.parent[node], -1) for node in kept],
                    [own[node] for node in kept])
    return replace(made, chances=made.chances if tree.chances else (), source=tree.source)


def _asked(found: Asking[T] | T) -> Asking[T]:
    """What a drafter comes to, whether it asks for it or just says it."""
    return (yield from found) if isinstance(found, Generator) else found
