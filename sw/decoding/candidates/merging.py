"""One tree of several drafters' candidates (SpecInfer, Miao et al. 2024, section 4.1). Light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING

from gemmule.sw.decoding.candidates.branches import in_depth
from gemmule.sw.decoding.tree import Tree

if TYPE_CHECKING:
    import numpy as np

__all__ = ["merged", "path_of"]


def merged(trees: Sequence[Tree], chances: Sequence[Sequence[float]], most: int) -> Tree:
    """The ``most`` candidates of all trees with the largest chances of the paths to them, equal paths counted once.

    ``chances``: by tree and node. Candidates that were drawn, of one tree at most, come first and all stay: which ones
    are verified must not depend on what was drawn.
    """
    pending = trees[0].tokens[0]
    tokens, parents, best = [pending], [-1], [1.0]
    known: dict[tuple[int, int], int] = {}
    drawn: dict[int, np.ndarray] = {}
    for tree, likely in sorted(zip(trees, chances, strict=True), key=lambda one: not one[0].weights):
        place = [0]
        for node, (token, parent) in enumerate(zip(tree.tokens[1:], tree.parent[1:], strict=True), 1):
            at = known.setdefault((place[parent], token), len(tokens))
            if at == len(tokens):
                tokens.append(token)
                parents.append(place[parent])
                best.append(0.0)
            place.append(at)
            if node in tree.weights:
                drawn[at] = tree.weights[node]
            best[at] = max(best[at], likely[node])
    for node in range(len(tokens) - 1, 0, -1):  # no child is likelier than its parent
        best[parents[node]] = max(best[parents[node]], best[node])
    kept = sorted({*drawn, *nlargest(most - len(drawn), (node for node in range(1, len(tokens)) if node not in drawn),
                                     key=lambda node: (best[node], -node))},
                  key=lambda node: (node not in drawn, -best[node], node))
    number_of = {node: number for number, node in enumerate([0, *kept])}
    made = in_depth([tokens[node] for node in number_of], [number_of.get(parents[node], -1) for node in number_of],
                    [best[node] for node in number_of])
    # Drawn candidates are a chain of first children, so they are the first nodes.
    return replace(made, weights={number: drawn[node] for node, number in number_of.items() if node in drawn})


def path_of(tree: Tree, tokens: Sequence[int]) -> list[int]:
    """The nodes of a tree that so many tokens behind the pending one go along, from node 0."""
    path = [0]
    for token in tokens:
        node = next((child for child in tree.children(path[-1]) if tree.tokens[child] == token), None)
        if node is None:
            break
        path.append(node)
    return path
