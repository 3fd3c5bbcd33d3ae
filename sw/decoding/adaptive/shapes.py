"""Trees of a fixed shape: which places of a tree are worth their rows, by how often each rank is right. Light.

The shape that gives the most tokens a cycle. A place is told by ranks: the second candidate behind the first one is
(0, 1). Where ranks are right independently of each other, a place's chance is the product of those on its path, so the
best n places are those with the largest products: each is behind its parent, whose product is larger. How many places,
and how many levels where each takes a pass of a draft model, is decided by trying all: expected tokens over the exact
cycles of the passes (as Sequoia, Chen et al. 2024, whose recursion over sizes and depths finds no better tree).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gemmule.sw.device.costs.cost_curve import CostCurve
    from gemmule.sw.step import Want

__all__ = ["Place", "Shape", "best_shape", "cost_shape", "drawn", "likeliest_places"]

Place = tuple[int, ...]
"""Ranks on the way to a place."""


class Shape(NamedTuple):
    """Places, the likeliest first, and what the tree is expected to give and take."""

    places: tuple[Place, ...]
    tokens: float
    """Of a step, the one behind the last accepted candidate included."""
    cycles: float

    @property
    def levels(self) -> int:
        """Of candidates."""
        return max(map(len, self.places), default=0)


def likeliest_places(ranks: Sequence[float], most: int, levels: int) -> list[tuple[Place, float]]:
    """The ``most`` places of at most so many levels with the largest chances, falling; parents before children.

    ``ranks``: how often the first, second, .. candidate behind an accepted one is right, falling.
    """
    found: list[tuple[Place, float]] = []
    waiting: list[tuple[float, Place]] = []

    def reach(place: Place, parent: float) -> None:
        """A place, if there is one, behind a parent of that chance; its next sibling comes behind it."""
        if place[-1] < len(ranks) and len(place) <= levels and ranks[place[-1]] > 0:
            heappush(waiting, (-parent * ranks[place[-1]], place))

    reach((0,), 1.0)
    while waiting and len(found) < most:
        chance, place = heappop(waiting)
        found.append((place, -chance))
        reach((*place, 0), -chance)
        reach((*place[:-1], place[-1] + 1), -chance / ranks[place[-1]])
    return found


def best_shape(ranks: Sequence[float], most: int, verifying: Callable[[int], float],
               drafting: Callable[[int], float] = lambda levels: 0.0) -> Shape:
    """The tree of at most ``most`` candidates with the most expected tokens a cycle; maybe one without any.

    ``verifying``: cycles of a step by rows, ``drafting``: of drafting so many levels.

    Raises:
        ValueError: accuracies that are none, or do not fall.
    """
    if not all(0 <= share <= 1 for share in ranks) or list(ranks) != sorted(ranks, reverse=True):
        raise ValueError(f"accuracies of ranks must be from 0 to 1 and fall, not {list(ranks)}")
    best = Shape((), 1.0, verifying(1))
    for levels in range(1, most + 1):
        tokens, places, deepest = 1.0, list[Place](), 0
        for place, chance in likeliest_places(ranks, most, levels):
            tokens += chance
            places.append(place)
            deepest = max(deepest, len(place))
            cycles = verifying(len(places) + 1) + drafting(deepest)
            if tokens / cycles > best.tokens / best.cycles:
                best = Shape(tuple(places), tokens, cycles)
    return best


def cost_shape(curve: CostCurve, ranks: Sequence[float], most: int, cached: int, want: Want, step: int,
               drafting: Callable[[int], float] = lambda levels: 0.0) -> Shape:
    """The best shape behind so many cached tokens on a device; ``step``: cycles of the host a step."""
    return best_shape(ranks, most, lambda rows: curve.of(rows, cached, want) + step, drafting)


def drawn(places: Iterable[Place]) -> list[str]:
    """The tree as lines: each place by its rank, from 1, behind its parent and deeper."""
    return ["  " * (len(place) - 1) + f"{place[-1] + 1}" for place in sorted(places)]
