"""Fill tables of docs/adaptive.md from docs/results: adaptive.json, batches.json and never_slower.json.

    python -m benchmarks.adaptive_page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemmule.sw.limits import CATEGORIES
from gemmule.sw.reports.markdown import fill_page, table, wrapped

__all__ = ["adaptive", "main"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "results", ROOT / "docs" / "adaptive.md"
NAMES = {"all": "all categories"}
"""Of groups of prompts, where the record has other ones."""
SHOWN = ("all", "random tokens")
TOKENS = 48
"""Of each text of a batch."""


def _line(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    def gain(key: str) -> str:
        return "-" if row[key] is None else f"{row[key]:.2f}x"

    way, *form = row["way"].split(", ")
    return (NAMES.get(name, name), ", ".join([f"`{way}`", *form]), str(row["best number"]), gain("its mean"),
            gain("without loops"), gain("its worst"), gain("adaptive"), gain("adaptive without loops"), gain("worst"),
            gain("oracle"), f"{row['of the oracle']:.1%}")


def adaptive() -> str:
    """Each way with its best number, with as many candidates as pay, and the oracle's."""
    record = json.loads((RESULTS / "adaptive.json").read_text())
    prompts, random = (record["tables"][name][0]["prompts"] for name in SHOWN)
    equal = all(row["equal"] for name in SHOWN for row in record["tables"][name])
    says = (f"{prompts} prompts, {prompts // len(CATEGORIES)} of each category, and {random} of random tokens, "
            f"{record['results'][0]['rows'][0]['tokens']} new tokens each; "
            f"{'every text equals that' if equal else 'not every text equals that'} of `ar` "
            "([result](results/adaptive.json)).")
    lines = [_line(name, row) for name in SHOWN for row in record["tables"][name]]
    return wrapped(says) + "\n\n" + table(
        ("prompts", "method", "best number", "mean", "without loops", "worst prompt", "`--adaptive`: mean",
         "without loops", "worst prompt", "oracle", "of the oracle"), lines)


def batches() -> str:
    """Texts that begin together, by `ar`, and by methods that always draft or as many tokens as pay."""
    rows = json.loads((RESULTS / "batches.json").read_text())["texts"]
    found = {(row["batch"], row["method"], row["adaptive"]): row for row in rows}
    heads = ["texts", "`ar`, tokens/s", "a token", "KV bytes"]
    methods = [name for name in dict.fromkeys(row["method"] for row in rows) if name != "ar"]
    lines = []
    for batch in dict.fromkeys(row["batch"] for row in rows):
        plain = found[batch, "ar", False]
        gains = [found[batch, name, way] for name in methods for way in (False, True)]
        lines.append((f"{batch}", f"{plain['tokens_per_second']:,.0f}", f"{plain['milliseconds'] / TOKENS:.2f} ms",
                      f"{plain['kv_bytes']:,}", *(f"{row['speedup']:.2f}x" for row in gains),
                      f"{1 / max(row['worst_text'] for row in gains if row['adaptive']):.2f}x"))
    return table((*heads, *(title for name in methods for title in (f"`{name}`", "`--adaptive`")),
                  "worst text, `--adaptive`"), lines)


def never_slower() -> str:
    """Cycles with ``--adaptive`` over those of `ar`: the worst prompt, and four texts that share passes."""
    record = json.loads((RESULTS / "never_slower.json").read_text())
    together = {row["method"]: row for row in record["together"]}
    return table(("method", "alone: the worst prompt", "mean", "four together"), [
        (f"`{row['method']}`", f"{row['worst']:.3f}", f"{row['mean']:.3f}",
         f"{together[row['method']]['worst']:.3f}" if row["method"] in together else "-") for row in record["alone"]])


PARTS = {"adaptive": adaptive, "batches": batches, "never slower": never_slower}


def main() -> None:
    """Write the page."""
    fill_page(PAGE, PARTS)


if __name__ == "__main__":
    main()
