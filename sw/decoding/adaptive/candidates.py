"""Candidates of a tree in the order of their chances: what the first ones of them win, and the tree that they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import nlargest
from typing import NamedTuple

from gemmule.sw.decoding.candidates.branches import in_depth
from gemmule.sw.decoding.tree import Tree

__all__ = ["Candidates", "First"]


class First(NamedTuple):
    """The first candidates: their number, tokens that they are expected to win, cycles in which paths are moved."""

    number: int
    tokens: float
    moves: float


class Candidates:
    """The likeliest first; the likeliest path stands in place in the cache."""

    def __init__(self, tree: Tree, chances: Sequence[float], worth: float, move: float) -> None:
        """``chances``: of the path to each node; ``worth``: tokens of a cycle; ``move``: cycles of moving a path."""
        self.tree = tree
        self.ordered = nlargest(len(chances) - 1, range(1, len(chances)), key=chances.__getitem__)
        self._best = [First(0, 0.0, 0.0)]
        """Of up to so many candidates, those that win most."""
        in_place = {0}
        """Nodes of the path that stands in place."""
        parents: set[int] = set()
        tokens = moves = 0.0
        for count, node in enumerate(self.ordered, 1):
            parent = tree.parent[node]
            if parent in in_place:
                if parent in parents:
                    moves += chances[node] * move
                else:
                    in_place.add(node)
            parents.add(parent)
            tokens += chances[node]
            last = self._best[-1]
            more = tokens - worth * moves > last.tokens - worth * last.moves
            self._best.append(First(count, tokens, moves) if more else last)

    def best(self, most: int) -> First:
        """Of up to so many candidates."""
        return self._best[min(most, len(self._best) - 1)]

    def part(self, most: int) -> Tree:
        """The tree of the best ones of up to so many; of drawn ones, which are a chain, the first."""
        tree, nodes = self.tree, self.ordered[:self.best(most).number]
        if tree.weights:
            return Tree.chain(tree.tokens[0], tree.tokens[1:len(nodes) + 1],
                              [tree.weights.get(node) for node in range(1, len(nodes) + 1)])
        kept = [0, *nodes]
        place = {node: number for number, node in enumerate(kept)}
        own = tree.chances or [1.0] * len(tree.tokens)
        made = in_depth([tree.tokens[node] for node in kept], [place.get(tree.parent[node], -1) for node in kept],
                        [own[node] for node in kept])
        return replace(made, chances=made.chances if tree.chances else (), source=tree.source)
