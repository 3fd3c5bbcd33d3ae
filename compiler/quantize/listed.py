"""A network whose products of mostly zero rows load only the weights that meet something else."""

from __future__ import annotations

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Activation, DType, Linear, Network, Product

__all__ = ["listed"]


def listed(network: Network) -> Network:
    """The same network, with the weights of the linears behind activations row by row (``Linear.listed``).

    Only those of int8 rows and int8 weights change; what the network computes does not.

    Raises:
        CompileError: it has no such linear.
    """
    graph = network.graph
    inner = {node.name for node in graph.nodes if isinstance(node, Activation | Product)
             and node.type.dtype is DType.INT8}
    nodes = tuple(node.model_copy(update={"listed": True})
                  if isinstance(node, Linear) and node.x in inner and node.bits == 8 and node.name != graph.output
                  else node for node in graph.nodes)
    if nodes == graph.nodes:
        raise CompileError("weights are skipped where int8 rows behind an activation meet int8 weights, which this "
                           "network does not have: load all weights")
    return Network(graph.model_copy(update={"nodes": nodes}), network.weights)
