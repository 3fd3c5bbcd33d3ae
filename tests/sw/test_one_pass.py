"""Drafters that read the target's hidden rows: random ones cost time and never the text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Borrowed, Cache, IntegerInterpreter, Network, Rows, residuals
from gemmule.compiler.kernels.head.lent import LENT, Lender
from gemmule.compiler.programs.beside import compile_beside
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.config import Config, load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.asking import alone
from gemmule.sw.decoding.context import OVERFLOWS
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.lengths import LENGTHS
from gemmule.sw.decoding.methods import DRAFT, METHODS, Request
from gemmule.sw.decoding.methods.parallel import Guesses, OnePassDrafter
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.trained import TrainedModel
from gemmule.sw.decoding.verify import GREEDY, Match, Rule
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.step import Asking
from tests.compiler.integer_networks import Sizes, borrowing, random_network
from tests.thinned import some

CONFIG = load_config("edge")
SIZES = Sizes(family="llama", hidden=48, inner=100, heads=4, kv_heads=2, head_dim=24, layers=4, vocab=41, positions=70,
              prefix=1)
DRAFTER = Sizes(family="llama", hidden=48, inner=60, heads=2, kv_heads=1, head_dim=24, layers=2, vocab=44, positions=70,
                prefix=1)
LAYER = replace(DRAFTER, layers=1, vocab=41)
DRAWN = Match(Sampling(0.7, 8, Fraction(9, 10)), Noise(5))
NUMBERS = np.random.default_rng(1).permutation(44) % 41
OTHERS = np.random.default_rng(2).permutation(41)
MASKS = (41, 42, 43)
TRAINED = tuple(name for name, one in METHODS.items() if one.trained in ("parallel", "eagle"))
OPTIONS: dict[tuple[str, str], dict[str, int | str]] = {
    ("chain", ""): {"parallel_top": 1}, ("fixed", ""): {"parallel_form": "fixed"}, ("wide", ""): {"parallel_top": 8},
    ("chain", "eagle"): {"eagle_top": 1, "eagle_width": 1}, ("wide", "eagle"): {"eagle_top": 8, "eagle_width": 6}}
Trained = dict[str, TrainedModel]
PROMPTS = ([7], [3, 1], [2, 9, 2, 9, 2, 9], list(range(5, 30)))


@cache
def networks() -> tuple[Network, dict[str, Network]]:
    """A target, and its drafters by kind."""
    return random_network(SIZES, 20), {
        "parallel": borrowing(random_network(DRAFTER, 21), (2, 4), 22),
        "eagle": borrowing(random_network(LAYER, 23), (2, 4), 24, own=True)}


def models(config: Config = CONFIG, rows: int = 8, *, backend: str = "model", interpreted: bool = False,
           drawn: bool = False, kinds: Iterable[str] = ("parallel", "eagle")) -> tuple[LoadedModel, Trained]:
    """Target and drafters on one device; ``drawn``: with the program for tokens that are drawn."""
    target, drafters = networks()
    program = compile_network(target, config, rows=rows, tokens=True, lend=2, own=8 * rows)
    assert program.lends is not None
    base = -(-program.size // (1 << 16)) << 16
    sampled = compile_beside(ModelProgram, target, program, rows=rows, context=program.max_positions, answered=True,
                             base_address=base, tokens=False) if drawn else None
    assert sampled is None or sampled.size < 1 << 20
    end, beside = base + (1 << 20), dict[str, ModelProgram]()
    for kind in kinds:
        beside[kind] = compile_network(drafters[kind], config, rows=rows, tokens=True, base_address=end, general=True,
                                       borrow=Lender(program.lends, program.symbols[LENT]))
        end = -(-(end + beside[kind].size) // (1 << 16)) << 16
    device = open_device(backend, config, end)
    if interpreted:
        assert isinstance(device, Simulator)
        first: LoadedModel = InterpretedModel(TARGET, target, program, device, sampled=sampled)
    else:
        first = LoadedModel(TARGET, program, program.fill(target), device, sampled=sampled)
        if sampled:
            device.write_dram(sampled.symbols["program"][0], sampled.image)
    made: Trained = {}
    for kind, found in beside.items():
        network, numbers, masks = (drafters[kind], *((NUMBERS, MASKS) if kind == "parallel" else (OTHERS, ())))
        if isinstance(first, InterpretedModel):
            assert isinstance(device, Simulator)
            second: LoadedModel = InterpretedModel(DRAFT, network, found, device, lender=first)
        else:
            second = LoadedModel(DRAFT, found, found.fill(network), device)
        made[kind] = TrainedModel(second, numbers, masks, "")
    return first, made


@pytest.fixture(scope="module")
def both() -> tuple[LoadedModel, Trained]:
    return models()


@pytest.fixture(scope="module")
def interpreted() -> tuple[LoadedModel, Trained]:
    return models(interpreted=True)


def talk(target: LoadedModel, trained: Trained, ledger: Ledger, *, method: str = "parallel", count: int = 4,
         overflow: str = "stop", kept: bool = True, rule: Rule = GREEDY, **options: int | str) -> Conversation:
    charged = {kind: replace(one, model=one.model.charging(ledger)) for kind, one in trained.items()}
    kv = target.charging(ledger).kv(kept=kept)
    drafter = METHODS[method].make(Request(
        draft=None, target=target.charging(ledger, DRAFT), cache=kv, lengths=LENGTHS["constant"](count),
        ends=frozenset(), rule=rule, host=CONFIG.host, kept=kept, trained=charged,
        options=METHODS[method].values(options)))
    return Conversation(target, drafter, ledger, rule=rule, overflow=OVERFLOWS[overflow], kv=kv)


SHORT = {(3, "sinks", "eagle"), (2, "stop", "parallel"), (0, "sinks", "joined")}
"""A prompt of each kind, and every method."""


@pytest.mark.parametrize(("number", "way"), [
    pytest.param(number, way, id=f"{number}-{'-'.join(way)}", marks=() if (number, *way) in SHORT else pytest.mark.long)
    for number in range(len(PROMPTS)) for way in product(["stop", "sinks"], TRAINED)])
def test_the_text_is_that_of_ar(both: tuple[LoadedModel, Trained], number: int, way: tuple[str, str]) -> None:
    """To the end of the context and behind it, and in a second turn that takes some of the text back."""
    prompt, (overflow, method) = PROMPTS[number], way
    texts = []
    for name in ("ar", method):
        ledger = Ledger(CONFIG)
        made = talk(*both, ledger, method=name, overflow=overflow, count=7)
        found = [made.turn(prompt, 30).tokens]
        made.retract(7)
        found.append(made.turn([4, 8], 60).tokens)
        texts.append(found)
        assert ledger.device_cycles == sum(ledger.by_model.values())
        assert {name for name, launches in ledger.launches.items() if launches} == {TARGET, *METHODS[name].labels}
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("way", "method"), [
    one for one in product(["no cache", "chain", "fixed", "wide"], TRAINED)
    if one not in (("no cache", "eagle"), ("fixed", "eagle"))])
def test_other_ways(both: tuple[LoadedModel, Trained], way: str, method: str) -> None:
    """Without a cache, as a chain, in a fixed shape, and with many candidates a position."""
    kept, options = way != "no cache", OPTIONS.get((way, method if method == "eagle" else ""), {})
    expected = talk(*both, Ledger(CONFIG), method="ar", kept=kept).turn([3, 1, 4], 20)
    found = talk(*both, Ledger(CONFIG), method=method, kept=kept, count=7, **options).turn([3, 1, 4], 20)
    assert found.tokens == expected.tokens
    assert max(drafted for drafted, _ in found.steps) > 1


def test_a_shape_that_is_given(both: tuple[LoadedModel, Trained]) -> None:
    """Each tree has its places, while tokens are left; more ranks or positions than the drafter has are refused."""
    expected = talk(*both, Ledger(CONFIG), method="ar").turn([3, 1, 4], 20)
    found = talk(*both, Ledger(CONFIG), count=7, tree="0 1 0,0 0,2 1,1").turn([3, 1, 4], 20)
    assert found.tokens == expected.tokens
    assert {drafted for drafted, _ in found.steps[:3]} == {5}
    for shape, said in (("0 4", "at most 4 candidates behind one path"),
                        (" ".join(",".join("0" * depth) for depth in range(1, 3 + len(MASKS))), "levels, as the")):
        with pytest.raises(InputError, match=f"--tree must have .*{said}"):
            talk(*both, Ledger(CONFIG), count=7, tree=shape)


@pytest.mark.parametrize("method", TRAINED)
def test_by_the_interpreter(both: tuple[LoadedModel, Trained], interpreted: tuple[LoadedModel, Trained],
                            method: str) -> None:
    """The same tokens, steps and cycles as of the simulated device."""
    runs, ledgers = [], []
    for target, trained in (both, interpreted):
        ledgers.append(Ledger(CONFIG))
        runs.append(talk(target, trained, ledgers[-1], method=method, count=7).turn(PROMPTS[3], 30))
    assert (runs[0].tokens, runs[0].steps) == (runs[1].tokens, runs[1].steps)
    assert ledgers[0] == ledgers[1]


class Noted(OnePassDrafter):
    """Notes what it guesses, and drafts the text's own next tokens, each behind so many others that are as likely."""

    def __init__(self, drafter: TrainedModel, text: list[int], right: int) -> None:
        super().__init__(drafter, 7, top=3, form="fixed")
        self.text, self.right = text, right
        self.seen: list[tuple[list[int], Guesses]] = []

    def guesses(self, ids: list[int], budget: int) -> Asking[Guesses]:
        found = yield from super().guesses(ids, budget)
        self.seen.append((ids, found))
        return [[*((token, 0.6) for token, _ in guesses[:self.right]), (self.text[len(ids) + depth], 0.59)]
                for depth, guesses in enumerate(found) if len(ids) + depth < len(self.text)]


