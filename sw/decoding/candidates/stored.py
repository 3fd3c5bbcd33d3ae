"""What followed the last tokens in a datastore, for trees that have candidates of several sources. Light: no numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmule.sw.datastore.datastore import Datastore, Places

__all__ = ["Stored"]

LONGEST, KEPT = 8, 2
"""Tokens of a run that is looked up at most, and runs of a place that count: the longest ones."""
WIDEST = 12
"""Candidates behind a run that are looked at."""
RIGHT = (0.65, 0.5, 0.5, 0.6, 0.6)
"""How much what followed a run of 1, 2, .. tokens counts where the run stands often; the last one for all longer ones.
"""
FEW = (8.0, 2.0, 1.3, 0.5, 0.5)
"""Places of such a run at which it counts half as much."""


class Stored:
    """Runs of tokens that stand in a datastore; what was looked up is kept."""

    def __init__(self, datastore: Datastore) -> None:
        self.datastore = datastore
        self._alone: dict[int, Places | None] = {}
        self._behind: dict[Places, list[tuple[int, float, Places]]] = {}

    def ends(self, ids: Sequence[int]) -> tuple[Places, ...]:
        """The longest runs that end a text, the shorter one first."""
        found: list[Places] = []
        for length in range(1, min(LONGEST, len(ids)) + 1):
            places = self.datastore.places(ids[-length:])
            if places is None:
                break
            found.append(places)
        return tuple(found[-KEPT:])

    def behind(self, places: Places) -> list[tuple[int, float, Places]]:
        """The likeliest tokens behind a run, each with its share and the run that it makes longer."""
        if places not in self._behind:
            self._behind[places] = self.datastore.behind(places, WIDEST)
        return self._behind[places]

    def longer(self, token: int, runs: Sequence[Places]) -> tuple[Places, ...]:
        """Those of a place that a token behind these runs leads to."""
        if token not in self._alone:
            self._alone[token] = self.datastore.places([token])
        alone = self._alone[token]
        further = [at for run in runs for found, _, at in self.behind(run) if found == token]
        return ((*([alone] if alone else []), *further))[-KEPT:]

    @staticmethod
    def trust(places: Places) -> float:
        """How much what followed a run counts."""
        at = min(places.length, len(RIGHT)) - 1
        return RIGHT[at] * places.times / (places.times + FEW[at])
