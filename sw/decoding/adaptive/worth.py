"""How many candidates of a step are worth their rows: tokens that are expected for each cycle. Light.

As many rows as the mesh takes in the time of a load cost next to nothing; more cost a few hundredths of a pass each. So
a step proposes few candidates where none is likely, and as many as a pass takes where a long path is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gemmule.sw.decoding.candidates.branches import Branches

__all__ = ["CONTEXTS", "UNSEEN", "Worth", "falling"]

CONTEXTS = 64
"""Tokens of a context, by which passes' costs are told apart."""

UNSEEN = 0.03
"""What a row more than any pass so far had is taken to cost, of a pass, where costs are not known beforehand."""


def falling(found: Branches) -> list[float]:
    """Chances of a tree's candidates, the largest first: the order in which they were found."""
    return sorted(found.tree.chances[1:], reverse=True)


class Worth:
    """Costs of the target's passes by rows, the last one of each, and what follows from them."""

    def __init__(self, launch: int, step: int, costs: Callable[[int], Sequence[int]] | None = None) -> None:
        """``launch``, ``step``: cycles of the host; ``costs``: cycles of passes over 1, 2, 3, .. rows, their launches
        included, behind so many tokens; None: what a pass costs is known when it has been.
        """
        self.launch, self.step, self.costs = launch, step, costs
        self.seen: dict[int, int] = {}

    def begin(self, tokens: int) -> None:
        """A text of so many tokens."""
        if self.costs:
            self.seen = dict(enumerate(self.costs(tokens // CONTEXTS * CONTEXTS), 1))

    def take(self, rows: int, cycles: int) -> None:
        """A pass over so many rows took so many cycles of the device."""
        self.seen[rows] = cycles + self.launch

    def cost(self, rows: int) -> float:
        """Of a pass over so many rows: as seen, or as on the line between the next smaller and larger that were."""
        below = [seen for seen in self.seen if seen <= rows]
        above = [seen for seen in self.seen if seen >= rows]
        if not below:
            return float(self.seen[min(above)]) if above else 1.0 + UNSEEN * rows
        low = max(below)
        if not above:
            return self.seen[low] * (1 + UNSEEN * (rows - low))
        high = min(above)
        share = (rows - low) / (high - low) if high > low else 0.0
        return self.seen[low] + share * (self.seen[high] - self.seen[low])

    def count(self, chances: Sequence[float], drafting: int) -> int:
        """Of candidates with these chances, the largest first, how many to verify; ``drafting``: cycles spent on them.
        """
        beside = drafting + self.step if self.seen else 0
        best, most, tokens = 0, 1.0 / (self.cost(1) + beside), 1.0
        for count, chance in enumerate(chances, 1):
            tokens += chance
            if (rate := tokens / (self.cost(count + 1) + beside)) > most:
                best, most = count, rate
        return best

    def chosen(self, made: Callable[[int], Branches], most: int, drafting: int) -> Branches:
        """The best tree of up to ``most`` candidates, of those that ``made`` gives for each number."""
        whole = made(most)
        count = self.count(falling(whole), drafting)
        return whole if count == len(whole.tree.tokens) - 1 else made(count)
