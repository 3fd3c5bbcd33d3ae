"""Mapper: asks for each cost once, stops when told to, prunes only what cannot win, is never worse than its start."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.mapping import constraint, exhaustive, feedback
from gemmule.compiler.mapping.mapper import Assignment, Mapper, Run, Search


class Grid:
    """Points (x, y) below 12; the cheapest is (7, 4); nothing fits where x is 3."""

    def __init__(self, slack: int) -> None:
        self.slack = slack
        self.asked: list[tuple[int, int]] = []

    @property
    def axes(self) -> dict[str, tuple[int, ...]]:
        return {"x": tuple(range(12)), "y": tuple(range(12))}

    def point(self, choice: Assignment) -> tuple[int, int]:
        return int(choice["x"]), int(choice["y"])

    near = point

    def points(self) -> Iterator[tuple[int, int]]:
        yield from ((x, y) for x in range(12) for y in range(12))

    def first(self) -> tuple[int, int]:
        return (0, 0)

    def value(self, point: tuple[int, int]) -> int:
        return 100 + 5 * (point[0] - 7) ** 2 + 3 * abs(point[1] - 4)

    def bound(self, point: tuple[int, int]) -> int:
        return self.value(point) - self.slack

    def cost(self, point: tuple[int, int]) -> int:
        self.asked.append(point)
        if point[0] == 3:
            raise CompileError("x must not be 3")
        return self.value(point)


@pytest.mark.parametrize("slack", [0, 10, 1000])
def test_exhaustive_finds_the_optimum_whatever_the_bound(slack: int) -> None:
    grid = Grid(slack)
    found = Mapper(grid, grid.cost).find(exhaustive.search)
    assert found is not None
    assert (found.best, found.cycles, found.certified) == ((7, 4), 100, True)
    assert found.first_cycles == grid.value((0, 0))
    assert len(grid.asked) == len(set(grid.asked)) == len(found.trials)
    unknown = 144 - len({*grid.asked} - {(0, 0)})
    assert found.pruned in (unknown, unknown - 1)  # the first point is of the space too
    if slack == 1000:
        assert {trial.why for trial in found.trials if trial.cycles is None} == {"x must not be 3"}


@pytest.mark.parametrize("search", [exhaustive.search, feedback.search])
def test_most_counts_what_fits(search: Search[tuple[int, int]]) -> None:
    grid = Grid(1000)
    found = Mapper(grid, grid.cost).find(search, 20)
    assert found is not None
    assert sum(trial.cycles is not None for trial in found.trials) == 20
    assert not found.certified
    assert found.cycles <= grid.value((0, 0))
    assert found.cycles == min(trial.cycles for trial in found.trials if trial.cycles is not None)


def test_feedback_learns() -> None:
    grid = Grid(1000)
    found = Mapper(grid, grid.cost).find(feedback.search, 60)
    assert found is not None
    assert found.cycles <= 103  # of 60 points at random the best is above this as a rule


def test_nothing_fits() -> None:
    grid = Grid(0)

    def never(point: tuple[int, int]) -> int:
        raise CompileError("no")

    assert Mapper(grid, never).find(exhaustive.search) is None


def test_cp_sat_needs_a_model() -> None:
    grid = Grid(0)
    with pytest.raises(CompileError, match="needs a space with a model, not Grid: use exhaustive"):
        constraint.search(Run(grid, grid.cost, None))


@pytest.mark.parametrize(("module", "search", "name"), [
    ("optuna", feedback.search, "optuna"), ("ortools.sat.python", constraint.search, "cp-sat")])
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, module: str, search: Search[tuple[int, int]],
                           name: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    grid = Grid(0)
    with pytest.raises(CompileError, match=rf"the search {name} needs the extra search: pip install"):
        search(Run(grid, grid.cost, None))
