"""Quantised BERT: errors, norms at two widths, lopsided ranges, outputs that count."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import (
    Activation,
    Add,
    Cache,
    DType,
    FloatInterpreter,
    Graph,
    Linear,
    Network,
    Norm,
    Rows,
    Type,
    signature,
)
from gemmule.compiler.ir.nodes import Function
from gemmule.compiler.quantize.accuracy import compare, layer_outputs, measure_errors
from gemmule.compiler.quantize.network import Options, Quantized, quantize_network
from gemmule.compiler.quantize.smooth import smooth
from gemmule.compiler.quantize.steps import lopsided_activation, lopsided_step
from gemmule.compiler.quantize.taps import observe
from gemmule.compiler.quantize.weights import codes
from tests.compiler import families

SEED, VOCAB = 20261125, 211


def _windows(seed: int, count: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCAB, (count, 32))


def _wide_columns(made: families.Checkpoint) -> None:
    """Two columns of every norm ten times as wide as the rest, as trained encoders have them."""
    for name, value in made.tensors.items():
        if name.endswith("LayerNorm.weight"):
            value[[5, 40]] *= 10


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Network]:
    found = {}
    for name in ("bert", "bert-classifier", "wide"):
        made = families.make("bert" if name == "wide" else name, seed=SEED, layers=2, vocab=VOCAB)
        if name == "wide":
            _wide_columns(made)
        found[name] = load_network(families.write(tmp_path_factory.mktemp(name), made))
    return found


@pytest.fixture(scope="module")
def quantized(networks: dict[str, Network]) -> dict[str, Quantized]:
    return {name: quantize_network(network, _windows(1), Options()) for name, network in networks.items()}


@pytest.mark.parametrize(("name", "options", "layer", "node", "cosine"), [
    ("bert", Options(), 0.02, 0.03, 0.999), ("bert", Options(smooth=False), 0.02, 0.03, 0.999),
    ("bert", Options(bits=4, method="second-order"), 0.08, 0.1, 0.997),
    ("bert-classifier", Options(), 0.02, 0.08, 0.998), ("wide", Options(), 0.02, 0.04, 0.997)], ids=str)
def test_errors(networks: dict[str, Network], name: str, options: Options, layer: float, node: float,
                cosine: float) -> None:
    """On tokens that calibration did not see."""
    made = quantize_network(networks[name], _windows(1), options)
    found = compare(made, {"text": _windows(2, 3)}, detailed=3)
    errors, angles = found.errors, found.cosines
    assert len(errors.layers) == 2
    assert max(errors.layers) < layer
    assert max(errors.nodes.values()) < node, max(errors.nodes, key=lambda at: errors.nodes[at])
    assert cosine < angles.min() <= 1 + 1e-9
    assert len(angles) == (3 if name == "bert-classifier" else 96)


def test_types(quantized: dict[str, Quantized]) -> None:
    graph = quantized["bert"].network.graph
    for node in graph.nodes:
        if isinstance(node, Norm):
            assert node.type.dtype is (DType.INT16 if node.name in graph.wide_norms else DType.INT8)
        if isinstance(node, Add):
            a, b = (graph.by_name[name].type for name in node.inputs)
            assert (a.scale, a.dtype) == (node.type.scale, DType.INT16)
            assert b.scale == node.type.scale
    sums = {node.type.scale for node in graph.nodes if isinstance(node, Add)}
    assert len(sums) == 5  # each norm begins another scale


def test_widths_share_factors_where_ranges_are_not_evened_out(networks: dict[str, Network],
                                                              quantized: dict[str, Quantized]) -> None:
    plain = quantize_network(networks["bert"], _windows(1), Options(smooth=False)).network
    for wide, narrow in plain.graph.wide_norms.items():
        a, b = plain.graph.by_name[narrow], plain.graph.by_name[wide]
        assert {role for role in a.tensors if a.tensors[role] == b.tensors[role]} == {"gamma", "beta"}
        ratio = np.log2(a.type.scale) - np.log2(b.type.scale)
        assert ratio == pytest.approx(round(ratio))
        differ = plain.tensor(a, "scalars") - plain.tensor(b, "scalars")
        assert differ.tolist() == [round(ratio), 0, 0]
    graph = quantized["bert"].network.graph
    evened = [narrow for wide, narrow in graph.wide_norms.items()
              if graph.by_name[narrow].tensors["gamma"] != graph.by_name[wide].tensors["gamma"]]
    assert evened == ["norm", "0.attention_norm", "0.output_norm", "1.attention_norm"]  # nothing reads the last


def test_smoothing_keeps_the_function_and_what_sums_read(networks: dict[str, Network]) -> None:
    for network in networks.values():
        even = smooth(network, observe(network, _windows(1), SEED))
        for wide, narrow in network.graph.wide_norms.items():
            if network.graph.readers(narrow):
                assert not np.array_equal(even.weights[f"{narrow}.gamma"], network.weights[f"{narrow}.gamma"])
            assert np.array_equal(even.weights[f"{wide}.gamma"], network.weights[f"{wide}.gamma"])
        rows = Rows.chain(_windows(3)[0].tolist())
        before, after = (FloatInterpreter(one).forward(rows, Cache(one.graph)) for one in (network, even))
        np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-4 * np.abs(before).max())


def test_wide_columns_are_what_evening_out_is_for(networks: dict[str, Network],
                                                  quantized: dict[str, Quantized]) -> None:
    plain = quantize_network(networks["wide"], _windows(1), Options(smooth=False))
    shared, own = (measure_errors(made, _windows(2, 3)) for made in (plain, quantized["wide"]))
    assert shared.output > 2 * own.output
    assert shared.nodes["0.up"] > 2 * own.nodes["0.up"]


@pytest.mark.parametrize(("bits", "group"), [(8, 0), (4, 32), (4, 0)])
def test_sums_of_codes(bits: int, group: int) -> None:
    """What a zero of the inputs adds to each column, exactly; the last group is short."""
    random = np.random.default_rng(1)
    found = codes(random.standard_normal((7, 100)), np.ones(100), None, bits=bits, group=group)
    wanted = [sum(int(code) * (int(found.scales[i // group, column]) if found.scales is not None else 1)
                  for i, code in enumerate(row)) for column, row in enumerate(found.codes)]
    assert found.sums(group).tolist() == wanted


def test_lopsided_steps_reach_both_ends() -> None:
    values = np.append(np.full(1000, -0.17), np.linspace(0, 6, 1000))
    step, zero = lopsided_step(values, -0.17, 6.0)
    assert step < 6 / 127 * 0.6  # a step for both signs would be twice as wide
    assert (-128 + zero) * step == pytest.approx(-0.17, abs=step)
    before = np.linspace(-20, 6, 4000)
    step, zero, table = lopsided_activation(Function.GELU, before, -20.0, 6.0, step, zero)
    assert -8 < (zero - 128) * step < -2  # far below, the function is 0 all the same
    assert table.shape == (256,)


def test_zeros_are_in_tables_and_biases(quantized: dict[str, Quantized]) -> None:
    graph = quantized["bert"].network.graph
    for node in graph.nodes:
        lopsided = isinstance(node, Activation) or any(isinstance(at, Activation) for at in graph.readers(node.name))
        assert (node.type.zero != 0) is lopsided, node.name
    same = Graph.model_validate(graph.model_dump(mode="json"))
    assert same == graph
    assert "zero" not in Type(dtype=DType.INT8, scale=0.5).model_dump()
    assert str(Type(dtype=DType.INT8, scale=0.5, zero=-3)) == "int8*0.5-3"


def test_a_wrong_number_is_seen(quantized: dict[str, Quantized]) -> None:
    """Half of one multiplier, factor or table in any operation of the second layer: its error tells."""
    made = quantized["bert-classifier"]
    fair, kinds = measure_errors(made, _windows(2, 2)).nodes, set()
    for node in made.network.graph.nodes:
        if node.layer not in (1, None) or (node.op, node.layer) in kinds:
            continue
        for role in set(signature(node).tensors) & {"mult", "gamma", "score", "context", "table"}:
            name = node.tensors[role]
            wrong = made.network.weights[name].copy()
            if node.op == "attention":
                wrong[..., :1] = wrong[..., :1] // 2
            else:
                wrong = (wrong.view(np.int8) // 2).view(np.uint8) if role == "table" and wrong.dtype == np.uint8 \
                    else (wrong // 2).astype(wrong.dtype)
            spoilt = Network(made.network.graph, {**made.network.weights, name: wrong})
            seen = measure_errors(dataclasses.replace(made, network=spoilt), _windows(2, 2)).nodes
            assert seen[node.name] > 2 * fair[node.name] + 0.01, (node.name, role)
            kinds.add((node.op, node.layer))
    assert {op for op, _ in kinds} == {"embedding", "position", "norm", "linear", "attention", "activation"}


def test_only_first_rows_of_a_classifier_count(quantized: dict[str, Quantized]) -> None:
    made = quantized["bert-classifier"]
    taps = observe(made.reference, _windows(1), 0)
    assert taps.sample("pooler").shape == (6, 72)
    assert taps.sample("1.output_norm").shape == (6 * 32, 72)
    head = made.network.graph.by_name[made.network.graph.output]
    assert isinstance(head, Linear)
    assert (head.type.dtype, head.bits) == (DType.INT16, 8)
    assert layer_outputs(made.network) == ["0.output_norm.wide", "1.output_norm.wide"]
