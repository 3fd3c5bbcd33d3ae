"""Fill the tables of docs/early-exit.md from docs/results.

    python -m benchmarks.early_exit_page
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.early_exit import MEASURES, at_layers, summed
from gemmule.sw.reports.markdown import fill_page, table

__all__ = ["PAGE", "PARTS", "main"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "early-exit.md"
HEADS = ROOT / "sw" / "models" / "default" / "exits.json"


def _load() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((ROOT / "docs" / "results" / "early_exit.json").read_text())["models"]
    return found


def costs() -> str:
    """Cycles of launches."""
    found = _load()
    rows = [[(row["what"], row["rows"], f"{row['cycles']:,}") for row in one["costs"]] for one in found.values()]
    return table(("model", "launch", "rows", "cycles"), [
        (name, *map(str, row)) for name, mine in zip(found, rows) for row in mine])


def measures() -> str:
    """The three measures at equal layers."""
    rows = []
    for name, one in _load().items():
        for row in at_layers(one):
            cells = []
            for measure in MEASURES:
                agree, loss = row.get(f"{measure}: agree"), row.get(f"{measure}: perplexity")
                cells.append(("-" if agree is None else f"{agree:.1%}") + ("" if loss is None else f", {loss:.2f}"))
            rows.append((name, f"{row['layers']:g} of {one['layers']}", *cells))
    return table(("model", "layers a token", *MEASURES), rows)


def runs() -> str:
    """Decoding itself."""
    rows = []
    for name, one in _load().items():
        for row in summed(one):
            way = row["method"] if row["method"] == "ar" else (
                f"{row['method']}, {row['measure']} {row['at']}" if row["method"] == "calm" else
                f"{row['method']}, to {row['at']} layers")
            rows.append((name, way, row["exits"], row["propagation"], str(row["prompts"]),
                         str(row["policy_equal"]), f"{row['agree']:.0%}", f"{row['layers']:.2f}",
                         f"{row['launches_a_token']:.1f}", f"{row['cycles_a_token']:,}", f"{row['speed-up']:.2f}x"))
    return table(("model", "method", "exits", "propagation", "prompts", "policy_equal", "tokens of `ar`",
                  "layers a token", "launches a token", "cycles a token", "speed-up"), rows)


def histogram() -> str:
    """Where tokens leave, by the softmax measure."""
    rows = []
    for name, one in _load().items():
        ways: dict[tuple[Any, ...], Counter[str]] = {}
        for row in one["runs"]:
            options = row["options"]
            usual = {"state_propagation": "kv", "exit_decay": 0.0, "exit_interval": one["exits"][1] - one["exits"][0]}
            if row["method"] == "calm" and usual.items() <= options.items():
                ways.setdefault((options["exit_measure"], options["exit_threshold"]), Counter()).update(row["layers"])
        for (measure, threshold), counts in ways.items():
            total = sum(counts.values())
            rows.append((name, f"{measure} {threshold}", " ".join(
                f"{depth}: {counts[str(depth)] / total:.0%}" for depth in one["exits"])))
    return table(("model", "measure", "share of tokens by layers run"), rows)


def heads() -> str:
    """What the trained heads tell of held-out texts."""
    found = json.loads(HEADS.read_text())["heads"]
    return table(("layers", "exit says what all layers say", "area under the curve of its head"), [
        (depth, f"{one['right']:.1%}", f"{one['area']:.3f}") for depth, one in found.items()])


PARTS: dict[str, Callable[[], str]] = {part.__name__: part for part in (costs, measures, runs, histogram, heads)}
"""What stands between ``<!-- name -->`` and ``<!-- end -->``."""


def main() -> None:
    """Write the page."""
    fill_page(PAGE, PARTS)


if __name__ == "__main__":
    main()
