"""Exhaustive search: every point, but for those that their bound rules out. What it finds is the optimum."""

from __future__ import annotations

from typing import Any

from gemmule.compiler.mapping.mapper import Run

__all__ = ["search"]


def search(run: Run[Any]) -> None:
    """Cost points by rising bound, until the bound of all that are left is no better than the best cost."""
    ranked = sorted(((run.space.bound(point), i, point) for i, point in enumerate(run.space.points())))
    for number, (bound, _, point) in enumerate(ranked):
        if run.cycles is not None and bound >= run.cycles:
            run.pruned += len(ranked) - number
            break
        run.ask(point)
    run.certified = True
