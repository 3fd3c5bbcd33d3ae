"""The comparison of decoding methods in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gemmule.sw.benches.theory import break_even

__all__ = ["print_bench", "print_overview"]

Row = dict[str, Any]
Columns = dict[str, Callable[[Row], str]]
"""Heads and the text of their cells."""

LEGEND = (
    "equal: prompts with exactly the text of ar; mean, median: speed-up over ar, host included; slower: share of "
    "prompts slower than with ar; no loop: mean speed-up of texts with at least half of their 4-grams distinct, and "
    "their number; tokens: per step; 4-grams: share that is distinct; c: cost of a drafted token relative to a step of "
    "ar; even: acceptance of a draft below which drafting loses; theory: speed-up that acceptance and c predict, "
    "prompt excluded; of it: share of that speed-up reached; roofline: share reached by the target's passes")
BATCH_LEGEND = "; batch: throughput relative to the same prompts one at a time"
CASE: Columns = {
    "category": lambda r: str(r["category"]),
    "method": lambda r: r["method"] + " warm" * r["warm"] + ("" if r["verify"] == "greedy" else f" {r['verify']}"),
    "drafts": lambda r: str(r["num_speculative_tokens"]),
    "T": lambda r: f"{r['temperature']:g}",
}
SPEEDUP: Columns = {
    "equal": lambda r: f"{'-' if r['equal_to_ar'] is None else r['equal_to_ar']}/{r['prompts']}",
    "mean": lambda r: f"{r['speedup_over_ar']:.2f}x",
    "median": lambda r: f"{r['speedup_median']:.2f}x",
    "slower": lambda r: f"{r['slower_than_ar']:.0%}",
    "no loop": lambda r: "-" if r["speedup_without_loops"] is None else (
        f"{r['speedup_without_loops']:.2f}x/{r['prompts'] - r['looping']}"),
}
POLICY: Columns = {
    "lossless": lambda r: "yes" if r["lossless"] else "no",
    "policy_equal": lambda r: "-" if r["policy_equal"] is None else f"{r['policy_equal']}/{r['prompts']}",
}
"""Where a method is lossy."""
POLICY_LEGEND = (
    "; lossless: the text is that of ar, or has its distribution; policy_equal: prompts with exactly the text of a "
    "lossy method's policy, computed anew without a cache")
BATCH: Columns = {"batch": lambda r: f"{r['batch_gain']:.2f}x"}
CAUSES: Columns = {
    "tokens": lambda r: f"{r['tokens_per_step']:.2f}",
    "accepted": lambda r: f"{r['acceptance']:.0%}",
    "4-grams": lambda r: f"{r['distinct_4grams']:.0%}",
    "c": lambda r: f"{r['draft_cost']:.3f}" if r["theoretical_speedup"] else "-",
    "even": lambda r: "-" if r.get("break_even") is None else f"{r['break_even']:.0%}",
    "theory": lambda r: f"{r['theoretical_speedup']:.2f}x" if r["theoretical_speedup"] else "-",
    "of it": lambda r: (
        f"{r['decode_speedup'] / r['theoretical_speedup']:.1%}" if r["theoretical_speedup"] else "-"),
    "roofline": lambda r: f"{r['roofline_fraction']:.1%}",
}
"""What the speed-up comes from."""


def _table(rows: Sequence[Row], columns: Columns, *, close: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=close)
    for head in columns:
        table.add_column(head, justify="left" if head in ("category", "method") else "right")
    for row in rows:
        table.add_row(*(cell(row) for cell in columns.values()))
    return table


def print_bench(console: Console, rows: Sequence[Row], best: Sequence[Row], costs: Sequence[Row] = ()) -> None:
    """Print two tables that fit 100 columns, the best draft lengths, what rows cost, and the meaning of the columns."""
    batched, lossy = any(row["batch_gain"] is not None for row in rows), not all(row["lossless"] for row in rows)
    console.print(_table(rows, CASE | SPEEDUP | (POLICY if lossy else {}) | (BATCH if batched else {})))
    console.print()
    console.print(_table(rows, CASE | CAUSES))
    for one in best:
        method = one["method"] + (f" at T {one['temperature']:g}, {one['verify']}" if one["temperature"] else "")
        console.print(
            f"{one['category']}, {method}: fastest draft length {one['measured']}, {one['speedup_over_ar']:.2f}x; "
            f"predicted {one['foretold']}, {one['foretold_speedup']:.2f}x (prompt excluded)",
            markup=False)
    for one in costs:
        console.print(_paying(one), markup=False)
    console.print(LEGEND + POLICY_LEGEND * lossy + BATCH_LEGEND * batched, markup=False, style="dim")


def _paying(one: Row) -> str:
    """What rows cost, and how many drafts must be accepted for them to pay."""
    cycles, rows, most = one["cycles"], one["rows"], len(one["cycles"])
    texts = f" of {one['batch']} texts" * (one["batch"] > 1)
    told = (f"behind {one['cached']:,} tokens a pass{texts} over {rows} of at most {most} rows costs no more than 1.03 "
            "of one row")
    if rows == most:
        return told + f", over {most} rows {cycles[-1] / cycles[0]:.3f}"
    even = break_even(most - 1, cycles[-1] / cycles[0])
    return told + (f"; over {most} rows {cycles[-1] / cycles[0]:.3f}, which pays " + (
        "nothing" if even is None else f"from an acceptance of {even:.0%} on"))


def _whether(count: int | None, prompts: int, otherwise: str) -> str:
    """Whether all prompts have a text."""
    return "-" if count is None else "all" if count == prompts else otherwise


OVERVIEW: Columns = {
    "method": lambda r: r["method"] + f" {r['num_speculative_tokens']}" * (r["num_speculative_tokens"] > 0)
    + " warm" * r["warm"] + f" T {r['temperature']:g} {r['verify']}" * (r["temperature"] > 0),
    "equal": lambda r: _whether(r["equal_to_ar"], r["prompts"], "NO" if r["lossless"] else "no"),
    "mean": lambda r: f"{r['speedup_over_ar']:.2f}x",
    "median": lambda r: f"{r['speedup_median']:.2f}x",
    "worst": lambda r: f"{r['worst_speedup']:.2f}x",
    "category": lambda r: str(r["worst_category"]),
    "tokens": lambda r: f"{r['tokens_per_step']:.2f}",
    "saved": lambda r: f"{r['calls_reduced']:.0%}",
    "weights": lambda r: f"{r['extra_parameters'] / 1e6:.2f} M" if r["extra_parameters"] else "-",
    "draft": lambda r: f"{r['draft_cycle_share']:.0%}",
}
OVERVIEW_LEGEND = (
    "method: with the tokens that it drafts per step; equal: every text has the tokens of ar; mean, median: speed-up "
    "over ar on prompts, prompt and host included; worst: mean of the worst category; tokens: per step; saved: steps "
    "of ar that need no pass; weights: beside the target's; draft: share of cycles for drafting")


def print_overview(console: Console, rows: Sequence[Row]) -> None:
    """Print a row a method, within 80 columns, and the meaning of the columns."""
    console.print(_table(rows, OVERVIEW, close=True))
    lossy = [row for row in rows if not row["lossless"]]
    if lossy:
        console.print()
        console.print(_table(lossy, {"method": OVERVIEW["method"], "equal_to_ar": SPEEDUP["equal"], **POLICY}))
    console.print(OVERVIEW_LEGEND + POLICY_LEGEND * bool(lossy), markup=False, style="dim")
