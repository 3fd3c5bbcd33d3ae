"""The step interface on a device: every answer, range, batch and cache operation beside the integer interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows, layer_part
from gemmule.config import load_config
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.step import LayerRange, Want
from tests.compiler.general_bench import exponent_total
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import some

SEED = 20261129
SIZES = Sizes(family="llama", hidden=48, inner=100, heads=4, kv_heads=2, head_dim=24, layers=4, vocab=301, positions=60)


def _model(network: Network, config: str, *, rows: int = 4, batch: int = 1, general: bool = True,
           backend: str = "model") -> LoadedModel:
    device = load_config(config)
    program = compile_network(network, device, rows=rows, batch=batch, tokens=True, general=general)
    return LoadedModel("target", program, program.fill(network), open_device(backend, device, program.size))


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def network(request: pytest.FixtureRequest) -> Network:
    return random_network(replace(SIZES, family=request.param), SEED)


def _golden(network: Network, tokens: Sequence[int]) -> np.ndarray:
    """Logits of a whole text  # [tokens, vocab]."""
    return IntegerInterpreter(network).forward(Rows.chain(tokens), Cache(network.graph))


def test_every_answer_of_a_long_chain(network: Network) -> None:
    """Three launches; only the last rows are answered. Launches are charged once each."""
    model, text = _model(network, "base"), np.random.default_rng(SEED).integers(0, 301, 10).tolist()
    ledger, logits = Ledger(model.device.config), _golden(network, text)[-6:]
    out = model.charging(ledger).forward(Rows.chain(text), Want(last=6, logits=True, top=5, temperature=0.7))
    assert out.argmax == logits.argmax(axis=1).tolist()
    assert out.logits is not None
    assert np.array_equal(out.logits, logits)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    assert out.top is not None
    assert np.array_equal(out.top.tokens, order)
    assert np.array_equal(out.top.logits, np.take_along_axis(logits, order, axis=1))
    found = out.exponents
    assert found is not None
    assert np.array_equal(found.maximum, logits.max(axis=1))
    assert np.array_equal(found.total, exponent_total(logits, found.mult, found.shift))
    scale = network.graph.by_name[network.graph.output].type.scale
    assert found.mult / 2 ** found.shift == pytest.approx(scale / 0.7 * np.log2(np.e) * 1024, rel=1e-4)
    assert ledger.launches == {"target": 3}
    assert ledger.device_cycles == out.cycles


def test_answers_cost_only_where_they_are_wanted(network: Network) -> None:
    model, rows = _model(network, "base"), Rows.chain([1, 2, 3])
    plain = model.forward(rows)
    assert (plain.logits, plain.top, plain.exponents, plain.hidden) == (None, None, None, {})
    assert plain.cycles == _model(network, "base", general=False).forward(rows).cycles
    keys, logits, top, exponents = (model.forward(rows, want).cycles for want in (
        Want(last=0), Want(logits=True), Want(top=1), Want(temperature=1.0)))
    assert keys < min(plain.cycles, logits), "the head's weights are not even loaded"
    assert logits < min(top, exponents)


def test_hidden_rows_of_every_depth(network: Network) -> None:
    """Handles from one pass, taken up by others from their depth on: the same answers as all layers at once."""
    model, text = _model(network, "edge"), [5, 6, 7, 8]
    out = model.forward(Rows.chain(text), Want(hidden=(1, 3)))
    logits = _golden(network, text)
    assert out.argmax == logits.argmax(axis=1).tolist()
    assert len(out.results) == 3
    assert {depth: len(hidden) for depth, hidden in out.hidden.items()} == {1: 4, 3: 4}
    for depth, hidden in out.hidden.items():
        rows = Rows.chain([0] * 4).entering(model.slots_of(hidden))
        late = model.forward(rows, Want(logits=True), layers=[LayerRange(first=depth, count=4 - depth)])
        assert late.logits is not None
        assert np.array_equal(late.logits, logits)
    some = model.slots_of(out.hidden[3][[1, 3]])
    head = model.forward(Rows.chain([0, 0]).entering(some), Want(logits=True), layers=[LayerRange(first=4, count=0)])
    part = layer_part(network, (0, 3))
    expected = IntegerInterpreter(part).forward(Rows.chain(text), Cache(part.graph))[[1, 3]]
    assert head.logits is not None
    assert np.array_equal(head.logits, expected)


