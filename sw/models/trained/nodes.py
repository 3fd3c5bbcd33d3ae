"""What the networks of trained drafters are made of: nodes in order, what they take of the target, and a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

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
from gemmule.sw.models.trained.read import Trained

__all__ = ["Nodes", "Target"]


@dataclass(frozen=True)
class Target:
    """What a drafter has of its target, which is in float, as it was published.

    Attributes:
        network: the target.
        steps: of its rows in integers, by depth.
        turn: how its residual stream was turned.
    """

    network: Network
    steps: dict[int, float]
    turn: Rotation | None

    @property
    def table(self) -> np.ndarray:
        """Embeddings, and rows of the head  # float32 [vocab, hidden]."""
        return self.network.tensor(self.embedding, "table")

    @property
    def embedding(self) -> Embedding:
        """Its first node."""
        return next(node for node in self.network.graph.nodes if isinstance(node, Embedding))

    @property
    def gains(self) -> np.ndarray:
        """Factors of the last norm  # float32 [hidden]."""
        last = [node for node in self.network.graph.nodes if isinstance(node, Norm)][-1]
        return np.asarray(self.network.tensor(last, "gamma"), np.float32)

    @property
    def eps(self) -> float:
        """Of all norms."""
        return next(node for node in self.network.graph.nodes if isinstance(node, Norm)).eps

    def check(self, trained: Trained, parts: int) -> None:
        """Raises CompileError: the drafter, whose join reads so many rows of the target's width, is of another one."""
        hidden, graph, join = self.embedding.columns, self.network.graph, trained.tensors["join.weight"]
        if join.shape != (hidden, parts * hidden) or max(trained.depths) > graph.layers:
            raise CompileError(f"a drafter must be of a target with {join.shape[0]} columns and {max(trained.depths)} "
                               f"layers, not {hidden} and {graph.layers}: take the one that it was trained on")

    def joined(self, rows: np.ndarray, gamma: np.ndarray, join: np.ndarray) -> np.ndarray:
        """The part of a stream that a token alone decides: ``join norm(row)``  # float32 [rows, hidden]."""
        normed = rows / np.sqrt(np.square(rows).mean(-1, keepdims=True) + np.float32(self.eps)) * gamma
        return np.asarray(normed @ join.T, np.float32)


class Nodes:
    """Nodes in order, and their tensors."""

    def __init__(self, target: Target, more: int = 0) -> None:
        """``more``: columns of the stream beyond the target's."""
        self.target = target
        self.hidden, self.eps = target.embedding.columns, target.eps
        self.width = self.hidden + more
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

    def embedding(self, table: np.ndarray) -> str:
        return self.add(Embedding, "embedding", {"table": table}, columns=self.width, vocab=len(table))

    def linear(self, name: str, x: str, weight: np.ndarray, bias: np.ndarray | None = None) -> str:
        columns, depth = weight.shape
        tensors = {"weight": weight} | ({} if bias is None else {"bias": bias})
        return self.add(Linear, name, tensors, columns=columns, depth=depth, x=x, bias=bias is not None)

    def norm(self, name: str, x: str, gamma: np.ndarray) -> str:
        return self.add(Norm, name, {"gamma": gamma}, columns=len(gamma), x=x, mean=False, eps=self.eps)

    def sum(self, name: str, a: str, b: str) -> str:
        return self.add(Add, name, columns=self.width, a=a, b=b)

    def borrowed(self, x: str, depth: int, gamma: np.ndarray, weight: np.ndarray) -> str:
        """``x`` and a product of the target's normed rows at a depth; the norm's factors stand in the weights, which
        are turned as those rows are.
        """
        turn = self.target.turn
        row = self.add(Borrowed, f"hidden{depth}", columns=self.hidden, depth=depth, step=self.target.steps[depth])
        normed = self.norm(f"hidden{depth}.norm", row, np.ones(self.hidden, np.float32))
        weight = weight * gamma
        return self.sum(f"hidden{depth}.sum", x, self.linear(
            f"hidden{depth}.join", normed, weight if turn is None else turn(weight)))

    def block(self, x: str, t: dict[str, np.ndarray]) -> str:
        """A layer like the target's; ``t``: its tensors by the names of training, without ``.weight``."""
        graph = self.target.network.graph
        attention, rope = graph.attentions[0], next(node for node in graph.nodes if isinstance(node, Rope))
        y = self.norm("norm1", x, t["attn_norm"])
        parts = []
        for name in ("query", "key", "value"):
            part = self.linear(name, y, t[name[0]])
            if name != "value":
                part = self.add(Rope, f"{name}_rope", columns=len(t[name[0]]), x=part, head_dim=rope.head_dim,
                                theta=rope.theta, positions=rope.positions, scaling=rope.scaling)
            parts.append(part)
        mixed = self.add(Attention, "context", columns=t["out"].shape[1], query=parts[0], key=parts[1], value=parts[2],
                         heads=attention.heads, kv_heads=attention.kv_heads, head_dim=attention.head_dim,
                         scale=attention.scale)
        return self.gated(self.sum("middle", x, self.linear("out", mixed, t["out"])), t)

    def gated(self, x: str, t: dict[str, np.ndarray]) -> str:
        """The MLP of such a layer."""
        y = self.norm("norm2", x, t["ffn_norm"])
        inner = len(t["gate"])
        gate = self.add(Activation, "act", columns=inner, x=self.linear("gate", y, t["gate"]), function=Function.SILU)
        up = self.linear("up", y, t["up"])
        product = self.add(Product, "product", columns=inner, a=gate, b=up)
        return self.sum("end", x, self.linear("down", product, t["down"]))

    def inside(self, layer: int | None) -> Self:
        """What is added from now on belongs to this layer."""
        self.layer = layer
        return self

    def network(self, x: str, trained: Trained, gains: np.ndarray | None = None, positions: int = 0) -> Network:
        """With the last norm, and the target's own head over the listed tokens.

        ``gains``: of the norm, by default the trained ones; ``positions``: by default the target's.
        """
        self.layer, graph = None, self.target.network.graph
        gains, head = trained.tensors["norm.weight"] if gains is None else gains, self.target.table[trained.tokens]
        more = self.width - self.hidden
        y = self.norm("norm", x, np.pad(gains, (0, more)))
        logits = self.linear("logits", y, np.pad(head, ((0, 0), (0, more))))
        vocab = next(node for node in self.nodes if isinstance(node, Embedding)).vocab
        return Network(Graph(family="llama", vocab=vocab, positions=positions or graph.positions,
                             nodes=tuple(self.nodes), output=logits), self.weights)
