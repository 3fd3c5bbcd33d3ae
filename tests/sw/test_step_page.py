"""docs/step-interface.md: its example prints what it shows, its costs are those that were measured."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

from gemmule.sw.step import KV, Want

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "step-interface.md").read_text("utf-8")


def printed() -> tuple[str, str]:
    """What the example prints, and what the page shows."""
    code, _, rest = PAGE.partition("```python\n")[2].partition("```")
    found = io.StringIO()
    with contextlib.redirect_stdout(found):
        exec(compile(code, "docs/step-interface.md", "exec"), {})
    return found.getvalue(), rest.partition("```\n")[2].partition("```")[0]


def test_the_example_prints_what_is_shown() -> None:
    found, shown = printed()
    assert found == shown


def test_costs_are_the_measured_ones() -> None:
    record = json.loads((DOCS / "results" / "general.json").read_text())
    one, eight = ({row["what"]: row["cycles"] for row in record["passes"] if row["rows"] == rows} for rows in (1, 8))
    for what, cycles in one.items():
        assert f"| {what} | {cycles:,} | {eight[what]:,} |" in PAGE
    for row in record["moves"]:
        assert f", {row['rows']} moved row{'s' if row['rows'] > 1 else ''} | {row['cycles']:,} |" in PAGE


def test_pages_cost_what_was_measured() -> None:
    for row in json.loads((DOCS / "results" / "pages.json").read_text())["passes"]:
        assert (f"| {row['rows']} | {row['context']} | {row['in order']:,} | {row['by list']:,} | "
                f"{row['ratio']:.3f} |") in PAGE


def test_every_request_and_operation_is_told() -> None:
    for name in Want.__dataclass_fields__:
        assert f"`{name}=" in PAGE, name
    for name in ("append", "commit", "truncate", "fork", "gather", "evict"):
        assert hasattr(KV, name)
        assert f"| `{name}" in PAGE
