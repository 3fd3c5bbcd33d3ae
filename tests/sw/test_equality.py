"""The losslessness campaign (benchmarks/equality.py) on a few prompts, its counts kept, and faults that it must see.

Texts and caches of every method are those of autoregressive decoding, alone and several together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import equality
from benchmarks.equality import Models, Way, compare, decode, held_out, load
from gemmule.sw.decoding import verify
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import GREEDY, Match
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.step import Forward

NEW = 16
LENGTHS = (2, 5)
STEPS = {
    "draft 2": {"none": 10, "some": 5, "all": 9, "undrafted": 2},
    "draft 5": {"none": 9, "some": 10, "all": 3, "undrafted": 1},
    "jacobi 2": {"none": 39, "some": 3, "all": 0, "undrafted": 3},
    "jacobi 5": {"none": 39, "some": 3, "all": 0, "undrafted": 3},
    "layerskip 2": {"none": 30, "some": 6, "all": 1, "undrafted": 3},
    "layerskip 5": {"none": 30, "some": 7, "all": 0, "undrafted": 3},
    "pld 2": {"none": 9, "some": 4, "all": 3, "undrafted": 23},
    "pld 5": {"none": 9, "some": 4, "all": 1, "undrafted": 23}}
"""Steps by accepted drafts. All is in integers, so these are the same everywhere; they change with the models alone."""


@pytest.fixture(scope="module")
def models() -> Models:
    return load("small", "int8")


@pytest.fixture(scope="module")
def prompts(models: Models) -> list[list[int]]:
    """Of any length, among them a copy, on which lookup gains."""
    every = held_out(models.pair, 60, NEW)
    return [every[0], every[3], every[51]]


@pytest.fixture(autouse=True)
def few_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equality, "LENGTHS", LENGTHS)


def _check(found: dict[str, Any], count: int) -> None:
    for part in found.values():
        assert part["equal"] == part["texts"] == count
        assert part["tokens"] == count * NEW
        assert part["commits"] == sum(part["steps"].values())
        assert part["different_caches"] == 0


@pytest.mark.long
def test_together_and_alone(models: Models, prompts: list[list[int]]) -> None:
    """Equal texts and caches, and the very same steps whoever is in the same pass."""
    together = compare(models, prompts, NEW, GREEDY)
    _check(together, len(prompts))
    alone = [compare(models, [prompt], NEW, GREEDY) for prompt in prompts]
    one_by_one = equality.added(alone)
    assert {name: part for name, part in one_by_one.items() if name in together} == together
    single = {name: part for name, part in one_by_one.items() if name not in together}
    assert {name.split()[0] for name in single} == {name for name, one in METHODS.items() if one.schedule}
    _check(single, len(prompts))
    assert {name: part["steps"] for name, part in together.items() if name in STEPS} == STEPS
    drafted = [part["steps"] for name, part in together.items() if name.startswith("draft")]
    for kind in ("none", "some", "all"):
        assert sum(steps[kind] for steps in drafted) > 0


def test_drawn_tokens(models: Models, prompts: list[list[int]]) -> None:
    """By noise of their positions: each method's text is that of autoregressive decoding with the same seed."""
    _check(compare(models, prompts[:2], NEW, Match(Sampling(0.8), Noise(3))), 2)


def _accepts_all(tree: Tree, choice: Callable[[int, int], int]) -> tuple[list[int], list[int]]:
    path = list(range(len(tree.tokens)))
    return path, [*tree.tokens[1:], choice(path[-1], len(path) - 1)]


def _takes_the_row_before(tree: Tree, choice: Callable[[int, int], int]) -> tuple[list[int], list[int]]:
    return WALK(tree, lambda node, depth: choice(max(0, node - 1), depth))


def _takes_a_draft_for_the_correction(tree: Tree, choice: Callable[[int, int], int]) -> tuple[list[int], list[int]]:
    path, new = WALK(tree, choice)
    return path, new if len(path) == len(tree.tokens) else [*new[:-1], tree.tokens[len(path)]]


def _forgets_the_bonus(tree: Tree, choice: Callable[[int, int], int]) -> tuple[list[int], list[int]]:
    """The cache then holds a row more than the text has tokens behind the pending one."""
    path, new = WALK(tree, choice)
    return path, new[:-1] if len(path) == len(tree.tokens) > 1 else new


WALK = verify._walk
WRONG_WALKS = (_accepts_all, _takes_the_row_before, _takes_a_draft_for_the_correction, _forgets_the_bonus)


def _unequal(models: Models, prompts: list[list[int]], length: int = 3) -> tuple[int, int]:
    """(texts, caches) that differ from those of autoregressive decoding, which a wrong rule leaves right."""
    plain = [decode(models, [prompt], Way("ar"), NEW, GREEDY)[0] for prompt in prompts]
    found = decode(models, prompts, Way("draft", length), NEW, GREEDY, [text.held.contents() for text in plain])
    return (sum(text.run.tokens != before.run.tokens for text, before in zip(found, plain, strict=True)),
            sum(text.held.different for text in found))


@pytest.mark.parametrize("wrong", WRONG_WALKS)
def test_wrong_rules_are_seen(models: Models, prompts: list[list[int]], wrong: Callable[..., Any],
                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_walk", wrong)
    assert sum(_unequal(models, prompts[:2])) > 0


def test_caches_that_keep_a_rejected_row_are_seen(models: Models, prompts: list[list[int]],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is right all the same, since the next pass goes behind what it says is cached."""
    def commit(self: InterpretedModel, position: int, path: list[int], sequence: int = 0) -> int:
        self.cache.truncate(min(self.cache.length(sequence), position + len(path) + 1), sequence)
        return 0

    monkeypatch.setattr(InterpretedModel, "commit", commit)
    assert _unequal(models, prompts[:2])[1] > 0


def test_a_cache_with_another_token_is_seen(models: Models, prompts: list[list[int]],
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are off by one in one layer, where a draft was accepted."""
    def commit(self: InterpretedModel, position: int, path: list[int], sequence: int = 0) -> int:
        self.cache.keep([*range(position), *(position + node for node in path)], sequence)
        if len(path) > 1:
            self.cache.contents(self.network.graph.attentions[2].name, sequence)[0][position] += 1
        return 0

    monkeypatch.setattr(InterpretedModel, "commit", commit)
    assert _unequal(models, prompts[:1])[1] > 0


def test_answers_of_another_text_are_seen(models: Models, prompts: list[list[int]],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forward, "part", lambda out, rows, answers: PART(
        out, slice(0, rows.stop - rows.start), slice(0, answers.stop - answers.start)))
    assert sum(_unequal(models, prompts[:2])) > 0


PART = Forward.part


def test_what_is_kept_is_of_the_same_models() -> None:
    parts = {"other": {"models": ["c"], "done": {}, "total": {}}}
    first = equality.begun(parts, "small", ["a", "b"])
    first["done"]["1"] = ["draft"]
    assert equality.begun(parts, "small", ["a", "b"]) is first
    assert equality.begun(parts, "small", ["a", "c"]) == {
        "models": ["a", "c"], "done": {}, "total": {}}
    assert list(parts) == ["other", "small"]
