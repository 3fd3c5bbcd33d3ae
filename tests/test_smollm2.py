"""What the measurements of SmolLM2 are made of, on small networks; the committed results and their page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.smollm2 import __main__ as command
from benchmarks.smollm2 import decoding, page, quality
from benchmarks.smollm2.greedy import alike, greedy
from benchmarks.smollm2.texts import CODE, conversations
from gemmule.compiler.quantize.likeness import LikenessSums
from gemmule.config import load_config
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.models.bundled_models import bundled_model
from gemmule.sw.models.import_texts import MODULES
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.prompts.requests import first_requests

ROOT = Path(__file__).resolve().parents[1]
BARS = {"int8": (1.04, 0.03, 0.92), "int4": (1.10, 0.15, 0.80)}
"""Most perplexity over float, most divergence, least agreement."""
PROMPTS = ("def main(", "import os\nimport sys\n\nclass A:\n    def", "x")


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(load_config("base"), pair=bundled_pair(), interpreted=True)


def test_texts_together_are_those_of_one_at_a_time(session: Session) -> None:
    ids = [bundled_pair().encode(prompt) for prompt in PROMPTS]
    alone = [session.generate("ar", prompt, 12).tokens for prompt in ids]
    network = bundled_model("target", "small").network
    assert greedy(network, ids, 12, frozenset()) == alone
    end = alone[0][4]
    stopped = [text[:text.index(end) + 1] if end in text else text for text in alone]
    assert greedy(network, ids, 12, frozenset({end})) == stopped


def test_a_text_that_is_told_takes_the_same_cycles(session: Session) -> None:
    model = session.target
    assert isinstance(model, InterpretedModel)
    real = model.interpreter, model.cache
    prompt = bundled_pair().encode(PROMPTS[1] * 2)
    runs = {method: session.generate(method, prompt, 16) for method in ("ar", "pld")}
    model.interpreter, model.cache = decoding._told([*prompt, *runs["ar"].tokens], model)
    try:
        for method, run in runs.items():
            told = session.generate(method, prompt, 16)
            assert (told.tokens, told.steps, told.ledger.cycles) == (run.tokens, run.steps, run.ledger.cycles)
        model.interpreter, model.cache = decoding._told([*prompt, *([0] * 16)], model)
        assert session.generate("ar", prompt, 4).tokens == [0] * 4  # it is the told text that comes out
    finally:
        model.interpreter, model.cache = real


@pytest.mark.parametrize(("one", "other", "count"), [
    ([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2), ([], [1], 0), ([5], [5], 1)])
def test_alike(one: list[int], other: list[int], count: int) -> None:
    assert alike(one, other) == count


def test_a_mean_of_windows_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    parts = [(*random.standard_normal((2, count, 7)), random.integers(0, 7, count)) for count in (5, 12)]
    sums = [LikenessSums(), LikenessSums()]
    for part, total in zip(parts, sums, strict=True):
        total.add(*part)
    one, other, whole = (vars(total.result()) for total in (*sums, sums[0] + sums[1]))
    assert quality._mean(one, other) == pytest.approx(whole)


def test_summary() -> None:
    """By hand: four requests, one of which loops."""
    rows = [{"category": category, "new_tokens": 10, "distinct_4grams": share,
             "ar": {"cycles": 100}, "pld": {"cycles": cycles, "tokens_per_step": steps}}
            for category, share, cycles, steps in (
                ("chat", 0.9, 100, 1.0), ("chat", 0.8, 125, 1.0), ("code", 0.9, 50, 2.0), ("code", 0.2, 20, 5.0))]
    found = {row["part"]: row for row in decoding.summary(rows)}
    assert list(found) == ["all", "chat", "code", "looping", "not looping"]
    assert found["all"]["speedup"] == pytest.approx((1 + 0.8 + 2 + 5) / 4)
    assert found["all"]["speedup_all"] == pytest.approx(400 / 295)
    assert (found["all"]["slower"], found["all"]["new_tokens"]) == (1, 40)
    assert found["looping"]["requests"] == 1
    assert found["not looping"]["speedup"] == pytest.approx(3.8 / 3)


def test_what_is_measured_is_not_what_calibrates() -> None:
    assert not set(CODE) & {name for part in MODULES.values() for name in part}
    for kind in ("chat", "context"):
        found = conversations(kind)
        assert len(found) == 4
        for talk in found:
            assert [message["role"] for message in talk[-2:]] == ["user", "assistant"]
    assert len({message["content"] for kind in ("chat", "context") for talk in conversations(kind)
                for message in talk}) == sum(len(talk) for kind in ("chat", "context") for talk in conversations(kind))
    assert sum(len(prompts) for prompts in first_requests().values()) == 40


def test_parts_are_kept_beside_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    """A part goes on from what it has; what others wrote meanwhile stays."""
    out = tmp_path / "found.json"

    def speed(record: dict[str, Any], save: Any) -> None:
        record["count"] = record.get("count", 0) + 1
        out.write_text(json.dumps(json.loads(out.read_text()) | {"other": 7}) if out.exists() else '{"other": 7}')
        save()

    monkeypatch.setattr("benchmarks.smollm2.speed.speed", speed)
    for _ in range(2):
        command.main(["speed", "--out", str(out)])
    found = json.loads(out.read_text())
    assert (found["speed"], found["other"]) == ({"count": 2}, 7)
    command.main(["speed", "--again", "--out", str(out)])
    assert json.loads(out.read_text())["speed"] == {"count": 1}
    with pytest.raises(SystemExit):
        command.main(["poem"])
    assert "must be one of" in capsys.readouterr().err


@pytest.mark.parametrize("name", page.PARTS)
def test_the_page_is_that_of_the_results(name: str) -> None:
    assert page.PARTS[name]() in page.PAGE.read_text(), "run: python -m benchmarks.smollm2.page"


def test_committed_results_keep_their_bars() -> None:
    """Of the parts that are there: int8 at least."""
    found = json.loads((ROOT / command.RESULT).read_text())
    passes = {(p["weights"], p["context"], p["rows"]): p for p in found["speed"]["passes"]}
    assert len(passes) == len(found["speed"]["passes"])
    assert all(p["over_one_row_of_its_program"] <= 1.01 for (_, _, rows), p in passes.items() if rows == 8)
    assert passes["int8", 64, 8]["over_one_row"] <= 1.01
    assert all(p["roofline_fraction"] >= 0.97 for (bits, context, rows), p in passes.items()
               if (bits, rows) == ("int8", 1) and context <= 2048)
    rows = {row["bits"]: row["whole"] for row in found["quality"]["rows"] if row["windows"] == 16}
    assert "int8" in rows
    for bits, whole in rows.items():
        most, divergence, agreement = BARS[bits]
        assert whole["perplexity_int"] <= most * whole["perplexity_float"], bits
        assert whole["kl_mean"] <= divergence, bits
        assert whole["top1_agreement"] >= agreement, bits
