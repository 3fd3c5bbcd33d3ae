"""SmolLM2 with a pruned cache: how well it predicts a text, and cycles of a token behind long contexts.

    python -m benchmarks.pruning quality --out docs/results/pruning.json
    python -m benchmarks.pruning unseen --out docs/results/pruning.json
    python -m benchmarks.pruning cycles --out docs/results/pruning.json

``quality``: perplexity of windows of 1,024 tokens, prose and code that calibration does not see, by the integer
interpreter with the device's choices (tests/sw/test_pruning.py), over that of the same integers with the whole cache;
of all positions, and of those from 512 on. The schedules that select at fixed positions were chosen before any was
measured; of pages, size and representative were chosen on these windows, by half and a quarter of the rows.
``unseen``: other windows, measured once with what had been chosen (of 2,048 tokens: `benchmarks.pruned_long`).
*Pooled* ones are not the device's: the importance of a row is the largest of its neighbours', as in SnapKV. ``cycles``:
a pass of one row behind contexts up to 8,000 positions on `base` with memories for lists of that length, timing alone,
and the share of a selection that each token pays. Finished rows are kept in --out and not run again.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import run_part, show
from benchmarks.smollm2.model import model_path, pair_of, source
from benchmarks.smollm2.texts import CODE
from gemmule.compiler.files.model_file import load_model
from gemmule.config import Config, load_config
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.models.import_texts import default_texts
from gemmule.sw.models.placed import Placed
from gemmule.sw.text.tokens import token_windows
from gemmule.sw.workloads.pruned import losses
from gemmule.sw.workloads.pruned_cycles import token_cycles

LENGTH, EACH, HALF = 1024, 2, 512
"""Tokens of a window, windows of prose and of code, and the position from which they are also told apart."""
OBSERVED = 8
"""Rows that choose: those of a pass of SmolLM2 on `base`."""
PLAIN = Pruning(keep=0.5)
PAGES = Pruning(keep=0.5, last=16, score="pages")
SCHEDULES = {
    "half": PLAIN, "half, window": replace(PLAIN, score="none"), "a fifth": replace(PLAIN, keep=0.2),
    "a quarter": replace(PLAIN, keep=0.25), "half, every 8": replace(PLAIN, every=8, last=16),
    "half, pages": PAGES, "a quarter, pages": replace(PAGES, keep=0.25), "a fifth, pages": replace(PAGES, keep=0.2),
    "half, pages of 16": replace(PAGES, page=16, last=32),
    "a quarter, pages of 16": replace(PAGES, keep=0.25, page=16, last=32)}
UNSEEN = ("half", "half, pages", "a quarter, pages")
POOLED = {f"{name}, pooled": SCHEDULES[name] for name in ("half", "a quarter")}
HEAVY = {f"{name}, heavy hitters": replace(SCHEDULES[name], score="heavy") for name in ("half", "a fifth")}
"""The importance of a row is summed over all rows so far, as in H2O (Zhang et al. 2023)."""
POOL = 7
"""Neighbours, the row itself among them, whose largest importance counts (SnapKV, Li et al. 2024)."""
CONTEXTS = (512, 1024, 2048, 4096, 8000)
LISTS = {"select_keys": 8192, "list_entries": 16384}
"""Of `base`, for lists of 8,000 rows."""
KEEPS = {"whole cache": None, "a half": Pruning(keep=0.5), "a fifth": Pruning(keep=0.2),
         "window of 256": Pruning(keep=256, whole=256, score="none")}
KEPT_HEAVY = {"a fifth, heavy hitters": Pruning(keep=0.2, score="heavy")}
KEPT_PAGES = {"pages, a quarter": replace(PAGES, keep=0.25), "pages, 256 rows": replace(PAGES, keep=256)}
"""A share fits contexts up to 2,048 positions: what a row sees is in the scratchpad at once."""
Record = dict[str, Any]


class Pooled(InterpretedChooser):
    """Rows go with their neighbours."""

    def chosen(self, node: str, importance: np.ndarray, kept: int) -> np.ndarray:
        beside = np.pad(importance, ((0, 0), (POOL // 2, POOL // 2)))
        return super().chosen(node, np.lib.stride_tricks.sliding_window_view(beside, POOL, axis=1).max(axis=2), kept)


def windows(length: int = LENGTH, *, unseen: bool = False) -> dict[str, np.ndarray]:
    """int64 [windows, tokens] of each kind; ``unseen``: others, between those."""
    tokenizer = source().tokenizer
    prose = token_windows(tokenizer, default_texts("evaluation")["prose"], length, "prose")
    code = []
    for module in CODE[EACH:2 * EACH] if unseen else CODE[:EACH]:
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.origin:
            raise SystemExit(f"the standard library's sources are needed, and {module} is not there")
        parts = token_windows(tokenizer, Path(spec.origin).read_text("utf-8"), length, module)
        code.append(parts[len(parts) // 2])
    places = np.linspace(0, len(prose) - 1, 2 * EACH + 1)[1::2] if unseen else np.linspace(0, len(prose) - 1, EACH)
    return {"prose": prose[places.astype(np.int64)], "code": np.stack(code)}


def quality(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` schedule by schedule."""
    network, texts = load_model(model_path("int8")).network, windows()
    rows = record.setdefault("quality", [])
    dense = record.setdefault("dense", {})
    for kind, some in texts.items():
        if kind not in dense:
            dense[kind] = [losses(network, window, None, OBSERVED).nats.tolist() for window in some]
            save()
    for name, schedule in (SCHEDULES | POOLED | HEAVY).items():
        chooser = Pooled if name in POOLED else InterpretedChooser
        if any(row["schedule"] == name for row in rows):
            continue
        found = {kind: [losses(network, window, schedule, OBSERVED, chooser) for window in some]
                 for kind, some in texts.items()}
        worse = {kind: [part.nats - np.array(before) for part, before in zip(found[kind], dense[kind], strict=True)]
                 for kind in found}
        every = [part for parts in worse.values() for part in parts]
        runs = [part for parts in found.values() for part in parts]
        rows.append({"schedule": name, "rows_seen": float(np.mean([part.seen for part in runs])),
                     "dropped_probability": float(np.mean([part.dropped for part in runs])),
                     "perplexity": _more(every), f"from_{HALF}": _more([part[HALF:] for part in every]),
                     **{kind: _more(parts) for kind, parts in worse.items()}, **asdict(schedule)})
        save()
    show(f"perplexity over that of the whole cache, windows of {LENGTH} tokens", [
        {name: row[name] for name in ("schedule", "rows_seen", "dropped_probability", "perplexity", f"from_{HALF}",
                                      "prose", "code")} for row in rows])


