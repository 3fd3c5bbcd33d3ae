"""Fill the tables of docs/zeros.md from docs/results.

    python -m benchmarks.zeros_page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmule.sw.reports.markdown import fill_page, table

__all__ = ["PARTS", "main"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "zeros.md"


def _rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())["rows"]
    return found


def skipping() -> str:
    """By model and rows of a pass."""
    return table(("model", "rows", "zeros", "not loaded", "cycles", "skipping", "speed-up", "least to most"), [
        (row["model"], row["rows"], f"{row['zeros']:.1%}", f"{row['not_loaded']:.1%}", f"{row['cycles']:,}",
         f"{row['cycles_skipping']:,}", f"{row['speedup']:.2f}x", f"{row['least']:.2f}x to {row['most']:.2f}x")
        for row in _rows("skipping")])


def probabilities() -> str:
    """By context."""
    names = "context", "a row and head", "prose", "code", "layers, least to most", "heads of a KV head", "8 rows"
    return table(names, [
        (f"{row['context']:,}", f"{row['a_row']:.0%}", f"{row['prose']:.0%}", f"{row['code']:.0%}",
         f"{row['least_layer']:.0%} to {row['most_layer']:.0%}", f"{row['a_kv_head']:.0%}", f"{row['eight_rows']:.0%}")
        for row in _rows("zero_probabilities")])


PARTS: dict[str, Callable[[], str]] = {part.__name__: part for part in (skipping, probabilities)}
"""What stands between ``<!-- name -->`` and ``<!-- end -->``."""


def main() -> None:
    """Write the page."""
    fill_page(PAGE, PARTS)


if __name__ == "__main__":
    main()
