"""Beam search over rows of log-probabilities: which texts stay, which are complete, and when it ends.

A step takes, of all continuations of all beams, those with the largest sums of log-probabilities; of equal ones the
first beam's, then the lowest token. It looks at so many that beams are left whatever ends. A continuation that ends its
text is complete, but counts only among the first ``width``. The others are the next beams. Complete texts compete by
``sum / length ** penalty``. These are the rules of Hugging Face's ``generate(num_beams)`` (Transformers 4 and 5), here
on integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from gemmule.sw.decoding.search.scores import normalised

__all__ = ["Beam", "Beams", "Complete"]


@dataclass(frozen=True)
class Beam:
    """A text that goes on.

    Attributes:
        tokens: new ones.
        total: sum of their log-probabilities.
    """

    tokens: tuple[int, ...] = ()
    total: int = 0


@dataclass(frozen=True)
class Complete:
    """A text that has ended.

    Attributes:
        beam: its tokens and their sum.
        score: the sum, over a power of its length.
        ended: by a token that ends texts; if not, it was cut.
    """

    beam: Beam
    score: int
    ended: bool


class Beams:
    """The texts of a search: ``live`` ones, one at first, and the best complete ones.

    Attributes:
        moved: beams that went on with another place's rows, in all steps so far.
        ties: steps in which equal sums decided what stayed, or in which order.
    """

    def __init__(self, width: int, ends: frozenset[int], penalty: Decimal = Decimal(1), *,
                 early: bool = False) -> None:
        """``early``: it is over as soon as ``width`` texts are complete; else when no beam could still be better than
        they are.
        """
        self.width, self.ends, self.penalty, self.early = width, ends, penalty, early
        self.live = [Beam()]
        self.complete: list[Complete] = []
        self.moved = self.ties = 0

    @property
    def over(self) -> bool:
        """Whether nothing could change the result any more, as far as beams of this length tell."""
        if len(self.complete) < self.width:
            return False
        best = max((self._score(beam) for beam in self.live), default=None)
        return self.early or best is None or self.complete[-1].score >= best

    def step(self, rows: np.ndarray) -> list[int]:
        """Go on by a token; the live beam of which each new one is a continuation.

        Args:
            rows: log-probabilities behind each live beam, int64 [live, vocab].
        """
        totals = np.array([beam.total for beam in self.live], dtype=np.int64)[:, None] + rows
        parents: list[int] = []
        found: list[Beam] = []
        sums: list[int] = []
        for rank, flat in enumerate(_largest(totals.reshape(-1), max(2, 1 + len(self.ends)) * self.width)):
            parent, token = divmod(flat, rows.shape[1])
            made = Beam((*self.live[parent].tokens, token), int(totals[parent, token]))
            sums.append(made.total)
            if token not in self.ends:
                parents.append(parent)
                found.append(made)
            elif rank < self.width:
                self._add(made, ended=True)
            if len(found) == self.width:
                break
        self.ties += self._tied(totals, sums)
        self.moved += sum(place != parent for place, parent in enumerate(parents))
        self.live = found
        return parents

    def finish(self) -> list[Complete]:
        """The best texts, the best first; unless the search is over, live beams are cut here and compete too.

        Of equal ones those that were complete earlier come first.
        """
        for beam in () if self.over else self.live:
            self._add(beam, ended=False)
        self.live = []
        return list(self.complete)

    def _score(self, beam: Beam) -> int:
        return normalised(beam.total, len(beam.tokens), self.penalty)

    def _add(self, beam: Beam, *, ended: bool) -> None:
        self.complete.append(Complete(beam, self._score(beam), ended))
        self.complete.sort(key=lambda one: -one.score)  # stable
        del self.complete[self.width:]

    @staticmethod
    def _tied(totals: np.ndarray, sums: Sequence[int]) -> bool:
        """Whether two sums that were looked at are equal, or the last one and another that was not."""
        return len(set(sums)) < len(sums) or int((totals == sums[-1]).sum()) > 1


def _largest(values: np.ndarray, count: int) -> list[int]:
    """Places of the largest values, falling; of equal ones the first places."""
    count = min(count, len(values))
    least = np.partition(values, len(values) - count)[len(values) - count]
    places = np.flatnonzero(values >= least)
    order: list[int] = places[np.argsort(-values[places], kind="stable")][:count].tolist()
    return order
