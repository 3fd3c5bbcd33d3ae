"""Write the table of docs/decoding.md about methods without training: `python -m benchmarks.untrained_page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemmule.io.files import write_atomically
from gemmule.sw.limits import REQUESTS
from gemmule.sw.reports.markdown import wrapped

__all__ = ["table"]

ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = ROOT / "docs" / "results" / "untrained.json", ROOT / "docs" / "decoding.md"
BEGIN, END = "<!-- untrained -->\n", "<!-- end -->"
PARTS = ("all", "not looping", *REQUESTS)


def table(record: dict[str, Any]) -> str:
    """Speed-ups by part, and how many requests each row is of."""
    lines = [f"| method | requests | {' | '.join(PARTS)} | behind the prompt | tokens per step | rows | least | over "
             "predicted |", "|" + "---|" * (len(PARTS) + 7)]
    for case in dict.fromkeys(row["case"] for row in record["summary"]):
        parts = {row["part"]: row for row in record["summary"] if row["case"] == case}
        every = parts["all"]
        gains = " | ".join(f"{parts[part]['speedup']:.2f}x" if part in parts else "-" for part in PARTS)
        lines.append(
            f"| `{case}` | {every['requests']} | {gains} | {every['behind_prompt']:.2f}x | "
            f"{every['tokens_per_step']:.2f} | {every['rows_per_step']:.1f} | {every['least']:.2f}x | "
            f"{every['measured_over_predicted']:.3f} |")
    command = wrapped("`python -m benchmarks.untrained` ([result](results/untrained.json)), which goes on where it was "
                      "left.")
    return "\n".join([*lines, "", command, ""])


def main() -> None:
    """Write it."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    made = table(json.loads(RESULT.read_text(encoding="utf-8")))
    write_atomically(PAGE, f"{before}{BEGIN}{made}{rest[rest.index(END):]}")


if __name__ == "__main__":
    main()
