"""Trees of the most likely candidates: which tokens follow which is told by the method. Light: no numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, TypeVar

from gemmule.sw.decoding.adaptive.shapes import Place
from gemmule.sw.decoding.tree import Tree

__all__ = ["Branches", "Follow", "fill", "grow", "in_depth"]

S = TypeVar("S")
Follow = Callable[[S], Iterable[tuple[int, float, S]]]
"""Of a place: tokens that may follow, each with its chance there and the place behind it."""


class Branches(NamedTuple):
    """Candidates, and the tokens of them that are expected to be accepted."""

    tree: Tree
    expected: float


def grow(pending: int, most: int, place: S, follow: Follow[S], least: float = 0.0) -> Branches:
    """The ``most`` candidates behind ``pending`` with the largest chances, none below ``least``.

    A candidate's chance is the product of those on its path. Of equal ones the one that is found first goes first.
    """
    tokens, parents, chances = [pending], [-1], [1.0]
    order = count()
    waiting: list[tuple[float, int, int, int, S]] = []

    def reach(node: int, at: S) -> None:
        for token, chance, behind in follow(at):
            if chances[node] * chance >= least:
                heappush(waiting, (-chances[node] * chance, next(order), node, token, behind))

    reach(0, place)
    while waiting and len(tokens) <= most:
        chance, _, parent, token, behind = heappop(waiting)
        tokens.append(token)
        parents.append(parent)
        chances.append(-chance)
        reach(len(tokens) - 1, behind)
    return Branches(in_depth(tokens, parents, chances), sum(chances[1:]))


def fill(pending: int, shape: Iterable[Place], place: S, follow: Follow[S]) -> Tree:
    """The candidates behind ``pending`` that stand at the places of a shape; those that nothing fills are left out.

    ``shape``: level by level, of siblings the likelier first.
    """
    tokens, parents, chances = [pending], [-1], [1.0]
    behind: dict[Place, list[tuple[int, float, S]]] = {(): [*follow(place)]}
    nodes: dict[Place, int] = {(): 0}
    for at in shape:
        candidates = behind.get(at[:-1], [])
        if at[-1] >= len(candidates):
            continue
        token, chance, after = candidates[at[-1]]
        parent = nodes[at[:-1]]
        nodes[at] = len(tokens)
        behind[at] = [*follow(after)]
        tokens.append(token)
        parents.append(parent)
        chances.append(chances[parent] * chance)
    return in_depth(tokens, parents, chances)


def in_depth(tokens: list[int], parents: list[int], chances: list[float]) -> Tree:
    """Each node right behind its parent's likelier branches: the likeliest path then stands in the cache as it stays.

    Nodes come with the likelier of two children first; ``chances``: of the paths to them.
    """
    children: list[list[int]] = [[] for _ in tokens]
    for node, parent in enumerate(parents[1:], 1):
        children[parent].append(node)
    ordered: list[int] = []
    waiting = [0]
    while waiting:
        ordered.append(node := waiting.pop())
        waiting += reversed(children[node])
    place = {node: number for number, node in enumerate(ordered)}
    return Tree([tokens[node] for node in ordered], [place.get(parents[node], -1) for node in ordered],
                chances=[chances[node] for node in ordered])
