"""Methods that leave layers out: their texts are those of their policies, on the device and by the interpreter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows, layer_part
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.exits.confidence import SoftmaxGap, decayed, gap, similarity
from gemmule.sw.decoding.exits.leaving import Leaving, _Way
from gemmule.sw.decoding.exits.reference import Plain
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.lengths import LENGTHS
from gemmule.sw.decoding.methods import METHODS, Request
from gemmule.sw.decoding.methods.skipdecode import layers_of
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.answers import exponents_of, largest
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.models.drafting.exit_heads import ExitHeads
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.step import Want
from tests.sw.test_cli import run
from tests.sw.test_methods import CONFIG, PROMPTS, SIZES, model, network, plain
from tests.thinned import some

NEW = 20
LOSSY = [name for name, one in METHODS.items() if not one.lossless and not one.trained]
HEADS = ExitHeads({depth: np.sin(np.arange(SIZES.hidden) * (depth + 1)) for depth in (1, 2)}, {1: -0.1, 2: 0.2})
CALM: Mapping[str, Any] = {"exit_decay": 2.0, "exit_span": 10, "first_exit": 1}
WAYS = [("calm", {**CALM, "exit_measure": measure, "exit_threshold": threshold, "state_propagation": propagation})
        for measure, threshold in (("classifier", 0.5), ("hidden", 0.9), ("softmax", 0.011))
        for propagation in ("hidden", "kv")]
WAYS += [("skipdecode", {"exit_span": 8, "least_layers": 2}), ("calm", {**WAYS[0][1], "first_exit": 2}),
         ("calm", {**WAYS[1][1], "exit_interval": 2})]
SHORT = (0, 3, 4, 6)
"""Every measure, both propagations, both methods."""


@cache
def by_interpreter() -> InterpretedModel:
    return InterpretedModel(TARGET, network(), model().program, Simulator(CONFIG, dram_bytes=1))


def talk(target: LoadedModel, method: str, options: Mapping[str, Any], ledger: Ledger) -> Conversation:
    way, kv = METHODS[method], target.charging(ledger).kv()
    return Conversation(target, way.make(Request(
        draft=None, target=target, cache=kv, lengths=LENGTHS["constant"](0), ends=frozenset(), rule=GREEDY,
        host=CONFIG.host, options=way.values(options), exit_heads=HEADS)), ledger, kv=kv)


def decoded(target: LoadedModel, method: str, options: Mapping[str, Any], prompt: list[int], new: int = NEW,
            ) -> Generation:
    return talk(target, method, options, Ledger(CONFIG)).turn(prompt, new)


def of_policy(method: str, options: Mapping[str, Any], prompt: list[int], new: int) -> tuple[list[int], list[int]]:
    """A loop that computes everything anew for every token: its tokens, and the layers that each ran."""
    way, tokens, layers = METHODS[method], list[int](), list[int]()
    assert way.policy
    for _ in range(new):
        told = Plain(network(), [*prompt, *tokens], len(prompt), way.values(options), HEADS)
        tokens.append(way.policy(told)[-1])
        layers.append(told.layers_run[-1])
    return tokens, layers


@pytest.mark.parametrize(("method", "options"), some(
    [WAYS[i] for i in SHORT] + [way for i, way in enumerate(WAYS) if i not in SHORT], len(SHORT)))
def test_the_text_is_that_of_the_policy(method: str, options: Mapping[str, Any]) -> None:
    """Token by token and layer by layer; the interpreter takes the device's cycles."""
    every = set()
    for prompt in PROMPTS[:2]:
        run_, timed = decoded(model(), method, options, prompt), decoded(by_interpreter(), method, options, prompt)
        assert (run_.tokens, run_.layers_run) == of_policy(method, options, prompt, NEW)
        assert (timed.tokens, timed.layers_run) == (run_.tokens, run_.layers_run)
        assert timed.ledger.cycles == run_.ledger.cycles
        assert timed.ledger.launches == run_.ledger.launches
        assert run_.ledger.device_cycles == sum(run_.ledger.by_model.values())
        every |= set(run_.layers_run)
    assert len(every) > 1 or options.get("exit_measure") == "softmax" or options.get("exit_interval") == 2


