"""How likely candidates are accepted: learned from what became of earlier ones of the text. Light.

A candidate has a *mark*: by what its tree was found, and what the drafter says of it, in steps of a factor of e ** .5
in odds; or, where it says nothing, its depth and its place among its siblings. Of each mark the share that was accepted
of those whose parents were is what the next one's chance is taken as. Before there are any, the drafter's own chance
counts as :data:`PRIOR` observations; where there is none, that of the mark one less deep, and at first :data:`FIRST`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log

from gemmule.sw.decoding.tree import Tree

__all__ = ["FIRST", "Acceptance", "Mark", "marked", "marks_of"]

PRIOR = 2.0
FIRST = 0.6
"""Of the first candidate, and of each deeper one behind an accepted one, before anything is known."""
SIBLING = 0.3
"""Of a sibling, relative to the candidate before it, before anything is known."""
FORGET = 0.98
"""Weight of an observation, for each later one of the same mark."""
DEEPEST = 8


@dataclass(frozen=True, order=True)
class Mark:
    """Candidates that are taken as equally likely behind their parents."""

    source: str
    odds: int | None
    """The drafter's, in steps of half a natural logarithm; None: it says nothing."""
    depth: int = 0
    sibling: int = 0


def marked(chance: float) -> tuple[int, float]:
    """The drafter's chance of a token in steps of odds, and itself, neither 0 nor 1."""
    inside = min(max(chance, 1e-4), 1 - 1e-4)
    return round(2 * log(inside / (1 - inside))), inside


def marks_of(tree: Tree) -> list[tuple[Mark, float | None]]:
    """Of each node but node 0, and the drafter's own chance of it behind its parent.

    A node whose token was drawn gets one by its depth alone: a choice that depends on the token would be biased.
    """
    found: list[tuple[Mark, float | None]] = []
    depth, born = [0] * len(tree.tokens), [0] * len(tree.tokens)
    for node, parent in enumerate(tree.parent[1:], 1):
        depth[node], sibling = depth[parent] + 1, born[parent]
        born[parent] += 1
        if tree.chances and node not in tree.weights:
            odds, chance = marked(tree.chances[node] / max(tree.chances[parent], 1e-9))
            found.append((Mark(tree.source, odds), chance))
        else:
            source = "" if node in tree.weights else tree.source
            found.append((Mark(source, None, min(depth[node], DEEPEST), sibling), None))
    return found


@dataclass
class Acceptance:
    """Counts by mark: how many were looked at, and how many of them were accepted."""

    tried: dict[Mark, float] = field(default_factory=dict)
    right: dict[Mark, float] = field(default_factory=dict)

    def chance(self, mark: Mark, own: float | None) -> float:
        """Of a candidate behind an accepted one; ``own``: what the drafter says."""
        if own is not None:
            before = own
        elif mark.sibling:
            before = SIBLING * self.chance(Mark(mark.source, None, mark.depth, mark.sibling - 1), None)
        else:
            before = FIRST if mark.depth <= 1 else self.chance(Mark(mark.source, None, mark.depth - 1), None)
        return (self.right.get(mark, 0.0) + PRIOR * before) / (self.tried.get(mark, 0.0) + PRIOR)

    def of_paths(self, tree: Tree) -> list[float]:
        """The chance of the path to each node; node 0's is 1."""
        found = [1.0]
        for parent, (mark, own) in zip(tree.parent[1:], marks_of(tree)):
            found.append(found[parent] * self.chance(mark, own))
        return found

    def observe(self, tree: Tree, path: Sequence[int]) -> None:
        """Which nodes were accepted: candidates behind any of them were looked at."""
        kept = set(path)
        for node, (parent, (mark, _)) in enumerate(zip(tree.parent[1:], marks_of(tree)), 1):
            if parent in kept:
                self.tried[mark] = FORGET * self.tried.get(mark, 0.0) + 1
                self.right[mark] = FORGET * self.right.get(mark, 0.0) + (node in kept)
