"""A draft ends where one more token would not pay, by how sure the drafter is of those before. Light.

How many tokens pay cannot be told before a draft begins: a token behind one of which the drafter is sure is worth more
than one behind a guess. So behind each token the chance of the whole path is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gemmule.sw.decoding.adaptive.acceptance import Acceptance, Mark, marked
from gemmule.sw.decoding.lengths import Constant

__all__ = ["Paying", "Terms"]


class Terms(NamedTuple):
    """What a step's drafts cost, and when they pay.

    Attributes:
        costs: of 1, 2, 3, .. candidates, cycles beyond a step without any; no more are drafted than have one.
        worth: tokens of a cycle.
        risk: cycles that a step may be expected to lose.
    """

    costs: Sequence[float] = ()
    worth: float = 0.0
    risk: float = 0.0


@dataclass
class Paying(Constant):
    """On while the next token, by the chance of the path before it, is expected to win more than it costs.

    Attributes:
        asked: whether the drafter has asked since the step began.
        likely: how often the token of each place was accepted, where the ones before were.
        terms: of this step. What it risks is lost if not even its first token is accepted.
    """

    acceptance: Acceptance = field(default_factory=Acceptance)
    likely: Sequence[float] = ()
    terms: Terms = Terms()
    asked: bool = False
    needs_confidence = True
    _first: float = 0.0
    _path: float = 1.0
    _place: int = 0

    def begin(self, acceptance: Acceptance, likely: Sequence[float], terms: Terms) -> None:
        """A step."""
        self.acceptance, self.likely, self.terms = acceptance, likely, terms
        self.asked, self._path, self._place = False, 1.0, 0

    def goes_on(self, confidence: float) -> bool:
        odds, chance = marked(confidence)
        self.asked = True
        self._path *= self.acceptance.chance(Mark("", odds), chance)
        self._place += 1
        place, (costs, worth, risk) = self._place, self.terms
        if place == 1:
            self._first = self._path
        return place < len(costs) and (1 - self._first) * costs[place] <= risk and \
            self._path * self.likely[place] > worth * (costs[place] - costs[place - 1])