def test_ranges_with_caches_of_their_own(network: Network) -> None:
    """LayerSkip's order: early layers draft row by row, late ones then take all rows: the whole network's text."""
    model, text = _model(network, "base", rows=3), [3, 1, 4]
    early, late = model.kv(), model.kv()
    drafted: list[int] = []
    waiting: list[np.ndarray] = []
    part = layer_part(network, (0, 2))
    cache = Cache(part.graph)
    for token in text:
        out = model.forward(Rows.chain([token], early.length), Want(hidden=(2,)), early,
                            layers=[LayerRange(first=0, count=2)])
        drafted += out.argmax
        waiting.append(model.slots_of(out.hidden[2]))
        rows = Rows.chain([token], cache.length())
        assert out.argmax == IntegerInterpreter(part).forward(rows, cache).argmax(axis=1).tolist()
    assert (early.length, late.length) == (3, 0)
    rows = Rows.chain([0] * 3).entering(np.concatenate(waiting))
    out = model.forward(rows, Want(logits=True), layers=[LayerRange(first=2, count=2, kv=late)])
    assert out.logits is not None
    assert np.array_equal(out.logits, _golden(network, text))
    assert late.length == 3
    both = [LayerRange(first=0, count=2, kv=early), LayerRange(first=2, count=2, kv=late)]
    out = model.forward(Rows.chain([9, 8], 3), layers=both)
    assert out.argmax == _golden(network, [*text, 9, 8])[-2:].argmax(axis=1).tolist()
    assert early.length == late.length == 5


class Batch:
    """Sequences of a model, and the interpreter's caches of them."""

    def __init__(self, network: Network, model: LoadedModel) -> None:
        self.network, self.model, self.cache = network, model, Cache(network.graph)
        self.kv = [model.kv(i) for i in range(model.program.batch)]
        self.ends = [0] * len(self.kv)
        """Position behind the last row of each sequence."""

    def forward(self, tokens: dict[int, list[int]], want: Want | int | None = None) -> None:
        made = Rows.ragged(list(tokens.values()), [self.ends[i] for i in tokens])
        rows = replace(made, sequences=np.repeat(list(tokens), [len(part) for part in tokens.values()]))
        logits = IntegerInterpreter(self.network).forward(rows, self.cache)
        out = self.model.forward(rows, want, self.kv)
        last = want.last if isinstance(want, Want) else want
        keep = [i for s in tokens for i in (lambda own: own if last is None else own[max(0, len(own) - last):])(
            np.flatnonzero(rows.sequences == s).tolist())]
        assert out.argmax == logits[keep].argmax(axis=1).tolist()
        if out.logits is not None:
            assert np.array_equal(out.logits, logits[keep])
        for i, part in tokens.items():
            self.ends[i] += len(part)
        self.check()

    def check(self) -> None:
        assert [kv.length for kv in self.kv] == [self.cache.length(i) for i in range(len(self.kv))]


@pytest.mark.parametrize("config", some(["edge", "base"]))
def test_ragged_batches(network: Network, config: str) -> None:
    """Prompts of any length, sequences without rows, other answers, branches, forks: each as if it were alone."""
    model, random = _model(network, config, rows=2, batch=3), np.random.default_rng(SEED)
    batch = Batch(network, model)

    def tokens(count: int) -> list[int]:
        return [int(token) for token in random.integers(0, 301, count)]

    batch.forward({0: tokens(5), 1: tokens(1), 2: tokens(2)})
    batch.forward({0: tokens(1), 2: tokens(7)}, 1)
    batch.forward({1: tokens(2)}, 0)
    batch.forward({0: tokens(2), 1: tokens(1)}, Want(last=1, logits=True))
    batch.forward({1: tokens(3)}, Want(logits=True))
    assert batch.kv[2].fork(batch.kv[0]) > 2000
    batch.cache.fork(2, 0)
    batch.ends[0] = batch.ends[2]
    batch.check()
    batch.forward({0: tokens(2), 1: tokens(1), 2: tokens(1)})
    assert batch.kv[0].truncate(4) == 0
    batch.cache.truncate(4, 0)
    batch.ends[0] = 4
    batch.forward({0: tokens(1), 1: tokens(1), 2: tokens(2)})
    batch.forward({0: tokens(2), 1: tokens(59 - batch.ends[1])}, 1)
    batch.forward({0: tokens(9), 1: tokens(1)}, 1)  # the last one is full before the other's last launch
    with pytest.raises(ValueError, match="sequence 1 must have rows in each pass, .* not 60 of 60 rows: truncate"):
        model.forward(Rows.chain([1], batch.ends[0]), 1, batch.kv)
    batch.kv[1].truncate(0)
    batch.cache.truncate(0, 1)
    batch.ends[1] = 0
    batch.forward({0: tokens(1)})


