"""int4 weights made of int8 ones: exact where they can be, near where not, and no other number changed."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, IntegerInterpreter, Linear, Network, Rows
from gemmule.compiler.passes.fuse import fuse
from gemmule.compiler.quantize.narrow import NARROW_GROUP, narrowed
from gemmule.sw.models.bundled_models import bundled_model, encode

from ..integer_networks import Sizes, random_network

SEED = 20261125


def logits(network: Network, tokens: list[int]) -> np.ndarray:
    return IntegerInterpreter(network).forward(Rows.chain(tokens), Cache(network.graph))


def real(network: Network, node: Linear) -> np.ndarray:
    """Weights in steps of the output."""
    codes = network.tensor(node, "weight")
    if node.bits == 4:
        nibbles = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)[:, :node.depth].astype(int)
        codes = nibbles - 16 * (nibbles > 7)
    if node.group:
        codes = codes * np.repeat(network.tensor(node, "scales").T, node.group, axis=1)[:, :node.depth]
    return codes * (network.tensor(node, "mult") * 2.0 ** -network.tensor(node, "shift").astype(int))[:, None]


@pytest.mark.parametrize("family", ["gpt2", "llama", "opt"])
@pytest.mark.parametrize("group", [0, 8])
def test_exact_where_weights_have_but_four_bits(family: str, group: int) -> None:
    """Codes of -7 to 7 times 16 with a 7 in each column and group, biases in steps of 16.

    Products of a step a column are bit for bit the same; scales by group may not divide 16, and their requantisation
    is the next one of 16 bits.
    """
    network, random = random_network(Sizes(family=family), SEED), np.random.default_rng(SEED)
    weights = dict(network.weights)
    for node in network.graph.nodes:
        if isinstance(node, Linear) and node.name != network.graph.output:
            small = random.integers(-7, 8, (node.columns, node.depth))
            small[:, ::8] = 7  # so each group's scale is the whole step, and a column's clip is its peak
            weights[node.tensors["weight"]] = (16 * small).astype(np.int8)
            if node.bias:
                weights[node.tensors["bias"]] &= ~15
    network = Network(network.graph, weights)
    found, tokens = narrowed(network, group), random.integers(0, 61, 20).tolist()
    if not group:
        assert np.array_equal(logits(found, tokens), logits(network, tokens))
    for node in found.graph.nodes:
        if isinstance(node, Linear):
            assert (node.bits, node.group) == ((8, 0) if node.name == found.graph.output else (4, group))
            assert np.allclose(real(found, node), real(network, network.graph.by_name[node.name]), rtol=2 ** -15)


def test_the_head_too() -> None:
    network = random_network(Sizes(family="llama"), SEED)
    found, tokens = narrowed(network, 8, head=True), [1, 2, 3, 4, 5]
    head = found.graph.by_name[found.graph.output]
    assert isinstance(head, Linear)
    assert (head.bits, head.group) == (4, 8)
    rest = narrowed(network, 8)
    assert all(np.array_equal(rest.weights[name], value) for name, value in found.weights.items()
               if not name.startswith(head.name))
    assert np.corrcoef(logits(found, tokens).ravel(), logits(rest, tokens).ravel())[0, 1] > 0.97


def test_the_bundled_target_says_nearly_the_same() -> None:
    """Of its own choices on a held-out line most stay; a mutant without the step in the requantisation keeps few."""
    network = bundled_model("target").network
    tokens = encode("def mean(values):\n    total = 0\n    for value in values:\n        total += value\n    return ")
    found = narrowed(network)
    expected, seen = logits(network, tokens), logits(found, tokens)
    assert (expected.argmax(axis=1) == seen.argmax(axis=1)).mean() > 0.8
    cosine = (expected * 1.0 * seen).sum(axis=1) / np.linalg.norm(expected * 1.0, axis=1) / np.linalg.norm(
        seen * 1.0, axis=1)
    assert cosine.mean() > 0.97
    packed = sum(found.tensor(node, "weight").nbytes for node in found.graph.nodes
                 if isinstance(node, Linear) and node.bits == 4)
    assert packed * 2 == sum(node.columns * node.depth for node in found.graph.nodes
                             if isinstance(node, Linear) and node.bits == 4)
    assert NARROW_GROUP == 32


def test_what_has_no_int8_weights() -> None:
    with pytest.raises(CompileError, match="with --bits int4"):
        narrowed(random_network(Sizes(family="llama", bits=4, group=8), SEED))


def test_planes_of_an_input_keep_the_same_weights() -> None:
    """The compiler loads them once."""
    network = random_network(Sizes(family="llama", wide=True), SEED)
    found = narrowed(network)
    planes = [node for node in found.graph.nodes if isinstance(node, Linear) and node.plane]
    assert len(planes) == 2 * found.graph.layers
    for high, low in zip(planes[::2], planes[1::2], strict=True):
        assert all(high.tensors[role] == low.tensors[role] for role in ("weight", "scales"))
        assert high.tensors["mult"] != low.tensors["mult"]
    assert fuse(found.graph)
