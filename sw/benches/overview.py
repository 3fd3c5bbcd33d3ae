"""All methods in one table: a row each, on all prompts, with the category in which it is worst."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["overview_of"]

CASE = ("method", "num_speculative_tokens", "temperature", "verify", "warm")
TAKEN = ("prompts", "equal_to_ar", "lossless", "policy_equal", "speedup_over_ar", "speedup_median",
         "speedup_without_loops", "speedup_min", "slower_than_ar",
         "tokens_per_step", "calls_reduced", "extra_parameters", "draft_cycle_share")


def overview_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the rows of a bench, the fastest method first."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in CASE), []).append(row)
    found = [_row(mine) for mine in groups.values()]
    return sorted(found, key=lambda row: -row["speedup_over_ar"])


def _row(mine: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """``mine``: by category, the sum of all last where there are several."""
    whole, categories = mine[-1], mine[:-1] or mine
    worst = min(categories, key=lambda row: row["speedup_over_ar"])
    return {name: whole[name] for name in (*CASE, *TAKEN)} | {
        "worst_category": worst["category"], "worst_speedup": worst["speedup_over_ar"]}
