"""Passes of the float interpreter: however rows are cut into passes, shared or branched, the values are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import (
    Attention,
    Cache,
    DType,
    Embedding,
    FloatInterpreter,
    Function,
    Graph,
    Linear,
    Network,
    Norm,
    Rope,
    RopeScaling,
    Rows,
    Type,
    activate,
)

from ..families import FAMILIES, make, write

CLOSE = {"rtol": 1e-4, "atol": 2e-5}


@pytest.fixture(scope="module", params=[(family, head_dim) for family in FAMILIES for head_dim in (24, 80)],
                ids=lambda value: f"{value[0]} {value[1]}")
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Network:
    """Every family at both sizes of a head, 3 layers (what the cache does is the same in each)."""
    family, head_dim = request.param
    folder = tmp_path_factory.mktemp("network")
    return load_network(write(folder, make(family, 5, head_dim=head_dim, layers=3, vocab=103)))


def drawn(seed: int, count: int, vocab: int = 103) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocab, count)]


def whole(network: Network, tokens: list[int]) -> np.ndarray:
    return FloatInterpreter(network).forward(Rows.chain(tokens), Cache(network.graph))


@pytest.mark.parametrize("cuts", [[1] * 20, [7, 1, 12], [19, 1], [3, 3, 3, 3, 3, 3, 2]], ids=str)
def test_prefill_equals_decode(network: Network, cuts: list[int]) -> None:
    tokens, interpreter, cache = drawn(1, 20), FloatInterpreter(network), Cache(network.graph)
    parts, at = [], 0
    for count in cuts:
        parts.append(interpreter.forward(Rows.chain(tokens[at:at + count], at), cache))
        at += count
    assert np.allclose(np.concatenate(parts), whole(network, tokens), **CLOSE)
    assert cache.positions().tolist() == list(range(20))


def test_ragged_equals_separate(network: Network) -> None:
    """Three sequences of different contexts in one pass, rows of one between those of another."""
    texts, lengths = [drawn(2, 17), drawn(3, 9), drawn(4, 12)], [15, 0, 8]
    interpreter, cache = FloatInterpreter(network), Cache(network.graph)
    interpreter.forward(Rows.ragged([text[:n] for text, n in zip(texts, lengths, strict=True)], [0, 0, 0]), cache)
    rows = Rows.ragged([text[n:] for text, n in zip(texts, lengths, strict=True)], lengths)
    order = np.random.default_rng(5).permutation(len(rows))
    order = np.array(sorted(order, key=lambda i: (rows.positions[i], order.tolist().index(i))))  # chains stay in order
    mixed = Rows(tokens=rows.tokens[order], positions=rows.positions[order], sequences=rows.sequences[order],
                 mask=rows.mask[np.ix_(order, order)])
    found = interpreter.forward(mixed, cache)
    for number, (text, n) in enumerate(zip(texts, lengths, strict=True)):
        assert np.allclose(found[mixed.sequences == number], whole(network, text)[n:], **CLOSE)


def test_tree_equals_chains(network: Network) -> None:
    """Every node of a branching tree as the end of its own chain; then one path is committed."""
    text, tokens, parents = drawn(6, 11), drawn(7, 7), [-1, 0, 0, 1, 2, 2, -1]
    interpreter, cache = FloatInterpreter(network), Cache(network.graph)
    interpreter.forward(Rows.chain(text), cache)
    found = interpreter.forward(Rows.tree(tokens, parents, 11), cache)

    def path(node: int) -> list[int]:
        return [] if node < 0 else [*path(parents[node]), node]

    for node in range(len(tokens)):
        chain = whole(network, text + [tokens[i] for i in path(node)])
        assert np.allclose(found[node], chain[-1], **CLOSE), node
    cache.keep([*range(11), *(11 + node for node in path(5))])
    after = interpreter.forward(Rows.chain([50], 14), cache)
    assert np.allclose(after[0], whole(network, text + [tokens[i] for i in path(5)] + [50])[-1], **CLOSE)


def test_caches_of_any_content(network: Network) -> None:
    """Rolled back, forked, and with its rows in another order: attention does not see the order."""
    text, interpreter, cache = drawn(8, 14), FloatInterpreter(network), Cache(network.graph)
    interpreter.forward(Rows.chain(text), cache)
    cache.truncate(9)
    cache.fork(0, 3)
    cache.keep(np.random.default_rng(9).permutation(9), 3)
    rows = Rows.ragged([text[9:], [], [], text[9:]], [9, 0, 0, 9])
    found = interpreter.forward(rows, cache)
    wanted = whole(network, text)[9:]
    assert np.allclose(found[:5], wanted, **CLOSE)
    assert np.allclose(found[5:], wanted, **CLOSE)


def test_a_row_sees_its_window(tmp_path: Path) -> None:
    """With one layer the last row depends on the last 7 positions and on nothing before; without a window it does."""
    for window, changes in ((7, False), (None, True)):
        made = make("mistral", 5, layers=1, vocab=103, sliding_window=window)
        network, text = load_network(write(tmp_path / str(window), made)), drawn(10, 20)
        first = whole(network, text)[-1]
        assert (not np.array_equal(first, whole(network, [(text[0] + 1) % 103, *text[1:]])[-1])) is changes
        text[12] = (text[12] + 1) % 103
        assert (not np.array_equal(first, whole(network, text)[-1])) is changes
        text[13] = (text[13] + 1) % 103
        assert not np.array_equal(first, whole(network, text)[-1])


def test_evicted_positions_are_those_of_the_window(tmp_path: Path) -> None:
    """A cache that keeps only what the window reaches gives the same: positions count, not slots."""
    network, text = load_network(write(tmp_path, make("mistral", 5, layers=3, vocab=103))), drawn(11, 20)
    interpreter, cache = FloatInterpreter(network), Cache(network.graph)
    for at, token in enumerate(text):
        found = interpreter.forward(Rows.chain([token], at), cache)
        cache.keep(range(max(0, cache.length() - 6), cache.length()))
    assert np.allclose(found[0], whole(network, text)[-1], **CLOSE)


def test_observe_and_feed(network: Network) -> None:
    """Each node's value is told; a fed value is what later nodes read, and the computed one is still told."""
    text, interpreter = drawn(12, 6), FloatInterpreter(network)
    seen: dict[str, np.ndarray] = {}
    plain = interpreter.forward(Rows.chain(text), Cache(network.graph), seen.__setitem__)
    assert list(seen) == [node.name for node in network.graph.nodes]
    assert all(seen[node.name].shape == (6, node.columns) for node in network.graph.nodes)
    assert all(value.dtype == np.float32 for value in seen.values())
    assert np.array_equal(seen["logits"], plain)

    again: dict[str, np.ndarray] = {}
    fed = {"0.end": seen["0.end"], "1.end": 2 * seen["1.end"]}
    interpreter.forward(Rows.chain(text), Cache(network.graph), again.__setitem__, fed)
    assert all(np.array_equal(again[name], seen[name]) for name in seen if name.startswith(("0.", "1.")))
    assert not np.array_equal(again["2.end"], seen["2.end"])
    other = interpreter.forward(Rows.chain(text), Cache(network.graph), None, {"logits": np.ones_like(plain)})
    assert (other == 1).all()


