"""Fill the tables of docs/triforce.md from docs/results.

    python -m benchmarks.triforce_page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmule.sw.reports.markdown import fill_page, table

__all__ = ["PARTS", "main"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "triforce.md"


def _load() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "results" / "triforce.json").read_text())
    return found


def levels() -> str:
    """Cycles by length."""
    rows = [(f"{row['context']:,}", *(f"{row['whole'][m]:,}" for m in ("1", "4", "7")),
             *(f"{row['small'][m]:,}" for m in ("1", "4")),
             *(f"{row[name]:,}" for name in ("retrieval", "chunks", "window", "copy"))) for row in _load()["levels"]]
    return table(("tokens", "whole cache, 1 row", "4 rows", "7 rows", "small cache, 1 row", "4 rows", "a retrieval",
                  "by chunks", "a window", "copy of a step"), rows)


def predicted() -> str:
    """Speed-ups by length and acceptance."""
    found = _load()["predicted"]
    shares = sorted({row["accepted"] for row in found})
    lines = []
    for context in sorted({row["context"] for row in found}):
        for kept, who in ((0.0, "the target alone"), (0.5, "lookup below")):
            some = {row["accepted"]: row for row in found if (row["context"], row["kept"]) == (context, kept)}
            alone = next(iter(some.values()))["lookup_alone"]
            lines.append((f"{context:,}", who, *(f"{some[share]['speed_up']:.2f}x by {some[share]['drafts']}"
                                                 for share in shares), f"{alone:.2f}x" if alone else "-"))
    return table(("tokens", "drafts", *(f"{share:.0%} accepted" for share in shares), "lookup alone"), lines)


def runs() -> str:
    """Real texts."""
    rows = [(f"{row['context']:,}", row["way"], f"{len(row['tokens']) / row['steps']:.2f}",
             f"{row['accepted'] / row['drafted']:.0%}" if row["drafted"] else "-",
             f"{row['drafted'] / row['small_passes']:.2f}" if row["small_passes"] else "-",
             f"{row['cycles'] // len(row['tokens']):,}", f"{row['speed-up']:.2f}x") for row in _load()["runs"]]
    return table(("tokens before", "method", "tokens a step", "drafts accepted", "drafts a small pass",
                  "cycles a token", "speed-up"), rows)


def needle() -> str:
    """Right answers and cycles of one by the cache."""
    found = _load()
    plain = next(row["cycles"] for row in found["pruned_answers"] if row["schedule"] == "whole cache")
    rows = [(row["schedule"], f"{row['right']} of {row['of']}", f"{row['cycles']:,}", f"{plain / row['cycles']:.2f}x")
            for row in found["pruned_answers"]]
    runs = found.get("needle", [])
    for way in dict.fromkeys(row["way"] for row in runs if row["way"] != "ar"):
        mine = [row for row in runs if row["way"] == way]
        same = [row["cycles"] for row in runs if row["way"] == "ar" and any(
            (row["haystack"], row["depth"]) == (other["haystack"], other["depth"]) for other in mine)]
        mean = sum(row["cycles"] for row in mine) / len(mine)
        rows.append((f"whole cache, {way}", f"{sum(row['right'] for row in mine)} of {len(mine)}", f"{int(mean):,}",
                     f"{sum(same) / len(same) / mean:.2f}x"))
    return table(("cache", "right", "cycles of an answer", "speed-up"), rows)


PARTS: dict[str, Callable[[], str]] = {part.__name__: part for part in (levels, predicted, runs, needle)}
"""What stands between ``<!-- name -->`` and ``<!-- end -->``."""


def main() -> None:
    """Write the page."""
    fill_page(PAGE, PARTS)


if __name__ == "__main__":
    main()