@pytest.mark.parametrize("right", [0, 1])
def test_what_it_guesses(both: tuple[LoadedModel, Trained], right: int) -> None:
    """By the definition: each row has the token that follows it and the target's rows at its position, masks have the
    last row's; wherever in a text the step is, whatever was rejected before, and wherever in the tree the target has
    read what was accepted.

    ``right``: which candidate of a position is always the text's next token, so that trees are accepted in and out of
    place.
    """
    (target, trained), (network, drafters) = both, networks()
    drafter = drafters["parallel"]
    plain, ledger = Ledger(CONFIG), Ledger(CONFIG)
    expected = talk(*both, plain, method="ar").turn(PROMPTS[3], 24)
    made = Noted(trained["parallel"], [*PROMPTS[3], *expected.tokens], right)
    run = Conversation(target, made, ledger, kv=target.charging(ledger).kv()).turn(PROMPTS[3], 24)
    assert run.tokens == expected.tokens
    assert max(accepted for _, accepted in run.steps) > 1
    moves = ledger.launches[TARGET] - len(run.steps) - (plain.launches[TARGET] - len(expected.steps))
    assert (moves > 0) == (right > 0), "accepted candidates behind others are moved together"
    names = residuals(network.graph)
    for ids, guesses in (one for one in made.seen if one[1]):
        values: dict[str, np.ndarray] = {}
        IntegerInterpreter(network).forward(Rows.chain(ids[:-1], 1), Cache(network.graph), values.__setitem__)
        lent = [*range(len(ids) - 1), *[len(ids) - 2] * (len(guesses) - 1)]
        feed = {node.name: values[names[node.depth]][lent] for node in drafter.graph.nodes
                if isinstance(node, Borrowed)}
        logits = IntegerInterpreter(drafter).forward(
            Rows.chain([*ids[1:], *MASKS[:len(guesses) - 1]], 1), Cache(drafter.graph), feed=feed)[-len(guesses):]
        best = np.argsort(-logits, axis=1, kind="stable")[:, :3]
        assert [[token for token, _ in position] for position in guesses] == NUMBERS[best].tolist()


