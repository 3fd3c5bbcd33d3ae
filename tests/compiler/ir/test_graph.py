"""Every rule of a graph refuses what breaks it; a listing is the same for equal graphs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from gemmule.compiler.importers import load_network
from gemmule.compiler.importers.architectures import architecture
from gemmule.compiler.ir import (
    Activation,
    Add,
    AnyNode,
    Attention,
    DType,
    Embedding,
    Function,
    Graph,
    Linear,
    Network,
    Norm,
    Position,
    Product,
    Rope,
    Type,
    listing,
    signature,
)
from gemmule.compiler.quantize.by_shape import by_shape

from ..families import make, write

GOLDEN = Path(__file__).parent / "mistral.txt"
"""Written again by `python -m tests.compiler.ir.test_graph`."""


def nodes() -> list[AnyNode]:
    """One of each operation, in float."""
    return [
        Embedding(name="embedding", columns=8, vocab=10, tensors={"table": "t"}),
        Position(name="position", columns=8, positions=16, tensors={"table": "p"}),
        Add(name="start", columns=8, a="embedding", b="position"),
        Norm(name="norm", columns=8, layer=0, x="start", mean=True, eps=1e-5, tensors={"gamma": "g", "beta": "b"}),
        Linear(name="query", columns=16, layer=0, x="norm", depth=8, bias=True, tensors={"weight": "q", "bias": "qb"}),
        Rope(name="rope", columns=16, layer=0, x="query", head_dim=4, theta=1e4, positions=16),
        Linear(name="key", columns=8, layer=0, x="norm", depth=8, bias=False, tensors={"weight": "k"}),
        Linear(name="value", columns=8, layer=0, x="norm", depth=8, bias=False, tensors={"weight": "v"}),
        Attention(name="context", columns=16, layer=0, query="rope", key="key", value="value", heads=4, kv_heads=2,
                  head_dim=4, scale=0.5),
        Activation(name="act", columns=16, layer=0, x="context", function=Function.SILU),
        Product(name="product", columns=16, layer=0, a="act", b="context"),
        Linear(name="logits", columns=10, x="product", depth=16, bias=False, tensors={"weight": "head"}),
    ]


def graph(changes: dict[str, dict[str, Any]] | None = None, order: list[str] | None = None, **fields: Any) -> Graph:
    """The graph of :func:`nodes` with other fields of some nodes; built anew, so that all checks run."""
    found = {node.name: node.model_dump() | (changes or {}).get(node.name, {}) for node in nodes()}
    chosen = [found[name] for name in order] if order else list(found.values())
    return Graph.model_validate({
        "family": "llama", "vocab": 10, "positions": 16, "nodes": chosen, "output": "logits"} | fields)


def test_properties() -> None:
    whole = graph()
    assert not whole.integer
    assert whole.layers == 1
    assert [node.name for node in whole.attentions] == ["context"]
    assert [node.name for node in whole.readers("norm")] == ["query", "key", "value"]
    assert whole.readers("logits") == ()
    assert whole.by_name["rope"].inputs == ("query",)
    assert {name: tensor.shape for name, tensor in whole.tensors.items()} == {
        "t": (10, 8), "p": (16, 8), "g": (8,), "b": (8,), "q": (16, 8), "qb": (16,), "k": (8, 8), "v": (8, 8),
        "head": (10, 16)}
    weights = {name: np.zeros(tensor.shape, np.float32) for name, tensor in whole.tensors.items()}
    assert Network(whole, weights).tensor(whole.by_name["query"], "bias") is weights["qb"]


NAMES = [node.name for node in nodes()]


@pytest.mark.parametrize(("changes", "fields", "says"), [
    ({"position": {"name": "embedding"}}, {}, "node 'embedding' must stand once"),
    ({"start": {"a": "norm"}}, {}, "node 'start' reads 'norm', which no node before it computes"),
    ({"start": {"b": "start"}}, {}, "node 'start' reads 'start', which no node before it computes"),
    ({}, {"output": "y"}, "output 'y' must be a node"),
    ({}, {"vocab": 11}, "'embedding' must have vocab = 11 rows, not 10"),
    ({}, {"positions": 17}, "'position' must have at least positions = 17 rows, not 16"),
    ({"rope": {"positions": 15}}, {}, "'rope' must have at least positions = 16 rows, not 15"),
    ({"query": {"depth": 9}}, {}, "'query' takes 9 columns, but 'norm' has 8"),
    ({"start": {"columns": 9}}, {}, "'start' takes 9 columns, but 'embedding' has 8"),
    ({"product": {"b": "norm"}}, {}, "'product' takes 16 columns, but 'norm' has 8"),
    ({"context": {"kv_heads": 3}}, {}, "'context' must have heads = 4 a multiple of kv_heads, not 3"),
    ({"context": {"head_dim": 5}}, {}, "'context' must have heads * head_dim columns, not 16"),
    ({"context": {"kv_heads": 1}}, {}, "'context' takes 4 columns, but 'key' has 8"),
    ({"rope": {"head_dim": 6}}, {}, "'rope' must have whole heads of 6 columns, not 16"),
    ({"query": {"tensors": {"weight": "q"}}}, {}, "'query' must name tensors bias, weight, not weight"),
    ({"key": {"tensors": {"weight": "k", "bias": "b"}}}, {}, "'key' must name tensors weight, not bias, weight"),
    ({"act": {"tensors": {"table": "x"}}}, {}, "'act' must name tensors none, not table"),
    ({"key": {"tensors": {"weight": "q"}}}, {}, "tensor 'q' cannot be both"),
    ({"act": {"type": {"dtype": "int8"}}}, {}, "node 'act' must be in float like the first"),
], ids=str)
def test_refused(changes: dict[str, dict[str, Any]], fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        graph(changes, **fields)
    assert says in str(caught.value)


@pytest.mark.parametrize(("changes", "fields"), [
    ({"norm": {"eps": 0}}, {}), ({"norm": {"eps": float("nan")}}, {}), ({"query": {"bits": 5}}, {}),
    ({"rope": {"head_dim": 3}}, {}), ({"rope": {"theta": 0.5}}, {}), ({"context": {"scale": -1}}, {}),
    ({"context": {"window": 0}}, {}), ({"act": {"function": "softmax"}}, {}), ({"act": {"op": "softmax"}}, {}),
    ({"act": {"more": 1}}, {}), ({"act": {"name": ""}}, {}), ({"act": {"columns": 0}}, {}), ({}, {"family": "t5"}),
    ({}, {"nodes": []}), ({}, {"positions": 0}), ({}, {"positions": 65537}), ({}, {"more": 1}),
    ({"act": {"layer": -1}}, {}),
], ids=str)
def test_fields_out_of_range(changes: dict[str, dict[str, Any]], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        graph(changes, **fields)


def test_integers_have_types_of_their_own() -> None:
    """The same classes in integers: a residual int16, products int8 to int8, and what does not fit is refused."""
    residual, byte = Type(dtype=DType.INT16, scale=0.01), Type(dtype=DType.INT8, scale=0.1)
    head: list[AnyNode] = [
        Embedding(name="embedding", columns=8, vocab=10, type=residual,
                  tensors={"codes": "c", "mult": "m", "shift": "s"}),
        Norm(name="norm", columns=8, x="embedding", mean=False, eps=1e-5, type=byte,
             tensors={"gamma": "g", "scalars": "n"}),
    ]

    def build(linear: Linear) -> Graph:
        return Graph(family="llama", vocab=10, positions=4, nodes=(*head, linear), output="logits")

    def linear(**fields: Any) -> Linear:
        tensors = {"weight": "w", "mult": "lm", "shift": "ls"} | ({"scales": "g4"} if fields.get("group") else {})
        return Linear(**{"name": "logits", "columns": 10, "x": "norm", "depth": 8, "bias": False, "type": residual,
                         "tensors": tensors} | fields)

    whole = build(linear())
    assert whole.integer
    assert whole.tensors["w"].dtype is DType.INT8
    assert build(linear(bits=4, group=3)).tensors["w"].shape == (10, 4)
    assert build(linear(bits=4, group=3)).tensors["g4"].shape == (3, 10)
    with pytest.raises(ValidationError, match="'logits' takes int8, but 'embedding' is int16"):
        build(linear(x="embedding"))
    with pytest.raises(ValidationError, match="'logits' must give int8 or int16 or int32, not uint8"):
        build(linear(type=Type(dtype=DType.UINT8)))
    with pytest.raises(ValidationError, match="'logits' must be in integers like the first"):
        build(linear(type=Type()))


def test_every_operation_has_a_signature_in_both() -> None:
    integers = {"add": DType.INT16, "embedding": DType.INT16, "position": DType.INT16, "norm": DType.INT8}
    for node in nodes():
        assert len(signature(node).inputs) == len(node.INPUTS)
        other = node.model_copy(update={"type": Type(dtype=integers.get(node.op, DType.INT8))})
        rule = signature(other)
        assert len(rule.inputs) == len(node.INPUTS)
        assert other.type.dtype in rule.output


def test_types_print() -> None:
    assert str(Type()) == "float32"
    assert str(Type(dtype=DType.INT8, scale=0.125)) == "int8*0.125"
    assert str(Type(dtype=DType.INT8, scale=(0.5, 0.25))) == "int8*0.5.. (2 scales)"


def test_listing_of_one_of_each() -> None:
    text = listing(graph())
    assert text.startswith("llama: vocab 10, positions 16, output logits\n")
    assert "context: float32[16] = attention rope key value heads=4 kv_heads=2 head_dim=4 scale=0.5 causal\n" in text
    assert "norm: float32[8] = norm start mean eps=1e-05\n" in text
    assert len(text.splitlines()) == len(NAMES) + 1
    assert listing(graph()) == text
    assert listing(graph({"context": {"window": 3}})) != text


def small_listing(folder: Path) -> str:
    """A Mistral of two layers with a window."""
    made = make("mistral", layers=2, vocab=40)
    return listing(load_network(write(folder, made)).graph)


def test_golden_listing(tmp_path: Path) -> None:
    assert small_listing(tmp_path) == GOLDEN.read_text(), "run: python -m tests.compiler.ir.test_graph"


@pytest.mark.parametrize("name", ["gpt2", "tinyllama-1.1b"])
def test_parameters_are_those_of_the_checkpoint(name: str) -> None:
    """Of float and integers, whatever their bits; no table of angles or of an activation counts."""
    known = architecture(name)
    assert known.graph().parameters == known.parameters
    small = known.resized("layers", 1).graph()
    assert {by_shape(small, bits=bits, head_bits=8, group=32).graph.parameters for bits in (4, 8)} == {
        small.parameters}


if __name__ == "__main__":
    import tempfile
    with tempfile.TemporaryDirectory() as top:
        GOLDEN.write_text(small_listing(Path(top)))
    print(GOLDEN, file=sys.stderr)
