"""Fill the tables and the figure of docs/pruning.md from docs/results.

    python -m benchmarks.pruning_page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import pruned_long
from benchmarks.pruned_tasks import NAMES, summary
from gemmule.sw.reports.markdown import fill_page, table, wrapped

__all__ = ["PARTS", "main"]

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURE = ROOT / "docs" / "pruning.md", ROOT / "docs" / "img" / "pruning.svg"
WHOLE = "whole cache"


def _load(name: str = "pruning") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())
    return found


def quality() -> str:
    """By schedule."""
    rows = [(row["schedule"], f"{row['rows_seen']:.0%}",
             "-" if row["score"] != "attention" else f"{row['dropped_probability']:.1%}",
             *(f"{row[name]:+.1%}" for name in ("perplexity", "from_512", "prose", "code")))
            for row in _load()["quality"]]
    return table(("schedule", "rows seen", "probability dropped", "perplexity", "from position 512", "prose", "code"),
                 rows)


def unseen() -> str:
    """By length and schedule."""
    rows = [(f"{row['length']:,}", row["schedule"],
             *(f"{row[name]:+.1%}" for name in ("perplexity", "from_512", "prose", "code")))
            for row in _load()["unseen"]]
    return table(("tokens", "schedule", "perplexity", "from position 512", "prose", "code"), rows)


def longer() -> str:
    """By schedule, behind 2,048 positions."""
    rows = _load("pruned_long")["quality"]
    found = [pruned_long.summary(rows, name) for name in pruned_long.NAMES
             if name != pruned_long.DENSE and any(row["schedule"] == name for row in rows)]
    ranges = [f"{first} to {end - 1}" for first, end in pruned_long.RANGES]
    return table(("schedule", "windows", "rows seen", "perplexity", *ranges, "prose", "code"),
                 [(row["schedule"], row["windows"], f"{row['rows_seen']:.0%}",
                   *(f"{row[name]:+.1%}" for name in ("perplexity", *ranges, "prose", "code"))) for row in found])


def cycles() -> str:
    """By context and cache."""
    found = _load()
    rows = [(f"{row['context']:,}", row["cache"], f"{row['rows']:,}", f"{row['pass']:,}", f"{row['selection']:,}",
             f"{row['a token']:,}", f"{row['speed-up']:.2f}x", _hidden(row)) for row in found["cycles"]]
    shares = ", ".join(f"{share:.0%} behind {int(context):,}" for context, share in found["attention_share"].items())
    return table(("context", "cache", "rows read", "a pass", "a selection", "a token", "speed-up",
                   "TOP_K hidden"), rows) \
        + "\n\n" + wrapped(f"Attention over the whole cache takes {shares} of a pass.")


def _hidden(row: dict[str, Any]) -> str:
    """The share of TOP_K's cycles in which another unit works, and these cycles."""
    return f"{1 - row['top_k_exposed'] / row['top_k']:.1%} of {row['top_k']:,}" if row["top_k"] else "-"


def needle() -> str:
    """Right answers by schedule and depth."""
    rows = _load("pruned_tasks")["needle"]
    depths = sorted({row["depth"] for row in rows})
    told = []
    for name in NAMES:
        mine = [row for row in rows if row["schedule"] == name]
        at = [[row["right"] for row in mine if row["depth"] == depth] for depth in depths]
        told.append((name, *(f"{sum(right)} of {len(right)}" for right in (*at, [row["right"] for row in mine]))))
    return table(("cache", *(f"at {depth:.0%}" for depth in depths), "all"), told)


def summaries() -> str:
    """Beside those with the whole cache, in the mean."""
    rows = _load("pruned_tasks")["summaries"]
    found = [summary(rows, name) for name in (*NAMES, None)]
    return table(("cache", "tokens until the first other one", "words", "pairs of words", "longest subsequence",
                  "length in tokens"),
                 [(row["schedule"], *(f"{row[key]:.0%}" for key in ("equal", "words", "pairs", "subsequence")),
                   f"{row['tokens']:.1f}") for row in found])


def values() -> str:
    """By the least probability that counts."""
    rows = [(row["values"], f"{row['met']:.0%}", f"{row['dropped_probability']:.1%}",
             *(f"{row[name]:+.1%}" for name in ("perplexity", "from_512", "prose", "code")))
            for row in _load("pruned_values")["quality"]]
    return table(("values", "values met", "probability dropped", "perplexity", "from position 512", "prose", "code"),
                 rows)


def value_cycles() -> str:
    """By context, rows of the pass and the least probability that counts."""
    rows = [(f"{row['context']:,}", row["rows"], row["values"] or "all", f"{row['values_loaded']:.0%}",
             f"{row['kv_bytes']:.0%}", f"{row['cycles']:,}", f"{row['speedup']:.3f}x")
            for row in _load("pruned_values")["cycles"]]
    return table(("context", "rows", "values", "values loaded", "KV bytes", "cycles", "speed-up"), rows)


def draw(path: Path) -> None:
    """Cycles of a token by context, a line for each cache."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "gemmule"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.5))
    rows = _load()["cycles"]
    for name in dict.fromkeys(row["cache"] for row in rows):
        mine = [row for row in rows if row["cache"] == name]
        axes.plot([row["context"] for row in mine], [row["a token"] / 1e6 for row in mine], marker="o", label=name)
    axes.set_xlabel("cached rows")
    axes.set_ylabel("million cycles a token")
    axes.set_ylim(bottom=0)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


PARTS: dict[str, Callable[[], str]] = {part.__name__: part for part in (
    quality, unseen, longer, cycles, values, value_cycles, needle, summaries)}
"""What stands between ``<!-- name -->`` and ``<!-- end -->``."""


def main() -> None:
    """Write the page and the figure."""
    fill_page(PAGE, PARTS)
    draw(FIGURE)


if __name__ == "__main__":
    main()
