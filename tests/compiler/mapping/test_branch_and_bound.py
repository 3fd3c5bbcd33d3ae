"""Branch and bound: the optimum whatever the bound's slack, nothing cut that could win, every point accounted for."""

from __future__ import annotations

import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.mapping import branch_and_bound
from gemmule.compiler.mapping.mapper import Assignment, Mapper, Run

from .test_mapper import Grid


class Tree(Grid):
    """The grid with a bound of columns, off by ``slack``."""

    branches = ("x", "y")

    def least(self, choice: Assignment) -> tuple[str, int]:
        if "y" in choice:
            return "both", self.bound(self.point(choice))
        return "x alone", 100 + 5 * (int(choice["x"]) - 7) ** 2 - self.slack


@pytest.mark.parametrize("slack", [0, 10, 1000])
def test_optimum(slack: int) -> None:
    tree = Tree(slack)
    found = Mapper(tree, tree.cost).find(branch_and_bound.search)
    assert found is not None
    assert (found.best, found.cycles, found.certified) == ((7, 4), 100, True)
    assert len(tree.asked) == len(set(tree.asked)) == len(found.trials)
    assert sum(found.cut.values()) == found.pruned == 144 - len(found.trials)
    # All that is not worse by its own bound has been costed, and no more but where the search begins.
    hopeful = {point for point in tree.points() if tree.bound(point) < 100}
    assert hopeful <= set(tree.asked)
    assert len(tree.asked) <= len(hopeful) + 2 + (slack == 0)


def test_an_unsafe_bound_loses_the_optimum() -> None:
    """So the bounds' own tests matter: one that says too much of x = 7 cuts the best point."""
    tree = Tree(0)
    honest = tree.least
    tree.least = lambda choice: ("wrong", 10 ** 6) if choice["x"] == 7 else honest(choice)  # type: ignore[method-assign]
    found = Mapper(tree, tree.cost).find(branch_and_bound.search)
    assert found is not None
    assert found.cycles == 105


def test_some_costs_only() -> None:
    tree = Tree(1000)
    found = Mapper(tree, tree.cost).find(branch_and_bound.search, 20)
    assert found is not None
    assert not found.certified
    assert sum(trial.cycles is not None for trial in found.trials) == 20


def test_needs_bounds_of_branches() -> None:
    grid = Grid(0)
    with pytest.raises(CompileError, match="needs a space with bounds of branches, not Grid: use exhaustive"):
        branch_and_bound.search(Run(grid, grid.cost, None))
