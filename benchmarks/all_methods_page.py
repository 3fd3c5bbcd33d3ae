"""Write the tables of docs/decoding.md about all methods that a model has: `python -m benchmarks.all_methods_page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemmule.sw.reports.markdown import fill_page, table, wrapped

__all__ = ["PARTS", "every_method"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "results", ROOT / "docs" / "decoding.md"
HEADS = ("method", "mean", "median", "worst category", "least", "tokens per step", "steps saved",
         "weights beside the target's", "drafting", "texts that loop")


def every_method(name: str) -> str:
    """Of a result of ``gemmule bench --method all``: a row a method and a way to begin, those that gain most first."""
    rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    every = sorted((row for row in rows if row["category"] == "all"), key=lambda row: -row["speedup_over_ar"])
    exact, lossy = ([row for row in every if row.get("lossless", True) is kind] for kind in (True, False))
    told = (f"{sum(row['equal_to_ar'] for row in exact):,} of {sum(row['prompts'] for row in exact):,} texts equal "
            f"those of `ar`")
    if lossy:
        names = ", ".join(f"`{row['method']}`" for row in lossy)
        told += (f"; of {names}, which are lossy, {sum(row['policy_equal'] for row in lossy)} of "
                 f"{sum(row['prompts'] for row in lossy)} are what their policy says")
    return (wrapped(f"{told} ([result](results/{name}.json)).").strip() + "\n\n"
            + table(HEADS, [_row(row, [one for one in rows if one["category"] != "all" and _way(one) == _way(row)])
                            for row in every]))


def _way(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["method"], row["num_speculative_tokens"], row.get("warm", False), row["temperature"]


def _row(row: dict[str, Any], parts: list[dict[str, Any]]) -> list[str]:
    worst = min(parts, key=lambda part: part["speedup_over_ar"])
    drafts = f" {row['num_speculative_tokens']}" if row["num_speculative_tokens"] else ""
    extra = row["extra_parameters"]
    return [f"`{row['method']}`{drafts}{' warm' if row.get('warm') else ''}", f"{row['speedup_over_ar']:.2f}x",
            f"{row['speedup_median']:.2f}x", f"{worst['category']} {worst['speedup_over_ar']:.2f}x",
            f"{row['speedup_min']:.2f}x", f"{row['tokens_per_step']:.2f}", f"{row['calls_reduced']:.0%}",
            f"{extra / 1e6:.2f} M" if extra else "-", f"{row['draft_cycle_share']:.0%}",
            f"{row['looping']} of {row['prompts']}"]


PARTS = {"all methods, default": lambda: every_method("bench_all_default"),
         "all methods, smollm2": lambda: every_method("bench_all_smollm2")}


if __name__ == "__main__":
    fill_page(PAGE, PARTS)
