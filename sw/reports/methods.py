"""The page of a bench: speed-up by method and category, beside theory."""

from __future__ import annotations

from typing import Any

from gemmule.sw.reports.page import bars, page, paragraph, table

__all__ = ["bench_page"]


def _name(row: dict[str, Any]) -> str:
    drafts = f" {row['num_speculative_tokens']}" if row["num_speculative_tokens"] else ""
    drawn = f", T {row['temperature']:g}, {row['verify']}" if row["temperature"] else ""
    return f"{row['method']}{drafts}{drawn}"


def _cells(row: dict[str, Any]) -> list[str]:
    equal = "-" if row["equal_to_ar"] is None else row["equal_to_ar"]
    share = f"{row['decode_speedup'] / row['theoretical_speedup']:.0%}" if row["theoretical_speedup"] else "-"
    hosts = " / ".join(f"{gain:.2f}" for gain in row["speedup_by_launch_cycles"].values())
    return [_name(row), f"{equal}/{row['prompts']}", f"{row['speedup_over_ar']:.2f}", f"{row['speedup_median']:.2f}",
            f"{row['speedup_min']:.2f} to {row['speedup_max']:.2f}", f"{row['slower_than_ar']:.0%}",
            f"{row['tokens_per_step']:.2f}", f"{row['acceptance']:.0%}", share, hosts]


def bench_page(record: dict[str, Any]) -> str:
    """Of what ``gemmule bench --json`` writes."""
    rows = record["rows"]
    categories = list(dict.fromkeys(row["category"] for row in rows))
    hosts = " / ".join(f"{int(count):,}" for count in rows[0]["speedup_by_launch_cycles"])
    heads = ("method", "equal", "mean", "median", "range", "slower", "tokens a step", "accepted", "of theory",
             f"host {hosts}")
    sections = [("", paragraph(
        f"{record['model']} model on {record['backend']}, configuration {record['config']}, {record['max_new_tokens']} "
        f"new tokens a prompt, seed {record['seed']}. Speed-up is cycles a token of autoregressive decoding by the "
        "same rule over those of the method, prompt and host counted on both sides; of theory: behind the prompt, over "
        "what acceptance and costs foretell; host: by the host's cycles a launch.", True))]
    for category in categories:
        mine = [row for row in rows if row["category"] == category]
        sections.append((f"{category} ({mine[0]['prompts']} prompts)", bars(
            [(_name(row), row["speedup_over_ar"], f"{row['speedup_over_ar']:.2f}x") for row in mine])
            + table(heads, map(_cells, mine))))
    return page("Decoding methods on gemmule", sections)
