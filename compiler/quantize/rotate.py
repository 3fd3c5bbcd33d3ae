"""A rotation of the residual stream, folded into the weights (QuaRot, Ashkboos et al., SpinQuant, Liu et al., 2024).

Published networks keep a few channels of the residual stream hundreds of times as large as the others. An orthogonal
matrix R spreads them over all columns and the network computes the same function: what is added to the stream is
multiplied by R, what reads it by its transpose. RMS norms commute with R once their factors are in the weights behind
them. R = signs, then a Hadamard matrix on blocks, then a cosine transform across them: exact to compute, quick to
apply, the same on every machine.
"""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Add, Embedding, Graph, Linear, Network, Norm, Position
from gemmule.compiler.quantize.overlay import Change, Overlay

__all__ = ["Rotation", "can_rotate", "rotated"]

MOST_HADAMARD = 64
"""Largest block of a Hadamard matrix."""
HEAD = "rotated.head"
"""The head's weights, where they were the embedding's: norm factors make them two tensors."""


class Rotation:
    """An orthogonal matrix [columns, columns], applied to the last axis of arrays."""

    def __init__(self, columns: int, seed: int) -> None:
        block = min(columns & -columns, MOST_HADAMARD)
        across = columns // block
        self.signs = np.random.default_rng(seed).integers(0, 2, columns) * 2.0 - 1.0
        hadamard = np.ones((1, 1))
        while len(hadamard) < block:
            hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
        self.hadamard = hadamard / np.sqrt(block)
        angle = np.outer(2 * np.arange(across) + 1, np.arange(across)) * np.pi / (2 * across)
        self.cosines = np.cos(angle) * np.where(np.arange(across) == 0, np.sqrt(1 / across), np.sqrt(2 / across))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """``x @ R`` of an array [.., columns], in its type."""
        kind = x.dtype
        parts = (x * self.signs.astype(kind)).reshape(*x.shape[:-1], len(self.cosines), len(self.hadamard))
        parts = parts @ self.hadamard.astype(kind)
        return np.ascontiguousarray((parts.swapaxes(-1, -2) @ self.cosines.astype(kind)).reshape(x.shape))


def can_rotate(graph: Graph) -> bool:
    """Whether all norms are RMS norms that linears alone read, and each tensor stands in one place but a tied head's.

    LayerNorm subtracts a mean, which a rotation does not keep.
    """
    norms = [node for node in graph.nodes if isinstance(node, Norm) and not node.head_dim]
    written = [node for node in graph.nodes if isinstance(node, Linear) and _writes(graph, node)]
    read = [reader for norm in norms for reader in graph.readers(norm.name)]
    names = [reader.tensors["weight"] for reader in (*read, *written) if isinstance(reader, Linear)]
    return (not graph.encoder and not graph.wide_norms and not any(norm.mean for norm in norms)
            and all(isinstance(reader, Linear) for reader in read) and len(names) == len(set(names)))


def _writes(graph: Graph, node: Linear) -> bool:
    readers = graph.readers(node.name)
    return bool(readers) and all(isinstance(reader, Add) for reader in readers)


def rotated(network: Network, seed: int) -> Network:
    """The same network with its residual stream turned by a :class:`Rotation`, factors of norms in the weights.

    The graph must satisfy :func:`can_rotate`.
    """
    graph, nodes, changes = network.graph, [], dict[str, tuple[str, Change]]()
    turn = Rotation(next(node.columns for node in graph.nodes if isinstance(node, Embedding)), seed)

    def change(name: str, made: Change) -> None:
        changes[name] = name, made

    for node in graph.nodes:
        if isinstance(node, Embedding | Position):
            change(node.tensors["table"], turn)
        elif isinstance(node, Norm) and not node.head_dim:
            change(node.tensors["gamma"], np.ones_like)
        elif isinstance(node, Linear) and isinstance(norm := graph.by_name[node.x], Norm):
            made = _reading(turn, network.tensor(norm, "gamma"))
            name = node.tensors["weight"]
            if name in changes:  # the embedding's own
                node = node.model_copy(update={"tensors": {**node.tensors, "weight": HEAD}})
                changes[HEAD] = name, made
            else:
                change(name, made)
        elif isinstance(node, Linear) and _writes(graph, node):
            change(node.tensors["weight"], lambda weight: np.ascontiguousarray(turn(weight.T).T))
            if node.bias:
                change(node.tensors["bias"], turn)
        nodes.append(node)
    made_graph = Graph(family=graph.family, vocab=graph.vocab, positions=graph.positions, nodes=tuple(nodes),
                       output=graph.output)
    return Network(made_graph, Overlay(network.weights, changes))


def _reading(turn: Rotation, gamma: np.ndarray) -> Change:
    return lambda weight: turn(weight * gamma)