def test_fed_layers_do_not_see_each_other(network: Network) -> None:
    """One pass with every block's input given: a fault in the first block stays in it."""
    text, interpreter = drawn(13, 6), FloatInterpreter(network)
    seen: dict[str, np.ndarray] = {}
    interpreter.forward(Rows.chain(text), Cache(network.graph), seen.__setitem__)
    broken = Network(network.graph, {name: value * 2 if name == "0.out.weight" else value
                                     for name, value in network.weights.items()})
    found: dict[str, np.ndarray] = {}
    ends = {name: seen[name] for name in ("0.end", "1.end", "2.end")}
    FloatInterpreter(broken).forward(Rows.chain(text), Cache(network.graph), found.__setitem__, ends)
    assert not np.allclose(found["0.end"], seen["0.end"], **CLOSE)
    assert all(np.array_equal(found[name], seen[name]) for name in ("1.end", "2.end", "logits"))


@pytest.mark.parametrize(("rows", "feed", "says"), [
    (Rows.chain([3, 103]), {}, "tokens must be from 0 to 102, not 103"),
    (Rows.chain([3, 4], 63), {}, "positions must be from 0 to 63, not 64"),
    (Rows.chain([3]), {"x": np.zeros((1, 72))}, "a fed value must be that of a node, not of 'x'"),
    (Rows.chain([3]), {"0.end": np.zeros((2, 72))}, r"fed value of '0.end' must have shape \(1, \d+\), not \(2, 72"),
])
def test_refused(network: Network, rows: Rows, feed: dict[str, np.ndarray], says: str) -> None:
    cache = Cache(network.graph)
    with pytest.raises(CompileError, match=says):
        FloatInterpreter(network).forward(rows, cache, feed=feed)
    assert cache.length() == 0


