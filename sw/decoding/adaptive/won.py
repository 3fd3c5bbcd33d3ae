"""How many tokens so many candidates have won: learned from what became of earlier steps of the text. Light."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

__all__ = ["Won"]

FADE = 0.99
"""Weight of what is known of a drafter, for each step that leaves it out."""
FORGET, PRIOR, FIRST, NEXT = 0.97, 2.0, 0.6, 0.8
"""Of what candidates won before: weight of a step for each later one; how many observations the prior counts as, and
which share of them was right, of first candidates and of later ones, behind a right one."""


class Won:
    """How many candidates in a row were accepted in earlier steps: of each place, how often it was, where the ones
    before were.
    """

    def __init__(self, most: int) -> None:
        self.tried, self.right = [0.0] * most, [0.0] * most

    def fade(self) -> None:
        """Of a step without candidates."""
        self.tried, self.right = ([FADE * one for one in counts] for counts in (self.tried, self.right))

    def observe(self, asked: int, accepted: int) -> None:
        """Of a step for which so many candidates were wanted."""
        for place in range(min(asked, accepted + 1, len(self.tried))):
            self.tried[place] = FORGET * self.tried[place] + 1
            self.right[place] = FORGET * self.right[place] + (place < accepted)

    def chances(self) -> list[float]:
        """Of the candidate of each place, where the ones before were accepted."""
        return [(right + PRIOR * (NEXT if place else FIRST)) / (tried + PRIOR)
                for place, (tried, right) in enumerate(zip(self.tried, self.right))]

    def expected(self) -> list[float]:
        """Tokens that 0, 1, 2, .. candidates win."""
        return [0.0, *accumulate(accumulate(self.chances(), mul))]
