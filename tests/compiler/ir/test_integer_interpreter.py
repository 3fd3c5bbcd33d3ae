"""The integer interpreter: values in their types, passes node by node."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.compiler.ir import integer_interpreter as interpreter
from gemmule.compiler.ir.products import few_rows
from tests.compiler.integer_networks import Sizes, random_network


@pytest.mark.parametrize("sizes", [
    Sizes(family="gpt2"), Sizes(family="llama", bits=4, group=8), Sizes(family="phi"),
    Sizes(family="llama", wide=True, prefix=1, steps=True)])
def test_blocks_and_ways_of_products_change_nothing(monkeypatch: pytest.MonkeyPatch, sizes: Sizes) -> None:
    """Linears a row at a time, scores a head at a time, products by BLAS however few the rows are."""
    network = random_network(sizes, 1)
    rows = Rows.ragged([list(range(9)), list(range(20, 31))], [sizes.prefix] * 2)
    found = []
    for few, most in ((64, 1 << 21), (0, 1)):
        monkeypatch.setattr(interpreter, "FEW_ROWS", few)
        monkeypatch.setattr(interpreter, "MOST_PRODUCTS", most)
        monkeypatch.setattr(interpreter, "MOST_SCORES", most)
        seen: dict[str, np.ndarray] = {}
        one = IntegerInterpreter(network)
        one.forward(rows, Cache(network.graph))
        one.forward(rows, Cache(network.graph), seen.__setitem__)
        found.append(seen)
    for name, value in found[0].items():
        assert value.dtype == np.int64
        np.testing.assert_array_equal(found[1][name], value)


def test_products_of_few_rows_are_exact() -> None:
    """Extremes of 8 bits, signed and unsigned, at a depth whose sums wrap."""
    random = np.random.default_rng(5)
    x, weight = random.integers(-128, 256, (3, 1 << 10)), random.integers(-127, 128, (5, 1 << 10)).astype(np.int8)
    np.testing.assert_array_equal(few_rows(x, weight), x @ weight.T.astype(np.int64))
    deep = 1 << 17
    x, weight = np.full((2, deep), 255), np.full((1, deep), 127, dtype=np.int8)
    assert (few_rows(x, weight) == np.array(255 * 127 * deep).astype(np.int32)).all()


def test_steps_are_fed_as_they_go() -> None:
    """What is fed of a node after it was computed is what the next ones read; values have their node's type."""
    network = random_network(Sizes(family="gpt2"), 2)
    graph, rows = network.graph, Rows.chain([1, 2, 3, 4])
    one, feed, last = IntegerInterpreter(network), dict[str, np.ndarray](), np.zeros(0)
    first = graph.nodes[0].name
    for node, value in one.steps(rows, Cache(graph), feed):
        assert value.dtype == node.type.dtype.value
        if node.name == first:
            feed[first] = value + 100
        last = value
    wanted = IntegerInterpreter(network).forward(rows, Cache(graph), feed={first: feed[first]})
    np.testing.assert_array_equal(last, wanted)
    assert not np.array_equal(last, IntegerInterpreter(network).forward(rows, Cache(graph)))