def test_branches_of_one_sequence_among_others(network: Network) -> None:
    model = _model(network, "base", rows=4, batch=2)
    batch = Batch(network, model)
    batch.forward({0: [1, 2, 3], 1: [4]})
    tree, chain = Rows.tree([5, 6, 7, 8], [-1, 0, 0, 2], 1), Rows.chain([9], 3)
    mask = np.zeros((5, 5), dtype=bool)
    mask[0, 0], mask[1:, 1:] = True, tree.mask
    rows = Rows(tokens=np.array([9, 5, 6, 7, 8]), positions=np.concatenate([chain.positions, tree.positions]),
                sequences=np.array([0, 1, 1, 1, 1]), mask=mask)
    logits = IntegerInterpreter(network).forward(rows, batch.cache)
    assert model.forward(rows, kv=batch.kv).argmax == logits.argmax(axis=1).tolist()
    assert batch.kv[1].commit([0, 2, 3]) > 2000
    batch.cache.keep([0, 1, 3, 4], 1)
    assert batch.kv[0].commit([0]) == 0
    batch.ends = [4, 4]
    batch.forward({0: [1], 1: [2, 3]})


def test_evict_and_gather(network: Network) -> None:
    """StreamingLLM's and SpAtten's moves: what is left is seen at its own position, in its new place."""
    model, random = _model(network, "base"), np.random.default_rng(SEED)
    ledger = Ledger(model.device.config)
    batch = Batch(network, model := model.charging(ledger))
    kv: ContiguousKV = batch.kv[0]
    batch.forward({0: random.integers(0, 301, 40).tolist()}, 1)
    before = ledger.cycles
    cost = kv.evict(4, 20)
    batch.cache.keep([*range(4), *range(24, 40)])
    batch.forward({0: [1, 2, 3]})
    kept = np.sort(random.permutation(kv.length)[:15])
    cost += kv.gather(kept)
    batch.cache.keep(kept)
    batch.check()
    assert kv.gather(np.arange(15)) == kv.evict(15, 0) == 0
    assert ledger.launches["target"] == 10 + 1 + 1 + 1
    assert ledger.cycles > before + cost > before + 4000
    batch.forward({0: [4, 5]})
    heads = np.stack([[np.sort(random.permutation(17)[:9]) for _ in range(2)] for _ in range(4)])
    kv.gather(heads)
    sequence = batch.cache._at(0)
    for layer, node in enumerate(network.graph.attentions):
        for part in (sequence.keys, sequence.values):
            columns = [part[node.name][heads[layer, kv_head], kv_head * 24:(kv_head + 1) * 24] for kv_head in range(2)]
            part[node.name] = np.concatenate(columns, axis=1)
    sequence.positions = sequence.positions[:9]
    batch.forward({0: [6, 7, 8]}, Want(logits=True))


