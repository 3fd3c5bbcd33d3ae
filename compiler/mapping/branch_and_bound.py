"""Branch and bound: values are chosen axis by axis; what a branch costs at least decides whether it is gone into.

The search keeps open branches in a heap and goes into the one of the least bound. A branch is cut when its bound is no
better than the best cost so far. A bound of a branch holds for every point in it (the space's promise, which tests
hold against the simulator), so what is cut cannot win; when no branch is open, the best point is the optimum.
"""

from __future__ import annotations

import heapq
from itertools import product
from typing import Any, Protocol, runtime_checkable

from gemmule.compiler.errors import CompileError
from gemmule.compiler.mapping.mapper import Assignment, Run, Space

__all__ = ["Branching", "search"]


@runtime_checkable
class Branching(Space[Any], Protocol):
    """A space with a bound of points of which only some values are known."""

    @property
    def branches(self) -> tuple[str, ...]:
        """All axes, in the order in which they are chosen."""
        ...

    def least(self, choice: Assignment) -> tuple[str, int]:
        """(for what, cycles) that every point with these values of the first axes takes at least."""
        ...


def search(run: Run[Any]) -> None:
    """Go into the branch of the least bound until none is left that could hold a better point.

    Raises:
        CompileError: the space has no bounds of branches.
    """
    space = run.space
    if not isinstance(space, Branching):
        raise CompileError(f"branch-and-bound needs a space with bounds of branches, not {type(space).__name__}: use "
                           "exhaustive")
    axes, order = space.axes, space.branches
    open_: list[tuple[int, int, str, dict[str, Any]]] = [(0, 0, "", {})]
    count, gone = 0, set[Any]()
    while open_:
        bound, _, reason, choice = heapq.heappop(open_)
        if run.cycles is not None and bound >= run.cycles:
            _cut(run, space, reason, choice, gone)
            continue
        if len(choice) == len(order):
            point = space.point(choice)
            if point is not None:
                run.ask(point)
            continue
        name = order[len(choice)]
        for value in axes[name]:
            further = {**choice, name: value}
            why, least = space.least(further)
            if least < bound:  # what is known of the branch holds in all of it
                why, least = reason, bound
            count += 1
            heapq.heappush(open_, (least, count, why, further))
    run.certified = True


def _cut(run: Run[Any], space: Branching, reason: str, choice: Assignment, gone: set[Any]) -> None:
    """Count the points of a branch that were not costed; ``gone``: those that were counted before."""
    left = [name for name in space.branches if name not in choice]
    points = {space.point({**choice, **dict(zip(left, values))})
              for values in product(*(space.axes[name] for name in left))}
    cut = points - {None} - set(run.trials) - gone
    gone |= cut
    run.pruned += len(cut)
    run.cut[reason] = run.cut.get(reason, 0) + len(cut)
