"""Fuse: every pattern makes an operator of some network, and what none takes is refused by name."""

import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Graph
from gemmule.compiler.passes.fuse import PATTERNS, Operator, Remember, fuse, nodes_of, unanswered

from .integer_encoders import EncoderSizes, random_encoder
from .integer_networks import Sizes, borrowing, random_network

NETWORKS = (
    *(random_network(Sizes(family=family), 1) for family in ("gpt2", "llama", "qwen3", "phi")),
    random_network(Sizes(family="llama", wide=True), 2),
    borrowing(random_network(Sizes(family="llama"), 1), (1,), 2), random_encoder(EncoderSizes(), 3))


def matched(graph: Graph, place: int) -> list[Operator]:
    """What one pattern finds by itself."""
    pattern = PATTERNS[place]
    return [found for node in graph.nodes if isinstance(node, pattern.root) and (found := pattern.match(graph, node))]


@pytest.mark.parametrize("place", range(len(PATTERNS)), ids=[pattern.shape for pattern in PATTERNS])
def test_every_pattern_is_of_some_network(place: int) -> None:
    assert any(operator in matched(network.graph, place) for network in NETWORKS for operator in fuse(network.graph))


def test_each_node_belongs_to_one_operator_in_the_order_of_the_graph() -> None:
    for network in NETWORKS:
        operators, names = fuse(network.graph), [node.name for node in network.graph.nodes]
        assert sorted(node.name for operator in operators for node in nodes_of(operator)) == sorted(names)
        ends = [max(names.index(node.name) for node in nodes_of(operator)) for operator in operators]
        assert ends == sorted(ends)


def test_a_pass_without_answers_ends_with_the_last_layers_keys_and_values() -> None:
    *others, last = unanswered(fuse(NETWORKS[1].graph))
    assert isinstance(last, Remember)
    assert last.attention == NETWORKS[1].graph.attentions[-1]
    assert fuse(NETWORKS[1].graph)[:len(others)] == others


def test_what_no_pattern_takes_is_named() -> None:
    graph = NETWORKS[0].graph
    more = graph.nodes[-1].model_copy(update={"name": "second_head"})
    other = Graph(family=graph.family, vocab=graph.vocab, positions=graph.positions, nodes=(*graph.nodes, more),
                  output=graph.output)
    with pytest.raises(CompileError, match="second_head must be part of a decoder as the compiler knows them"):
        fuse(other)