@pytest.mark.rtl
def test_rtl_gives_the_same_answers_and_costs() -> None:
    """Ranges, hidden rows, answers and cache operations on `tiny`: answers, lengths and the whole ledger are equal."""
    network = random_network(replace(SIZES, hidden=24, head_dim=8, inner=40, layers=3, vocab=61), SEED)
    found = []
    for backend in ("model", "rtl"):
        model = _model(network, "tiny", rows=2, backend=backend)
        model = model.charging(ledger := Ledger(model.device.config))
        kv = model.kv()
        out = model.forward(Rows.chain([1, 2, 3]), Want(last=1, top=3, temperature=1.0, hidden=(1,)), kv)
        kv.evict(0, 1)
        late = model.forward(Rows.chain([0], 3).entering(model.slots_of(out.hidden[1])[:1]), Want(logits=True), kv,
                             layers=[LayerRange(first=1, count=2)])
        assert out.top is not None
        assert out.exponents is not None
        assert late.logits is not None
        kv.gather(np.array([0, 2]))
        found.append((out.argmax, out.top.tokens.tolist(), out.top.logits.tolist(), out.exponents.total.tolist(),
                      late.logits.tolist(), kv.length, ledger))
        model.device.close()
    assert found[0] == found[1]


@pytest.mark.parametrize(("want", "rule"), [
    ({"last": -1}, "last of what is wanted must be at least 0, not -1"), ({"top": -2}, "not -2"),
    ({"hidden": (-1,)}, "not -1"), ({"temperature": 0.0}, "from 0.001 to 1000, not 0.0"),
])
def test_what_cannot_be_wanted(want: dict[str, object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Want(**want)  # type: ignore[arg-type]


def test_refused() -> None:
    network = random_network(replace(SIZES, layers=2), SEED)
    model, plain = _model(network, "base", rows=2), _model(network, "base", rows=2, general=False)
    for call, rule in (
            (lambda: plain.forward(Rows.chain([1]), Want(logits=True)), "compile with general=True"),
            (lambda: plain.kv().model.copy_rows((0, 1), (0, 0), 1), "compile with general=True"),
            (lambda: model.forward(Rows.chain([1]), Want(top=17)), "at most 16, not 17"),
            (lambda: model.forward(Rows.chain([1]), Want(hidden=(3,))), r"not behind \[3\]"),
            (lambda: model.forward(Rows.chain([1] * 10), Want(hidden=(2,))), "must fit 4 blocks of 2, not need 5"),
            (lambda: model.forward(Rows.tree([1] * 3, [-1, -1, 0], 0)), "a tree must fit one launch of 2 rows"),
            (lambda: model.forward(Rows.chain([1] * 3).entering(np.arange(3)), layers=[]), "must fit one launch of 2"),
            (lambda: model.forward(Rows.ragged([[1], [1]], [0, 0])), "sequences 0 to 0, not of 1"),
            (lambda: model.forward(Rows.chain([1], 60)), r"rows 60..60 exceed the context of 60"),
            (lambda: model.forward(Rows.chain([1]), kv=model.kv(1)), r"their order, not of \[1\]"),
            (lambda: model.kv().truncate(1), "0 to as many, not 1"), (lambda: model.kv().evict(0, 1), "within 0 to 0"),
            (lambda: model.kv().gather(np.array([0])), "from 0 to -1")):
        with pytest.raises(ValueError, match=rule):
            call()


def test_generation_is_the_same_with_the_general_program(network: Network) -> None:
    """Greedy tokens come from the plain program all the same."""
    runs = []
    for general in (False, True):
        model = _model(network, "base", general=general)
        runs.append(generate(model, PromptLookup(3, frozenset()), [1, 2, 3, 1, 2], 20, Ledger(model.device.config)))
    assert runs[0].tokens == runs[1].tokens
    assert runs[0].steps == runs[1].steps
    assert runs[0].ledger.launches == runs[1].ledger.launches
    assert runs[1].prefill.cycles <= 1.01 * runs[0].prefill.cycles  # which is faster is measured at half the context


def test_hidden_rows_that_are_gone() -> None:
    network = random_network(replace(SIZES, layers=2), SEED)
    model = _model(network, "base", rows=2)
    first = model.forward(Rows.chain([1]), Want(hidden=(2,))).hidden[2]
    for _ in range(3):
        model.forward(Rows.chain([1]), Want(hidden=(2,)))
    assert len(model.slots_of(first)) == 1
    model.forward(Rows.chain([1]), Want(hidden=(2,)))
    with pytest.raises(ValueError, match="before 4 more blocks of them are written"):
        model.slots_of(first)
