"""Write the tables of docs/heads.md: `python -m benchmarks.heads_page`.

From the training of heads; from `gemmule bench --model default --method ar,blockwise,medusa,hydra
--num-speculative-tokens 15 --category completion,docstring --prompts 4 --max-new-tokens 32 --json
docs/results/bench_heads_default.json`; and from `python -m benchmarks.joined --methods blockwise,medusa,hydra --record
heads`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.drafters_page import told
from gemmule.sw.reports.markdown import fill_page, table, wrapped

__all__ = ["PAGE", "PARTS", "RESULT", "TOLD", "TRAINING", "predicted"]

ROOT = Path(__file__).resolve().parents[1]
TRAINING, RESULT, PUBLISHED, TOLD, PAGE = (ROOT / "docs" / name for name in (
    "results/heads_default.json", "results/bench_heads_default.json", "results/heads_smollm2.json",
    "results/heads.json", "heads.md"))
GROUPS = ("code", "chat", "grounded", "rewrite", "requests")


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


def published_training() -> str:
    """What was seen for SmolLM2."""
    record = _read(PUBLISHED)
    place = record["place"]
    return wrapped(
        f"{record['answers']:,} answers of {record['answer_tokens']:,} tokens; {record['steps']} steps over "
        f"{record['anchors']:,} rows, {record['seconds']:,} seconds of {place['threads']} shared cores "
        f"({place['processor']}, torch {place['torch']}). {record['held_out_tokens_in_the_vocabulary']:.0%} of the "
        "tokens of the answers that judge are among those that heads can say.").strip()


def published_acceptance() -> str:
    """Of SmolLM2's heads, a row for each kind and shape."""
    rows: list[tuple[str, ...]] = []
    for kind, one in _read(PUBLISHED)["kinds"].items():
        judged, sizes = one["judged"], (f"{one['parameters']:,}", f"{one['bytes']:,} bytes")
        shapes = {f"chain of {len(judged['requests']['reached'])}": {
            group: judged[group]["tokens_a_step"][-1] for group in GROUPS}} | {
            f"tree of {nodes}": tree["tokens_a_step"] for nodes, tree in one["trees"].items()}
        first = " ".join(f"{share:.0%}" for share in judged["requests"]["reached"])
        for number, (shape, found) in enumerate(shapes.items()):
            rows.append((f"`{kind}`", *((*sizes, first) if number == 0 else ("", "", "")), shape,
                         *(f"{found[group]:.2f}" for group in GROUPS)))
    return table(("", "parameters", "file", "first so many right", "drafted", *GROUPS), rows)


def published_curve() -> str:
    """Of SmolLM2's heads, on the requests."""
    record = _read(PUBLISHED)
    told = [(kind, what) for kind in record["kinds"] for what in ("first", "tree of 15")]
    return table(("rows seen", *(f"`{kind}`, {what}" for kind, what in told)), [
        (f"{line['step'] * record['anchors'] // record['steps']:,}",
         *(f"{line[f'{kind}, {what}']:.1%}" if what == "first" else f"{line[f'{kind}, {what}']:.2f}"
           for kind, what in told)) for line in record["curve"]])


PARTS: dict[str, Callable[[], str]] = {
    "training": training, "acceptance": acceptance, "curve": curve, "measured": measured,
    "training of SmolLM2's": published_training, "acceptance of SmolLM2's": published_acceptance,
    "curve of SmolLM2's": published_curve, "SmolLM2's": partial(told, TOLD)}
"""By marker."""


if __name__ == "__main__":
    fill_page(PAGE, PARTS)
