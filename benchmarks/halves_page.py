"""Fill the tables of docs/precision.md from docs/results.

    python -m benchmarks.halves_page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmule.sw.reports.markdown import fill_page, table

__all__ = ["PARTS", "main"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "precision.md"
CHANGES = "perplexity", "from_512", "prose", "code"


def _rows(part: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / "docs" / "results" / "halves.json").read_text())[part]
    return found


def uniform() -> str:
    """By what has 4 bits."""
    return table(("4 bits of", "rows that took all bits", "perplexity", "from position 512", "prose", "code"), [
        (row["bits"], "-" if row["rows_with_all_bits"] is None else f"{row['rows_with_all_bits']:.0%}",
         *(f"{row[name]:+.1%}" for name in CHANGES)) for row in _rows("uniform")])


def chosen() -> str:
    """By schedule."""
    return table(("4 bits of", "perplexity", "from position 512", "prose", "code"), [
        (row["schedule"], *(f"{row[name]:+.1%}" for name in CHANGES)) for row in _rows("chosen")])


def cycles() -> str:
    """By context and cache."""
    rows = _rows("cycles")
    least = {row["context"]: row["pass"] for row in rows if row["cache"] == "8 bits"}
    return table(("context", "cache", "KV bytes", "a pass", "speed-up", "a selection"), [
        (f"{row['context']:,}", row["cache"], f"{row['kv_bytes']:.0%}", f"{row['pass']:,}",
         f"{least[row['context']] / row['pass']:.3f}x", f"{row['selection']:,}") for row in rows])


def rtl() -> str:
    """Runs on both back ends, by schedule."""
    found = json.loads((ROOT / "docs" / "results" / "decode_rtl_pruned.json").read_text())["rows"]
    return table(("schedule", "selections", "launches", "cycles of the model", "cycles of the RTL", "different"), [
        (f"[{row['prune']}](../examples/pruning/{row['prune']}.yaml)", row["selections"], row["launches"],
         f"{row['cycles_model']:,}", f"{row['cycles']:,}", ", ".join(row["different"]) or "nothing") for row in found])


PARTS: dict[str, Callable[[], str]] = {part.__name__: part for part in (uniform, chosen, cycles, rtl)}
"""What stands between ``<!-- name -->`` and ``<!-- end -->``."""


def main() -> None:
    """Write the page."""
    fill_page(PAGE, PARTS)


if __name__ == "__main__":
    main()
