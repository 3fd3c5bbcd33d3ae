"""Several drafters with a chooser: who drafts, what the tree holds, the law of rejection sampling, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.sw.decoding.candidates.bandit import Bandit
from gemmule.sw.decoding.candidates.merging import merged, path_of
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.methods import METHODS, needing_int4
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.multi_draft import MultiDraft, Part
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import Rejection
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError

from .test_decoding import FakeModel, FixedDrafter, oracle
from .test_sampling import Law, Plain, Script, expected, law, small

CONFIG = load_config("tiny")


def _never(ids: list[int]) -> list[int]:
    return [(token + 1) % 16 for token in oracle(ids)]


def _run(parts: list[Part], *, merging: bool, drafting: int = 0) -> MultiDraft:
    """A text by made-up drafters; each draft of one that runs a model takes so many cycles of a pass of 100."""
    drafter = MultiDraft(parts, 4, merging=merging, passing=lambda rows, cached, want: 100)
    for part in parts:
        part.cycles = lambda one, parameters, part=part: drafting if part.runs_model else 0  # type: ignore[method-assign]
    plain = generate(FakeModel(), Autoregressive(), [3, 1, 4], 50, Ledger(CONFIG)).tokens
    assert generate(FakeModel(), drafter, [3, 1, 4], 50, Ledger(CONFIG)).tokens == plain
    return drafter


@pytest.mark.parametrize("merging", [False, True])
@pytest.mark.parametrize(("drafting", "right"), [(10, True), (10, False), (900, True)])
def test_who_drafts(merging: bool, drafting: int, right: bool) -> None:
    """A model drafts where it is right and worth its cycles, else it is tried and left alone."""
    model = Part("draft", FixedDrafter(oracle if right else _never), True)
    drafter = _run([Part("pld", FixedDrafter(_never), False), model], merging=merging, drafting=drafting)
    assert min(drafter.taken) >= 1, "each is tried"
    chosen = right and drafting < 100
    assert (drafter.taken[1] > drafter.taken[0]) == chosen
    if not chosen:
        assert drafter.taken[1] <= 0.3 * sum(drafter.taken)


def _taken(tokens: Callable[[int, int, int], int], steps: int = 400) -> list[dict[tuple[int, int], int]]:
    """How often each (context, arm) was taken in each half; ``tokens``: of a step, by number, context and arm."""
    bandit, random = Bandit(2), np.random.default_rng(3)
    halves = [{(context, arm): 0 for context in range(2) for arm in range(2)} for _ in range(2)]
    for step in range(steps):
        context = int(random.integers(2))
        arm = bandit.best(context, [1.0, 1.0])
        bandit.observe(arm, context, tokens(step, context, arm))
        halves[2 * step // steps][context, arm] += 1
    return halves


def test_a_bandit_knows_contexts() -> None:
    """One arm wins in one context, the other in the other; what costs more must win more."""
    for half in _taken(lambda step, context, arm: 4 if arm == context else 1):
        assert all(half[context, context] > 4 * half[context, 1 - context] for context in range(2))
    bandit = Bandit(2)
    for arm in range(2):
        bandit.observe(arm, 0, 2)
    assert [bandit.best(0, cycles) for cycles in ([5.0, 1.0], [1.0, 5.0])] == [1, 0]


def test_a_bandit_notices_changes() -> None:
    """Arms that win about as much are both tried, and in the second half the other one wins."""
    first, second = _taken(lambda step, context, arm: 3 if (arm == 0) == (step < 200) else 2)
    assert first[0, 0] > 2 * first[0, 1] > 0
    assert second[0, 1] > second[0, 0]


def test_trees_are_merged() -> None:
    """Equal paths are one; the likeliest candidates stay, behind their parents, each once."""
    first, second = Tree.chain(9, [1, 2, 3]), Tree([9, 1, 5, 2], [-1, 0, 0, 1])
    found = merged([first, second], [[1, .5, .4, .1], [1, .6, .3, .45]], 3)
    assert (found.tokens, found.parent, list(found.chances)) == ([9, 1, 2, 5], [-1, 0, 1, 0], [1, .6, .45, .3])
    assert merged([first, second], [[1, .5, .4, .1], [1, .6, .3, .45]], 9).tokens == [9, 1, 2, 3, 5]
    assert merged([first], [[1, .5, .4, .1]], 0).tokens == [9]
    assert path_of(found, [1, 2, 7]) == [0, 1, 2]
    assert path_of(found, [4]) == [0]


def test_drawn_candidates_all_stay_in_front() -> None:
    weights = [np.array([1, 2]), np.array([2, 1])]
    drawn, sure = Tree.chain(9, [0, 1], weights), Tree.chain(9, [1, 1])
    found = merged([sure, drawn], [[1, .9, .8], [1, .2, .1]], 3)
    assert (found.tokens, found.parent) == ([9, 0, 1, 1], [-1, 0, 1, 0])
    assert {node: one.tolist() for node, one in found.weights.items()} == {1: [1, 2], 2: [2, 1]}
    assert merged([sure, drawn], [[1, .9, .8], [1, .2, .1]], 2).tokens == [9, 0, 1]


class First(Bandit):
    """Takes one arm always."""

    def __init__(self, arm: int) -> None:
        self.arm = arm

    def best(self, context: object, cycles: object) -> int:
        return self.arm

    def observe(self, *step: object) -> None:
        pass


def _several(rule: Rejection, arm: int | None = None) -> Callable[[], MultiDraft]:
    def make() -> MultiDraft:
        model, lookup = DraftModel(Law(small(3)), 2, rule), PromptLookup(2, frozenset())  # type: ignore[arg-type]
        made = MultiDraft([Part("pld", lookup, False), Part("draft", model, True)], 3, passing=lambda *pass_: 1.0)
        made.parts[1].cycles = lambda one, parameters: 1.0  # type: ignore[method-assign]
        if arm is not None:
            made.bandit = First(arm)
        return made
    return make


@pytest.mark.parametrize("arm", [None, 1])
def test_rejection_has_the_joint_law_of_autoregressive_sampling(arm: int | None) -> None:
    rule = Rejection(Plain(), Script())  # type: ignore[arg-type]
    seen = law(rule, _several(rule, arm), 3)
    assert sum(seen.values()) == 1
    assert seen == expected(3)


def test_leaving_out_what_was_drawn_has_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """The likeliest candidates of all, drawn ones among them, by their tokens: what the tree must not do."""
    from gemmule.sw.decoding.methods import multi_draft

    def biased(trees: list[Tree], chances: list[list[float]], most: int) -> Tree:
        drawn = next((tree for tree in trees if tree.weights), trees[0])
        return Tree.chain(drawn.tokens[0], []) if drawn.tokens[1:2] == [2] else merged(trees, chances, most)

    monkeypatch.setattr(multi_draft, "merged", biased)
    rule = Rejection(Plain(), Script())  # type: ignore[arg-type]
    found = law(rule, _several(rule, 1), 2)
    assert sum(found.values()) == Fraction(1)
    assert found != expected(2)


@pytest.mark.parametrize(("options", "message"), [
    ({"drafters": "draft,bert"}, "--drafters must be some of draft, int4-self, layerskip, suffix, pld, ngram, "
                                 "recycling, separated by commas, each once, not 'draft,bert'"),
    ({"drafters": "pld,pld"}, "each once, not 'pld,pld'"), ({"drafters": ""}, "not ''"),
    ({"drafters": "int4-self,pld"}, "--method multi-draft needs a session with int4=True")])
def test_refused(options: dict[str, Any], message: str) -> None:
    with (Session(load_config("base"), general=True, interpreted=True) as session,
          pytest.raises(InputError, match=message)):
        session.generate("multi-draft", [5, 6], 4, options=options)


def test_what_it_needs() -> None:
    assert needing_int4("multi-draft", {"drafters": "suffix, int4-self"})
    assert not needing_int4("multi-draft", {"drafters": "draft"})
    assert not needing_int4("multi-draft", {})
    assert needing_int4("int4-self", {})
    assert METHODS["multi-draft"].values({})["drafters"] is None
