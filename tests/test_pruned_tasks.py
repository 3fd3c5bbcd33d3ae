"""Tasks with pruned caches: prompts that are passed once, what summaries share, and the committed results."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from benchmarks.pruned_tasks import CHOSEN, NAMES, SUMMARY, Reader, in_common, overlap, right, summary
from benchmarks.pruning import OBSERVED, Pooled
from benchmarks.pruning_page import PAGE, PARTS, ROOT
from gemmule.sw.decoding.asking import alone
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.reports.markdown import fill
from gemmule.sw.workloads.pruned import Untimed, pruned_cache
from tests.compiler.integer_networks import Sizes, random_network

SCHEDULE = Pruning(keep=0.4, every=8, first=2, last=8, whole=16)
SIZES = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=3, vocab=61, positions=200,
              prefix=2)


def test_a_prompt_is_passed_once() -> None:
    """Each schedule goes on as if the prompt had been passed for it alone, one prompt after another."""
    network = random_network(SIZES, 3)
    kinds = [(SCHEDULE, InterpretedChooser), (replace(SCHEDULE, score="none"), InterpretedChooser), (SCHEDULE, Pooled),
             (None, InterpretedChooser)]
    reader, found = Reader(network, {7}), {}
    prompts = [[(5 * i + k) % 61 for i in range(70 + k)] for k in range(2)]
    prompts.append([*prompts[1][:40], *prompts[0][:20]])
    for number, ids in enumerate(prompts):
        found[number] = list(reader.answers(ids, kinds, 30))
    for number, ids in enumerate(prompts):
        for (schedule, chooser), told in zip(kinds, found[number], strict=True):
            model = InterpretedModel(TARGET, network, Untimed(network.graph), None)  # type: ignore[arg-type]
            kv = pruned_cache(model, schedule or Pruning(keep=1.0, whole=1 << 16), OBSERVED, chooser)
            alone(kv.begin(ids))
            assert reader.go_on(kv, ids, 30) == told
            assert bool(kv.selections) is (schedule is not None)
    assert len({tuple(told) for told in found[0]}) > 1
    assert all(7 not in told for every in found.values() for told in every)


def test_pooled() -> None:
    """A row's neighbours come with it; all else is as the device has it."""
    network = random_network(SIZES, 3)
    model = InterpretedModel(TARGET, network, Untimed(network.graph), None)  # type: ignore[arg-type]
    schedule = Pruning(keep=9, first=0, last=0, whole=1)
    importance = np.zeros((2, 40), dtype=np.int64)
    importance[0, 20], importance[1, 1], importance[1, 30] = 5, 9, 7
    pooled, plain = (chooser(model, schedule, 1).chosen("", importance, 9) for chooser in (Pooled, InterpretedChooser))
    assert pooled.tolist() == [[0, 1, *range(17, 24)], [0, 1, 2, 3, 4, 27, 28, 29, 30]]
    assert plain.tolist() == [[*range(8), 20], [*range(8), 30]]


def test_overlap() -> None:
    """By hand: 4 and 5 words, 3 of them shared, one pair of them, two in order."""
    assert overlap("The cat sat down", "A cat down, it sat") == pytest.approx((6 / 9, 0, 4 / 9))
    assert overlap("one two three", "One, two: three.") == (1, 1, 1)
    assert overlap("", "word") == (0, 0, 0)
    assert overlap("", "") == (0, 0, 0)
    assert (right("It is 1677.", 1677), right("16777", 1677), right("It is 167", 1677)) == (True, False, False)
    assert (in_common([1, 2, 3], [1, 2, 4]), in_common([1], [1, 2]), in_common([], [1])) == (2, 1, 0)


def test_summary() -> None:
    """By hand, of two passages."""
    rows = [{"passage": passage, "schedule": schedule, "tokens": tokens, "text": text}
            for passage, schedule, tokens, text in (
                (0, "whole cache", [1, 2, 3, 4], "a b c d"), (0, "half", [1, 2], "a b"),
                (1, "whole cache", [5, 6], "e f"), (1, "half", [5, 6], "e f"))]
    found = summary(rows, "half")
    assert (found["of"], found["equal"], found["tokens"]) == (2, 0.75, 2)
    assert (found["words"], found["pairs"]) == (pytest.approx((2 / 3 + 1) / 2), pytest.approx((0.5 + 1) / 2))
    assert summary(rows, None) == {"schedule": "another passage", "of": 2, "equal": 0, "words": 0, "pairs": 0,
                                   "subsequence": 0, "tokens": 3}


def _fields(schedule: dict[str, Any] | None) -> dict[str, Any]:
    """Without what it does not say: results may be older than a key."""
    return {name: value for name, value in (schedule or {}).items() if value is not None}


def test_committed_answers() -> None:
    """As many of each schedule, right where they have the number; the page has the numbers of the results."""
    found = json.loads((ROOT / "docs" / "results" / "pruned_tasks.json").read_text())
    assert {name: _fields(schedule) for name, schedule in found["schedules"].items()} == {
        name: _fields(asdict(schedule) if schedule else None) for name, schedule in CHOSEN.items()}
    for rows in (found["needle"], found["summaries"]):
        assert len({sum(row["schedule"] == name for row in rows) for name in NAMES}) == 1
    assert all(row["right"] is right(row["answer"], row["number"]) for row in found["needle"])
    assert all(len(row["tokens"]) <= SUMMARY for row in found["summaries"])
    text = PAGE.read_text()
    for name in ("needle", "summaries"):
        assert fill(text, name, PARTS[name]()) == text
