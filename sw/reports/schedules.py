"""Schedules of a pruned cache on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["print_schedules"]


def print_schedules(console: Console, rows: Sequence[dict[str, Any]], dense: dict[str, Any]) -> None:
    """The fewest cycles first, the whole cache last; ``*``: no other schedule is better in both."""
    table = Table("", "keep", "every", "score", "rows seen", "perplexity", "cycles a token", "speed-up", box=None,
                  pad_edge=False)
    for column in (*table.columns[1:3], *table.columns[4:]):
        column.justify = "right"
    for row in rows:
        table.add_row("*" if row["pareto"] else "", f"{row['keep']}", f"{row['every']}", row["score"],
                      f"{row['rows_seen']:.0%}", f"{row['perplexity_change']:+.2%}",
                      f"{row['cycles_per_token']:,}", f"{row['speedup']:.2f}x")
    table.add_row("", "all", "-", "-", "100%", "", f"{dense['cycles_per_token']:,}", "1.00x")
    console.print(table)
