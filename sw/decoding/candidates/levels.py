"""Trees that a model drafts level by level: the likeliest candidates so far, and where its next pass goes on.

A pass goes over the ancestors of what it answers behind once more, because rows of the cache are seen by all; as few
rows cost what one costs, that is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING

from gemmule.sw.decoding.adaptive.shapes import Place
from gemmule.sw.decoding.candidates.branches import Branches, in_depth

if TYPE_CHECKING:
    from gemmule.compiler.ir import Rows

__all__ = ["Candidate", "Levels", "rows_of", "with_ancestors"]


@dataclass(eq=False)
class Candidate:
    """A token behind a path; ``chance``: of the whole path, by the draft."""

    token: int
    parent: Candidate | None
    chance: float
    place: Place
    """Ranks on its path."""
    asked: bool = False
    """Whether the draft was asked what follows."""

    def path(self) -> list[Candidate]:
        """From the first candidate to this one."""
        return [*(self.parent.path() if self.parent else ()), self]


class Levels:
    """The candidates of a step."""

    def __init__(self, most: int, shape: tuple[Place, ...] | None) -> None:
        """``most``: that are proposed; ``shape``: places of the tree, None: the likeliest make it."""
        self.most, self.shape = most, None if shape is None else shape[:most]
        self.found: list[Candidate] = []

    def behind(self, path: Candidate | None, tokens: Sequence[int], chances: Iterable[float]) -> None:
        """What may follow a path (None: the text), the likeliest first, each with its chance there."""
        before, place = (path.chance, path.place) if path else (1.0, ())
        if path:
            path.asked = True
        self.found += [Candidate(token, path, before * chance, (*place, rank))
                       for rank, (token, chance) in enumerate(zip(tokens, chances))]

    def best(self, count: int | None = None) -> list[Candidate]:
        """What would be proposed now, parents before children; ``count``: of the likeliest at most."""
        if self.shape is None:
            return nlargest(self.most if count is None else count, self.found, key=lambda one: one.chance)
        known = {one.place: one for one in self.found}
        return [known[place] for place in self.shape if place in known]

    def waiting(self, width: int, rows: int) -> list[Candidate]:
        """Of these, the likeliest behind which nobody was asked, ``width`` at most, that fit a pass of so many rows
        with their ancestors; of a shape all that it goes on behind.
        """
        best = self.best()
        if self.shape is not None:
            inner = {place[:-1] for place in self.shape}
            return [one for one in best if not one.asked and one.place in inner]
        paths: list[Candidate] = []
        taken: set[Candidate] = set()
        for one in best:
            more = taken.union(one.path())
            if not one.asked and len(paths) < width and len(more) <= rows:
                paths.append(one)
                taken = more
        return paths

    def gain(self, paths: Sequence[Candidate], likely: float) -> float:
        """Share by which a step's expected tokens grow where so likely a token is found behind each path: it displaces
        the least likely candidate that would be proposed now.
        """
        best = self.best()
        least = [0.0] * (self.most - len(best)) + [one.chance for one in reversed(best)]
        won = sum(max(0.0, path.chance * likely - floor) for path, floor in zip(paths, least))
        return won / (1 + sum(one.chance for one in best))

    def proposed(self, pending: int, count: int | None = None) -> Branches:
        """The best as a tree behind the pending token."""
        best = self.best(count)
        number = {one: node for node, one in enumerate(best, 1)}
        chances = [1.0, *(one.chance for one in best)]
        return Branches(in_depth([pending, *(one.token for one in best)], [-1, *(
            number[one.parent] if one.parent else 0 for one in best)], chances), sum(chances[1:]))


def with_ancestors(paths: Sequence[Candidate]) -> list[Candidate]:
    """Paths and what stands before them, parents before children, the paths themselves last, in their order."""
    before = {one: None for path in paths for one in path.path()[:-1]}
    return [*before, *paths]


def rows_of(ordered: Sequence[Candidate], first: int) -> Rows:
    """Rows of candidates behind a text of so many tokens, parents before children."""
    from gemmule.compiler.ir import Rows

    place = {one: number for number, one in enumerate(ordered)}
    return Rows.tree([one.token for one in ordered], [place[one.parent] if one.parent else -1 for one in ordered],
                     first)