@pytest.mark.parametrize("propagation", ["hidden", "kv"])
@pytest.mark.parametrize("depth", [1, 2])
def test_all_leave_at_once(depth: int, propagation: str) -> None:
    """Nothing behind the exit matters: the text is that of a network of the first layers."""
    options = {"first_exit": depth, "exit_threshold": 0.0, "exit_decay": 0.0, "state_propagation": propagation}
    part, tokens = layer_part(network(), (0, depth)), list(PROMPTS[0])
    for _ in range(NEW):
        tokens.append(int(IntegerInterpreter(part).forward(Rows.chain(tokens), Cache(part.graph))[-1].argmax()))
    found = decoded(model(), "calm", options, PROMPTS[0])
    assert found.tokens == tokens[len(PROMPTS[0]):]
    assert found.layers_run == [depth] * NEW


@pytest.mark.parametrize(("method", "options"), [
    ("calm", {"exit_threshold": 1.0, "exit_decay": 0.0}), ("skipdecode", {"least_layers": 3})])
def test_where_nobody_leaves_the_text_is_the_usual_one(method: str, options: Mapping[str, Any]) -> None:
    found = decoded(model(), method, options, PROMPTS[0])
    assert found.tokens == plain(tuple(PROMPTS[0]), NEW, "greedy", "stop").tokens
    assert set(found.layers_run) == {3}


@pytest.mark.parametrize("name", LOSSY)
def test_a_later_turn_passes_the_text_anew(name: str) -> None:
    """To it, all that was said before is a prompt."""
    options = dict(WAYS)[name]
    for target in (model(), by_interpreter()):
        made = talk(target, name, options, Ledger(CONFIG))
        first = made.turn(PROMPTS[0], 9)
        second = made.turn([8, 2], 9)
        assert second.cached == 0
        before = [*PROMPTS[0], *first.tokens, 8, 2]
        assert second.before == before
        assert second.tokens == of_policy(name, options, before, 9)[0]


