"""Heads of early exits: what they are trained on, how, and what ships; the tables of the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.early_exit import curve, read_off
from benchmarks.early_exit_page import PAGE, PARTS
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows, layer_part
from gemmule.sw.limits import DEFAULT
from gemmule.sw.models.bundled_models import bundled_model
from gemmule.sw.models.drafting.exit_heads import FILE, heads_of, normed
from gemmule.sw.reports.markdown import fill
from gemmule.sw.training.exits import area, collected, fitted, written
from tests.sw.test_methods import PROMPTS, SIZES, network


def test_texts_are_those_of_greedy_decoding() -> None:
    """Texts that share passes are the ones that each gives alone."""
    found = written(network(), PROMPTS, 6)
    for prompt, text in zip(PROMPTS, found, strict=True):
        alone = list(prompt)
        for _ in range(6):
            alone.append(int(IntegerInterpreter(network()).forward(
                Rows.chain(alone), Cache(network().graph))[-1].argmax()))
        assert text == alone


def test_what_heads_learn_from() -> None:
    """Rows have a mean square of 1; an exit is right where a network of its layers says the same."""
    tokens = written(network(), [[3, 1, 4]], 9)[0]
    rows, right = collected(network(), tokens, 3)
    assert rows.shape == (SIZES.layers - 1, 9, SIZES.hidden)
    assert (rows ** 2).mean(axis=-1) == pytest.approx(np.ones((SIZES.layers - 1, 9)))
    for depth in range(1, SIZES.layers):
        part = layer_part(network(), (0, depth))
        said = IntegerInterpreter(part).forward(Rows.chain(tokens[:-1]), Cache(part.graph)).argmax(axis=1)[2:]
        assert right[depth - 1].tolist() == [one == token for one, token in zip(said, tokens[3:], strict=True)]


def test_a_head_finds_what_decides() -> None:
    rows = np.random.default_rng(5).normal(size=(3000, 6))
    weights, bias = fitted(rows, rows[:, 2] > 0.5)
    assert int(np.abs(weights).argmax()) == 2
    assert bias < 0 < weights[2]
    assert area(rows @ weights, rows[:, 2] > 0.5) > 0.95
    assert area(np.array([3.0, 1.0, 2.0]), np.array([True, False, False])) == 1
    assert area(np.array([1.0, 1.0]), np.array([True, False])) == 0.5


def test_heads_that_ship(tmp_path: Path) -> None:
    model, heads = bundled_model("target", DEFAULT), heads_of(DEFAULT)
    assert heads is not None
    assert sorted(heads.weights) == list(range(1, model.network.graph.layers))
    told = json.loads((Path(__file__).parents[2] / "sw" / "models" / DEFAULT / FILE).read_text())
    assert told["target"] == model.sha256, "heads of another target: python -m gemmule.sw.training.exits"
    assert heads_of(DEFAULT, tmp_path) is None
    assert normed(np.array([3, 4], dtype=np.int16)) == pytest.approx(np.array([3, 4]) / 12.5 ** 0.5)


def test_a_curve_by_hand() -> None:
    """Two tokens of the target's own text and one of a held-out one, exits behind 1 and 2 of 2 layers."""
    def point(held_out: bool, sure: float, right: bool, loss: float) -> dict[str, object]:
        return {"held_out": held_out, "depths": {1: {"softmax": sure, "right": right, "loss": loss},
                                                 2: {"softmax": 0.0, "right": True, "loss": 1.0}}}

    rows = curve([point(False, 0.9, True, 0), point(False, 0.4, False, 0), point(True, 0.6, False, 2.0)],
                 "softmax", [1, 2])
    by = {row["threshold"]: row for row in rows}
    assert (by[0.4]["layers"], by[0.4]["agreement"], by[0.4]["layers_held_out"]) == (1, 0.5, 1)
    assert by[0.4]["perplexity"] == pytest.approx(np.exp(2.0))
    assert (by[0.6]["layers"], by[0.6]["agreement"]) == (1.5, 1)
    assert (by[2.0]["layers"], by[2.0]["perplexity"]) == (2, pytest.approx(np.exp(1.0)))
    assert read_off(rows, "layers", "agreement", 1.25) == 0.75
    assert read_off(rows, "layers", "agreement", 3) is None


def test_the_page_has_the_committed_numbers() -> None:
    text = PAGE.read_text()
    for marker, content in PARTS.items():
        assert fill(text, marker, content()) == text, f"{marker}: run python -m benchmarks.early_exit_page"
