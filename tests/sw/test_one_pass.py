"""A drafter that reads the target's hidden rows: random ones cost time and never the text."""

from __future__ import annotations

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
from gemmule.sw.decoding.one_pass import OnePass
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY, Match, Rule
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.step import Asking
from tests.compiler.integer_networks import Sizes, borrowing, random_network
from tests.thinned import some, thinned

CONFIG = load_config("edge")
SIZES = Sizes(family="llama", hidden=48, inner=100, heads=4, kv_heads=2, head_dim=24, layers=4, vocab=41, positions=70,
              prefix=1)
DRAFTER = Sizes(family="llama", hidden=48, inner=60, heads=2, kv_heads=1, head_dim=24, layers=2, vocab=44, positions=70,
                prefix=1)
DRAWN = Match(Sampling(0.7, 8, Fraction(9, 10)), Noise(5))
NUMBERS = np.random.default_rng(1).permutation(44) % 41
MASKS = (41, 42, 43)
TRAINED = tuple(name for name, one in METHODS.items() if one.needs_one_pass)
OPTIONS: dict[str, dict[str, int | str]] = {
    "chain": {"parallel_top": 1}, "fixed": {"parallel_form": "fixed"}, "wide": {"parallel_top": 8}}
PROMPTS = ([7], [3, 1], [2, 9, 2, 9, 2, 9], list(range(5, 30)))


@cache
def networks() -> tuple[Network, Network]:
    return random_network(SIZES, 20), borrowing(random_network(DRAFTER, 21), (2, 4), 22)


