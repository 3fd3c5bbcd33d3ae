"""Decoding methods side by side, as the terminal shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["print_bench"]

LEGEND = (
    "equal: texts as by ar, of all; mean, median: speed-up over ar, host counted, and slower: on how many prompts; a "
    "step: tokens; 4-grams: distinct ones; no loop: mean speed-up of the texts of which at least half of them are, and "
    "how many these are; c: a drafted token over a step of ar; theory: what acceptance and c foretell behind the "
    "prompt, and how much of it was reached; roofline: of the target's passes")
BATCH_LEGEND = "; batch: tokens a cycle over those of the same prompts one at a time"


def print_bench(console: Console, rows: Sequence[dict[str, Any]], best: Sequence[dict[str, Any]]) -> None:
    """The table, the best draft lengths, and what the columns are."""
    batched = any(row["batch_gain"] is not None for row in rows)
    table = Table(box=None, pad_edge=False)
    heads = ("category", "method", "drafts", "T", "equal", "mean", "median", "slower", "a step", "accepted", "4-grams",
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
            f"{one['category']}, {method}: fastest with {one['measured']} drafts, {one['speedup_over_ar']:.2f}x; by "
            f"acceptance and costs with {one['foretold']}, {one['foretold_speedup']:.2f}x behind the prompt",
            markup=False)
    console.print(LEGEND + BATCH_LEGEND * batched, markup=False, style="dim")


def _without_loops(row: dict[str, Any]) -> str:
    gain = row["speedup_without_loops"]
    return "-" if gain is None else f"{gain:.2f}x/{row['prompts'] - row['looping']}"
