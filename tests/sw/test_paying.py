"""Drafts that end where one more token would not pay: by how sure the drafter is, within what a step may lose."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from gemmule.sw.decoding.adaptive.acceptance import Acceptance, marks_of
from gemmule.sw.decoding.adaptive.adaptive import Adaptive
from gemmule.sw.decoding.adaptive.paying import Paying, Terms
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import Chosen, Greedy, Match, Rejection
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.step import Forward, Want

from .test_adaptive import adapted, most
from .test_methods import CONFIG, DRAFT, PROMPTS, model, plain

LIKELY = [0.9] * 4
FREE = Terms([1.0, 2.0, 3.0, 4.0], 0.0, 100.0)


def drafted(terms: Terms, *confidence: float, known: Acceptance | None = None) -> int:
    """Tokens of a draft whose drafter is so sure of each."""
    pace = Paying(4)
    pace.begin(known or Acceptance(), LIKELY, terms)
    assert not pace.asked
    count = next((place for place, one in enumerate(confidence, 1) if not pace.goes_on(one)), len(confidence))
    assert pace.asked
    return count


def test_a_draft_ends_where_one_more_token_would_not_pay() -> None:
    """A path of .5 and .5 and one more token, right in .9 of the cases, is worth .225 tokens."""
    for worth, expected in ((0.2249, 3), (0.2251, 2), (0.4499, 2), (0.4501, 1)):
        assert drafted(Terms([1.0, 2.0, 3.0, 4.0], worth, 100.0), 0.5, 0.5, 0.5, 0.5) == expected
    assert drafted(FREE, 0.9, 0.9, 0.9, 0.9) == 4, "no more than there are costs of"
    assert drafted(Terms([1.0], 0.0, 100.0), 0.9, 0.9) == 1
    dear = Terms([1.0, 2.0, 30.0, 31.0], 0.2, 100.0)
    assert drafted(dear, 0.9, 0.9, 0.9, 0.9) == 2, "each token has a price of its own"


def test_a_draft_risks_what_is_lost_if_its_first_token_is_wrong() -> None:
    """In one of ten cases, four candidates' cost; in half of the cases."""
    assert drafted(Terms([1.0, 2.0, 3.0, 4.0], 0.0, 0.401), 0.9, 0.9, 0.9, 0.9) == 4
    assert drafted(Terms([1.0, 2.0, 3.0, 4.0], 0.0, 0.399), 0.9, 0.9, 0.9, 0.9) == 3
    assert drafted(Terms([1.0, 2.0, 3.0, 4.0], 0.0, 0.401), 0.5, 0.9, 0.9, 0.9) == 1, "the first token is always asked"


def test_how_sure_the_drafter_is_is_calibrated() -> None:
    """A drafter that says .9 and is never right drafts one token."""
    known = Acceptance()
    said = Tree.chain(3, [1, 2], chances=[0.9, 0.9])
    assert said.chances == pytest.approx([1.0, 0.9, 0.81])
    for _ in range(20):
        known.observe(said, [0])
    terms = Terms([1.0, 2.0, 3.0, 4.0], 0.2, 100.0)
    assert drafted(terms, 0.9, 0.9, 0.9, 0.9) == 4
    assert drafted(terms, 0.9, 0.9, 0.9, 0.9, known=known) == 1
    assert len({mark for mark, _ in marks_of(said)}) == 1, "both tokens are alike"


def test_how_sure_a_greedy_draft_is() -> None:
    """The chance of the largest logit by the softmax of all; certain where nobody asked for logits."""
    rule = Greedy()
    assert rule.want(1, confidence=True) == Want(last=1, logits=True)
    logits = np.array([[0, 9, 9], [-300, 500, 100]], dtype=np.int16)
    expected = 1 / (1 + exp(-4) + exp(-8))
    chosen = rule.propose(Forward([1, 1], (), logits), 0.01, 0)
    assert (chosen.token, chosen.confidence) == (1, pytest.approx(expected))
    assert rule.propose(Forward([1, 1], ()), 0.01, 0).confidence == 1.0


class Boasting(Greedy):
    """A rule by which a draft is sure of every token, whatever its logits are."""

    def propose(self, out: Forward, scale: float, position: int) -> Chosen:
        return Chosen(out.argmax[-1], confidence=1.0)


@pytest.mark.parametrize("rule", [Greedy(), Boasting()])
def test_a_wrong_draft_loses_no_more_than_the_limit(rule: Greedy) -> None:
    """One that is sure of itself, too."""
    ledger, expected = Ledger(CONFIG), plain(tuple(PROMPTS[0]), 50, "greedy", "stop")
    pace = Paying(7)
    inner = DraftModel(model(DRAFT, 1).charging(ledger, "draft"), pace, rule, CONFIG.host)
    steps = adapted(inner, model(), ledger).steps
    run = Conversation(model().charging(ledger), Adaptive(inner, steps, pace=pace), ledger).turn(PROMPTS[0], 50)
    assert run.tokens == expected.tokens
    assert ledger.cycles <= most(expected)


@pytest.fixture(scope="module")
def session() -> Session:
    from gemmule.config import load_config

    return Session(load_config("base"), pair=bundled_pair("small"), interpreted=True, general=True)


def ran(session: Session, adaptive: bool = True, **options: object) -> Generation:
    ids = bundled_pair("small").encode("def read(path):\n    with open(path) as file:\n        ")
    return session.generate("draft", ids, 40, 7, adaptive=adaptive, **options)  # type: ignore[arg-type]


def test_drafts_of_a_session_differ_in_length(session: Session) -> None:
    run = ran(session)
    assert run.tokens == ran(session, adaptive=False).tokens
    assert len({drafted for drafted, _ in run.steps[:-1]}) > 2


def test_drawn_tokens_and_chosen_vocabularies_keep_to_counts(session: Session) -> None:
    """A draft that ends by the chance of a token that it drew would bias the text."""
    noise, sampling = Noise(3), Sampling(0.8)
    kinds = []
    for options in ({}, {"rule": Match(sampling, noise)}, {"rule": Rejection(sampling, noise)},
                    {"options": {"draft_vocabulary": 64}}, {"lengths": "cost"}):
        talk = session.converse("draft", 7, adaptive=True, **options)  # type: ignore[arg-type]
        assert isinstance(talk.drafter, Adaptive)
        kinds.append(talk.drafter.pace is not None)
        talk.close()
    assert kinds == [True, True, False, False, False]
