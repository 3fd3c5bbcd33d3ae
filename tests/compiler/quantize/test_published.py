"""Remedies for massive activations, on a small decoder in which some are planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Add, Cache, FloatInterpreter, IntegerInterpreter, Linear, Network, Plane, Rows
from gemmule.compiler.quantize.accuracy import measure_errors
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.overlay import Overlay
from gemmule.compiler.quantize.prefix import find_outliers, find_prefix, with_prefix
from gemmule.compiler.quantize.rotate import Rotation, can_rotate, rotated
from tests.compiler import families

SEED = 20261126
SINK = 3
"""The token whose rows are massive."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Network:
    folder = tmp_path_factory.mktemp("llama")
    families.write(folder, families.make("llama-tied", seed=SEED, head_dim=24, layers=3, vocab=61))
    return load_network(folder)


@pytest.fixture(scope="module")
def network(plain: Network) -> Network:
    """A decoder in which one token's residual has a channel thousands of times as large as all others."""
    name = plain.graph.nodes[0].tensors["table"]
    table = np.array(plain.weights[name], dtype=np.float32)
    table[SINK, 5] = 3000 * np.abs(table).max()
    return Network(plain.graph, Overlay(plain.weights, added={name: table}))


def _windows(network: Network, count: int = 12, length: int = 24) -> np.ndarray:
    windows = np.random.default_rng(SEED).integers(SINK + 1, network.graph.vocab, (count, length))
    windows[:, 0] = SINK
    return windows


@pytest.mark.parametrize("columns", [1, 7, 24, 64, 576, 96 * 5])
def test_rotations_are_orthogonal(columns: int) -> None:
    turn = Rotation(columns, SEED)
    matrix = turn(np.eye(columns))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(columns), atol=1e-12)
    if columns >= 24:  # a single channel is spread over all
        assert np.abs(matrix).max() < 2.5 / np.sqrt(columns) + 0.2
    assert (Rotation(columns, SEED)(np.eye(columns)) == matrix).all()


def test_a_rotated_network_computes_the_same(network: Network) -> None:
    assert can_rotate(network.graph)
    windows, found = _windows(network), []
    for one in (network, rotated(network, SEED)):
        rows = Rows.ragged(windows.tolist(), [0] * len(windows))
        found.append(FloatInterpreter(one).forward(rows, Cache(one.graph)))
    np.testing.assert_allclose(found[1], found[0], atol=2e-3 * np.abs(found[0]).max())
    assert find_outliers(rotated(network, SEED), windows).worst.value < find_outliers(network, windows).worst.value / 2


def test_a_prefix_is_what_its_tokens_would_be(network: Network) -> None:
    windows = _windows(network)
    plain = FloatInterpreter(network).forward(Rows.chain(windows[0].tolist()), Cache(network.graph))
    constant = with_prefix(network, windows[0, :2].tolist())
    assert constant.graph.prefix == 2
    found = FloatInterpreter(constant).forward(Rows.chain(windows[0, 2:].tolist(), 2), Cache(constant.graph))
    np.testing.assert_allclose(found, plain[2:], rtol=1e-4, atol=1e-4)
    with pytest.raises(CompileError, match="without a prefix"):
        with_prefix(constant, [1])
    assert with_prefix(network, []) is network


def test_the_token_that_stands_out_is_found(plain: Network, network: Network) -> None:
    windows = _windows(network)
    found = find_outliers(network, windows)
    assert (found.worst.token, found.worst.position) == (SINK, 0)
    assert found.tokens == (SINK,)
    assert find_prefix(plain, windows[:, 1:], [1]) == ()


def _error(network: Network, options: Options) -> float:
    quantized = quantize_network(network, _windows(network), options)
    return measure_errors(quantized, _windows(network)[:4, 1:]).output


def test_each_remedy_brings_integers_closer(network: Network) -> None:
    """A rotation first, then 16 bits within the MLP."""
    options, errors = Options(smooth=False, prefix=(SINK,), residual="layer"), {}
    for name, changed in (("none", options), ("rotation", replace(options, rotate=True)),
                          ("all", replace(options, rotate=True, inner=16))):
        errors[name] = _error(network, changed)
    assert errors["rotation"] < errors["none"] / 1.5, errors
    assert errors["all"] < errors["rotation"], errors


def test_steps_of_layers_are_powers_of_two_apart(plain: Network) -> None:
    """The second layer writes a hundred times as much as the first."""
    names = [node.tensors["weight"] for node in plain.graph.nodes
             if isinstance(node, Linear) and node.layer == 1 and isinstance(plain.graph.readers(node.name)[0], Add)]
    network = Network(plain.graph, Overlay(plain.weights, {name: (name, lambda x: 100 * x) for name in names}))
    made = quantize_network(network, _windows(network), Options(residual="layer")).network.graph
    sums = [node for node in made.nodes if isinstance(node, Add)]
    assert any(node.rescale for node in sums)
    for node in sums:
        before, after = (made.by_name[name].type.scale for name in (node.a, node.name))
        assert before / after == 2.0 ** node.rescale  # type: ignore[operator]


@pytest.mark.parametrize("bits", [8, 4])
def test_the_planes_of_an_inner_value_share_their_weights(network: Network, bits: int) -> None:
    options = Options(bits=bits, group=8, inner=16)  # type: ignore[arg-type]
    made = quantize_network(network, _windows(network), options).network
    planes = {node.plane: node for node in made.graph.nodes if isinstance(node, Linear) and node.layer == 0}
    low, high = planes[Plane.LOW], planes[Plane.HIGH]
    assert low.tensors["weight"] == high.tensors["weight"]
    assert (made.tensor(low, "shift") == made.tensor(high, "shift") + 8).all()
    rows = Rows.chain([4, 5, 6])
    assert np.isfinite(IntegerInterpreter(made).forward(rows, Cache(made.graph))).all()
