"""Some layers of a network as a network of its own: what a pass through a range of layers computes."""

from __future__ import annotations

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir.graph import Graph, Network
from gemmule.compiler.ir.nodes import AnyNode, Borrowed, Norm

__all__ = ["layer_part", "residuals"]


def residuals(graph: Graph) -> list[str]:
    """Names of a decoder's residual stream: before the first layer, then behind each  # [layers + 1].

    Raises:
        CompileError: an encoder's, whose norms stand in the stream.
    """
    if graph.encoder:
        raise CompileError("layers of an encoder cannot be run apart: give a decoder")
    by_name = graph.by_name
    firsts: dict[int | None, str] = {}
    for node in graph.nodes:
        first = node.layer is None or node.layer not in firsts  # norms before the layers are of other streams
        if first and isinstance(node, Norm) and not isinstance(by_name[node.x], Borrowed):
            firsts[node.layer] = node.x
    return [firsts[layer] for layer in (*range(graph.layers), None)]


def layer_part(network: Network, *ranges: tuple[int, int]) -> Network:
    """Embeddings, some ranges of layers (first and number of each) one behind the other, the last norm and the head;
    names stay.

    Raises:
        CompileError: there are no such layers, or a range begins before the one before ends.
    """
    graph, ends = network.graph, [0]
    for first, count in ranges:
        if not ends[-1] <= first <= first + count <= graph.layers:
            raise CompileError(f"layers must lie within {ends[-1]} to {graph.layers}, not {first} to {first + count}")
        ends.append(first + count)
    values = residuals(graph)
    streams = [values[0]]  # what each range hands on; one without layers hands on what it is given
    for first, count in ranges:
        streams.append(values[first + count] if count else streams[-1])
    entered = {first: stream for (first, count), stream in zip(ranges, streams) if count}
    kept = {layer for first, count in ranges for layer in range(first, first + count)}
    nodes: list[AnyNode] = []
    for node in graph.nodes:
        if node.layer is None or node.layer in kept:
            renamed = {values[node.layer]: entered[node.layer]} if node.layer in entered else {}
            if node.layer is None:
                renamed = {values[-1]: streams[-1]}
            nodes.append(node.model_copy(update={
                name: renamed.get(getattr(node, name), getattr(node, name)) for name in node.INPUTS}))
    made = Graph(family=graph.family, vocab=graph.vocab, positions=graph.positions, nodes=tuple(nodes),
                 output=graph.output)
    return Network(made, network.weights)
