"""How many tokens to draft a step: always as many, by what was accepted, by the draft's confidence, by cost, or one
number for all texts of a batch.

None changes a text: what is drafted is verified all the same. Deciding by a token that was drawn would be biased; here
a draft ends by its distribution, and the token that it ends with is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

__all__ = ["LENGTHS", "Constant", "Confidence", "Costs", "Expected", "Heuristic", "Lengths", "OfBatch"]


@dataclass
class Costs:
    """Cycles of passes as they were seen, the host's work included.

    Attributes:
        verify: of the target by rows, the last of each.
        draft: of the draft model, the last one; 0 where none runs.
        step: of the host a step.
    """

    verify: dict[int, int] = field(default_factory=dict)
    draft: int = 0
    step: int = 0

    def of(self, rows: int) -> float:
        """Of a pass over so many rows: as seen, or as on the line between the next smaller and larger that were."""
        if not self.verify:
            return 1.0
        below = [seen for seen in self.verify if seen <= rows]
        above = [seen for seen in self.verify if seen >= rows]
        if not below or not above:
            return float(self.verify[min(above) if above else max(below)])
        low, high = max(below), min(above)
        share = (rows - low) / (high - low) if high > low else 0.0
        return self.verify[low] + share * (self.verify[high] - self.verify[low])


class Lengths(Protocol):
    """Chooses how many tokens are drafted."""

    needs_confidence: bool
    """Whether it asks how sure the draft is of a token."""
    shared: bool
    """Whether the texts of a batch have one, which learns from all of them before any drafts again."""

    def most(self) -> int:
        """For this step, at most."""

    def goes_on(self, confidence: float) -> bool:
        """Whether to draft on behind a token of this probability, by the draft's own distribution."""

    def observe(self, drafted: int, accepted: int, costs: Costs) -> None:
        """What became of a step."""


@dataclass
class Constant:
    """Always as many."""

    num_tokens: int
    needs_confidence = False
    shared = False

    def most(self) -> int:
        return self.num_tokens

    def goes_on(self, confidence: float) -> bool:
        return True

    def observe(self, drafted: int, accepted: int, costs: Costs) -> None:
        pass


@dataclass
class Heuristic(Constant):
    """Two more where all were accepted, else one fewer: Hugging Face's schedule of that name."""

    now: int = 0

    def __post_init__(self) -> None:
        self.now = min(5, self.num_tokens)

    def most(self) -> int:
        return self.now

    def observe(self, drafted: int, accepted: int, costs: Costs) -> None:
        if drafted:
            self.now = min(self.num_tokens, self.now + 2) if accepted == drafted else max(1, self.now - 1)


@dataclass
class Confidence(Constant):
    """On while the draft gives its token a probability of ``least`` or more."""

    least: float = 0.4
    needs_confidence = True

    def goes_on(self, confidence: float) -> bool:
        return confidence >= self.least


@dataclass
class Expected(Constant):
    """The number with the most expected tokens a cycle, by acceptance so far and the device's own costs.

    Acceptance of a position counts the steps that reached it, new ones more than old ones; a position that was never
    reached counts as the one before it. At first half of the drafts count as accepted.
    """

    reached: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    costs: Costs = field(default_factory=Costs)
    now: int = 0
    FORGET, PRIOR = 0.95, (1.0, 2.0)

    def __post_init__(self) -> None:
        self.now = self.num_tokens
        self.reached, self.accepted = [0.0] * self.num_tokens, [0.0] * self.num_tokens

    def most(self) -> int:
        return self.now

    def observe(self, drafted: int, accepted: int, costs: Costs) -> None:
        self.costs = costs
        for place in range(min(drafted, accepted + 1)):
            self.reached[place] = self.reached[place] * self.FORGET + 1
            self.accepted[place] = self.accepted[place] * self.FORGET + (place < accepted)
        self.now = max(range(1, self.num_tokens + 1), key=self._tokens_per_cycle)

    def _tokens_per_cycle(self, count: int) -> float:
        tokens, chance, before = 1.0, 1.0, self.PRIOR[0] / self.PRIOR[1]
        for place in range(count):
            share = (self.accepted[place] + before) / (self.reached[place] + 1)
            chance *= share
            tokens += chance
            before = share
        return tokens / max(1.0, self.costs.of(count + 1) + count * self.costs.draft + self.costs.step)


@dataclass
class OfBatch(Constant):
    """One number for all texts of a batch: two more where a text had all accepted, else fewer, but no fewer than the
    best text had accepted (BASS, Qian et al. 2024, Algorithm 1). A second step in a row without takes one more off.

    Texts that drafted fewer, at their end, do not count.
    """

    shared = True
    now: int = 0
    shrunk: int = 0
    accepted: list[int] = field(default_factory=list)
    """Of the texts in this step."""
    FIRST, MORE, PART = 7, 2, 10

    def __post_init__(self) -> None:
        self.now = min(self.FIRST, self.num_tokens)

    def most(self) -> int:
        if self.accepted:
            best, self.accepted = max(self.accepted), []
            if best == self.now:
                self.now, self.shrunk = min(self.now + self.MORE, self.num_tokens), 0
            else:
                self.now, self.shrunk = max(1, best, self.now - ceil(self.now / self.PART) - self.shrunk), 1
        return self.now

    def observe(self, drafted: int, accepted: int, costs: Costs) -> None:
        if drafted >= self.now:
            self.accepted.append(accepted)


LENGTHS: dict[str, Callable[[int], Lengths]] = {
    "constant": Constant, "heuristic": Heuristic, "confidence": Confidence, "cost": Expected,
    "batch": OfBatch}
"""By name, made with the most tokens of a step."""
