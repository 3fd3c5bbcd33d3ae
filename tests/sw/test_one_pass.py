"""A drafter that reads the target's hidden rows: random ones cost time and never the text."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Borrowed, Cache, IntegerInterpreter, Network, Rows, residuals
from gemmule.compiler.kernels.head.lent import LENT, Lender
from gemmule.config import load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.asking import alone
from gemmule.sw.decoding.context import OVERFLOWS
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.lengths import LENGTHS
from gemmule.sw.decoding.methods import DRAFT, METHODS, Request
from gemmule.sw.decoding.methods.parallel import OnePassDrafter
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.one_pass import OnePass
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY, Match, Rule
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.errors import InputError
from tests.compiler.integer_networks import Sizes, borrowing, random_network

CONFIG = load_config("edge")
SIZES = Sizes(family="llama", hidden=48, inner=100, heads=4, kv_heads=2, head_dim=24, layers=4, vocab=41, positions=70,
              prefix=1)
DRAFTER = Sizes(family="llama", hidden=48, inner=60, heads=2, kv_heads=1, head_dim=24, layers=2, vocab=44, positions=70,
                prefix=1)
NUMBERS = np.random.default_rng(1).permutation(44) % 41
MASKS = (41, 42, 43)
PROMPTS = ([7], [3, 1], [2, 9, 2, 9, 2, 9], list(range(5, 30)))


@cache
def networks() -> tuple[Network, Network]:
    return random_network(SIZES, 20), borrowing(random_network(DRAFTER, 21), (2, 4), 22)


def models(*, interpreted: bool = False) -> tuple[LoadedModel, OnePass]:
    """Target and drafter on one device."""
    target, drafter = networks()
    program = compile_network(target, CONFIG, rows=8, tokens=True, lend=2)
    assert program.lends is not None
    base = -(-program.size // (1 << 16)) << 16
    beside = compile_network(drafter, CONFIG, rows=8, tokens=True, base_address=base,
                             borrow=Lender(program.lends, program.symbols[LENT]))
    device = Simulator(CONFIG, dram_bytes=base + beside.size)
    if interpreted:
        first = InterpretedModel(TARGET, target, program, device)
        second: LoadedModel = InterpretedModel(DRAFT, drafter, beside, device, lender=first)
        return first, OnePass(second, NUMBERS, MASKS, "")
    return (LoadedModel(TARGET, program, program.fill(target), device),
            OnePass(LoadedModel(DRAFT, beside, beside.fill(drafter), device), NUMBERS, MASKS, ""))


@pytest.fixture(scope="module")
def both() -> tuple[LoadedModel, OnePass]:
    return models()


def talk(target: LoadedModel, one_pass: OnePass | None, ledger: Ledger, *, method: str = "parallel", count: int = 4,
         overflow: str = "stop", kept: bool = True, rule: Rule = GREEDY, lengths: str = "constant") -> Conversation:
    if one_pass:
        one_pass = OnePass(one_pass.model.charging(ledger), one_pass.tokens, one_pass.masks, "")
    kv = target.charging(ledger).kv(kept=kept)
    drafter = METHODS[method].make(Request(
        draft=None, target=target.charging(ledger, DRAFT), cache=kv, lengths=LENGTHS[lengths](count), ends=frozenset(),
        rule=rule, host=CONFIG.host, kept=kept, one_pass=one_pass))
    return Conversation(target, drafter, ledger, overflow=OVERFLOWS[overflow], kv=kv)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("overflow", ["stop", "sinks"])
def test_the_text_is_that_of_ar(both: tuple[LoadedModel, OnePass], prompt: list[int], overflow: str) -> None:
    """To the end of the context and behind it, and in a second turn that takes some of the text back."""
    texts = []
    for method in ("ar", "parallel"):
        ledger = Ledger(CONFIG)
        made = talk(*both, ledger, method=method, overflow=overflow)
        found = [made.turn(prompt, 30).tokens]
        made.retract(7)
        found.append(made.turn([4, 8], 60).tokens)
        texts.append(found)
        assert ledger.device_cycles == sum(ledger.by_model.values())
        assert {name for name, launches in ledger.launches.items() if launches} == {TARGET, *METHODS[method].labels}
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("kept", "lengths"), [(False, "constant"), (True, "heuristic"), (True, "cost")])
def test_other_ways(both: tuple[LoadedModel, OnePass], kept: bool, lengths: str) -> None:
    """Without a cache, and by schedules of drafts."""
    texts = [talk(*both, Ledger(CONFIG), method=method, kept=kept, lengths=lengths).turn([3, 1, 4], 20).tokens
             for method in ("ar", "parallel")]
    assert texts[0] == texts[1]


def test_by_the_interpreter(both: tuple[LoadedModel, OnePass]) -> None:
    """The same tokens, steps and cycles as of the simulated device."""
    runs, ledgers = [], []
    for target, one_pass in (both, models(interpreted=True)):
        ledgers.append(Ledger(CONFIG))
        runs.append(talk(target, one_pass, ledgers[-1]).turn(PROMPTS[3], 30))
    assert (runs[0].tokens, runs[0].steps) == (runs[1].tokens, runs[1].steps)
    assert ledgers[0] == ledgers[1]


def test_what_it_proposes(both: tuple[LoadedModel, OnePass]) -> None:
    """A chain by the definition: each row has the token that follows it and the target's rows at its position, masks
    have the last row's; wherever in a text the step is, whatever was rejected before."""
    (target, one_pass), (network, drafter) = both, networks()
    ledger = Ledger(CONFIG)
    seen: list[tuple[list[int], list[int]]] = []

    class Noted(OnePassDrafter):
        def propose(self, ids, budget):  # type: ignore[no-untyped-def]
            tree = yield from super().propose(ids, budget)
            seen.append((ids, tree.tokens[1:]))
            return tree

    made = Conversation(target, Noted(one_pass, 4), ledger, kv=target.charging(ledger).kv())
    made.turn(PROMPTS[3], 24)
    assert len(seen) > 5
    names = residuals(network.graph)
    for ids, proposed in (one for one in seen if one[1]):
        values: dict[str, np.ndarray] = {}
        IntegerInterpreter(network).forward(Rows.chain(ids[:-1], 1), Cache(network.graph), values.__setitem__)
        count = len(proposed)
        lent = [*range(len(ids) - 1), *[len(ids) - 2] * (count - 1)]
        feed = {node.name: values[names[node.depth]][lent] for node in drafter.graph.nodes
                if isinstance(node, Borrowed)}
        logits = IntegerInterpreter(drafter).forward(
            Rows.chain([*ids[1:], *MASKS[:count - 1]], 1), Cache(drafter.graph), feed=feed)
        assert proposed == NUMBERS[logits.argmax(axis=1)[len(logits) - count:]].tolist()


