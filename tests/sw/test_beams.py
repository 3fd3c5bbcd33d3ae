"""Scores of texts, and beam search on made-up rows: beside a slow reference, and beside Hugging Face's searches."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import groupby, pairwise
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule.sw.decoding.search.beams import Beam, Beams, Complete
from gemmule.sw.decoding.search.scores import UNIT_BITS, log_probabilities, log_two, natural, normalised

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("beams.json").read_text())
SEED = 20261127


@pytest.mark.parametrize("number", [1, 2, 3, 65535, 65536, 65537, 12345678901, (1 << 37) - 1])
def test_logarithms(number: int) -> None:
    """The last place may be off by one; powers of two are exact."""
    assert abs(log_two(number) - log2(number) * 2**UNIT_BITS) < 2
    assert log_two(1 << 20) == 20 << UNIT_BITS


def test_no_logarithm_of_nothing() -> None:
    with pytest.raises(ValueError, match="must be of a positive integer, not of 0"):
        log_two(0)


@pytest.mark.parametrize("scale", [2.0**-14, 1e-3, 0.00119, 0.01])
def test_log_probabilities_are_those_of_the_logits(scale: float) -> None:
    """Within what the multiplier's 16 bits and the weights' 16 bits leave; in the order of the logits."""
    random = np.random.default_rng(SEED)
    logits = random.integers(-9000, 9000, (5, 300)).astype(np.int16)
    real = logits * scale
    exact = real - np.log(np.exp(real - real.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) \
        - real.max(axis=1, keepdims=True)
    found = log_probabilities(logits, scale)
    assert found.dtype == np.int64
    assert found.max() <= 0
    np.testing.assert_allclose(found * np.log(2) / 2**UNIT_BITS, exact, rtol=1e-4, atol=3e-3)
    for row, own in zip(logits, found, strict=True):
        order = np.argsort(row, kind="stable")
        assert (np.sign(np.diff(own[order])) == np.sign(np.diff(row[order].astype(np.int64)))).all()


def test_a_constant_more_changes_nothing() -> None:
    logits = np.random.default_rng(SEED).integers(-5000, 5000, (2, 50)).astype(np.int16)
    np.testing.assert_array_equal(log_probabilities(logits, 1e-3), log_probabilities(logits + np.int16(777), 1e-3))


@pytest.mark.parametrize(("length", "penalty", "expected"), [
    (4, "1", -250), (4, "0", -1000), (4, "0.5", -500), (4, "-1", -4000), (16, "0.25", -500), (3, "1", -333),
])
def test_penalties(length: int, penalty: str, expected: int) -> None:
    assert normalised(-1000, length, Decimal(penalty)) == expected


def _reference(rows: Any, width: int, ends: set[int], penalty: float, early: bool, most: int,
               ) -> list[tuple[tuple[int, ...], int]]:
    """Beam search as it is told: lists, all continuations sorted. ``rows(tokens)``: log-probabilities behind a text."""
    live, done = [((), 0)], list[tuple[tuple[int, ...], int, float]]()
    for _ in range(most):
        every = [(total + int(p), number, token) for number, (tokens, total) in enumerate(live)
                 for token, p in enumerate(rows(tokens))]
        every.sort(key=lambda one: (-one[0], one[1], one[2]))
        following = list[tuple[tuple[int, ...], int]]()
        for rank, (total, number, token) in enumerate(every):
            text = (*live[number][0], token)
            if token in ends:
                if rank < width:
                    done.append((text, total, total / len(text)**penalty))
            elif len(following) < width:
                following.append((text, total))
            if len(following) == width:
                break
        done = sorted(done, key=lambda one: -one[2])[:width]
        live = following
        if len(done) == width and (early or done[-1][2] >= live[0][1] / len(live[0][0])**penalty):
            break
    else:
        done += [(text, total, total / len(text)**penalty) for text, total in live]
    return [(text, total) for text, total, _ in sorted(done, key=lambda one: -one[2])[:width]]


def _found(rows: Any, width: int, ends: set[int], penalty: float, early: bool, most: int) -> list[Complete]:
    beams = Beams(width, frozenset(ends), Decimal(repr(penalty)), early=early)
    for _ in range(most):
        parents = beams.step(np.array([rows(beam.tokens) for beam in beams.live]))
        assert len(parents) == len(beams.live)
        if beams.over:
            break
    return beams.finish()


@pytest.mark.parametrize("seed", range(40))
def test_equals_the_reference(seed: int) -> None:
    """Networks at random, whose rows depend on the whole text; some of few values, so that sums are equal."""
    random = np.random.default_rng(seed)
    vocab, width, high = int(random.integers(6, 30)), int(random.integers(1, 7)), int(random.choice([4, 1 << 26]))
    ends, penalty = set(range(int(random.integers(0, 3)))), float(random.choice([0.0, 0.5, 1.0, 1.7]))
    early, most = bool(random.integers(2)), int(random.integers(1, 9))

    def rows(tokens: tuple[int, ...]) -> np.ndarray:
        return -np.random.default_rng([seed, *tokens]).integers(0, high, vocab)

    found = _found(rows, width, ends, penalty, early, most)
    expected = _reference(rows, width, ends, penalty, early, most)
    if high > 4:
        assert [(one.beam.tokens, one.beam.total) for one in found] == expected
    else:  # of equal scores the reference, which sorts floats, may cut others
        assert [one.score for one in found] == [normalised(total, len(text), Decimal(repr(penalty)))
                                                for text, total in expected]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"{case['prompt']}-{case['width']}-"
                         f"{case['penalty']}-{case['early']}")
def test_equals_transformers(case: dict[str, Any]) -> None:
    """Texts and scores of ``generate(num_beams)``; equal scores in any order."""
    tables = np.array(VECTORS["tables"]) / 1000

    def rows(tokens: tuple[int, ...]) -> np.ndarray:
        text = [*case["prompt"], *tokens]
        logits = tables[0][text[-1]] + tables[1][text[-2] if len(text) > 1 else text[0]]
        return np.rint((logits - np.log(np.exp(logits).sum())) / np.log(2) * 2**UNIT_BITS).astype(np.int64)

    found = _found(rows, case["width"], set(VECTORS["ends"]), case["penalty"], case["early"], VECTORS["new"])
    np.testing.assert_allclose([natural(one.score) for one in found], case["scores"], atol=1e-5)

    first = 0
    for _, group in groupby(found, key=lambda one: one.score):
        texts = [list(one.beam.tokens) for one in group]
        assert sorted(texts) == sorted(case["texts"][first:first + len(texts)])
        first += len(texts)
    assert first == len(case["texts"])


def test_vectors_have_what_matters() -> None:
    """Texts that end and that are cut, searches that end early, and more than one result by penalty."""
    cases = VECTORS["cases"]
    lengths = [len(text) for case in cases for text in case["texts"]]
    assert min(lengths) < 4
    assert max(lengths) == VECTORS["new"]
    assert any(one["texts"] != other["texts"] for one, other in pairwise(cases))
    assert any(len(text) < VECTORS["new"] and text[-1] in VECTORS["ends"] for case in cases for text in case["texts"])


def test_ties_are_told_and_go_to_the_first() -> None:
    beams = Beams(2, frozenset())
    assert beams.step(np.array([[-5, -3, -3, -3]])) == [0, 0]
    assert [beam.tokens for beam in beams.live] == [(1,), (2,)]
    assert beams.ties == 1
    assert beams.moved == 1
    assert beams.step(np.array([[-1, -9, -9, -9], [-9, -8, -2, -9]])) == [0, 1]
    assert beams.ties == 1
    assert [beam.tokens for beam in beams.live] == [(1, 0), (2, 2)]


def test_ends_count_among_the_first_only() -> None:
    """An end below the first ``width`` continuations is no complete text, and takes no beam's place."""
    beams = Beams(2, frozenset({0}))
    beams.step(np.array([[-9, -1, -2, -3]]))
    assert beams.complete == []
    beams.step(np.array([[-1, -50, -50, -50], [-3, -2, -60, -60]]))
    assert [one.beam for one in beams.complete] == [Beam((1, 0), -2)]
    assert [beam.tokens for beam in beams.live] == [(2, 1), (1, 1)]


class _EarlierToken(Beams):
    """Gives ties to the higher token."""

    def step(self, rows: np.ndarray) -> list[int]:
        return super().step(rows[:, ::-1])


def test_a_planted_fault_is_seen() -> None:
    beams = _EarlierToken(2, frozenset())
    beams.step(np.array([[-5, -3, -3, -3]]))
    assert [beam.tokens for beam in beams.live] != [(1,), (2,)]
