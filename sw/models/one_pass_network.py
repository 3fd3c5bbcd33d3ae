"""A trained one-pass drafter as a float network that reads rows of its target's residual stream.

Of a row it is given a token and the target's hidden rows h1, h2, h3 behind some of its layers: the stream begins with
``J0 norm(E[token]) + J1 norm(h1) + J2 norm(h2) + J3 norm(h3)``. The first term is constant by token, so it is the
embedding; the learned masks are further tokens behind those of the vocabulary. Factors of the norms stand in J, which
is turned as the target's stream is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import (
    Activation,
    Add,
    Attention,
    Borrowed,
    Embedding,
    Function,
    Graph,
    Linear,
    Network,
    Node,
    Norm,
    Product,
    Rope,
)
from gemmule.compiler.quantize.rotate import Rotation

__all__ = ["Trained", "drafter_network", "read_trained"]


@dataclass(frozen=True)
class Trained:
    """What a file of a trained drafter holds.

    Attributes:
        depths: of the target, behind whose layers hidden rows are read.
        tensors: float32, by the names of training.
        tokens: that it chooses from, int64; a number of its logits is a place here.
        masks: positions behind the first that one pass drafts.
    """

    depths: tuple[int, ...]
    tensors: dict[str, np.ndarray]
    tokens: np.ndarray
    masks: int


def read_trained(path: Path) -> Trained:
    """Read what training wrote in int8 by row.

    Raises:
        CompileError: the file is missing, or of another kind of drafter.
    """
    try:
        with safe_open(path, "numpy") as file:
            told = json.loads((file.metadata() or {}).get("drafter", "{}"))
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, ValueError) as error:
        raise CompileError(f"{path}: a drafter must be a readable safetensors file: {error}") from None
    if told.get("kind") != "parallel":
        raise CompileError(f"{path}: a drafter must be of the kind parallel, not {told.get('kind')}")
    tensors = {name: value * found[f"{name}.scale"][:, None] if f"{name}.scale" in found else value
               for name, value in found.items() if not name.endswith(".scale") and name != "vocabulary"}
    return Trained(
        tuple(told["network"]["depths"]), {name: value.astype(np.float32) for name, value in tensors.items()},
        found["vocabulary"].astype(np.int64), len(found["mask_embedding"]))


class _Nodes:
    """Nodes in order, and their tensors."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}
        self.layer: int | None = None

    def add(self, kind: type[Node], name: str, tensors: dict[str, np.ndarray] | None = None, **fields: Any) -> str:
        name = name if self.layer is None else f"{self.layer}.{name}"
        named = {role: f"{name}.{role}" for role in tensors or {}}
        self.weights |= {named[role]: np.ascontiguousarray(value, np.float32)
                         for role, value in (tensors or {}).items()}
        self.nodes.append(kind(name=name, tensors=named, layer=self.layer, **fields))
        return name

    def linear(self, name: str, x: str, weight: np.ndarray) -> str:
        columns, depth = weight.shape
        return self.add(Linear, name, {"weight": weight}, columns=columns, depth=depth, x=x, bias=False)

    def norm(self, name: str, x: str, gamma: np.ndarray, eps: float) -> str:
        return self.add(Norm, name, {"gamma": gamma}, columns=len(gamma), x=x, mean=False, eps=eps)

    def sum(self, name: str, a: str, b: str, columns: int) -> str:
        return self.add(Add, name, columns=columns, a=a, b=b)


def drafter_network(trained: Trained, target: Network, steps: Sequence[float], turn: Rotation | None) -> Network:
    """The float network.

    Args:
        trained: the drafter.
        target: in float, as it was published: embeddings, and sizes of heads and rotations.
        steps: of the target's rows in integers, by depth.
        turn: how its residual stream was turned.

    Raises:
        CompileError: the drafter's sizes are not the target's.
    """
    graph, t = target.graph, trained.tensors
    embedding = next(node for node in graph.nodes if isinstance(node, Embedding))
    attention, rope = graph.attentions[0], next(node for node in graph.nodes if isinstance(node, Rope))
    eps = next(node for node in graph.nodes if isinstance(node, Norm)).eps
    table, hidden, join = target.tensor(embedding, "table"), embedding.columns, t["join.weight"]
    if join.shape != (hidden, (len(trained.depths) + 1) * hidden) or max(trained.depths) > graph.layers:
        raise CompileError(f"a drafter must be of a target with {join.shape[0]} columns and {max(trained.depths)} "
                           f"layers, not {hidden} and {graph.layers}: take the one that it was trained on")
    parts = np.split(join, len(trained.depths) + 1, axis=1)

    def of_tokens(rows: np.ndarray) -> np.ndarray:
        normed = rows / np.sqrt(np.square(rows).mean(-1, keepdims=True) + np.float32(eps)) * t["norms.0.weight"]
        return np.asarray(normed @ parts[0].T, np.float32)

    made = _Nodes()
    vocab = len(table) + trained.masks
    x = made.add(Embedding, "embedding", {"table": np.concatenate([of_tokens(table), of_tokens(t["mask_embedding"])])},
                 columns=hidden, vocab=vocab)
    for number, (depth, step) in enumerate(zip(trained.depths, steps, strict=True), 1):
        weight = parts[number] * t[f"norms.{number}.weight"]
        row = made.add(Borrowed, f"hidden{depth}", columns=hidden, depth=depth, step=step)
        normed = made.norm(f"hidden{depth}.norm", row, np.ones(hidden, np.float32), eps)
        x = made.sum(f"hidden{depth}.sum", x, made.linear(
            f"hidden{depth}.join", normed, weight if turn is None else turn(weight)), hidden)
    for layer in range(sum(name.endswith("attn_norm.weight") for name in t)):
        made.layer = layer
        x = _block(made, x, {name.removeprefix(f"blocks.{layer}.").removesuffix(".weight"): value
                             for name, value in t.items() if name.startswith(f"blocks.{layer}.")}, attention, rope, eps)
    made.layer = None
    y = made.norm("norm", x, t["norm.weight"], eps)
    logits = made.linear("logits", y, table[trained.tokens])
    return Network(Graph(family="llama", vocab=vocab, positions=graph.positions, nodes=tuple(made.nodes),
                         output=logits), made.weights)


def _block(made: _Nodes, x: str, t: dict[str, np.ndarray], attention: Attention, rope: Rope, eps: float) -> str:
    """A layer like the target's."""
    hidden, width = t["out"].shape
    y = made.norm("norm1", x, t["attn_norm"], eps)
    parts = []
    for name in ("query", "key", "value"):
        part = made.linear(name, y, t[name[0]])
        if name != "value":
            part = made.add(Rope, f"{name}_rope", columns=len(t[name[0]]), x=part, head_dim=rope.head_dim,
                            theta=rope.theta, positions=rope.positions, scaling=rope.scaling)
        parts.append(part)
    mixed = made.add(Attention, "context", columns=width, query=parts[0], key=parts[1], value=parts[2],
                     heads=attention.heads, kv_heads=attention.kv_heads, head_dim=attention.head_dim,
                     scale=attention.scale)
    x = made.sum("middle", x, made.linear("out", mixed, t["out"]), hidden)
    y = made.norm("norm2", x, t["ffn_norm"], eps)
    inner = len(t["gate"])
    gate = made.add(Activation, "act", columns=inner, x=made.linear("gate", y, t["gate"]), function=Function.SILU)
    up = made.linear("up", y, t["up"])
    product = made.add(Product, "product", columns=inner, a=gate, b=up)
    return made.sum("end", x, made.linear("down", product, t["down"]), hidden)
