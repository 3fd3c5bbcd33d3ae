"""Fill the table of docs/adaptive.md from docs/results/adaptive.json.

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
PAGE = ROOT / "docs" / "adaptive.md"
NAMES = {"all": "all categories"}
"""Of groups of prompts, where the record has other ones."""
SHOWN = ("all", "random tokens")


def _line(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    def gain(key: str) -> str:
        return "-" if row[key] is None else f"{row[key]:.2f}x"

    way, *form = row["way"].split(", ")
    return (NAMES.get(name, name), ", ".join([f"`{way}`", *form]), str(row["best number"]), gain("its mean"),
            gain("without loops"), gain("its worst"), gain("adaptive"), gain("adaptive without loops"), gain("worst"),
            gain("oracle"), f"{row['of the oracle']:.1%}")


def adaptive() -> str:
    """Each way with its best number, with as many candidates as pay, and the oracle's."""
    record = json.loads((ROOT / "docs" / "results" / "adaptive.json").read_text())
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


def main() -> None:
    """Write the page."""
    fill_page(PAGE, {"adaptive": adaptive})


if __name__ == "__main__":
    main()
