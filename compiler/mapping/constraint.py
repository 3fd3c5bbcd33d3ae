"""Constrained optimisation: CP-SAT (OR-Tools) solves a model of the space, the simulator judges what it gives.

The model's objective is a bound of the cost. Each solution is costed and its values on the coarse axes are forbidden,
so that the next one is the best of the rest; when that is no better than the best cost, or half of the costs are spent,
the other axes are tried out around the best solutions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, Protocol, runtime_checkable

from gemmule.compiler.errors import CompileError
from gemmule.compiler.mapping.mapper import Assignment, Run, Space
from gemmule.timing import ceil_div

__all__ = ["Modelled", "search"]

MOST = 96
"""Points that are costed where nobody says how many."""
SECONDS = 10.0
"""For one solution; deterministic time, so that a slow computer gives the same."""
SEED = 1


@runtime_checkable
class Modelled(Space[Any], Protocol):
    """A space that CP-SAT can reason about."""

    @property
    def coarse(self) -> tuple[str, ...]:
        """Axes on which the bound depends most."""
        ...

    def model(self) -> tuple[Any, dict[str, Any], Any]:
        """A ``CpModel``, index variables by axis, and the variable of the bound, which is to be minimal."""
        ...


def search(run: Run[Any]) -> None:
    """Solve, cost, forbid, again.

    Raises:
        CompileError: the extra is not installed, or the space has no model.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise CompileError("the search cp-sat needs the extra search: pip install 'gemmule[search]'") from None
    space = run.space
    if not isinstance(space, Modelled):
        raise CompileError(
            f"the search cp-sat needs a space with a model, not {type(space).__name__}: use exhaustive")
    most = MOST if run.most is None else run.most
    chosen: dict[Any, Assignment] = {}
    complete = _solutions(run, space, cp_model, ceil_div(most, 2), chosen)
    run.certified = _around(run, space, most, chosen) and complete


def _solutions(run: Run[Any], space: Modelled, cp_model: Any, most: int,
               chosen: dict[Any, Assignment]) -> bool:
    """Cost the best solution, the best of others, and so on; whether no other can be better than the best cost.

    ``chosen`` gets the values of each by its point.
    """
    model, choices, bound = space.model()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1  # the same on every computer
    solver.parameters.random_seed = SEED
    solver.parameters.max_deterministic_time = SECONDS
    axes, coarse, proven = space.axes, space.coarse, True
    while run.fitting < most:
        status = solver.solve(model)
        if status == cp_model.INFEASIBLE:
            return proven
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return False
        proven = proven and status == cp_model.OPTIMAL
        if proven and run.cycles is not None and solver.value(bound) >= run.cycles:
            return True
        taken = {name: solver.value(variable) for name, variable in choices.items()}
        choice = {name: axes[name][at] for name, at in taken.items()}
        point = space.point(choice)
        if point is not None and not run.hopeless(point):
            run.ask(point)
            chosen[point] = choice
        model.add_forbidden_assignments([choices[name] for name in coarse], [tuple(taken[name] for name in coarse)])
    return False


def _around(run: Run[Any], space: Modelled, most: int, chosen: Mapping[Any, Assignment]) -> bool:
    """Cost what differs from the solutions on the other axes, the best first; whether there was time for all."""
    axes = space.axes
    fine = [name for name in axes if name not in space.coarse]
    fitting = [(cycles, i, point) for i, point in enumerate(chosen) if (cycles := run.trials[point].cycles) is not None]
    for _, _, point in sorted(fitting):
        for values in product(*(axes[name] for name in fine)):
            near = space.point({**chosen[point], **dict(zip(fine, values))})
            if near is not None and not run.hopeless(near):
                if run.fitting >= most and near not in run.trials:
                    return False
                run.ask(near)
    return True