def test_caches_belong_to_their_network(network: Network, tmp_path: Path) -> None:
    other = load_network(write(tmp_path, make("llama", layers=1, vocab=103)))
    with pytest.raises(CompileError, match="a cache of its own network"):
        FloatInterpreter(network).forward(Rows.chain([1]), Cache(other.graph))


def test_integers_are_refused() -> None:
    graph = Graph(family="llama", vocab=4, positions=4, output="embedding", nodes=(Embedding(
        name="embedding", columns=8, vocab=4, type=Type(dtype=DType.INT16),
        tensors={"codes": "c", "mult": "m", "shift": "s"}),))
    with pytest.raises(CompileError, match="must be run by the integer interpreter"):
        FloatInterpreter(Network(graph, {}))


def test_values_are_dropped_when_nothing_reads_them(tmp_path: Path) -> None:
    """Tensors are asked for once a pass each, by their node."""
    network = load_network(write(tmp_path, make("gpt2", layers=2, vocab=103)))
    asked: list[str] = []

    class Told(dict[str, np.ndarray]):
        def __missing__(self, name: str) -> np.ndarray:
            asked.append(name)
            return network.weights[name]

    FloatInterpreter(Network(network.graph, Told())).forward(Rows.chain([1, 2]), Cache(network.graph))
    wanted = [node.tensors[role] for node in network.graph.nodes for role in node.tensors]
    assert asked == wanted
    assert asked.count("embedding.table") == 2  # tied


# Single nodes by hand -----------------------------------------------------------------------------


