"""docs/search.md shows what was measured, and the results are consistent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.beams import table

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _record(model: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((DOCS / "results" / f"beams_{model}.json").read_text())
    return record


@pytest.mark.parametrize("model", ["default", "smollm2"])
def test_tables_are_those_of_the_results(model: str) -> None:
    assert table(_record(model)) in (DOCS / "search.md").read_text()


@pytest.mark.parametrize("model", ["default", "smollm2"])
def test_results_add_up(model: str) -> None:
    """Nothing is copied; sampled texts share all of the prompt and nothing else; beams keep less, or as much."""
    rows = _record(model)["searches"]
    assert rows
    for row in rows:
        assert row["copied"] == 0
        assert row["rows"] <= row["read"]
        if row["search"] == "best-of" and row["rows apart"] == row["width"] * (row["prompt_tokens"] + row["steps"] - 1):
            assert row["rows"] == row["prompt_tokens"] + row["width"] * (row["steps"] - 1)
    sampled = {(row["width"], row["prompt"]): row for row in rows if row["search"] == "best-of"}
    for row in rows:
        other = sampled.get((row["width"], row["prompt"]))
        assert other is None or row["steps"] != other["steps"] or row["rows"] <= other["rows"]