def test_the_check_sees_rows_that_are_not_taken_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that goes deeper alone reads keys and values of other texts."""
    options, prompts, whole = WAYS[0][1], ([11, 30], [25, 6, 19], [33]), Leaving._go

    def alone(self: Leaving, way: _Way, first: int, end: int, want: Any, *, left: bool = False) -> Any:
        for row in self._waiting[:-1]:
            row.depth = 3
        return (yield from whole(self, way, first, end, want, left=left))

    with monkeypatch.context() as planted:
        planted.setattr(Leaving, "_go", alone)
        wrong = [decoded(model(), "calm", options, prompt).tokens for prompt in prompts]
    expected = [of_policy("calm", options, prompt, NEW)[0] for prompt in prompts]
    assert [decoded(model(), "calm", options, prompt).tokens for prompt in prompts] == expected != wrong


def test_the_threshold_falls() -> None:
    """Equation 5 of the paper by hand, cut at 0 and 1."""
    assert decayed(0.9, 5, 0.0, 10) == 0.9
    assert decayed(0.9, 0, 4.0, 10) == pytest.approx(0.91)
    assert decayed(0.9, 5, 4.0, 10) == pytest.approx(0.81 + 0.1 * exp(-2))
    assert decayed(1.0, 0, 4.0, 10) == 1.0


def test_measures_by_hand() -> None:
    assert similarity(np.array([3, 4]), np.array([6, 8])) == 1
    assert similarity(np.array([1, 0]), np.array([0, -7])) == 0
    assert similarity(np.array([0, 0]), np.array([1, 2])) == 0
    logits = np.array([[400, 300, -5, 300]])
    real = np.exp(logits[0] * 0.01)
    real /= real.sum()
    told = gap(largest(logits, 2), exponents_of(logits, 0.01, 1.0))
    assert told == pytest.approx(real[0] - real[1], abs=1e-3)
    assert SoftmaxGap().want.top == 2
    heads = ExitHeads({1: np.array([1.0, -1.0])}, {1: 0.5})
    assert heads.confidence(1, np.array([30, 40])) == pytest.approx(1 / (1 + exp(-(0.5 - 10 / 1250 ** 0.5))))


def test_layers_fall_in_a_line() -> None:
    options = METHODS["skipdecode"].values({"exit_span": 4, "least_layers": 4, "warm_up_layers": 2})
    assert [layers_of(token, 8, options) for token in (0, 1, 3, 4, 99)] == [
        [(0, 8)], [(0, 2), (3, 5)], [(0, 2), (5, 3)], [(0, 2), (6, 2)], [(0, 2), (6, 2)]]
    for wrong, message in (({"least_layers": 9}, r"--most-layers must be from --least-layers \(9\) to 8 for this"),
                           ({"warm_up_layers": 4}, r"--warm-up-layers must be below --least-layers \(4\)")):
        with pytest.raises(InputError, match=message):
            layers_of(0, 8, options | wrong)


@pytest.mark.parametrize(("options", "message"), [
    ({"first_exit": 3}, "--first-exit must be from 1 to 2 for a target of 3 layers, not 3"),
    ({"exit_threshold": 1.5}, "--exit-threshold must be from 0 to 1, not 1.5"),
])
def test_options_that_no_target_takes(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        talk(model(), "calm", options, Ledger(CONFIG))


def test_a_classifier_needs_trained_heads() -> None:
    way, target = METHODS["calm"], model()
    request = Request(draft=None, target=target, cache=target.kv(), lengths=LENGTHS["constant"](0), ends=frozenset(),
                      rule=GREEDY, host=CONFIG.host, options=way.values({"exit_measure": "classifier"}))
    with pytest.raises(InputError, match="--exit-measure classifier needs heads that were trained for the target"):
        way.make(request)


@pytest.mark.parametrize("method", LOSSY)
@pytest.mark.parametrize(("options", "what"), [
    (["--batch", "2", "--prompt-file", "two.txt"], "--batch"), (["--temperature", "0.8"], "--temperature"),
    (["--kv-cache", "none"], "--kv-cache none"), (["--context-overflow", "crop"], "--context-overflow crop"),
    (["--launch", "draft"], "--launch draft")])
def test_what_does_not_go_with_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, method: str,
                                    options: list[str], what: str) -> None:
    assert run(monkeypatch, "generate", "--model", "small", "--method", method, "--no-baseline", *options) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"--method {method} takes one greedy text with its whole cache, a pass a launch, not {what}" in said


def test_neither_adaptive_nor_served(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    assert run(monkeypatch, "generate", "--model", "small", "--method", "calm", "--adaptive") == 2
    assert "--adaptive needs --method" in capsys.readouterr().err
    assert run(monkeypatch, "serve", "--model", "small", "--method", "calm", "--rate", "100", "--requests", "2") == 2
    assert "--method calm takes one text, not a batch" in " ".join(capsys.readouterr().err.split())


def test_a_bench_compares_with_the_policy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                          capsys: pytest.CaptureFixture) -> None:
    """Rows say that a method is lossy, and whether its texts are those of its policy; another text is an error."""
    out = tmp_path / "bench.json"
    arguments = ["bench", "--model", "small", "--category", "completion", "--prompts", "1", "--max-new-tokens", "10",
                 "--method", "ar,calm,skipdecode", "--exit-threshold", "0.2", "--exit-span", "6", "--json", str(out)]
    assert run(monkeypatch, *arguments) == 0
    rows = {row["method"]: row for row in json.loads(out.read_text())["rows"]}
    assert [(row["lossless"], row["policy_equal"]) for row in rows.values()] == [(True, None), (False, 1), (False, 1)]
    assert rows["ar"]["layers_run"] is None
    assert sum(rows["calm"]["layers_run"].values()) == sum(rows["skipdecode"]["layers_run"].values()) == 10
    assert 0 < rows["calm"]["roofline_fraction"] <= 1
    assert "policy_equal: prompts with exactly the text of a lossy method's policy" in " ".join(
        capsys.readouterr().out.split())
    monkeypatch.setattr(Session, "follows", lambda *_: False)
    assert run(monkeypatch, *arguments) == 1
    assert "tokens of a lossy method differ from those of its policy" in capsys.readouterr().out


def test_rows_with_a_place_are_of_one_depth() -> None:
    target = model()
    with pytest.raises(ValueError, match="rows that are given a place are those of one depth and one launch"):
        target.forward(Rows.chain([1, 2]), Want(hidden=(1, 2), place=0), target.kv())
    with pytest.raises(ValueError, match="place of what is wanted must be at least 0, not -1"):
        Want(hidden=(1,), place=-1)


def test_another_token_is_none_of_the_policy() -> None:
    pair = bundled_pair("small")
    ids = pair.encode("def f(x):\n    return ")
    with Session(CONFIG, pair=pair, general=True) as session:
        made = session.generate("skipdecode", ids, 8, options={"exit_span": 4})
        assert session.follows("skipdecode", {"exit_span": 4}, ids, made.tokens)
        wrong = [*made.tokens[:5], made.tokens[5] ^ 1, *made.tokens[6:]]
        assert not session.follows("skipdecode", {"exit_span": 4}, ids, wrong)
