"""Forms of activation functions in quantised networks: how far each is from float, and what else may not change."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Activation, DType, Form, Graph, Linear, Network, activate
from gemmule.compiler.ir.integer_interpreter import IntegerInterpreter
from gemmule.compiler.quantize.accuracy import measure_errors
from gemmule.compiler.quantize.activation import activation_form, with_activation
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.restore import restore_network
from tests.compiler import families
from tests.compiler.integer_networks import Sizes, random_network

SEED, VOCAB = 20261125, 211
ERRORS = {"table": 0.05, "word": 0.02, "ibert": 0.08}
"""Most of an activation's relative root mean square error, its input's rounding included."""


def _windows(seed: int, count: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCAB, (count, 32))


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Network]:
    """GPT-2 has lopsided ranges with zeros, Llama's are even and its product gated."""
    return {family: load_network(families.write(tmp_path_factory.mktemp(family), families.make(
        family, seed=SEED, head_dim=24, layers=2, vocab=VOCAB))) for family in ("gpt2", "llama-tied", "bert")}


@pytest.mark.parametrize(("family", "bits", "form"), [
    ("gpt2", 8, "word"), ("gpt2", 8, "ibert"), ("gpt2", 4, "ibert"), ("bert", 8, "word"), ("bert", 8, "ibert"),
    ("llama-tied", 8, "word"), ("llama-tied", 4, "word")])
def test_errors(networks: dict[str, Network], family: str, bits: int, form: str) -> None:
    """Layers lose hardly more than with bytes, all else the same; the activation itself less by words."""
    made = quantize_network(networks[family], _windows(1), Options(bits=bits))  # type: ignore[arg-type]
    other = quantize_network(with_activation(networks[family], Form(form)), _windows(1),
                             Options(bits=bits))  # type: ignore[arg-type]
    plain, found = (measure_errors(one, _windows(2, 3)) for one in (made, other))
    print(family, bits, form, *([f"{error:.2%}" for error in one.layers] for one in (plain, found)))
    assert all(after < 1.15 * before + 0.005 for before, after in zip(plain.layers, found.layers, strict=True))
    for node in other.network.graph.nodes:
        if isinstance(node, Activation) and node.form:
            around = {name: one.nodes[node.x] for name, one in (("table", plain), (form, found))}
            assert around[form] < around["table"]  # of its input, as seen behind it
            assert found.nodes[node.name] < ERRORS[form]


@pytest.mark.parametrize("form", Form)
def test_numbers(networks: dict[str, Network], form: Form) -> None:
    """Over all that an input may be: words near half a step of float, I-BERT's in its bound to 8."""
    network = with_activation(quantize_network(networks["gpt2"], _windows(1), Options()).network, form)
    for node in network.graph.nodes:
        if not isinstance(node, Activation):
            continue
        before = network.graph.by_name[node.x]
        assert (before.type.dtype, before.type.zero) == (DType.INT16, 0)
        x = np.arange(-32768, 32768)[:, None]
        interpreter = IntegerInterpreter(network)
        interpreter._values = {node.x: x}
        step = node.type.scale
        if form is Form.IBERT:
            x = x[np.abs(x * before.type.scale) <= 8][:, None]
            interpreter._values = {node.x: x}
        real = activate(node.function, x * before.type.scale)
        wanted = np.clip(real / step - node.type.zero, -128, 127)
        found = interpreter._value(node)
        worst = np.abs(found - wanted).max()
        assert worst < (0.55 if form is Form.WORD else 0.03 / step + 0.5), worst


def test_import_and_change_are_one(networks: dict[str, Network]) -> None:
    """Quantised with a form, or given it behind: equal bytes; to none from another is refused."""
    plain = quantize_network(networks["gpt2"], _windows(1), Options()).network
    wanted, found = with_activation(plain, Form.WORD), quantize_network(
        with_activation(networks["gpt2"], Form.WORD), _windows(1), Options()).network
    assert found.graph == wanted.graph
    assert activation_form(found.graph) is Form.WORD
    assert all(np.array_equal(found.weights[name], wanted.weights[name]) for name in wanted.weights)
    assert Graph.model_validate(found.graph.model_dump(mode="json")) == found.graph
    assert with_activation(found, Form.WORD) is found
    for form in (None, Form.IBERT):
        with pytest.raises(CompileError, match=f"activation {form or 'table'} is made of tables of bytes, not of word"):
            with_activation(found, form)
    assert activation_form(with_activation(with_activation(networks["gpt2"], Form.WORD), None).graph) is None


def test_restored_networks_keep_it(networks: dict[str, Network]) -> None:
    network = quantize_network(with_activation(networks["llama-tied"], Form.WORD), _windows(1), Options()).network
    assert activation_form(restore_network(network).graph) is Form.WORD


def test_by_shape_has_the_same_types(networks: dict[str, Network]) -> None:
    for form in Form:
        network = with_activation(networks["gpt2"], form)
        shape, real = by_shape(network.graph), quantize_network(network, _windows(1), Options()).network
        for a, b in zip(shape.graph.nodes, real.graph.nodes, strict=True):
            assert (a.type.dtype, set(a.tensors)) == (b.type.dtype, set(b.tensors)), a.name


def test_refused(networks: dict[str, Network]) -> None:
    with pytest.raises(CompileError, match="activation ibert needs a network with GELU, not silu: use table or word"):
        with_activation(networks["llama-tied"], Form.IBERT)
    with pytest.raises(CompileError, match="needs the network's scales, which it does not tell"):
        with_activation(random_network(Sizes(family="gpt2"), 1), Form.WORD)


def test_nothing_else_changes(networks: dict[str, Network]) -> None:
    """Of words: the linear before, and the table; weights never."""
    plain = quantize_network(networks["gpt2"], _windows(1), Options()).network
    word, ibert = (with_activation(plain, form) for form in Form)
    before = {node.x for node in plain.graph.nodes if isinstance(node, Activation)}
    for node in plain.graph.nodes:
        reads = any(isinstance(plain.graph.by_name[name], Activation) for name in node.inputs)
        for role, name in node.tensors.items():
            if isinstance(node, Activation):
                assert name not in word.weights
                continue
            for other, may in ((word, node.name in before), (ibert, node.name in before or reads)):
                same = np.array_equal(other.weights[name], plain.weights[name])
                assert same or may and isinstance(node, Linear) and role != "weight", name


def test_a_sample_tells_the_polynomials_step(networks: dict[str, Network]) -> None:
    """The power of two with the least error where it is known; else one that clips less than half."""
    plain = quantize_network(networks["bert"], _windows(1), Options()).network
    told = quantize_network(with_activation(networks["bert"], Form.IBERT), _windows(1), Options()).network
    blind = with_activation(plain, Form.IBERT)
    for node in plain.graph.nodes:
        if isinstance(node, Activation):
            peak = (127 + node.type.zero) * node.type.scale
            reach = 127 * blind.graph.by_name[node.name].type.scale
            assert peak / 2 < reach <= peak
            assert told.graph.by_name[node.name].type.scale / blind.graph.by_name[node.name].type.scale in (0.5, 1, 2)
