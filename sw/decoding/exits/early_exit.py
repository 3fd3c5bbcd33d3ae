"""What methods that leave layers out have in common: nothing is drafted, and each token runs layers of its own."""

from __future__ import annotations

from gemmule.sw.decoding.tree import Drafter, Tree

__all__ = ["EarlyExit"]


class EarlyExit(Drafter):
    """Proposes nothing; :meth:`answers` says what passes the next token's row goes through.

    Attributes:
        first: tokens of the turn's prompt and what was before it.
        turn: stands for the passes since.
    """

    lossless = False

    def __init__(self) -> None:
        self.first, self.turn = 0, object()
        self._run: list[int] = []

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self.first, self.turn, self._run = len(ids), object(), []

    def propose(self, ids: list[int], budget: int) -> Tree:
        return Tree.chain(ids[-1], [])

    def layers_run(self) -> list[int]:
        return self._run
