"""Acceptance rules. A committed token is always one that the target itself chose."""

from __future__ import annotations

from gemmule.sw.decoding.tree import Tree

__all__ = ["cut_at_stop", "greedy"]


def greedy(tree: Tree, argmax: list[int]) -> tuple[list[int], list[int]]:
    """Walk down from the pending token while a child equals the target's argmax.

    ``argmax[i]`` is the target's choice after node i. Returns the accepted node path (from node 0)
    and the committed tokens: the choices along the path, the last being the correction or bonus.
    (Leviathan et al. 2023, section 2.3 at temperature 0.)
    """
    path, new = [0], [argmax[0]]
    while True:
        node = next((c for c in tree.children(path[-1]) if tree.tokens[c] == new[-1]), None)
        if node is None:
            return path, new
        path.append(node)
        new.append(argmax[node])


def cut_at_stop(new: list[int], stop: frozenset[int]) -> tuple[list[int], bool]:
    """Cut after the first stop token, which is kept; True if there was one."""
    for i, token in enumerate(new):
        if token in stop:
            return new[:i + 1], True
    return new, False
