"""Which of several ways to draft a step takes: a bandit that learns from the steps of a text. Light.

Each way is an arm. An arm is worth the tokens that its steps won over the cycles that its next step takes. Tokens are
learned, apart for each *context* of a step, such as how long a run of last tokens stood in the text before; what is
known of an arm in all contexts counts as :data:`PRIOR` steps in each. An upper confidence bound is added to the mean
(UCB1, Auer et al. 2002), so that an arm that was rarely taken is tried again. Old steps count less than new ones
(Garivier and Moulines 2011), since what suits one part of a text need not suit the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from math import log, sqrt

__all__ = ["Bandit"]

FORGET = 0.98
"""Weight of a step, for each later one of the same context."""
PRIOR = 2.0
"""Steps that an arm's mean of all contexts counts as in each."""
BOUND = 0.25
"""Tokens of the confidence bound, for an arm of one step in e ones."""


class Bandit:
    """Arms by number."""

    def __init__(self, arms: int) -> None:
        self.arms = arms
        self._steps: defaultdict[Hashable, float] = defaultdict(float)
        self._won: defaultdict[Hashable, float] = defaultdict(float)

    def expected(self, arm: int, context: Hashable) -> float:
        """Tokens of a step, without the bound."""
        every, here = (arm,), (arm, context)
        mean = self._won[every] / self._steps[every] if self._steps[every] else 1.0
        return (self._won[here] + PRIOR * mean) / (self._steps[here] + PRIOR)

    def best(self, context: Hashable, cycles: Sequence[float]) -> int:
        """The arm to take: each one once, then that of the most tokens a cycle; ``cycles``: of a step by arm."""
        untried = next((arm for arm in range(self.arms) if not self._steps[arm,]), None)
        if untried is not None:
            return untried
        steps = sum(self._steps[arm, context] for arm in range(self.arms))

        def worth(arm: int) -> float:
            bound = BOUND * sqrt(log(1 + steps) / (1 + self._steps[arm, context]))
            return (self.expected(arm, context) + bound) / cycles[arm]

        return max(range(self.arms), key=worth)

    def observe(self, arm: int, context: Hashable, tokens: int) -> None:
        """A step of an arm won so many tokens."""
        for key in [*((one,) for one in range(self.arms)), *((one, context) for one in range(self.arms))]:
            self._steps[key] = FORGET * self._steps[key] + (key[0] == arm)
            self._won[key] = FORGET * self._won[key] + (tokens if key[0] == arm else 0)