def test_norms_by_hand() -> None:
    """Against float64, with rows of no spread and large ones."""
    random = np.random.default_rng(14)
    table = np.concatenate([np.zeros((1, 16)), np.full((1, 16), 3.0), random.standard_normal((6, 16)) * 100])
    table = table.astype(np.float32)
    gamma, beta = random.standard_normal((2, 16)).astype(np.float32)
    for mean in (True, False):
        node = Norm(name="norm", columns=16, x="embedding", mean=mean, eps=1e-5,
                    tensors={"gamma": "g"} | ({"beta": "b"} if mean else {}))
        graph = Graph(family="llama", vocab=8, positions=8, output="norm", nodes=(
            Embedding(name="embedding", columns=16, vocab=8, tensors={"table": "t"}), node))
        found = whole(Network(graph, {"t": table, "g": gamma, "b": beta}), list(range(8)))
        x = table.astype(np.float64) - (table.mean(-1, keepdims=True) if mean else 0)
        wanted = x / np.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-5) * gamma + (beta if mean else 0)
        assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_rope_by_hand() -> None:
    """Each pair of each head as a complex number turned by its angle."""
    random = np.random.default_rng(15)
    table = random.standard_normal((40, 12)).astype(np.float32)
    graph = Graph(family="llama", vocab=40, positions=40, output="rope", nodes=(
        Embedding(name="embedding", columns=12, vocab=40, tensors={"table": "t"}),
        Rope(name="rope", columns=12, x="embedding", head_dim=6, theta=100.0, positions=40)))
    found = whole(Network(graph, {"t": table}), list(range(40)))
    pairs = table.astype(np.float64).reshape(40, 2, 3, 2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(
        1j * np.arange(40)[:, None, None] * 100.0 ** (-np.arange(3) / 3))
    assert np.allclose(found.reshape(40, 2, 3, 2), np.stack([turned.real, turned.imag], -1), atol=1e-5)


def test_scaled_rates_by_hand() -> None:
    """Pair by pair: slow ones by the factor, fast ones not, in between by a straight line."""
    plain = Rope(name="rope", columns=8, x="x", head_dim=8, theta=10.0, positions=4)
    assert np.allclose(plain.model_copy(update={"scaling": RopeScaling(factor=4)}).rates, plain.rates / 4)
    # Turns within 100 positions: 15.9, 8.95, 5.03, 2.83; three of them are between 12 and 3.
    scaling = RopeScaling(factor=4, bands=(3.0, 12.0, 100))
    scaled = plain.model_copy(update={"scaling": scaling, "turned": 8})
    wanted = []
    for rate in plain.rates:
        turns = 100 * rate / (2 * np.pi)
        kept = (turns - 3) / 9
        wanted.append(rate if turns > 12 else rate / 4 if turns < 3 else (1 - kept) * rate / 4 + kept * rate)
    assert wanted[0] == plain.rates[0]
    assert wanted[3] == plain.rates[3] / 4
    assert np.allclose(scaled.rates, wanted, rtol=1e-12)
    assert scaled.angles != plain.angles
    assert Rope.model_validate_json(scaled.model_dump_json()) == scaled
    assert "scaling" not in plain.model_dump_json()


def test_head_norms_by_hand() -> None:
    """Each head by itself, all by one gamma."""
    random = np.random.default_rng(19)
    table, gamma = (random.standard_normal(shape).astype(np.float32) for shape in ((5, 12), (4,)))
    norm = Norm(name="norm", columns=12, x="embedding", mean=False, eps=1e-3, head_dim=4, tensors={"gamma": "g"})
    graph = Graph(family="qwen3", vocab=5, positions=5, output="norm", nodes=(
        Embedding(name="embedding", columns=12, vocab=5, tensors={"table": "t"}), norm))
    found = whole(Network(graph, {"t": table, "g": gamma}), list(range(5)))
    for row in range(5):
        for head in range(3):
            x = table[row, 4 * head:4 * head + 4].astype(np.float64)
            normed = x / np.sqrt((x ** 2).mean() + 1e-3) * gamma
            assert np.allclose(found[row, 4 * head:4 * head + 4], normed, atol=1e-5)
    for wrong in ({"head_dim": 5}, {"mean": True, "tensors": {"gamma": "g", "beta": "b"}}):
        with pytest.raises(ValueError, match="'norm' must be an RMSNorm of whole heads of . columns, not of 12"):
            Graph(family="qwen3", vocab=5, positions=5, output="norm", nodes=(
                graph.nodes[0], norm.model_copy(update=wrong)))


def test_attention_by_hand() -> None:
    """Four heads of which two share keys, row by row in float64."""
    random = np.random.default_rng(16)
    weights = {"t": random.standard_normal((9, 5)).astype(np.float32)} | {
        name: random.standard_normal((columns, 5)).astype(np.float32)
        for name, columns in (("q", 12), ("k", 6), ("v", 6))}
    linears = [Linear(name=name, columns=len(weights[name]), x="embedding", depth=5, bias=False,
                      tensors={"weight": name}) for name in "qkv"]
    graph = Graph(family="llama", vocab=9, positions=9, output="out", nodes=(
        Embedding(name="embedding", columns=5, vocab=9, tensors={"table": "t"}), *linears,
        Attention(name="out", columns=12, query="q", key="k", value="v", heads=4, kv_heads=2, head_dim=3, scale=0.7)))
    found = whole(Network(graph, weights), list(range(9)))
    q, k, v = (weights["t"].astype(np.float64) @ weights[name].T for name in "qkv")
    for row in range(9):
        for head in range(4):
            own, shared = slice(3 * head, 3 * head + 3), slice(3 * (head // 2), 3 * (head // 2) + 3)
            powers = np.exp(k[:row + 1, shared] @ q[row, own] * 0.7)
            assert np.allclose(found[row, own], powers / powers.sum() @ v[:row + 1, shared], atol=1e-5)


def test_activations_by_hand() -> None:
    """Against their definitions in float64; far from zero nothing overflows."""
    from math import erf, exp, pi, sqrt, tanh
    x = np.concatenate([np.linspace(-12, 12, 997), [0.0, -0.0, 1e4, -1e4, 3e38, -3e38]]).astype(np.float32)
    wanted = {
        Function.GELU: lambda a: a * (1 + erf(a / sqrt(2))) / 2,
        Function.GELU_TANH: lambda a: a * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * a ** 3))) / 2,
        Function.SILU: lambda a: a / (1 + exp(-a)) if a > -700 else 0.0, Function.RELU: lambda a: max(a, 0.0),
        Function.RELU2: lambda a: max(a, 0.0) ** 2, Function.TANH: tanh,
    }
    assert set(wanted) == set(Function)
    for function, rule in wanted.items():
        near = x if function in (Function.RELU, Function.TANH) else x[np.abs(x) <= 1e4]
        found = activate(function, near)
        assert found.dtype == np.float32
        assert np.allclose(found, [rule(float(a)) for a in near], rtol=1e-5, atol=3e-6), function
    assert activate(Function.GELU, np.array([0.5])).dtype == np.float64
