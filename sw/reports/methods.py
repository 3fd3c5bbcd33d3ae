"""The page of a bench: speed-up by method and category, beside theory."""

from __future__ import annotations

from typing import Any

from gemmule.sw.reports.page import bars, page, paragraph, table
from gemmule.sw.reports.resident import resident_section

__all__ = ["bench_page"]


def _name(row: dict[str, Any]) -> str:
    drafts = f" {row['num_speculative_tokens']}" if row["num_speculative_tokens"] else ""
    drawn = f", T {row['temperature']:g}, {row['verify']}" if row["temperature"] else ""
    return f"{row['method']}{drafts}{drawn}"


def _cells(row: dict[str, Any]) -> list[str]:
    equal = "-" if row["equal_to_ar"] is None else row["equal_to_ar"]
    return [_name(row), f"{equal}/{row['prompts']}", f"{row['speedup_over_ar']:.2f}", f"{row['speedup_median']:.2f}",
            f"{row['speedup_min']:.2f} to {row['speedup_max']:.2f}", f"{row['slower_than_ar']:.0%}",
            f"{row['tokens_per_step']:.2f}", f"{row['acceptance']:.0%}", f"{row['distinct_4grams']:.0%}",
            str(row["looping"]), "-" if row["speedup_without_loops"] is None else f"{row['speedup_without_loops']:.2f}",
            f"{row['roofline_fraction']:.1%}"]


def _theory(row: dict[str, Any]) -> list[str]:
    """What acceptance and costs foretell, and what of it was not reached: tokens of a step, cycles of a step."""
    return [_name(row), f"{row['alpha']:.3f}", f"{row['draft_cost']:.3f}", f"{row['expected_tokens']:.2f}",
            f"{row['worst_case']:.2f}", f"{row['verify_cost']:.3f}", f"{row['theoretical_speedup']:.2f}",
            f"{row['decode_speedup']:.2f}", f"{row['tokens_of_theory']:.1%}", f"{row['cycles_of_theory']:.1%}"]


def _host(row: dict[str, Any]) -> list[str]:
    return [_name(row), *(f"{gain:.2f}" for gain in row["speedup_by_launch_cycles"].values())]


def bench_page(record: dict[str, Any]) -> str:
    """Of what ``gemmule bench --json`` writes."""
    rows = record["rows"]
    categories = list(dict.fromkeys(row["category"] for row in rows))
    hosts = [f"{int(count):,}" for count in rows[0]["speedup_by_launch_cycles"]]
    heads = ("method", "equal", "mean", "median", "range", "slower", "tokens a step", "accepted",
             "distinct 4-grams", "texts that loop", "mean without them", "of the roofline")
    sections = [("", paragraph(
        f"{record['model']} model on {record['backend']}, configuration {record['config']}, {record['max_new_tokens']} "
        f"new tokens a prompt, seed {record['seed']}. Speed-up is cycles a token of autoregressive decoding by the "
        "same rule over those of the method, prompt and host counted on both sides. Theory is of what is behind the "
        "prompt: alpha, accepted over reached drafts; c, a drafted token over a step of ar; expected tokens of a step; "
        "worst case, a step without accepted drafts; a pass of the target over one of ar.", True))]
    for category in categories:
        mine = [row for row in rows if row["category"] == category]
        sections.append((f"{category} ({mine[0]['prompts']} prompts)", bars(
            [(_name(row), row["speedup_over_ar"], f"{row['speedup_over_ar']:.2f}x") for row in mine])
            + table(heads, map(_cells, mine))))
        if drafting := [row for row in mine if row["theoretical_speedup"]]:
            sections.append((f"{category}: beside theory", table(
                ("method", "alpha", "c", "expected", "worst case", "pass", "foretold", "measured", "tokens of it",
                 "cycles of it"), map(_theory, drafting))))
        sections.append((f"{category}: speed-up by the host's cycles a launch", table(
            ("method", *hosts), map(_host, mine))))
    if record["best"]:
        sections.append(("Best draft lengths", table(
            ("category, method", "measured", "speed-up", "foretold", "behind the prompt"),
            [[f"{one['category']}, {_name(one | {'num_speculative_tokens': 0})}", str(one["measured"]),
              f"{one['speedup_over_ar']:.2f}", str(one["foretold"]), f"{one['foretold_speedup']:.2f}"]
             for one in record["best"]])))
    sections.append(resident_section(record["resident"]))
    return page("Decoding methods on gemmule", sections)
