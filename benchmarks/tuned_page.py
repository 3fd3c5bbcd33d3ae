"""Write the tables of docs/models.md about the tuned target: `python -m benchmarks.tuned_page`.

From training (`python -m gemmule.sw.training.stages.tuning`) and `gemmule bench --model tuned`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmule.sw.reports.markdown import fill_page, table, wrapped

__all__ = ["PAGE", "PARTS", "RESULTS", "curve", "foretold", "measured", "predicted", "quality"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "results", ROOT / "docs" / "models.md"
TRAINING, BENCH, EACH, BEFORE = "tuning", "bench_tuned", "bench_tuned_each", "bench_all_default"


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
    place = f"{record['seconds'] / 60:.1f} minutes on {record['place']['processor']}, resumed {record['resumed']} time"
    ranks = ", ".join(map(str, plan["ranks"]))
    return (wrapped(f"{record['steps']:,} steps of {each:,} tokens in {place}; {record['parameters']:,} numbers, "
            f"{record['bytes']:,} bytes. Ranks by layer: {ranks}.") + "\n\n"
            + table(("steps", "tokens", "last layer", *exits, "streams, by place"), rows))


def predicted(row: dict[str, Any]) -> float:
    """What acceptance and passes predict behind the prompt: tokens of a step over what it costs, in steps of `ar`."""
    steps = sum(row["steps_accepting"].values())
    tried = row["draft_calls"] / steps
    tokens: float = row["tokens_per_step"]
    return tokens / (row["verify_cost"] + tried * (row["draft_cost"] or 0.0))


def measured() -> str:
    """A row for each method and number of drafts, of the tuned target and of the default one."""
    before = {row["method"]: row for row in _read(BEFORE)["rows"]
              if row["category"] == "all" and not row["warm"] and not row["temperature"]}
    rows = []
    for row in sorted((row for row in _read(BENCH)["rows"] if row["category"] == "all"),
                      key=lambda row: -row["speedup_over_ar"]):
        other, apart = before.get(row["method"]), row["speedup_without_loops"]
        rows.append((f"`{row['method']}` {row['num_speculative_tokens'] or ''}".rstrip(),
                     f"{row['speedup_over_ar']:.2f}x", f"{apart:.2f}x" if apart else "-", f"{row['speedup_min']:.2f}x",
                     f"{row['tokens_per_step']:.2f}", f"{row['draft_cycle_share']:.0%}",
                     f"{row['extra_parameters']:,}", f"{other['speedup_over_ar']:.2f}x" if other else "-",
                     f"{row['equal_to_ar']} of {row['prompts']}"))
    return table(("method, drafts", "mean", "without loops", "least", "tokens a step", "drafting, of all cycles",
                  "weights beside the target's",
                  "mean with the default target", "texts of `ar`"), rows)


def foretold() -> str:
    """Of single texts, what acceptance and passes predict behind the prompt, and what was measured."""
    rows = [row for row in _read(EACH)["rows"] if row["category"] != "all" and row["decode_speedup"]]
    ways = list(dict.fromkeys((row["method"], row["num_speculative_tokens"]) for row in rows))
    found = {(row["category"], (row["method"], row["num_speculative_tokens"])):
             f"{predicted(row):.2f}x, {row['decode_speedup']:.2f}x" for row in rows}
    return table(("text", *(f"`{method}` {count}" for method, count in ways)), [
        (category, *(found[category, way] for way in ways)) for category in dict.fromkeys(
            row["category"] for row in rows)])


def quality() -> str:
    """What tuning costs the target."""
    record = _read("tuned_quality")
    exits = list(record["default"]["exits"])
    return table(("target", "nats a token", *(f"exit {depth}" for depth in exits)), [
        (name, f"{record[name]['nats']:.4f}", *(f"{record[name]['exits'][depth]:.1%}" for depth in exits))
        for name in ("default", "tuned")])


PARTS: dict[str, Callable[[], str]] = {"tuned curve": curve, "tuned quality": quality, "tuned": measured,
                                         "tuned foretold": foretold}
"""By marker."""


if __name__ == "__main__":
    fill_page(PAGE, PARTS)
