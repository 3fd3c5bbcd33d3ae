"""SmolLM2 with a pruned cache behind 2,048 positions: how well it predicts a text, by ranges of positions.

    python -m benchmarks.pruned_long quality --out docs/results/pruned_long.json

Perplexity of windows of 2,048 tokens, prose and code that calibration does not see and on which nothing was chosen
(those of `python -m benchmarks.pruning unseen`), by the integer interpreter with the device's choices, over that of the
same integers with the whole cache. Schedules are those of `python -m benchmarks.pruning`, none of which was changed for
these windows. Finished windows are kept in --out and not run again: it takes minutes a window and schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.common import console, run_part, show
from benchmarks.pruning import HEAVY, LENGTH, OBSERVED, SCHEDULES, windows
from benchmarks.smollm2.model import model_path
from gemmule.compiler.files.model_file import load_model
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.workloads.pruned import losses

__all__ = ["DENSE", "NAMES", "RANGES", "rise", "summary"]

DENSE = "whole cache"
CHOSEN: dict[str, Pruning | None] = {DENSE: None} | {name: SCHEDULES[name] for name in (
    "half", "a quarter", "half, window", "half, pages", "a quarter, pages")} | {
        name: HEAVY[name] for name in ("a fifth, heavy hitters",)}
NAMES = tuple(CHOSEN)
RANGES = ((0, 512), (512, 1024), (1024, 2048))
"""Positions that are told apart."""
Record = dict[str, Any]


def quality(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` window by window, each by all schedules."""
    network, rows = load_model(model_path("int8")).network, record.setdefault("quality", [])
    texts = windows(2 * LENGTH, unseen=True)
    for number in range(min(map(len, texts.values()))):
        for name, schedule in CHOSEN.items():
            for kind, some in texts.items():
                if any((row["schedule"], row["kind"], row["window"]) == (name, kind, number) for row in rows):
                    continue
                found = losses(network, some[number], schedule, OBSERVED)
                rows.append({"schedule": name, "kind": kind, "window": number, "rows_seen": found.seen,
                             "dropped_probability": found.dropped if schedule else 0.0,
                             "nats": [float(found.nats[first:end].mean()) for first, end in RANGES]})
                save()
                console.print(f"{name}, {kind} {number}")
    show(f"perplexity over that of the whole cache, windows of {2 * LENGTH} tokens", [
        summary(rows, name) for name in NAMES if name != DENSE])


def rise(rows: Sequence[Record], schedule: str, part: int | None = None, kind: str | None = None) -> float:
    """Share by which perplexity rises over windows that are there with the whole cache too: of the positions of
    a range, or of all; of a kind of text, or of both.
    """
    dense = {(row["kind"], row["window"]): row["nats"] for row in rows if row["schedule"] == DENSE}
    worse = [np.subtract(row["nats"], dense[row["kind"], row["window"]]) for row in rows
             if row["schedule"] == schedule and kind in (None, row["kind"])]
    sizes = np.array([end - first for first, end in RANGES])
    sizes[-1] -= 1  # the last token of a window predicts none
    chosen = slice(None) if part is None else slice(part, part + 1)
    return float(np.exp(np.average(np.mean(worse, axis=0)[chosen], weights=sizes[chosen])) - 1)


def summary(rows: Sequence[Record], schedule: str) -> Record:
    """A schedule over all its windows."""
    mine = [row for row in rows if row["schedule"] == schedule]
    return {"schedule": schedule, "windows": len(mine), "rows_seen": float(np.mean([row["rows_seen"] for row in mine])),
            "perplexity": rise(rows, schedule),
            **{f"{first} to {end - 1}": rise(rows, schedule, part) for part, (first, end) in enumerate(RANGES)},
            **{kind: rise(rows, schedule, kind=kind) for kind in ("prose", "code")}}


PARTS = {"quality": quality}


def main() -> None:
    run_part(__doc__, PARTS, "pruned-long", {"model": "smollm2", "weights": "int8"})


if __name__ == "__main__":
    main()
