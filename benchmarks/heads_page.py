"""Write the tables of docs/heads.md: `python -m benchmarks.heads_page`.

From the training of heads, and from `gemmule bench --model default --method ar,blockwise,medusa,hydra --json
docs/results/bench_heads_default.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmule.sw.reports.markdown import fill_page, table, wrapped

__all__ = ["PAGE", "PARTS", "RESULT", "TRAINING", "predicted"]

ROOT = Path(__file__).resolve().parents[1]
TRAINING, RESULT, PAGE = (ROOT / "docs" / name for name in (
    "results/heads_default.json", "results/bench_heads_default.json", "heads.md"))


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def predicted(row: dict[str, Any]) -> float:
    """Speed-up behind the prompt that acceptance and passes predict (:mod:`gemmule.sw.benches.theory`)."""
    return float(row["theoretical_speedup"])


def training() -> str:
    """What was seen."""
    record = _read(TRAINING)
    place = record["place"]
    return wrapped(
        f"{record['texts']:,} texts of the target and {record['windows']:,} windows; {record['steps']} steps over "
        f"{record['anchors']:,} rows, {record['seconds']:,} seconds of one shared core ({place['processor']}, torch "
        f"{place['torch']}). Of the {record['judged_texts']} texts that judge {record['looping']} loop.").strip()


def acceptance() -> str:
    """A row for each kind."""
    record, rows = _read(TRAINING), []
    for kind, one in record["kinds"].items():
        found = one["not looping"]
        rows.append((f"`{kind}`", f"{one['parameters']:,}", f"{record['bytes'][kind]:,} bytes",
                     " ".join(f"{head[0]:.0%}" for head in found["ranks"]), f"{found['chain_tokens']:.2f}",
                     *(f"{found['tree_tokens'][count]:.2f}" for count in ("7", "15", "31"))))
    return table(("", "parameters", "file", "right at once, by head", "chain", "tree of 7", "tree of 15", "tree of 31"),
                 rows)


def curve() -> str:
    """Tokens a step against the rows seen."""
    record = _read(TRAINING)
    told = [(kind, what) for kind in record["kinds"] for what in ("chain", "tree of 15")]
    return table(("rows seen", *(f"`{kind}`, {what}" for kind, what in told)), [
        (f"{line['step'] * record['anchors'] // record['steps']:,}",
         *(f"{line[f'{kind}, {what}']:.2f}" for kind, what in told)) for line in record["curve"]])


def measured() -> str:
    """A row for each method and category."""
    return table(("prompts", "", "of them looping", "method", "speed-up", "of texts that do not loop", "least",
                  "tokens a step", "behind the prompt", "predicted", "drafting, of all cycles", "parameters"), [
        (row["category"], str(row["prompts"]), str(row["looping"]), f"`{row['method']}`",
         f"{row['speedup_over_ar']:.2f}x",
         "" if row["speedup_without_loops"] is None else f"{row['speedup_without_loops']:.2f}x",
         f"{row['speedup_min']:.2f}x", f"{row['tokens_per_step']:.2f}", f"{row['decode_speedup']:.2f}x",
         f"{predicted(row):.2f}x", f"{row['draft_cycle_share']:.1%}", f"{row['extra_parameters']:,}")
        for row in _read(RESULT)["rows"] if row["method"] != "ar"])


PARTS: dict[str, Callable[[], str]] = {
    "training": training, "acceptance": acceptance, "curve": curve, "measured": measured}
"""By marker."""


if __name__ == "__main__":
    fill_page(PAGE, PARTS)
