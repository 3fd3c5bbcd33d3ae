"""Schedules on the terminal, and what one does to a pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["described", "print_schedules", "pruned_line"]


def described(schedule: dict[str, Any]) -> str:
    """A schedule's fields as a phrase."""
    when = f"page {schedule['page']}" if schedule["score"] == "pages" else f"every {schedule['every']}"
    four = f", four {schedule['four']} ({schedule['halves']})" if schedule["four"] else ""
    return f"keep {schedule['keep']}, {when}, score {schedule['score']}{four}"


def print_schedules(console: Console, rows: Sequence[dict[str, Any]], dense: dict[str, Any]) -> None:
    """The fewest cycles first, the whole cache last; ``*``: no other schedule is better in both."""
    table = Table("", "keep", "every", "page", "score", "rows seen", "perplexity", "cycles a token", "speed-up",
                  box=None, pad_edge=False)
    for column in (*table.columns[1:4], *table.columns[5:]):
        column.justify = "right"
    for row in rows:
        pages = row["score"] == "pages"
        table.add_row("*" if row["pareto"] else "", f"{row['keep']}", "-" if pages else f"{row['every']}",
                      f"{row['page']}" if pages else "-", row["score"],
                      f"{row['rows_seen']:.0%}", f"{row['perplexity_change']:+.2%}",
                      f"{row['cycles_per_token']:,}", f"{row['speedup']:.2f}x")
    table.add_row("", "all", "-", "-", "-", "100%", "", f"{dense['cycles_per_token']:,}", "1.00x")
    console.print(table)


def pruned_line(record: dict[str, Any]) -> str:
    """What a schedule did to a pass, of a record with :data:`gemmule.sw.workloads.passes.PRUNED`'s keys."""
    left, dense, dropped = (record[key] for key in ("kept_rows_by_layer", "cycles_dense", "dropped_probability"))
    gain = f"the dense pass takes {dense:,} cycles, {dense / record['cycles_with_selection']:.2f} times as many"
    top_k = "" if not record["topk_cycles"] else \
        f"TOP_K takes {record['topk_cycles']:,} cycles, {record['topk_exposed_cycles']:,} of them with no other unit " \
        "at work; "
    if record["selection_cycles"] is None:
        heads = record["kept_heads_by_layer"]
        parts = [(name, counts) for name, counts in (("rows", left), ("heads", heads)) if counts]
        said = [f"{name} that layers leave: {', '.join(map(str, counts))}; " for name, counts in parts]
        return f"{''.join(said)}{top_k}{gain}"
    read = record["kv_bytes"] / record["kv_bytes_dense"] if record["kv_bytes_dense"] else 1
    if record["prune"]["values"] and not record["selection_cycles"]:
        lost = f"; {dropped:.1%} of the probability is too small to count" if dropped else ""
        return (f"pruned cache: values that no probability of at least {record['prune']['values']} of 255 meets are "
                f"not loaded, {read:.0%} of the KV bytes are{lost}; {top_k}{gain}")
    if not record["selection_cycles"]:
        return f"pruned cache: all {left[0]:,} rows are kept, as the schedule has it for so few"
    share = "" if dropped is None else f" and drops {dropped:.1%} of the probability"
    return (f"pruned cache: {left[0]:,} rows per KV head, {read:.0%} of the KV bytes; a selection takes "
            f"{record['selection_cycles']:,} cycles{share}; {top_k}with its share a pass takes "
            f"{record['cycles_with_selection']:,} cycles; {gain}")
