"""What a pass over a network must move and multiply, from its graph alone: the roofline's side of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmule.compiler.ir import Attention, Borrowed, Embedding, Graph, Linear, Norm, Plane, Position, Rope
from gemmule.timing import ceil_div

__all__ = ["Ideal", "ideal", "ideal_by_operation"]


@dataclass(frozen=True)
class Ideal:
    """Bytes by purpose, each moved once at its stored width, and multiply-accumulates."""

    weights: int = 0
    """With int4 scales, column parameters, biases and norms."""
    kv: int = 0
    """Cached keys and values read, new ones written."""
    inputs: int = 0
    """Rows of embeddings, positions and angles."""
    outputs: int = 0
    macs: int = 0

    @property
    def bytes(self) -> int:
        return self.weights + self.kv + self.inputs + self.outputs

    def __add__(self, other: Ideal) -> Ideal:
        return Ideal(self.weights + other.weights, self.kv + other.kv, self.inputs + other.inputs,
                     self.outputs + other.outputs, self.macs + other.macs)


def ideal(graph: Graph, rows: int, context: int, *, wanted: int, tokens: bool, batch: int = 1,
          left: Sequence[int] = (), heads: Sequence[int] = ()) -> Ideal:
    """A pass of ``rows`` new rows behind ``context`` cached ones; ``wanted`` rows give logits, or tokens.

    Of each sequence of a batch as many. An encoder takes whole sequences: nothing is cached or left out, and behind its
    layers only first rows count. ``left``: by layer, rows that it leaves behind its attention; ``heads``: those that it
    leaves to the next; by default all.
    """
    return sum(ideal_by_operation(graph, rows, context, wanted=wanted, tokens=tokens, batch=batch,
                                  left=left, heads=heads).values(), Ideal())


def ideal_by_operation(graph: Graph, rows: int, context: int, *, wanted: int, tokens: bool,
                       batch: int = 1, left: Sequence[int] = (), heads: Sequence[int] = ()) -> dict[str, Ideal]:
    """The same by operation, all layers together: names without the layer's number."""
    found: dict[str, Ideal] = {}
    every, pairs = batch * rows, batch * (rows * context + rows * (rows + 1) // 2)
    angles = next((node.name for node in graph.nodes if isinstance(node, Rope)), None)
    fewer = _columns_left(graph, heads)
    for node in graph.nodes:
        node = node.model_copy(update=fewer.get(node.name, {}))
        match node:
            case Linear(plane=Plane.HIGH):  # its weights are those of the low plane
                part = Ideal(weights=3 * node.columns, macs=every * node.depth * node.columns)
            case Linear():
                part = _linear(node, batch if node.name in graph.heads else batch * wanted if node.name == graph.output
                               else every)
            case Norm() if _counted(graph, node):
                part = Ideal()
            case Norm():
                part = Ideal(weights=node.columns * (6 if node.mean else 2))
            case Attention() if not node.causal:
                part = Ideal(macs=2 * node.columns * batch * rows * rows)
            case Attention():
                kv = 2 * node.kv_heads * node.head_dim * batch * (context + rows)
                part = Ideal(kv=kv, macs=2 * node.columns * pairs)
            case Embedding() | Position() | Borrowed():
                part = Ideal(inputs=2 * node.columns * every)
            case Rope() if node.name == angles:
                part = Ideal(inputs=4 * node.head_dim * every)
            case _:
                part = Ideal()
        if node.name == graph.output:
            given = (batch if graph.heads else every) * node.columns if graph.encoder else batch * wanted * (
                1 if tokens else graph.vocab)
            part += Ideal(outputs=2 * given)
        name = node.name.rpartition(".")[2]
        found[name] = found.get(name, Ideal()) + part
        if isinstance(node, Attention) and node.layer is not None and node.layer < len(left):
            rows = left[node.layer]
            every = batch * rows
    return found


def _columns_left(graph: Graph, heads: Sequence[int]) -> dict[str, dict[str, int]]:
    """By operation that has some of the heads: its columns, or its depth."""
    found: dict[str, dict[str, int]] = {}
    for node in graph.attentions:
        if node.layer and node.layer <= len(heads):
            size = heads[node.layer - 1] * node.head_dim
            found |= {name: {"columns": size} for name in (node.name, node.query, node.key, node.value)}
            found |= {reader.name: {"depth": size} for reader in graph.readers(node.name)}
    return found


def _counted(graph: Graph, node: Norm) -> bool:
    """Whether its factors are those of another norm, at another width."""
    twin = graph.wide_norms.get(node.name)
    return twin is not None and graph.by_name[twin].tensors["gamma"] == node.tensors["gamma"]


def _linear(node: Linear, rows: int) -> Ideal:
    if not rows:
        return Ideal()
    weights = ceil_div(node.depth * node.bits, 8) * node.columns + node.columns * (7 if node.bias else 3)
    weights += ceil_div(node.depth, node.group) * node.columns if node.group else 0
    return Ideal(weights=weights, macs=rows * node.depth * node.columns)
