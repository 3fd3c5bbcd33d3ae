"""What a pass over a network must move and multiply, from its graph alone: the roofline's side of a report."""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.ir import Attention, Embedding, Graph, Linear, Norm, Position, Rope
from gemmule.timing import ceil_div

__all__ = ["Ideal", "ideal"]


@dataclass(frozen=True)
class Ideal:
    """Bytes by purpose, each moved once at its stored width, and multiply-accumulates."""

    weights: int
    """With int4 scales, column parameters, biases and norms."""
    kv: int
    """Cached keys and values read, new ones written."""
    inputs: int
    """Rows of embeddings, positions and angles."""
    outputs: int
    macs: int

    @property
    def bytes(self) -> int:
        return self.weights + self.kv + self.inputs + self.outputs


def ideal(graph: Graph, rows: int, context: int, *, wanted: int, tokens: bool, batch: int = 1) -> Ideal:
    """A pass of ``rows`` new rows behind ``context`` cached ones; ``wanted`` rows give logits, or tokens.

    Of each sequence of a batch as many. An encoder takes whole sequences: nothing is cached or left out, and behind its
    layers only first rows count.
    """
    weights = kv = inputs = macs = 0
    every = batch * rows
    for node in graph.nodes:
        if isinstance(node, Linear):
            taken = batch if node.name in graph.heads else batch * wanted if node.name == graph.output else every
            if not taken:
                continue
            weights += ceil_div(node.depth * node.bits, 8) * node.columns + node.columns * (7 if node.bias else 3)
            weights += ceil_div(node.depth, node.group) * node.columns if node.group else 0
            macs += taken * node.depth * node.columns
        elif isinstance(node, Norm):
            if (twin := graph.wide_norms.get(node.name)) and graph.by_name[twin].tensors["gamma"] == node.tensors[
                    "gamma"]:
                continue  # counted
            weights += node.columns * (6 if node.mean else 2)
        elif isinstance(node, Attention) and not node.causal:
            macs += 2 * node.columns * batch * rows * rows
        elif isinstance(node, Attention):
            kv += 2 * node.kv_heads * node.head_dim * batch * (context + rows)
            macs += 2 * node.columns * batch * (rows * context + rows * (rows + 1) // 2)
        elif isinstance(node, Embedding | Position):
            inputs += 2 * node.columns * every
    ropes = [node for node in graph.nodes if isinstance(node, Rope)]
    inputs += 4 * ropes[0].head_dim * every if ropes else 0
    if graph.encoder:
        given = (batch if graph.heads else every) * graph.by_name[graph.output].columns
    else:
        given = batch * wanted * (1 if tokens else graph.vocab)
    return Ideal(weights, kv, inputs, 2 * given, macs)
