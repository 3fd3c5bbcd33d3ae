"""Candidates for one verification pass, and the drafter protocol that all methods follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from gemmule.compiler.ir import Rows
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.step import Asking, Forward, Want

__all__ = ["Drafter", "Extra", "Tree"]


@dataclass(frozen=True)
class Extra:
    """A row that goes along with candidates and is never committed: of a lookahead window, say.

    Attributes:
        token: its token.
        depth: its place behind the pending token, whose own is 0.
        sees: rows that it sees besides the cached ones and itself: nodes, then extra rows before it, by number.
    """

    token: int
    depth: int
    sees: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Tree:
    """Candidate tokens; node 0 is the pending token, parents precede children.

    Attributes:
        tokens: token per node.
        parent: parent node per node; -1 for node 0.
        weights: what a node's token was drawn by, integers [vocab] by node; none where chance had no part in it.
        extra: rows behind the nodes, whose answers stand behind theirs; nodes and they are within the budget together.
        chances: of the path to each node, as the drafter takes it; none where it has no idea.
        source: by what it was found, such as how long a match; trees of one source are right about as often.

    Raises:
        ValueError: a node is not behind its parent, or another than node 0 has none; an extra row sees one behind it.
    """

    tokens: list[int]
    parent: list[int]
    weights: Mapping[int, np.ndarray] = field(default_factory=dict)
    extra: Sequence[Extra] = ()
    chances: Sequence[float] = ()
    source: str = ""

    def __post_init__(self) -> None:
        if len(self.parent) != len(self.tokens) or self.parent[:1] != [-1]:
            raise ValueError(f"a tree must have a parent for each of its {len(self.tokens)} nodes, -1 for the first, "
                             f"not {self.parent}")
        for node, parent in enumerate(self.parent[1:], 1):
            if not 0 <= parent < node:
                raise ValueError(f"the parent of node {node} must be from 0 to {node - 1}, not {parent}")
        for number, row in enumerate(self.extra, len(self.tokens)):
            if row.depth < 0 or not all(0 <= seen < number for seen in row.sees):
                raise ValueError(f"extra row {number} must have a depth of at least 0 and see rows 0 to {number - 1}, "
                                 f"not depth {row.depth} and rows {list(row.sees)}")

    @staticmethod
    def chain(pending: int, drafted: list[int], weights: Sequence[np.ndarray | None] = (),
              chances: Sequence[float] = ()) -> Tree:
        """``weights`` of the drafted tokens, where they were drawn; ``chances``: of each behind the one before."""
        return Tree([pending, *drafted], list(range(-1, len(drafted))),
                    {node: drawn for node, drawn in enumerate(weights, 1) if drawn is not None},
                    chances=[*accumulate(chances, mul, initial=1.0)] if chances else ())

    def rows(self, first: int) -> Rows:
        """Nodes, then extra rows, of one sequence; ``first``: position of the pending token."""
        import numpy as np

        from gemmule.compiler.ir import Rows

        nodes = Rows.tree(self.tokens, self.parent, first)
        if not self.extra:
            return nodes
        count = len(nodes) + len(self.extra)
        mask = np.eye(count, dtype=bool)
        mask[:len(nodes), :len(nodes)] = nodes.mask
        for number, row in enumerate(self.extra, len(nodes)):
            mask[number, list(row.sees)] = True
        return Rows(tokens=np.array([*self.tokens, *(row.token for row in self.extra)], dtype=np.int64),
                    positions=np.array([*nodes.positions, *(first + row.depth for row in self.extra)], dtype=np.int64),
                    sequences=np.zeros(count, dtype=np.int64), mask=mask)

    def children(self, node: int) -> list[int]:
        return [i for i, parent in enumerate(self.parent) if parent == node]


class Drafter(ABC):
    """Proposes candidates, and learns from the answers.

    One that runs models is a generator of questions (:data:`gemmule.sw.step.Asking`), in which it may use any cache and
    the target itself; one that does not returns what it proposes.
    """

    launches = 1
    """Launches that the candidates of a step may take, each with as many rows as the target's program has."""
    lossless = True
    """Whether every row runs all of the target's layers; if not, a later turn passes the text anew."""

    def waits(self) -> bool:
        """Whether the texts of a batch all finish a step before any of them proposes again."""
        return False

    def want(self) -> Want | None:
        """What it wants of the target's pass over the last proposal beside what the rule does; None: nothing."""
        return None

    def prompt_want(self) -> Want | None:
        """What it wants of the target's passes over a prompt; None: nothing, and no row of a prompt is answered."""
        return None

    def read(self, tokens: list[int], out: Forward) -> None:
        """Rows of a prompt, and the answers behind each of them, if there is a :meth:`prompt_want`.

        They come before :meth:`begin`, without the prompt's last token and without tokens that were cached already.
        """
        return

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None] | None:
        """Called after the target's prefill with the text so far: of a prompt, of each later turn, of a cut context.

        ``dropped``: tokens of the whole text in front of ``ids`` that the models see no more.
        """
        return None

    @abstractmethod
    def propose(self, ids: list[int], budget: int) -> Asking[Tree] | Tree:
        """Candidates after the committed ``ids`` (the last one is pending), at most ``budget`` with extra rows."""

    def answers(self, cached: TextKV, rows: Rows, want: Want) -> Asking[Forward]:
        """Answers behind the candidates: a pass of the target through all of its layers.

        The one place for a method that is lossy by definition: it runs other layers, and adds the rows to ``cached``.
        """
        return (yield from cached.candidates(rows, want))

    def verified(self, tree: Tree) -> Tree:
        """The proposal as the answers leave it: a method that drops candidates on the way gives these no token."""
        return tree

    def layers_run(self) -> list[int]:
        """By step of the turn, the layers that its answer took; empty: all of them."""
        return []

    def trimmed(self, tree: Tree) -> None:
        """Not the last proposal is verified but this tree of some of its nodes, maybe in another order."""
        return

    def drafting(self, count: int) -> int:
        """Weights that the passes read, about, by which it drafts so many tokens; 0: it runs none."""
        return 0

    def prompt_weights(self) -> int:
        """Weights that its passes over a prompt read, about, before it drafts; 0: it passes none."""
        return self.drafting(1)

    def extra_rows(self) -> int:
        """Extra rows that a step's tree has at most."""
        return 0

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        """The accepted node path and the committed tokens of the step, up to a stop.

        ``out`` answers behind every node and extra row.
        """
        return