def unseen(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record``: schedules on windows that played no part in choosing anything."""
    network, rows = load_model(model_path("int8")).network, record.setdefault("unseen", [])
    texts = windows(LENGTH, unseen=True)
    dense = {kind: [losses(network, window, None, OBSERVED).nats for window in some]
             for kind, some in texts.items()}
    for name in UNSEEN:
        if any(row["schedule"] == name for row in rows):
            continue
        worse = {kind: [losses(network, window, SCHEDULES[name], OBSERVED).nats - before
                        for window, before in zip(some, dense[kind], strict=True)] for kind, some in texts.items()}
        every = [part for parts in worse.values() for part in parts]
        rows.append({"schedule": name, "length": LENGTH, "perplexity": _more(every),
                     f"from_{HALF}": _more([part[HALF:] for part in every]),
                     **{kind: _more(parts) for kind, parts in worse.items()}})
        save()
    show("perplexity over that of the whole cache, windows that nothing was chosen on", rows)


def _more(differences: list[np.ndarray]) -> float:
    """Share by which perplexity rises."""
    return float(np.exp(np.mean([part.mean() for part in differences])) - 1)


def cycles(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` context by context."""
    config = Config.model_validate(load_config("base").model_dump() | {"name": "base-long-lists", **LISTS})
    rows = record.setdefault("cycles", [])
    dense: Placed | None = None
    for name, schedule in (KEEPS | KEPT_HEAVY | KEPT_PAGES).items():
        own = pair_of("int8").target(config, 0, pruning=schedule) if name in KEPT_HEAVY | KEPT_PAGES else None
        for context in CONTEXTS:
            if any((row["context"], row["cache"]) == (context, name) for row in rows) or (
                    own and context + 2 > own.program.max_positions):
                continue
            if not own:
                dense = dense or pair_of("int8").target(config, 0, pruning=PLAIN)
            placed = own or dense
            assert placed
            found = token_cycles(placed, schedule, context)
            rows.append({"context": context, "cache": name, "rows": found.rows, "pass": found.passing,
                         "selection": found.selection, "a token": found.cycles, "top_k": found.top_k,
                         "top_k_exposed": found.top_k_exposed})
            save()
    order = [*KEEPS, *KEPT_HEAVY, *KEPT_PAGES]
    rows.sort(key=lambda row: (row["context"], order.index(row["cache"])))
    least = {row["context"]: row["a token"] for row in rows if row["cache"] == "whole cache"}
    for row in rows:
        row["speed-up"] = least[row["context"]] / row["a token"]
    if dense:
        empty = token_cycles(dense, None, 1).cycles
        record["attention_share"] = {str(context): 1 - empty / least[context] for context in CONTEXTS}
    save()
    show(f"cycles of a token of SmolLM2 on {config.name}", rows)
    show("share of a pass that attention over the whole cache takes", [
        {"context": context, "share": record["attention_share"][str(context)]} for context in CONTEXTS])


PARTS = {"quality": quality, "unseen": unseen, "cycles": cycles}


def main() -> None:
    run_part(__doc__, PARTS, "pruning", {"model": "smollm2", "weights": "int8"})


if __name__ == "__main__":
    main()
