"""Candidates for one verification pass, and the drafter protocol that all methods follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gemmule.sw.runtime import Forward

__all__ = ["Drafter", "Tree"]


@dataclass(frozen=True)
class Tree:
    """Candidate tokens; node 0 is the pending token, parents precede children.

    Attributes:
        tokens: token per node.
        parent: parent node per node; -1 for node 0.
        weights: what a node's token was drawn by, integers [vocab] by node; none where chance had no part in it.

    Raises:
        ValueError: a node is not behind its parent, or another than node 0 has none.
    """

    tokens: list[int]
    parent: list[int]
    weights: Mapping[int, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.parent) != len(self.tokens) or self.parent[:1] != [-1]:
            raise ValueError(f"a tree must have a parent for each of its {len(self.tokens)} nodes, -1 for the first, "
                             f"not {self.parent}")
        for node, parent in enumerate(self.parent[1:], 1):
            if not 0 <= parent < node:
                raise ValueError(f"the parent of node {node} must be from 0 to {node - 1}, not {parent}")

    @staticmethod
    def chain(pending: int, drafted: list[int], weights: Sequence[np.ndarray | None] = ()) -> Tree:
        """``weights`` of the drafted tokens, where they were drawn."""
        return Tree([pending, *drafted], list(range(-1, len(drafted))),
                    {node: drawn for node, drawn in enumerate(weights, 1) if drawn is not None})

    def children(self, node: int) -> list[int]:
        return [i for i, parent in enumerate(self.parent) if parent == node]


class Drafter(Protocol):
    """Proposes candidates; may run device passes of its own."""

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        """Called after the target's prefill with the text so far: of a prompt, of each later turn, of a cut context.

        ``dropped``: tokens of the whole text in front of ``ids`` that the models see no more.
        """

    def propose(self, ids: list[int], budget: int) -> Tree:
        """Candidates after the committed ``ids`` (the last one is pending), at most ``budget`` of them."""

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        """The accepted node path and the committed tokens of the step."""
