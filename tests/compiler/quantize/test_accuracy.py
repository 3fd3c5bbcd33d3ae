"""Float and integers side by side: what a comparison tells, and that it tells of what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, IntegerInterpreter, Network, Rows
from gemmule.compiler.quantize import accuracy
from gemmule.compiler.quantize.accuracy import compare, layer_outputs, measure_errors, perplexity, predictor
from gemmule.compiler.quantize.network import Options, Quantized, quantize_network
from tests.compiler import families

VOCAB = 211


def _windows(seed: int, count: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCAB, (count, 32))


@pytest.fixture(scope="module", params=["gpt2", "llama-tied"])
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Quantized:
    made = families.make(request.param, seed=20261126, head_dim=24, layers=3, vocab=VOCAB)
    network = load_network(families.write(tmp_path_factory.mktemp("model"), made))
    return quantize_network(network, _windows(1), Options(bits=4))


def test_likeness_is_that_of_whole_logits(monkeypatch: pytest.MonkeyPatch, quantized: Quantized) -> None:
    """Perplexities, divergence and agreement from softmaxes written out, for every kind and all together."""
    texts = {"a": _windows(2, 3), "b": _windows(3, 1)}
    monkeypatch.setattr(accuracy, "MOST_LOGITS", 5 * VOCAB)
    found = compare(quantized, texts, detailed=1)
    for windows, likeness in ((texts["a"], found.kinds["a"]), (np.concatenate([*texts.values()]), found.whole)):
        assert likeness is not None
        p, q = (np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
                for logits in (predictor(one)(windows)[:, :-1] for one in (quantized.reference, quantized.network)))
        assert likeness.tokens == windows[:, 1:].size
        assert likeness.kl_mean == pytest.approx((p * np.log(p / q)).sum(-1).mean(), rel=1e-4)
        assert likeness.top1_agreement == pytest.approx((p.argmax(-1) == q.argmax(-1)).mean())
        assert likeness.perplexity_float == pytest.approx(perplexity(quantized.reference, windows), rel=1e-5)
        assert likeness.perplexity_int == pytest.approx(perplexity(quantized.network, windows), rel=1e-5)


def test_likeness_alone_leaves_errors_out(monkeypatch: pytest.MonkeyPatch, quantized: Quantized) -> None:
    """And makes the head's weights once a pass, not for each of its blocks."""
    texts, head = {"a": _windows(2, 3)}, quantized.reference.graph.by_name[quantized.reference.graph.output]
    whole = compare(quantized, texts)
    asked: list[str] = []
    tensor = Network.tensor
    monkeypatch.setattr(Network, "tensor", lambda network, node, role: (
        asked.append(node.name) if network is quantized.reference and role == "weight" else None,
        tensor(network, node, role))[1])
    monkeypatch.setattr(accuracy, "MOST_LOGITS", 5 * VOCAB)
    found = compare(quantized, texts, detailed=0)
    assert found.kinds["a"].kl_mean == pytest.approx(whole.kinds["a"].kl_mean)
    assert found.errors.drift == pytest.approx(whole.errors.drift)
    assert (found.errors.nodes, found.errors.layers) == ({}, [])
    assert asked.count(head.name) == 1


def test_layers_read_float_values_and_drift_does_not(quantized: Quantized) -> None:
    """One pass beside the float one gives what separate passes with the same inputs give."""
    windows = _windows(4, 2)
    rows, ends = Rows.ragged(windows.tolist(), [0, 0]), layer_outputs(quantized.network)
    real: dict[str, np.ndarray] = {}
    FloatInterpreter(quantized.reference).forward(rows, Cache(quantized.reference.graph), real.__setitem__)
    errors, graph = measure_errors(quantized, windows), quantized.network.graph
    whole: dict[str, np.ndarray] = {}
    IntegerInterpreter(quantized.network).forward(rows, Cache(graph), whole.__setitem__)
    layers: dict[str, np.ndarray] = {}
    between = {name for node in graph.nodes for name in node.inputs if graph.by_name[name].layer != node.layer}
    feed = {name: np.rint(real[name] / graph.by_name[name].type.scale).clip(-32768, 32767) for name in between}
    IntegerInterpreter(quantized.network).forward(rows, Cache(graph), layers.__setitem__, feed)
    for number, name in enumerate(ends):
        differ, drifted = (found[name] * graph.by_name[name].type.scale - real[name] for found in (layers, whole))
        assert errors.layers[number] == pytest.approx(
            np.sqrt((differ ** 2).sum() / (real[name] ** 2).sum()), rel=1e-3)
        by_row = np.sqrt((drifted ** 2).sum(1) / (real[name] ** 2).sum(1))
        assert errors.drift[number] == pytest.approx(np.median(by_row), rel=1e-3)


def test_planes_and_a_prefix_are_compared(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Products in two planes count together; both networks begin behind the same constant rows."""
    made = families.make("llama-tied", seed=20261126, head_dim=24, layers=3, vocab=VOCAB)
    network = load_network(families.write(tmp_path_factory.mktemp("wide"), made))
    options = Options(inner=16, residual="layer", rotate=True, prefix=(5,))
    wide = compare(quantize_network(network, _windows(1), options), {"text": _windows(2, 2)})
    plain = compare(quantize_network(network, _windows(1), Options()), {"text": _windows(2, 2)})
    assert wide.whole is not None
    assert plain.whole is not None
    assert sorted(wide.errors.nodes[f"{layer}.down"] for layer in range(3))[1] < 0.01  # the last clips one number
    assert max(wide.errors.layers) < max(plain.errors.layers)
    assert wide.whole.kl_mean < plain.whole.kl_mean


def test_a_spoilt_head_is_seen(quantized: Quantized) -> None:
    """Logits of which half the columns are shifted away: every number of the text tells, and the layers' do not."""
    fair = compare(quantized, {"text": _windows(5, 2)})
    graph = quantized.network.graph
    name = graph.by_name[graph.output].tensors["shift"]
    wrong = quantized.network.weights[name].copy()
    wrong[::2] = 47
    spoilt = Quantized(Network(graph, {**quantized.network.weights, name: wrong}), quantized.reference)
    seen = compare(spoilt, {"text": _windows(5, 2)})
    assert seen.whole is not None
    assert fair.whole is not None
    assert seen.whole.kl_mean > 2 * fair.whole.kl_mean
    assert seen.whole.top1_agreement < fair.whole.top1_agreement
    assert seen.errors.output > 2 * fair.errors.output
    assert seen.errors.layers == fair.errors.layers


def test_nothing_to_compare_is_refused(quantized: Quantized) -> None:
    for texts in ({}, {"text": np.zeros((0, 8), dtype=np.int64)}, {"text": np.zeros((2, 1), dtype=np.int64)}):
        with pytest.raises(CompileError, match="at least one window of two tokens"):
            compare(quantized, texts)
