"""The comparison of decoding methods in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["print_bench"]

LEGEND = (
    "equal: prompts with exactly the text of ar; mean, median: speed-up over ar, host included; slower: share of "
    "prompts slower than with ar; tokens: per step; 4-grams: share that is distinct; no loop: mean speed-up of texts "
    "with at least half of their 4-grams distinct, and their number; c: cost of a drafted token relative to a step of "
    "ar; theory: speed-up that acceptance and c predict, prompt excluded; of it: share of that speed-up reached; "
    "roofline: share reached by the target's passes")
BATCH_LEGEND = "; batch: throughput relative to the same prompts one at a time"


def print_bench(console: Console, rows: Sequence[dict[str, Any]], best: Sequence[dict[str, Any]]) -> None:
    """Print the table, the best draft lengths, and the meaning of the columns."""
    batched = any(row["batch_gain"] is not None for row in rows)
    table = Table(box=None, pad_edge=False)
    heads = ("category", "method", "drafts", "T", "equal", "mean", "median", "slower", "tokens", "accepted", "4-grams",
             "no loop", "c", "theory", "of it", "roofline", *(("batch",) if batched else ()))
    for name in heads:
        table.add_column(name, justify="left" if name in heads[:2] else "right")
    for r in rows:
        method = r["method"] + ("" if r["verify"] == "greedy" else f" {r['verify']}")
        equal = "-" if r["equal_to_ar"] is None else r["equal_to_ar"]
        table.add_row(
            r["category"], method, str(r["num_speculative_tokens"]), f"{r['temperature']:g}", f"{equal}/{r['prompts']}",
            f"{r['speedup_over_ar']:.2f}x",
            f"{r['speedup_median']:.2f}x", f"{r['slower_than_ar']:.0%}", f"{r['tokens_per_step']:.2f}",
            f"{r['acceptance']:.0%}", f"{r['distinct_4grams']:.0%}", _without_loops(r), *((
                f"{r['draft_cost']:.3f}", f"{r['theoretical_speedup']:.2f}x",
                f"{r['decode_speedup'] / r['theoretical_speedup']:.1%}",
            ) if r["theoretical_speedup"] else "---"), f"{r['roofline_fraction']:.1%}",
            *((f"{r['batch_gain']:.2f}x",) if batched else ()))
    console.print(table)
    for one in best:
        method = one["method"] + (f" at T {one['temperature']:g}, {one['verify']}" if one["temperature"] else "")
        console.print(
            f"{one['category']}, {method}: fastest draft length {one['measured']}, {one['speedup_over_ar']:.2f}x; "
            f"acceptance and costs predict {one['foretold']}, {one['foretold_speedup']:.2f}x without the prompt",
            markup=False)
    console.print(LEGEND + BATCH_LEGEND * batched, markup=False, style="dim")


def _without_loops(row: dict[str, Any]) -> str:
    gain = row["speedup_without_loops"]
    return "-" if gain is None else f"{gain:.2f}x/{row['prompts'] - row['looping']}"