def test_a_pass_drafts_all(both: tuple[LoadedModel, OnePass]) -> None:
    """One launch a step, whatever the number of drafts; no more than one and the masks."""
    target, one_pass = both
    for count, most in ((1, 1), (3, 3), (7, 4)):
        ledger = Ledger(CONFIG)
        made = talk(target, one_pass, ledger, count=count)
        run = made.turn([1, 2, 3], 12)
        assert max(drafted for drafted, _ in run.steps) == most
        assert ledger.launches[DRAFT] == 1 + sum(drafted > 0 for drafted, _ in run.steps)  # one for the prompt


def test_what_it_does_not_take(both: tuple[LoadedModel, OnePass]) -> None:
    target, one_pass = both
    with pytest.raises(InputError, match="--method parallel needs a drafter that was trained on the target's hidden"):
        talk(target, None, Ledger(CONFIG))
    with pytest.raises(InputError, match="--method parallel reads hidden rows that greedy passes leave: use "):
        talk(target, one_pass, Ledger(CONFIG), rule=Match(Sampling(0.7, 8, Fraction(9, 10)), Noise(5)))
    with pytest.raises(InputError, match="--method parallel reads hidden rows that greedy passes leave: use "):
        talk(target, one_pass, Ledger(CONFIG), lengths="confidence")
    with pytest.raises(ValueError, match="it reads hidden rows of a model that lends them: give its lender"):
        alone(InterpretedModel(DRAFT, networks()[1], one_pass.model.program, None).kv().chain([1, 2], None))  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "said"), [
    ({}, "needs a drafter that was trained on the hidden rows of small: take --model smollm2"),
    ({"batch": 2}, "takes one text with its whole cache, a pass a launch, not --batch 2: drop one"),
    ({"launch": "step"}, "takes one text with its whole cache, a pass a launch, not --launch step: drop one"),
])
def test_sessions_without_one(options: dict[str, int | str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Session(load_config("base"), one_pass=True, **options)  # type: ignore[arg-type]
