"""Quantised networks beside their float ones: errors by layer and operation, and what a wrong scale does to them."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, Network, Rope, Rows, signature
from gemmule.compiler.quantize.accuracy import measure_errors, perplexity
from gemmule.compiler.quantize.network import Options, Quantized, quantize_network
from gemmule.compiler.quantize.smooth import smooth
from gemmule.compiler.quantize.taps import observe
from tests.compiler import families

SEED = 20261123
VOCAB = 211


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Network]:
    found = {}
    for family in ("gpt2", "opt", "llama-tied", "mistral", "llama3", "qwen2", "qwen3", "phi", "gpt_neox"):
        folder = tmp_path_factory.mktemp(family)
        families.write(folder, families.make(family, seed=SEED, head_dim=24, layers=2, vocab=VOCAB))
        found[family] = load_network(folder)
    return found


def _windows(seed: int, count: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCAB, (count, 32))


@pytest.mark.parametrize(("family", "bits", "method", "layer", "node"), [
    ("gpt2", 8, "nearest", 0.04, 0.04), ("opt", 8, "nearest", 0.04, 0.04), ("mistral", 8, "nearest", 0.055, 0.05),
    ("phi", 8, "nearest", 0.04, 0.04), ("qwen2", 8, "nearest", 0.055, 0.05), ("qwen3", 8, "nearest", 0.055, 0.05),
    ("gpt_neox", 8, "nearest", 0.04, 0.04),
    ("gpt2", 8, "second-order", 0.04, 0.04), ("gpt2", 4, "nearest", 0.16, 0.09),
    ("gpt2", 4, "second-order", 0.14, 0.09), ("llama-tied", 4, "second-order", 0.22, 0.1)])
def test_errors(networks: dict[str, Network], family: str, bits: int, method: str, layer: float, node: float) -> None:
    """On tokens that calibration did not see. Weights are random, so nothing else than rounding is lost."""
    options = Options(bits=bits, method=method)  # type: ignore[arg-type]
    quantized = quantize_network(networks[family], _windows(1), options)
    errors = measure_errors(quantized, _windows(2, 3))
    print(family, bits, method, [f"{error:.2%}" for error in errors.layers])
    assert max(errors.layers) < layer
    assert max(errors.nodes.values()) < node
    real, whole = (perplexity(network, _windows(2, 3)) for network in (quantized.reference, quantized.network))
    assert abs(whole / real - 1) < 0.1


def test_second_order_loses_less(networks: dict[str, Network]) -> None:
    """In every layer, with int4."""
    nearest, second = (measure_errors(quantize_network(networks["gpt2"], _windows(1), options), _windows(2, 3)).layers
                       for options in (Options(bits=4), Options(bits=4, method="second-order")))
    assert all(after < before for before, after in zip(nearest, second, strict=True))


def test_smoothing_keeps_the_function(networks: dict[str, Network]) -> None:
    for network in networks.values():
        even = smooth(network, observe(network, _windows(1), SEED))
        changed = {name for name in network.weights if not np.array_equal(even.weights[name], network.weights[name])}
        assert {f"{layer}.{node}.weight" for layer in (0, 1) for node in ("query", "value", "out")} <= changed
        rows = Rows.chain(_windows(3)[0].tolist())
        before, after = (FloatInterpreter(one).forward(rows, Cache(one.graph)) for one in (network, even))
        np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-4 * np.abs(before).max())


def test_equal_options_give_equal_bytes(networks: dict[str, Network]) -> None:
    made = [quantize_network(networks["gpt2"], _windows(1), Options(bits=4, method="second-order")).network
            for _ in range(2)]
    assert made[0].graph == made[1].graph
    for name in made[0].weights:
        np.testing.assert_array_equal(made[0].weights[name], made[1].weights[name])


@pytest.mark.parametrize("family", ["gpt2", "llama-tied"])
def test_a_wrong_scale_is_seen(networks: dict[str, Network], family: str) -> None:
    """Half of one multiplier, shift, gamma or table too much, in any operation of the middle layer: its error tells."""
    quantized = quantize_network(networks[family], _windows(1), Options())
    fair = measure_errors(quantized, _windows(2, 3)).nodes
    kinds = set()
    for node in quantized.network.graph.nodes:
        if node.layer not in (1, None) or (node.op, node.layer) in kinds:
            continue
        for role in set(signature(node).tensors) & {"mult", "gamma", "score", "context", "table", "scale", "cosine"}:
            name = node.tensors[role]
            wrong = quantized.network.weights[name].copy()
            if wrong.dtype == np.uint8:
                wrong = (wrong.view(np.int8) // 2).view(np.uint8)
            else:
                wrong[..., :1] = wrong[..., :1] // 2 if role in ("score", "context", "scale") else wrong[..., :1]
                wrong = wrong if role in ("score", "context", "scale") else (wrong // 2).astype(wrong.dtype)
            spoilt = Network(quantized.network.graph, {**quantized.network.weights, name: wrong})
            seen = measure_errors(Quantized(spoilt, quantized.reference), _windows(2, 3)).nodes
            assert seen[node.name] > 2 * fair[node.name] + 0.01, (node.name, role)
            kinds.add((node.op, node.layer))
    assert {op for op, _ in kinds} >= {"embedding", "norm", "linear", "attention", "activation"}


def test_refused(networks: dict[str, Network]) -> None:
    with pytest.raises(CompileError, match=f"calibration tokens must be from 0 to {VOCAB - 1} and not empty"):
        quantize_network(networks["gpt2"], np.full((1, 4), VOCAB), Options())


def test_equal_angles_are_one_tensor(networks: dict[str, Network]) -> None:
    made = quantize_network(networks["mistral"], _windows(1), Options()).network
    ropes = [node for node in made.graph.nodes if isinstance(node, Rope)]
    assert len(ropes) == 2 * len(made.graph.attentions)
    assert {node.tensors[role] for node in ropes for role in ("cosine", "sine")} == {
        f"{ropes[0].name}.cosine", f"{ropes[0].name}.sine"}
    assert [name for name in made.weights if name.endswith("cosine")] == [f"{ropes[0].name}.cosine"]