def models(config: Config = CONFIG, rows: int = 8, *, backend: str = "model", interpreted: bool = False,
           drawn: bool = False) -> tuple[LoadedModel, OnePass]:
    """Target and drafter on one device; ``drawn``: with the program for tokens that are drawn."""
    target, drafter = networks()
    program = compile_network(target, config, rows=rows, tokens=True, lend=2)
    assert program.lends is not None
    base = -(-program.size // (1 << 16)) << 16
    sampled = compile_beside(ModelProgram, target, program, rows=rows, context=program.max_positions, answered=True,
                             base_address=base, tokens=False) if drawn else None
    base += 1 << 20
    beside = compile_network(drafter, config, rows=rows, tokens=True, base_address=base, general=True,
                             borrow=Lender(program.lends, program.symbols[LENT]))
    device = open_device(backend, config, base + beside.size)
    if interpreted:
        assert isinstance(device, Simulator)
        first = InterpretedModel(TARGET, target, program, device, sampled=sampled)
        second: LoadedModel = InterpretedModel(DRAFT, drafter, beside, device, lender=first)
        return first, OnePass(second, NUMBERS, MASKS, "")
    if sampled:
        assert sampled.size < 1 << 20
        device.write_dram(sampled.symbols["program"][0], sampled.image)
    return (LoadedModel(TARGET, program, program.fill(target), device, sampled=sampled),
            OnePass(LoadedModel(DRAFT, beside, beside.fill(drafter), device), NUMBERS, MASKS, ""))


@pytest.fixture(scope="module")
def both() -> tuple[LoadedModel, OnePass]:
    return models()


def talk(target: LoadedModel, one_pass: OnePass | None, ledger: Ledger, *, method: str = "parallel", count: int = 4,
         overflow: str = "stop", kept: bool = True, rule: Rule = GREEDY, **options: int | str) -> Conversation:
    if one_pass:
        one_pass = OnePass(one_pass.model.charging(ledger), one_pass.tokens, one_pass.masks, "")
    kv = target.charging(ledger).kv(kept=kept)
    drafter = METHODS[method].make(Request(
        draft=None, target=target.charging(ledger, DRAFT), cache=kv, lengths=LENGTHS["constant"](count),
        ends=frozenset(), rule=rule, host=CONFIG.host, kept=kept, one_pass=one_pass,
        options=METHODS[method].values(options)))
    return Conversation(target, drafter, ledger, rule=rule, overflow=OVERFLOWS[overflow], kv=kv)


@pytest.mark.parametrize(("number", "way"), thinned(range(len(PROMPTS)), product(["stop", "sinks"], TRAINED)))
def test_the_text_is_that_of_ar(both: tuple[LoadedModel, OnePass], number: int, way: tuple[str, str]) -> None:
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


@pytest.mark.parametrize(("way", "method"), thinned(["no cache", "chain", "fixed", "wide"], TRAINED))
def test_other_ways(both: tuple[LoadedModel, OnePass], way: str, method: str) -> None:
    """Without a cache, as a chain, in a fixed shape, and with many candidates a position."""
    kept, options = way != "no cache", OPTIONS.get(way, {})
    expected = talk(*both, Ledger(CONFIG), method="ar", kept=kept).turn([3, 1, 4], 20)
    found = talk(*both, Ledger(CONFIG), method=method, kept=kept, count=7, **options).turn([3, 1, 4], 20)
    assert found.tokens == expected.tokens
    assert max(drafted for drafted, _ in found.steps) > 1


def test_a_shape_that_is_given(both: tuple[LoadedModel, OnePass]) -> None:
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
def test_by_the_interpreter(both: tuple[LoadedModel, OnePass], method: str) -> None:
    """The same tokens, steps and cycles as of the simulated device."""
    runs, ledgers = [], []
    for target, one_pass in (both, models(interpreted=True)):
        ledgers.append(Ledger(CONFIG))
        runs.append(talk(target, one_pass, ledgers[-1], method=method, count=7).turn(PROMPTS[3], 30))
    assert (runs[0].tokens, runs[0].steps) == (runs[1].tokens, runs[1].steps)
    assert ledgers[0] == ledgers[1]


class Noted(OnePassDrafter):
    """Notes what it guesses, and drafts the text's own next tokens, each behind so many others that are as likely."""

    def __init__(self, drafter: OnePass, text: list[int], right: int) -> None:
        super().__init__(drafter, 7, top=3, form="fixed")
        self.text, self.right = text, right
        self.seen: list[tuple[list[int], Guesses]] = []

    def guesses(self, ids: list[int], budget: int) -> Asking[Guesses]:
        found = yield from super().guesses(ids, budget)
        self.seen.append((ids, found))
        return [[*((token, 0.6) for token, _ in guesses[:self.right]), (self.text[len(ids) + depth], 0.59)]
                for depth, guesses in enumerate(found) if len(ids) + depth < len(self.text)]


@pytest.mark.parametrize("right", [0, 1])
def test_what_it_guesses(both: tuple[LoadedModel, OnePass], right: int) -> None:
    """By the definition: each row has the token that follows it and the target's rows at its position, masks have the
    last row's; wherever in a text the step is, whatever was rejected before, and wherever in the tree the target has
    read what was accepted.

    ``right``: which candidate of a position is always the text's next token, so that trees are accepted in and out of
    place.
    """
    (target, one_pass), (network, drafter) = both, networks()
    plain, ledger = Ledger(CONFIG), Ledger(CONFIG)
    expected = talk(*both, plain, method="ar").turn(PROMPTS[3], 24)
    made = Noted(one_pass, [*PROMPTS[3], *expected.tokens], right)
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


def test_a_pass_drafts_all(both: tuple[LoadedModel, OnePass]) -> None:
    """A chain takes one launch a step, whatever the number of drafts; it has no more than one and the masks."""
    target, one_pass = both
    for count, most in ((1, 1), (3, 3), (7, 4)):
        ledger = Ledger(CONFIG)
        run = talk(target, one_pass, ledger, count=count, parallel_top=1).turn([1, 2, 3], 12)
        assert max(drafted for drafted, _ in run.steps) == most
        assert ledger.launches[DRAFT] == 1 + len(run.steps) - (run.steps[-1][0] == 0)  # one for the prompt


def test_a_long_run_leaves_the_drafter_out(both: tuple[LoadedModel, OnePass]) -> None:
    """A text that repeats itself: passes of the drafter are fewer than steps, and the next one catches up."""
    target, one_pass = both
    prompt = [*range(5, 17)] * 3
    counts = {}
    for least in (2, 256):
        ledger = Ledger(CONFIG)
        run = talk(target, one_pass, ledger, method="joined", count=7, joined_min_match=least).turn(prompt, 16)
        counts[least] = ledger.launches[DRAFT]
        assert run.tokens == talk(target, None, Ledger(CONFIG), method="ar").turn(prompt, 16).tokens
    assert counts[2] < counts[256]


@pytest.mark.parametrize("method", some(TRAINED))
def test_drawn_tokens(method: str) -> None:
    """Those that autoregressive decoding draws; by the interpreter the same steps and cycles."""
    runs, ledgers = [], []
    for interpreted in (False, True):
        target, one_pass = models(interpreted=interpreted, drawn=True)
        for name in ("ar", method):
            ledgers.append(Ledger(CONFIG))
            made = talk(target, one_pass, ledgers[-1], method=name, count=7, rule=DRAWN)
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
        target, one_pass = models(config, 4, backend=backend)
        if not runs:
            expected = talk(target, None, Ledger(config), method="ar").turn(PROMPTS[1], 8).tokens
        ledgers.append(ledger := Ledger(config))
        drafter = Noted(OnePass(one_pass.model.charging(ledger), NUMBERS, MASKS, ""), [*PROMPTS[1], *expected], 1)
        runs.append(Conversation(target, drafter, ledger, kv=target.charging(ledger).kv()).turn(PROMPTS[1], 8))
        target.device.close()
        assert runs[-1].tokens == expected
    assert runs[0].steps == runs[1].steps
    assert ledgers[0] == ledgers[1]
    assert ledgers[0].launches[TARGET] > len(runs[0].steps) + 1, "accepted candidates behind others are moved together"


def test_what_it_does_not_take(both: tuple[LoadedModel, OnePass]) -> None:
    target, one_pass = both
    with pytest.raises(InputError, match="--method parallel needs a drafter that was trained on the target's hidden"):
        talk(target, None, Ledger(CONFIG))
    with pytest.raises(InputError, match="--method parallel needs a session with general=True for drawn tokens"):
        talk(target, one_pass, Ledger(CONFIG), rule=DRAWN)
    with pytest.raises(ValueError, match="it reads hidden rows of a model that lends them: give its lender"):
        alone(InterpretedModel(DRAFT, networks()[1], one_pass.model.program, None).kv().chain([1, 2], None))  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "said"), [
    ({}, "need a drafter that was trained on the hidden rows of small: take --model smollm2"),
    ({"batch": 2}, "take one text with its whole cache, a pass a launch, not --batch 2: drop one"),
    ({"launch": "step"}, "take one text with its whole cache, a pass a launch, not --launch step: drop one"),
])
def test_sessions_without_one(options: dict[str, int | str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Session(load_config("base"), one_pass=True, **options)  # type: ignore[arg-type]
