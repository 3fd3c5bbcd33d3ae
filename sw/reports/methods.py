"""The page of a bench: speed-up by method and category, and theory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmule.sw.reports.page import Bar, Table, page
from gemmule.sw.reports.resident import resident_values

__all__ = ["bench_page"]


def _name(row: dict[str, Any]) -> str:
    drafts = f" {row['num_speculative_tokens']}" if row["num_speculative_tokens"] else ""
    drawn = f", T {row['temperature']:g}, {row['verify']}" if row["temperature"] else ""
    return f"{row['method']}{drafts}{' warm' * row['warm']}{drawn}"


def _speedups(rows: Sequence[dict[str, Any]]) -> Table:
    def cells(row: dict[str, Any]) -> list[str]:
        equal, apart = row["equal_to_ar"], row["speedup_without_loops"]
        return [_name(row), f"{'-' if equal is None else equal}/{row['prompts']}", f"{row['speedup_over_ar']:.2f}",
                f"{row['speedup_median']:.2f}", f"{row['speedup_min']:.2f} to {row['speedup_max']:.2f}",
                f"{row['slower_than_ar']:.0%}", f"{row['tokens_per_step']:.2f}", f"{row['acceptance']:.0%}",
                f"{row['distinct_4grams']:.0%}", str(row["looping"]), "-" if apart is None else f"{apart:.2f}",
                f"{row['roofline_fraction']:.1%}", _energy(row)]

    return Table(("method", "equal", "mean", "median", "range", "slower", "tokens per step", "accepted",
                  "distinct 4-grams", "looping texts", "mean without them", "share of roofline",
                  "pJ per token"), map(cells, rows))


def _energy(row: dict[str, Any]) -> str:
    """pJ per token of a row, the host aside."""
    energy = row.get("energy")
    return f"{energy['pj_per_token']:,.0f}" if energy else "-"


def _theory(rows: Sequence[dict[str, Any]]) -> Table:
    """What acceptance and costs predict, and the shares of it that were reached in tokens and in cycles per step."""
    def cells(row: dict[str, Any]) -> list[str]:
        return [_name(row), f"{row['alpha']:.3f}", f"{row['draft_cost']:.3f}", f"{row['expected_tokens']:.2f}",
                f"{row['worst_case']:.2f}", f"{row['verify_cost']:.3f}", f"{row['theoretical_speedup']:.2f}",
                f"{row['decode_speedup']:.2f}", f"{row['tokens_of_theory']:.1%}", f"{row['cycles_of_theory']:.1%}"]

    return Table(("method", "alpha", "c", "expected", "worst case", "pass", "predicted", "measured",
                  "share of expected tokens", "expected / measured cycles"),
                 [cells(row) for row in rows if row["theoretical_speedup"]])


def _hosts(rows: Sequence[dict[str, Any]]) -> Table:
    heads = [f"{int(count):,}" for count in rows[0]["speedup_by_launch_cycles"]]
    return Table(("method", *heads), [
        [_name(row), *(f"{gain:.2f}" for gain in row["speedup_by_launch_cycles"].values())] for row in rows])


def _best(rows: Sequence[dict[str, Any]]) -> Table:
    return Table(("category, method", "fastest measured", "speed-up", "predicted", "speed-up without the prompt"), [
        [f"{row['category']}, {_name(row | {'num_speculative_tokens': 0})}", str(row["measured"]),
         f"{row['speedup_over_ar']:.2f}", str(row["foretold"]), f"{row['foretold_speedup']:.2f}"] for row in rows])


def _category(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    bars: list[Bar] = [(_name(row), [row["speedup_over_ar"]], f"{row['speedup_over_ar']:.2f}x") for row in rows]
    return {"name": name, "prompts": rows[0]["prompts"], "bars": bars, "speedups": _speedups(rows),
            "theory": _theory(rows), "hosts": _hosts(rows)}


def bench_page(record: dict[str, Any]) -> str:
    """The page of a record that ``gemmule bench --json`` wrote."""
    by_category: dict[str, list[dict[str, Any]]] = {}
    for row in record["rows"]:
        by_category.setdefault(row["category"], []).append(row)
    return page("methods.html", {
        "title": "Decoding methods on gemmule", "record": record, "best": _best(record["best"]),
        "categories": [_category(name, rows) for name, rows in by_category.items()],
        **resident_values(record["resident"])})
