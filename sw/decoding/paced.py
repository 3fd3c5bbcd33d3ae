"""Drafters whose steps are as long as a schedule says. Light."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.lengths import Constant, Costs, Lengths
from gemmule.sw.decoding.tree import Drafter, Tree

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.step import Forward

__all__ = ["Paced"]


class Paced(Drafter):
    """Counts what a step drafts and what passes cost, from which the schedule learns.

    Attributes:
        drafted: tokens of the last step, set by ``propose``.
        costs: cycles of passes as they were seen.
    """

    def __init__(self, lengths: Lengths | int, host: Host | None = None) -> None:
        """``lengths``: how many tokens are drafted; a number: always as many."""
        from gemmule.config import Host

        self.lengths = Constant(lengths) if isinstance(lengths, int) else lengths
        self.host = host or Host()
        self.costs, self.drafted = Costs(step=self.host.step_cycles), 0

    def waits(self) -> bool:
        return self.lengths.shared

    def trimmed(self, tree: Tree) -> None:
        self.drafted = len(tree.tokens) - 1

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.costs.verify[self.drafted + 1] = out.cycles + self.host.launch_cycles
        self.lengths.observe(self.drafted, len(path) - 1, self.costs)
