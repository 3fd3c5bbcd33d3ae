"""Constrained optimisation: CP-SAT (OR-Tools) solves a model of the space, the simulator judges what it gives.

The model's objective is a bound of the cost. Each solution is costed and then forbidden, so that the next one is the
best of the rest; when that is no better than the best cost, the optimum of the space is known.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from gemmule.compiler.errors import CompileError
from gemmule.compiler.mapping.mapper import Run, Spent

__all__ = ["Modelled", "search"]

MOST = 96
"""Points that are costed where nobody says how many."""
SECONDS = 10.0
"""For one solution; deterministic time, so that a slow computer gives the same."""
SEED = 1


@runtime_checkable
class Modelled(Protocol):
    """A space that CP-SAT can reason about."""

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
    if not isinstance(run.space, Modelled):
        raise CompileError(
            f"the search cp-sat needs a space with a model, not {type(run.space).__name__}: use exhaustive")
    most = MOST if run.most is None else run.most
    model, choices, bound = run.space.model()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1  # the same on every computer
    solver.parameters.random_seed = SEED
    solver.parameters.max_deterministic_time = SECONDS
    while run.fitting < most:
        status = solver.solve(model)
        if status == cp_model.INFEASIBLE:
            run.certified = True
            return
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return
        if status == cp_model.OPTIMAL and run.cycles is not None and solver.value(bound) >= run.cycles:
            run.certified = True
            return
        taken = {name: solver.value(variable) for name, variable in choices.items()}
        point = run.space.point({name: run.space.axes[name][at] for name, at in taken.items()})
        if point is not None and not run.hopeless(point):
            run.ask(point)
        model.add_forbidden_assignments(list(choices.values()), [tuple(taken.values())])
    raise Spent