def test_a_pass_drafts_all(both: tuple[LoadedModel, Trained]) -> None:
    """A chain takes one launch a step, whatever the number of drafts; it has no more than one and the masks."""
    target, trained = both
    for count, most in ((1, 1), (3, 3), (7, 4)):
        ledger = Ledger(CONFIG)
        run = talk(target, trained, ledger, count=count, parallel_top=1).turn([1, 2, 3], 12)
        assert max(drafted for drafted, _ in run.steps) == most
        assert ledger.launches[DRAFT] == 1 + len(run.steps) - (run.steps[-1][0] == 0)  # one for the prompt


def test_a_long_run_leaves_the_drafter_out(both: tuple[LoadedModel, Trained]) -> None:
    """A text that repeats itself: passes of the drafter are fewer than steps, and the next one catches up."""
    target, trained = both
    prompt = [*range(5, 17)] * 3
    counts = {}
    for least in (2, 256):
        ledger = Ledger(CONFIG)
        run = talk(target, trained, ledger, method="joined", count=7, joined_min_match=least).turn(prompt, 16)
        counts[least] = ledger.launches[DRAFT]
        assert run.tokens == talk(target, {}, Ledger(CONFIG), method="ar").turn(prompt, 16).tokens
    assert counts[2] < counts[256]


