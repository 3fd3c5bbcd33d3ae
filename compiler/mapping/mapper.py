"""Mapper: the best point of a space by its cost, found by one of several searches over the same space.

A space is data: axes with values, what of their combinations is a point, and a bound below which a point's cost cannot
be. The cost is exact: cycles on the simulator, timing only. A search asks for costs through a :class:`Run`, which
remembers them, never asks twice, and drops a point whose bound is no better than the best cost so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from gemmule.compiler.errors import CompileError

__all__ = ["Assignment", "Found", "Mapper", "Run", "Search", "Space", "Spent", "Trial"]

P = TypeVar("P", bound=Hashable)
Assignment = Mapping[str, int | str]
"""One value from each axis."""


class Space(Protocol[P]):
    """Points among which a search chooses."""

    @property
    def axes(self) -> Mapping[str, tuple[int | str, ...]]:
        """Values by name, in the order of preference."""
        ...

    def point(self, choice: Assignment) -> P | None:
        """The point of these values; None where there is none."""
        ...

    def near(self, choice: Assignment) -> P | None:
        """The same, or one much like it, so that few choices are in vain."""
        ...

    def points(self) -> Iterator[P]:
        """All of them."""
        ...

    def first(self) -> P | None:
        """One to begin with, in the space or not: no search gives a worse one."""
        ...

    def bound(self, point: P) -> int:
        """What the point costs at least."""
        ...


@dataclass(frozen=True)
class Trial(Generic[P]):
    """A point that was costed; without cycles where it turned out not to fit."""

    point: P
    cycles: int | None
    why: str = ""


@dataclass(frozen=True)
class Found(Generic[P]):
    """What a search gave."""

    best: P
    cycles: int
    first_cycles: int | None
    """Of the point that it began with."""
    trials: tuple[Trial[P], ...]
    """In order."""
    pruned: int
    """Points whose bound alone told that they are no better."""
    certified: bool
    """No point of the space is better."""
    seconds: float
    cut: Mapping[str, int] = field(default_factory=dict)
    """Of the pruned points: how many each bound ruled out, where a search tells."""


class Spent(Exception):  # noqa: N818 - how a search ends, not an error
    """As many points have been costed as were allowed."""


@dataclass
class Run(Generic[P]):
    """A search under way."""

    space: Space[P]
    cost: Callable[[P], int]
    most: int | None
    """Points that may be costed and fit; None: any number."""
    trials: dict[P, Trial[P]] = field(default_factory=dict)
    best: Trial[P] | None = None
    pruned: int = 0
    cut: dict[str, int] = field(default_factory=dict)
    certified: bool = False
    fitting: int = 0

    @property
    def cycles(self) -> int | None:
        """The fewest so far."""
        return self.best.cycles if self.best else None

    def hopeless(self, point: P) -> bool:
        """Whether the bound tells that the point is no better than the best one; it is counted then."""
        if self.cycles is None or self.space.bound(point) < self.cycles:
            return False
        self.pruned += point not in self.trials
        return True

    def ask(self, point: P) -> int | None:
        """Cycles of a point, None where it does not fit.

        Raises:
            Spent: it is one more than allowed.
        """
        known = self.trials.get(point)
        if known is None:
            if self.most is not None and self.fitting >= self.most:
                raise Spent
            try:
                known = Trial(point, self.cost(point))
            except CompileError as error:
                known = Trial(point, None, str(error))
            self.trials[point] = known
            self.fitting += known.cycles is not None
            if known.cycles is not None and (self.cycles is None or known.cycles < self.cycles):
                self.best = known
        return known.cycles


Search = Callable[[Run[P]], None]
"""Costs points of a run's space until it knows the best, or gives up."""


@dataclass(frozen=True)
class Mapper(Generic[P]):
    """A space and what its points cost."""

    space: Space[P]
    cost: Callable[[P], int]
    """Cycles of a point.

    Raises:
        CompileError: it does not fit.
    """

    def find(self, search: Search[P], most: int | None = None) -> Found[P] | None:
        """The best point that ``search`` comes upon; None when none fits.

        ``most``: points that may be costed, those aside that turn out not to fit.
        """
        run, begin = Run(self.space, self.cost, most), time.perf_counter()
        first = self.space.first()
        try:
            first_cycles = None if first is None else run.ask(first)
            search(run)
        except Spent:
            pass
        if run.best is None or run.best.cycles is None:
            return None
        return Found(run.best.point, run.best.cycles, first_cycles, tuple(run.trials.values()), run.pruned,
                     run.certified, time.perf_counter() - begin, run.cut)
