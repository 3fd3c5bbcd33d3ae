"""Write the tables of docs/drafters.md about what drafters gain: `python -m benchmarks.drafters_page`.

From `python -m benchmarks.joined`, and the same with `--methods parallel,eagle --record eagle`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gemmule.sw.reports.markdown import fill_page, table

__all__ = ["EAGLE", "JOINED", "PAGE", "PARTS", "told"]

ROOT = Path(__file__).resolve().parents[1]
JOINED, EAGLE, PAGE = (ROOT / "docs" / name for name in ("results/joined.json", "results/eagle.json", "drafters.md"))


def told(result: Path) -> str:
    """What `benchmarks.joined` found, a row for each part and method."""
    record = json.loads(result.read_text(encoding="utf-8"))
    parts = list(dict.fromkeys(row["part"] for row in record["summary"]))
    return table(("requests", "", "method", "tokens a step", "rows a step", "drafter's passes a step", "speed-up, mean",
                  "median", "least", "most", "behind the prompt", "predicted", "drafting, of all cycles",
                  "parameters"), [
        (row["part"], str(row["requests"]), f"`{row['method']}`", f"{row['tokens_per_step']:.2f}",
         f"{row['rows_per_step']:.1f}", f"{row['drafter_passes_per_step']:.2f}", f"{row['speedup']:.2f}x",
         f"{row['median']:.2f}x", f"{row['least']:.2f}x", f"{row['most']:.2f}x", f"{row['behind_prompt']:.2f}x",
         f"{row['predicted_behind_prompt']:.2f}x", f"{row['drafting']:.1%}",
         f"{record['extra_parameters'][row['method']]:,}")
        for part in parts for row in record["summary"] if row["part"] == part])


PARTS: dict[str, Callable[[], str]] = {"joined": partial(told, JOINED), "eagle": partial(told, EAGLE)}
"""By marker."""


if __name__ == "__main__":
    fill_page(PAGE, PARTS)