@pytest.mark.parametrize("method", some(TRAINED))
def test_drawn_tokens(method: str) -> None:
    """Those that autoregressive decoding draws; by the interpreter the same steps and cycles."""
    runs, ledgers, options = [], [], {"tree": "0 1 2 3 0,0 0,1 1,0"} if method == "eagle" else {}
    for interpreted in (False, True):
        target, trained = models(interpreted=interpreted, drawn=True)
        for name in ("ar", method):
            ledgers.append(Ledger(CONFIG))
            made = talk(target, trained, ledgers[-1], method=name, count=7, rule=DRAWN,
                        **(options if name == method else {}))
            runs.append([made.turn(PROMPTS[2], 20), made.turn([1, 2, 3], 12)])
    assert len({str([turn.tokens for turn in run]) for run in runs}) == 1
    assert [turn.steps for turn in runs[1]] == [turn.steps for turn in runs[3]]
    assert (ledgers[0], ledgers[1]) == (ledgers[2], ledgers[3])
    assert any(accepted for turn in runs[1] for _, accepted in turn.steps)


@pytest.mark.rtl
def test_rtl_takes_the_same_cycles() -> None:
    """Eight tokens, with the target's rows lent, borrowed and moved together."""
    config, runs, ledgers = load_config("tiny"), [], []
    for backend in ("model", "rtl"):
        target, trained = models(config, 4, backend=backend, kinds=["parallel"])
        if not runs:
            expected = talk(target, {}, Ledger(config), method="ar").turn(PROMPTS[1], 8).tokens
        ledgers.append(ledger := Ledger(config))
        one = replace(trained["parallel"], model=trained["parallel"].model.charging(ledger))
        drafter = Noted(one, [*PROMPTS[1], *expected], 1)
        runs.append(Conversation(target, drafter, ledger, kv=target.charging(ledger).kv()).turn(PROMPTS[1], 8))
        target.device.close()
        assert runs[-1].tokens == expected
    assert runs[0].steps == runs[1].steps
    assert ledgers[0] == ledgers[1]
    assert ledgers[0].launches[TARGET] > len(runs[0].steps) + 1, "accepted candidates behind others are moved together"


@pytest.mark.parametrize("method", TRAINED)
def test_what_it_does_not_take(both: tuple[LoadedModel, Trained], method: str) -> None:
    target, trained = both
    with pytest.raises(InputError, match=f"--method {method} needs a drafter that was trained on the target's hidden"):
        talk(target, {}, Ledger(CONFIG), method=method)
    with pytest.raises(InputError, match=f"--method {method} needs a session with general=True for drawn tokens"):
        talk(target, trained, Ledger(CONFIG), method=method, rule=DRAWN)
    kind = METHODS[method].trained
    alone_model = InterpretedModel(DRAFT, networks()[1][kind], trained[kind].model.program, None)
    with pytest.raises(ValueError, match="it reads hidden rows of a model that lends them: give its lender"):
        alone(alone_model.kv().chain([1, 2], None))  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "said"), [
    ({}, "needs a drafter that was trained on the hidden rows of small, which has none: take --model smollm2"),
    ({"batch": 2}, "take one text with its whole cache, a pass a launch, not --batch 2: drop one"),
    ({"launch": "step"}, "take one text with its whole cache, a pass a launch, not --launch step: drop one"),
])
@pytest.mark.parametrize("kind", ["parallel", "eagle"])
def test_sessions_without_one(options: dict[str, int | str], said: str, kind: str) -> None:
    with pytest.raises(InputError, match=said):
        Session(load_config("base"), trained=[kind], **options)  # type: ignore[arg-type]
