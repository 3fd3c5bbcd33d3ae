"""What two levels of drafting give, by hand; the study of published shapes on small ones; the committed results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.triforce import ACCEPTED, CONTEXTS, LOOKUP, predicted
from benchmarks.triforce_page import PAGE, PARTS
from gemmule.compiler.importers.architectures import architecture
from gemmule.config import load_config
from gemmule.sw.reports.markdown import fill
from gemmule.sw.studies.triforce import PUBLISHED, SHARES, Shapes, triforce_rows
from gemmule.sw.workloads.hierarchy import Hierarchy, expected_tokens

ROOT = Path(__file__).resolve().parents[2]
LEVELS = Hierarchy(whole={1: 100, 2: 100, 3: 110, 5: 120}, small={1: 40, 2: 44}, lowest=6)


def test_by_hand() -> None:
    assert expected_tokens(1.0, 4) == 5
    assert expected_tokens(0.5, 2) == 1.75
    assert LEVELS.speed_up(0.0, 1) == pytest.approx(100 / (46 + 100))
    assert LEVELS.speed_up(1.0, 4) == pytest.approx(5 * 100 / (4 * 46 + 120))
    assert LEVELS.speed_up(0.5, 2) == pytest.approx(1.75 * 100 / (2 * 46 + 110))
    assert LEVELS.speed_up(0.5, 2, 1, 0.6) == pytest.approx(1.75 * 100 / (2 / 1.6 * 50 + 110))
    assert LEVELS.speed_up(1.0, 1, 1, 1.0) == pytest.approx(2 * 100 / (50 + 100)), "no half of a pass"
    dear = replace(LEVELS, step=10, retrieval=7.0)
    assert dear.speed_up(0.5, 2) == pytest.approx(1.75 * 110 / (2 * 46 + 120 + 1.75 * 7))
    assert LEVELS.below_alone(1, 0.5) == pytest.approx(1.5 * 100 / 106)


def test_the_best_and_the_needed() -> None:
    assert LEVELS.best(1.0) == (4, LEVELS.speed_up(1.0, 4))
    assert LEVELS.best(0.1)[0] == 1
    needed = LEVELS.needed(1.2, 4)
    assert needed is not None
    assert LEVELS.speed_up(needed, 4) == pytest.approx(1.2, abs=1e-4)
    assert LEVELS.needed(2.0, 4) is None


def test_the_study_on_small_shapes() -> None:
    """A longer cache costs more, and what is accepted more often gives more."""
    small = architecture("llama-68m").resized("layers", 2).resized("hidden", 64)
    small = replace(small, config=small.config | {"vocab_size": 50, "intermediate_size": 96, "num_attention_heads": 2,
                                                  "num_key_value_heads": 2})
    shapes = Shapes(target=small, draft=small.resized("layers", 1), context=512, published=1024, budget=32,
                    draft_rows=16, drafts=3, kept=0.35)
    rows = {row.setting: row for row in triforce_rows(shapes, load_config("base"))}
    assert rows["1,024 tokens, rows: 1"].here > rows["512 tokens, rows: 1"].here > rows["the draft model"].here
    for context in ("512", "1,024"):
        found = [rows[f"{context} tokens: speed-up, both levels, {share:.0%} accepted"] for share in SHARES]
        assert [row.here for row in found] == sorted(row.here for row in found)
        assert all((row.published == PUBLISHED) is (context == "1,024") for row in found)
    assert 0 <= rows["1,024 tokens: acceptance that gives the published speed-up"].here <= 1


def test_committed_results() -> None:
    """What is predicted follows from the cycles; real texts are those of autoregressive decoding; the page tells it."""
    found = json.loads((ROOT / "docs" / "results" / "triforce.json").read_text())
    assert [row["context"] for row in found["levels"]] == list(CONTEXTS)
    step = load_config("base").host.step_cycles
    assert found["predicted"] == [predicted(row, share, kept, step) for row in found["levels"] for kept in LOOKUP
                                  for share in ACCEPTED]
    plain = {row["context"]: row["tokens"] for row in found["runs"] if row["way"] == "ar"}
    assert plain
    assert all(row["tokens"] == plain[row["context"]] for row in found["runs"])
    text = PAGE.read_text()
    for marker, content in PARTS.items():
        assert fill(text, marker, content()) == text, f"{marker}: run python -m benchmarks.triforce_page"
