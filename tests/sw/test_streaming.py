"""Streams beside candidates: random ones cost time and never the text, wherever in the tree they stand."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows, layer_part, residuals
from gemmule.config import Config, load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.lengths import LENGTHS
from gemmule.sw.decoding.methods import DRAFT, METHODS, Request
from gemmule.sw.decoding.methods.streaming import Streaming
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.models.drafting.tuned import Streams
from gemmule.sw.step import TopK
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import some

CONFIG = load_config("edge")
SIZES = Sizes(family="llama", hidden=48, inner=100, heads=4, kv_heads=2, head_dim=24, layers=4, vocab=41, positions=70,
              prefix=1)
NETWORK = random_network(SIZES, 20)
STREAMS = Streams((38, 39, 40), 2)
PROMPTS = ([7], [2, 9, 2, 9, 2, 9], list(range(5, 30)))


def model(config: Config = CONFIG, *, backend: str = "model", interpreted: bool = False, rows: int = 8) -> LoadedModel:
    program = compile_network(NETWORK, config, rows=rows, tokens=True, general=True)
    device = open_device(backend, config, program.size)
    if interpreted:
        assert isinstance(device, Simulator)
        return InterpretedModel(TARGET, NETWORK, program, device)
    return LoadedModel(TARGET, program, program.fill(NETWORK), device)


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return model()


def talk(target: LoadedModel, ledger: Ledger, method: str = "streaming", streams: Streams | None = STREAMS,
         **options: int) -> Conversation:
    kv = target.charging(ledger).kv()
    drafter = METHODS[method].make(Request(
        draft=None, target=target.charging(ledger, DRAFT), cache=kv, lengths=LENGTHS["constant"](7),
        ends=frozenset(), rule=GREEDY, host=CONFIG.host, streams=streams, options=METHODS[method].values(options)))
    return Conversation(target, drafter, ledger, kv=kv)


@pytest.mark.parametrize(("prompt", "interpreted"), some([(PROMPTS[1], True), (PROMPTS[2], False), (PROMPTS[0], True)],
                                                         short=2))
def test_the_text_is_that_of_ar(prompt: list[int], interpreted: bool) -> None:
    """To the end of the context, and in a second turn that takes some of the text back."""
    made, texts = model(interpreted=interpreted), []
    for method in ("ar", "streaming"):
        ledger = Ledger(CONFIG)
        found = talk(made, ledger, method)
        turns = [found.turn(prompt, 20).tokens]
        found.retract(7)
        turns.append(found.turn([4, 8], 60).tokens)
        texts.append(turns)
        assert ledger.device_cycles == sum(ledger.by_model.values())
    assert texts[0] == texts[1]


class Told(Streaming):
    """Its guesses are the text's own next tokens, each behind so many others; its exit takes some candidates for
    unlikely, right ones among them. It notes what streams said.
    """

    def __init__(self, target: LoadedModel, text: list[int], right: int) -> None:
        super().__init__(STREAMS, 7, count=3, top=3, layers=4, scale=target.logit_scale)
        self.text, self.right, self.at = text, right, 0
        self.said: list[tuple[list[int], int, list[int]]] = []
        """Text up to a node, how many streams stand before, and the likeliest tokens."""

    def propose(self, ids: list[int], budget: int):  # type: ignore[no-untyped-def]
        self.at = len(ids)
        self.next = [[*((token, 0.6) for token, _ in guesses[:self.right]), (self.text[len(ids) + depth], 0.59)]
                     for depth, guesses in enumerate(self.next) if len(ids) + depth < len(self.text)]
        self.ids = ids
        return super().propose(ids, budget)

    def _chances(self, top: TopK | None) -> list[float]:
        found = super()._chances(top)
        assert top is None or len(found) == len(self.tree.tokens)
        return [1.0, *(0.9 if (self.at + node) % 3 else 0.0 for node in range(1, len(found)))]

    def _shared(self, chances: list[float], room: int) -> tuple[list[int], dict[int, int]]:
        left, hosts = super()._shared(chances, room)
        assert 0 in left
        assert len(left) + sum(hosts.values()) <= room
        assert all(self.tree.parent[node] in left for node in left[1:])
        return left, hosts

    def verified(self, tree):  # type: ignore[no-untyped-def]
        for node, guesses in self.guesses.items():
            path = [node]
            while tree.parent[path[0]] >= 0:
                path.insert(0, tree.parent[path[0]])
            before = [*self.ids[:-1], *(tree.tokens[one] for one in path)]
            self.said += [(before, stream, [token for token, _ in ranked]) for stream, ranked in enumerate(guesses)]
        return super().verified(tree)


def by_definition(text: list[int], streams: int) -> list[int]:
    """The three likeliest tokens of the stream behind so many others: tokens run all layers, streams the last ones."""
    rows = Rows.chain([*text, *STREAMS.tokens[:streams + 1]], 1)
    late = layer_part(NETWORK, (STREAMS.first, NETWORK.graph.layers - STREAMS.first))
    values: dict[str, np.ndarray] = {}
    IntegerInterpreter(NETWORK).forward(Rows.chain(text, 1), Cache(NETWORK.graph), values.__setitem__)
    names, own = residuals(NETWORK.graph), dict[str, np.ndarray]()
    IntegerInterpreter(late).forward(rows, Cache(late.graph), own.__setitem__)
    stream = own[names[0]].copy()
    stream[:len(text)] = values[names[STREAMS.first]]
    logits = IntegerInterpreter(late).forward(rows, Cache(late.graph), feed={names[0]: stream})
    return [int(token) for token in np.argsort(-logits[-1], kind="stable")[:3]]


@pytest.mark.parametrize("right", [0, 1])
def test_what_streams_say(target: LoadedModel, right: int) -> None:
    """By the definition, whatever was dropped or rejected before, and wherever in the tree the text went on."""
    plain, ledger = Ledger(CONFIG), Ledger(CONFIG)
    expected = talk(target, plain, "ar").turn(PROMPTS[2], 24).tokens
    made = Told(target, [*PROMPTS[2], *expected], right)
    run = Conversation(target, made, ledger, kv=target.charging(ledger).kv()).turn(PROMPTS[2], 24)
    assert run.tokens == expected
    assert max(accepted for _, accepted in run.steps) > 1
    launches = ledger.launches[TARGET] - 2 * len(run.steps) - (plain.launches[TARGET] - len(expected))
    assert (launches > 0) == (right > 0), "accepted candidates behind others are moved together"
    assert {streams for _, streams, _ in made.said} == {0, 1, 2}
    for text, streams, found in made.said[::3]:
        assert found == by_definition(text, streams), (len(text), streams)


def test_texts_one_behind_the_other() -> None:
    """By the interpreter, whose layers have caches of their own: what one text left there is no part of the next."""
    made, texts = model(interpreted=True), []
    for method in ("ar", "streaming", "ar", "jacobi"):
        talk(made, Ledger(CONFIG), "streaming").turn(PROMPTS[2], 20)
        texts.append(talk(made, Ledger(CONFIG), method).turn(PROMPTS[0], 20).tokens)
    fresh = talk(model(interpreted=True), Ledger(CONFIG), "ar").turn(PROMPTS[0], 20).tokens
    assert texts == [fresh] * 4


def test_by_the_interpreter(target: LoadedModel) -> None:
    """The same tokens, steps and cycles as of the simulated device, candidates dropped and moved."""
    expected = talk(target, Ledger(CONFIG), "ar").turn(PROMPTS[2], 24).tokens
    runs, ledgers, said = [], [], []
    for one in (target, model(interpreted=True)):
        ledgers.append(ledger := Ledger(CONFIG))
        made = Told(one, [*PROMPTS[2], *expected], 1)
        runs.append(Conversation(one, made, ledger, kv=one.charging(ledger).kv()).turn(PROMPTS[2], 24))
        said.append(made.said)
    assert (runs[0].tokens, runs[0].steps) == (runs[1].tokens, runs[1].steps)
    assert said[0] == said[1]
    assert ledgers[0] == ledgers[1]


@pytest.mark.rtl
def test_rtl_takes_the_same_cycles() -> None:
    """Eight tokens, with streams in the places of dropped candidates."""
    config, runs, ledgers = load_config("tiny"), [], []
    for backend in ("model", "rtl"):
        one = model(config, backend=backend, rows=4)
        if not runs:
            expected = talk(one, Ledger(config), "ar").turn(PROMPTS[1], 8).tokens
        ledgers.append(ledger := Ledger(config))
        made = Told(one, [*PROMPTS[1], *expected], 1)
        runs.append(Conversation(one, made, ledger, kv=one.charging(ledger).kv()).turn(PROMPTS[1], 8))
        one.device.close()
        assert runs[-1].tokens == expected
    assert runs[0].steps == runs[1].steps
    assert ledgers[0] == ledgers[1]


def test_rows_go_to_what_is_worth_most(target: LoadedModel) -> None:
    """An exit that is sure of a path gives its end the streams; unlikely candidates are dropped for them."""
    made = Streaming(STREAMS, 7, count=3, top=3, layers=4, scale=target.logit_scale)
    made.tree = type(made.tree)([0, 1, 2, 3, 4], [-1, 0, 0, 1, 2])
    assert made._shared([1.0, 1.0, 0.0, 1.0, 0.0], 6) == ([0, 1, 3], {3: 3})
    assert made._shared([1.0, 0.0, 0.0, 0.0, 0.0], 8) == ([0, 1, 2, 3, 4], {0: 3})
    assert made._shared([1.0, 0.5, 0.5, 0.0, 0.0], 3) == ([0, 1, 2], {})


def test_what_it_does_not_take(target: LoadedModel) -> None:
    with pytest.raises(InputError, match="--method streaming needs a target that was tuned with streams: take --model"):
        talk(target, Ledger(CONFIG), streams=None)
    with (Session(load_config("base"), general=True, interpreted=True) as session,
          pytest.raises(InputError, match="--method streaming takes one greedy text with its whole cache, a pass a "
                                          "launch, not --adaptive: drop one of the two")):
        session.converse("streaming", adaptive=True)
