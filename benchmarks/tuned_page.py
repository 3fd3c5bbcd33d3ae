"""Write the tables of docs/models.md about the tuned target: `python -m benchmarks.tuned_page`.

From training (`python -m gemmule.sw.training.stages.tuning`) and `gemmule bench --model tuned`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmule.sw.reports.markdown import fill_page, table

__all__ = ["PAGE", "PARTS", "RESULTS", "curve", "measured", "predicted"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "results", ROOT / "docs" / "models.md"
TRAINING, BENCH, BEFORE = "tuning", "bench_tuned", "bench_all_default"


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def curve() -> str:
    """What the tuned target says by steps of its training."""
    record = _read(TRAINING)
    plan, points = record["recipe"], record["curve"]
    each = record["tokens"] // record["steps"]
    exits = [name for name in points[0] if name.startswith("exit ")]
    rows = [(f"{point['step']:,}", f"{point['step'] * each:,}", f"{point['last']:.1%}",
             *(f"{point[name]:.1%}" for name in exits),
             ", ".join(f"{share:.0%}" for share in point["streams"])) for point in points]
    return (f"{record['steps']} steps of {each:,} tokens in {record['seconds'] / 60:.1f} minutes on "
            f"{record['place']['processor']}, resumed {record['resumed']} time; {record['parameters']:,} numbers, {record['bytes']:,} bytes. Ranks by "
            f"layer: {', '.join(map(str, plan['ranks']))}.\n\n"
            + table(("steps", "tokens", "last layer", *exits, "streams, by place"), rows))


def predicted(row: dict[str, Any]) -> float:
    """What acceptance and passes predict behind the prompt: tokens of a step over what it costs, in steps of `ar`."""
    steps = sum(row["steps_accepting"].values())
    tried = row["draft_calls"] / steps
    tokens: float = row["tokens_per_step"]
    return tokens / (row["verify_cost"] + tried * (row["draft_cost"] or 0.0))


def measured() -> str:
    """A row for each method, of the tuned target and of the default one."""
    made, before = (
        {row["method"]: row for row in _read(name)["rows"]
         if row["category"] == "all" and not row["warm"] and not row["temperature"]} for name in (BENCH, BEFORE))
    rows = []
    for method, row in sorted(made.items(), key=lambda one: -one[1]["speedup_over_ar"]):
        other = before.get(method)
        foretold = f"{predicted(row):.2f}x, {row['decode_speedup']:.2f}x" if row["decode_speedup"] else "-"
        rows.append((f"`{method}` {row['num_speculative_tokens'] or ''}".rstrip(), f"{row['speedup_over_ar']:.2f}x",
                     f"{row['speedup_without_loops']:.2f}x", f"{row['speedup_min']:.2f}x",
                     f"{row['tokens_per_step']:.2f}", f"{row['draft_cycle_share']:.0%}", foretold,
                     f"{row['extra_parameters']:,}", f"{other['speedup_over_ar']:.2f}x" if other else "-",
                     f"{row['equal_to_ar']} of {row['prompts']}"))
    return table(("method", "mean", "without loops", "least", "tokens a step", "drafting, of all cycles",
                  "predicted and measured behind the prompt", "weights beside the target's",
                  "mean with the default target", "texts of `ar`"), rows)


PARTS: dict[str, Callable[[], str]] = {"tuned curve": curve, "tuned": measured}
"""By marker."""


if __name__ == "__main__":
    fill_page(PAGE, PARTS)
