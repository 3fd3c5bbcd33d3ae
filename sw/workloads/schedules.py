"""Schedules of a pruned cache side by side: what each costs in quality, and what it saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np

from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.models.placed import Placed
from gemmule.sw.workloads.pruned import losses
from gemmule.sw.workloads.pruned_cycles import token_cycles

__all__ = ["best", "grid", "measured", "with_pareto"]


def grid(base: Pruning, keeps: Sequence[float | int], everys: Sequence[int], scores: Sequence[str],
         sizes: Sequence[int] = ()) -> list[Pruning]:
    """All combinations, of pages with ``sizes`` instead of ``everys``; ``base`` says the rest.

    Raises:
        InputError: a combination is no schedule.
    """
    rest: dict[str, Any] = {"first": base.first, "last": base.last, "whole": base.whole}
    fixed = [score for score in scores if score != "pages"]
    return [*(Pruning(keep=keep, every=every, score=score, **rest)
              for keep, every, score in product(keeps, everys, fixed)),
            *(Pruning(keep=keep, score="pages", page=page, **rest)
              for keep, page in product(keeps, sizes if "pages" in scores else ()))]


def measured(placed: Placed, windows: np.ndarray, pruning: Pruning | None, context: int) -> dict[str, Any]:
    """Losses of windows of text, int64 [windows, tokens], and cycles of a token behind ``context`` rows."""
    observed = placed.selection.select.max_rows if placed.selection else 1
    found = [losses(placed.network, window, pruning, observed) for window in windows]
    cost = token_cycles(placed, pruning, context)
    return {"nats": float(np.mean([part.nats.mean() for part in found])),
            "rows_seen": float(np.mean([part.seen for part in found])),
            "dropped_probability": float(np.mean([part.dropped for part in found])),
            "rows": cost.rows, "pass_cycles": cost.passing, "selection_cycles": cost.selection,
            "cycles_per_token": cost.cycles, **(asdict(pruning) if pruning else {})}


def with_pareto(rows: Sequence[dict[str, Any]], dense: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows, the fewest cycles first, with what they are beside the whole cache, and whether another one beats them
    in both.
    """
    told = [row | {"perplexity_change": float(np.exp(row["nats"] - dense["nats"]) - 1),
                   "speedup": dense["cycles_per_token"] / row["cycles_per_token"]} for row in rows]
    told.sort(key=lambda row: (row["cycles_per_token"], row["nats"]))
    least = float("inf")
    for row in told:
        row["pareto"], least = row["nats"] < least, min(least, row["nats"])
    return told


def best(rows: Sequence[dict[str, Any]], budget: float) -> dict[str, Any]:
    """Of :func:`with_pareto`'s rows the one with the fewest cycles whose perplexity rises by no more than ``budget``.

    Raises:
        InputError: none does.
    """
    for row in rows:
        if row["perplexity_change"] <= budget:
            return row
    nearest = min(rows, key=lambda row: row["perplexity_change"])
    raise InputError(f"--budget {100 * budget:g} is kept by no schedule: the least rise is "
                     f"{100 * nearest['perplexity_change']:.2f} percent (keep {nearest['keep']}, "
                     f"score {nearest['score']}); allow more, or try larger --keep")
