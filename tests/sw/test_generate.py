"""The bundled models on the simulated device: losslessness, costs, quality of what ships."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.config import load_config
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling, shared_draw
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import Match, Rejection
from gemmule.sw.errors import InputError
from gemmule.sw.models.bundled_models import bundled_detokenizer, bundled_model, encode
from tests.thinned import some

PROMPTS = [
    "import os\n", "class Stack:\n    def push(self, item):\n", "def mean(values):\n    total = 0\n    for ",
    "try:\n    ", "# Copyright",
]


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(load_config("base"))


@pytest.mark.parametrize("prompt", some(PROMPTS, 2))
def test_draft_equals_autoregressive(session: Session, prompt: str) -> None:
    ids = encode(prompt)
    ar = session.generate("ar", ids, 32)
    assert len(ar.tokens) == 32
    for length in (1, 3, 7):
        run = session.generate("draft", ids, 32, length)
        assert run.tokens == ar.tokens
        assert len(run.steps) <= len(run.tokens) <= sum(drafted + 1 for drafted, _ in run.steps)


@pytest.mark.parametrize("prompt", some(PROMPTS[1:3]))
def test_prompt_lookup_equals_autoregressive(session: Session, prompt: str) -> None:
    ids = encode(prompt)
    ar, run = session.generate("ar", ids, 48), session.generate("pld", ids, 48)
    assert run.tokens == ar.tokens
    assert "draft" not in run.ledger.launches
    assert session.drafts("pld", None) == 10
    assert len(run.steps) < 48, "its text repeats itself"


def test_autoregressive_equals_the_interpreter(session: Session) -> None:
    """The compiled program on the device against the golden integer network."""
    network = bundled_model("target").network
    interpreter, cache = IntegerInterpreter(network), Cache(network.graph)
    ids = encode(PROMPTS[1])
    expected, rows, position = [], ids, 0
    for _ in range(16):
        logits = interpreter.forward(Rows.chain(rows, position), cache)
        position += len(rows)
        rows = [int(np.argmax(logits[-1]))]
        expected += rows
    assert session.generate("ar", ids, 16).tokens == expected


def test_drafts_of_a_step_in_one_launch(session: Session) -> None:
    """The same tokens and steps, one launch of the draft a step and one for a row that its cache lacks."""
    with Session(load_config("base"), launch="draft") as together:
        for count in (1, 4):
            for prompt in PROMPTS[:2]:
                ids = encode(prompt)
                apart, run = (one.generate("draft", ids, 24, count) for one in (session, together))
                assert run.tokens == apart.tokens
                assert run.steps == apart.steps
                drafting = sum(drafted > 0 for drafted, _ in run.steps)
                whole = sum(drafted == accepted > 0 for drafted, accepted in run.steps)
                launches = run.ledger.launches["draft"] - run.prefill.launches.get("draft", 0)
                assert drafting <= launches <= drafting + whole
                passes = run.ledger.passes["draft"] - run.prefill.passes.get("draft", 0)
                assert passes == run.drafted + launches - drafting
    with pytest.raises(ValueError, match="one greedy step a launch"):
        session.target.greedy(session.target.kv(), [1], 2)


def caches(session: Session, target: int, draft: int) -> list[bytes]:
    """So many rows of each layer and head of both."""
    found = []
    for model, rows in ((session.target, target), (session.draft, draft)):
        assert model is not None
        address, layout = model.program.symbols[CACHE][0], model.program.layout
        found += [session.device.read_dram(address + run * layout.pitch, rows * layout.row)
                  for run in range(layout.runs)]
    return found


@pytest.fixture(scope="module")
def stepping() -> Session:
    return Session(load_config("base"), launch="step")


@pytest.mark.parametrize("count", some([3, 1, 7]))
def test_draft_and_verify_in_one_launch(session: Session, stepping: Session, count: int) -> None:
    """The same tokens, steps and caches; a launch a step, whatever was accepted in the one before."""
    accepted = set()
    for prompt in PROMPTS[:3]:
        ids = encode(prompt)
        runs = apart, run = [one.generate("draft", ids, 33, count) for one in (session, stepping)]
        assert run.tokens == apart.tokens
        assert run.steps == apart.steps
        accepted |= {(a > 0) + (a == d) for d, a in run.steps if d}
        length, drafted = len(ids), 0  # of the text before each step, and of the one before the last that drafted
        for step in run.steps:
            drafted = length if step[0] else drafted
            length += step[1] + 1
        assert caches(stepping, length - 1, drafted) == caches(session, length - 1, drafted)
        behind = [one.ledger.since(one.prefill) for one in runs]
        assert behind[1].launches == {"target": len(run.steps), "draft": 0}
        assert behind[0].launches["draft"] == run.drafted
        assert behind[1].passes["target"] == behind[0].passes["target"] == len(run.steps)
        assert behind[1].passes["draft"] == behind[0].passes["draft"] == run.drafted
        assert sum(behind[1].by_model.values()) == behind[1].device_cycles
        assert behind[1].host_cycles == 2500 * len(run.steps)
        assert behind[1].cycles < behind[0].cycles
    assert accepted >= {0, 2}, "steps with no draft accepted, and with all"


@pytest.mark.parametrize("overflow", ["stop", "crop"])
def test_one_launch_a_step_at_the_end_of_the_context(session: Session, stepping: Session, overflow: str) -> None:
    """Fewer drafts before the end, and what is dropped behind it."""
    ids = encode(PROMPTS[1] * 20)[:246]
    apart, run = (one.generate("draft", ids, 9 if overflow == "stop" else 24, 4, context_overflow=overflow)
                  for one in (session, stepping))
    assert (run.tokens, run.steps, run.dropped) == (apart.tokens, apart.steps, apart.dropped)
    assert {drafted for drafted, _ in run.steps} > {4}, "some steps drafted fewer"
    assert (run.dropped > 0) is (overflow == "crop")


def test_one_launch_a_step_of_turns_and_of_lengths(session: Session, stepping: Session) -> None:
    """A turn that goes on with another text; lengths that follow what was accepted."""
    for lengths in ("heuristic", "cost"):
        talks = [one.converse("draft", 5, lengths=lengths) for one in (session, stepping)]
        for prompt in PROMPTS[1:3]:
            apart, run = (talk.turn(encode(prompt), 12) for talk in talks)
            assert run.tokens == apart.tokens
            if lengths == "heuristic":  # by what was accepted; costs differ
                assert run.steps == apart.steps


def test_a_pair_that_does_not_go_in_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmule.compiler.programs.link.NUM_BASES", 20)
    with pytest.raises(InputError, match="--launch step: .* at most 20 base registers, not 30: use --launch draft"):
        Session(load_config("base"), launch="step")


def test_drawn_tokens_are_those_of_the_interpreter() -> None:
    """By the logits of the golden network, whatever drafts."""
    network, ids = bundled_model("target").network, encode(PROMPTS[1])
    rule = Match(Sampling(0.9, 40, Fraction(19, 20)), Noise(4))
    interpreter, cache = IntegerInterpreter(network), Cache(network.graph)
    expected, rows, position = [], ids, 0
    with Session(load_config("base"), general=True) as session:
        for _ in range(16):
            logits = interpreter.forward(Rows.chain(rows, position), cache)[-1]
            position += len(rows)
            rows = [shared_draw(rule.sampling.weights(logits, session.target.logit_scale), rule.noise, position)]
            expected += rows
        for method in ("ar", "draft", "pld"):
            assert session.generate(method, ids, 16, rule=rule).tokens == expected
        drawn = [session.generate("draft", ids, 16, rule=Rejection(rule.sampling, Noise(4))) for _ in range(2)]
    assert drawn[0].tokens == drawn[1].tokens
    assert drawn[0].drafted > 0


def test_rollback_leaves_the_same_cache(session: Session) -> None:
    """KV bytes of the committed rows equal those of an autoregressive run, bit for bit."""
    program = session.target.program
    address, layout = program.symbols[CACHE][0], program.layout
    ids = encode(PROMPTS[0])

    def cache(method: str) -> list[bytes]:
        run = session.generate(method, ids, 24, 5)
        rows = len(ids) + len(run.tokens) - 1
        return [session.device.read_dram(address + run * layout.pitch, rows * layout.row)
                for run in range(layout.runs)]

    assert cache("draft") == cache("ar")


def test_cycles_add_up(session: Session) -> None:
    run = session.generate("draft", encode(PROMPTS[0]), 16, 3)
    ledger = run.ledger
    assert ledger.cycles == ledger.device_cycles + ledger.host_cycles
    assert sum(ledger.by_model.values()) == ledger.device_cycles
    assert ledger.host_cycles == 2000 * sum(ledger.launches.values()) + 500 * len(run.steps)


def test_same_run_same_cycles(session: Session) -> None:
    first = session.generate("draft", encode(PROMPTS[2]), 16, 3)
    again = Session(load_config("base")).generate("draft", encode(PROMPTS[2]), 16, 3)
    assert (first.tokens, first.ledger.cycles) == (again.tokens, again.ledger.cycles)


def test_verifying_eight_rows_costs_like_one(session: Session) -> None:
    one = session.target.forward(Rows.chain([5], 100)).results[0].cycles
    eight = session.target.forward(Rows.chain([5] * 8, 100)).results[0].cycles
    assert eight <= 1.08 * one


def test_shipped_quality() -> None:
    """What the bundling command measured on held-out files."""
    quality = json.loads((Path(__file__).resolve().parents[2] / "sw/models/small/quality.json").read_text())
    assert quality["target"]["bits_per_byte_int8"] <= 1.40
    assert quality["target"]["loss"] <= 0.01


def test_prompt_round_trip() -> None:
    assert bundled_detokenizer().text(encode(PROMPTS[1])) == PROMPTS[1]
    assert 1 not in encode("a <eos> b")
