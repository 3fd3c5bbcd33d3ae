"""Drafts that choose among some tokens: which, the same logits, the same text; what cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.config import load_config
from gemmule.sw.datastore.datastore import Datastore
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.models.drafting.draft_vocabulary import frequent_tokens, with_head_of
from gemmule.sw.models.pair import bundled_pair
from tests.sw.test_cli import run
from tests.sw.test_methods import network
from tests.thinned import some


def test_the_most_frequent_tokens() -> None:
    """The separator is none; of equally frequent ones the lower ids."""
    made = Datastore(np.array([5, 5, 2, 2, 2, 7, 9, 3, 9, 9, 9], dtype=np.uint16), np.zeros(0), 9, "")
    assert frequent_tokens(made, 2, 9).tolist() == [2, 5]
    assert frequent_tokens(made, 4, 9).tolist() == [2, 3, 5, 7]
    assert frequent_tokens(made, 6, 9).tolist() == [0, 1, 2, 3, 5, 7]
    with pytest.raises(InputError, match="--draft-vocabulary must be less than the model's 9 tokens, not 9"):
        frequent_tokens(made, 9, 9)


def test_logits_are_those_of_the_tokens() -> None:
    tokens, whole = np.array([0, 3, 17, 40]), network()
    part, rows = with_head_of(whole, tokens), Rows.chain([3, 1, 4, 1, 5])
    logits = [IntegerInterpreter(one).forward(rows, Cache(one.graph)) for one in (whole, part)]
    assert np.array_equal(logits[0][:, tokens], logits[1])
    assert part.graph.vocab == whole.graph.vocab


@pytest.mark.parametrize("method", some(["draft", "int4-self"]))
def test_drafts_are_the_best_of_the_tokens(method: str) -> None:
    """On the device and by the interpreter: the same text, steps and cycles, fewer of them for a draft."""
    config, runs = load_config("base"), {}
    ids = bundled_pair("small").encode("import os\n")
    for count in (None, 64):
        for interpreted in (False, True):
            with Session(config, interpreted=interpreted, int4=method != "draft", draft_vocabulary=count) as session:
                ledger = Ledger(config)
                talk = session.converse(method, 2, ledger=ledger, options={"draft_vocabulary": count})
                made = talk.turn(ids, 12)
                drafter = session.draft if method == "draft" else session.int4
                assert drafter is not None
                known = None if drafter.tokens is None else set(drafter.tokens.tolist())
                runs[count, interpreted] = made.tokens, made.steps, ledger.device_cycles, ledger.by_model["draft"]
                assert session.extra_parameters(method) == drafter.program.graph.parameters
                assert known is None or len(known) == count
    assert runs[None, False] == runs[None, True]
    assert runs[64, False] == runs[64, True]
    assert runs[None, False][0] == runs[64, False][0]
    drafts = {count: sum(drafted for drafted, _ in runs[count, False][1]) for count in (None, 64)}
    assert runs[64, False][3] / drafts[64] < runs[None, False][3] / drafts[None]


@pytest.mark.parametrize(("arguments", "message"), [
    (("--draft-vocabulary", "8"), "--draft-vocabulary must be from 16 to 1048576, not 8"),
    (("--draft-vocabulary", "4096"), "--draft-vocabulary must be less than the model's 1,024 tokens, not 4,096"),
    (("--draft-vocabulary", "64", "--temperature", "1"), "--draft-vocabulary takes greedy drafts"),
    (("--draft-vocabulary", "64", "--draft-lengths", "confidence"), "--draft-vocabulary takes greedy drafts"),
    (("--draft-vocabulary", "64", "--launch", "step"), "--launch step hands on tokens on the device"),
    (("--draft-vocabulary", "64", "--method", "pld"), "--draft-vocabulary needs --method draft")])
def test_refusals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...],
                  message: str) -> None:
    assert run(monkeypatch, "generate", "--model", "small", "--max-new-tokens", "2", *arguments) == 2
    assert message in capsys.readouterr().err
