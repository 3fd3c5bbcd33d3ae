"""A network as a list of nodes in the order in which they can be computed, checked and printable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gemmule.compiler.ir.nodes import (
    Activation,
    AnyNode,
    Attention,
    DType,
    Embedding,
    Linear,
    Name,
    Node,
    Norm,
    Position,
    Rope,
    Size,
    Softmax,
)
from gemmule.compiler.ir.signature import Tensor, signature

__all__ = ["FamilyName", "Graph", "Network", "listing"]

MOST_NODES = 1 << 16
LEARNT = ("bias", "codes", "gamma", "beta")
"""Roles of tensors, beside a linear's weight, whose numbers a checkpoint has."""


FamilyName = Literal["gpt2", "opt", "llama", "qwen2", "qwen3", "gpt_neox", "phi", "bert"]


class Graph(BaseModel):
    """A network's operations; see :mod:`gemmule.compiler.ir.nodes`. Building one checks it.

    Raises:
        ValueError (pydantic): a name stands twice or is not there yet; sizes or types do not agree.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: FamilyName
    vocab: Size
    positions: int = Field(ge=1, le=1 << 16)
    """Most positions of a sequence."""
    nodes: tuple[AnyNode, ...] = Field(min_length=1, max_length=MOST_NODES)
    output: Name
    """The value that a pass is for: logits, or an encoder's hidden rows."""

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def integer(self) -> bool:
        """Whether it is in integers (else in float)."""
        return self.nodes[0].type.dtype is not DType.FLOAT32

    @property
    def layers(self) -> int:
        """Repeated blocks."""
        return max((node.layer + 1 for node in self.nodes if node.layer is not None), default=0)

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """Attention nodes, in order."""
        return tuple(node for node in self.nodes if isinstance(node, Attention))

    @property
    def prefix(self) -> int:
        """Constant rows with which the cache of every sequence begins; its tokens stand behind them."""
        return next((node.prefix for node in self.attentions), 0)

    @property
    def encoder(self) -> bool:
        """Whether its rows see all rows of their sequence and nothing is cached."""
        return any(not node.causal for node in self.attentions)

    @cached_property
    def wide_norms(self) -> Mapping[str, str]:
        """Norms that stand in the residual stream, each with its twin before it, which linears read: ``NAME.wide``."""
        norms = {node.name: node.x for node in self.nodes if isinstance(node, Norm)}
        pairs = {name: name.removesuffix(".wide") for name in norms if name.endswith(".wide")}
        return {name: first for name, first in pairs.items() if norms.get(first) == norms[name]}

    @cached_property
    def heads(self) -> frozenset[str]:
        """Values behind an encoder's layers, pooler and classifier: the first row of each sequence counts, no other."""
        found: set[str] = set()
        name = self.output if self.encoder else ""
        while isinstance(node := self.by_name.get(name), Linear | Activation) and node.layer is None:
            found.add(name)
            name = node.x
        return frozenset(found)

    @property
    def types(self) -> int:
        """Token types: parts of the table of positions."""
        return next((node.positions // self.positions for node in self.nodes if isinstance(node, Position)), 1)

    @property
    def whole_positions(self) -> int:
        """Positions within which every row sees all before it: a window ends them (Mistral)."""
        return min([self.positions, *(node.window for node in self.attentions if node.window)])

    @property
    def text_positions(self) -> int:
        """Tokens of a text at most: :attr:`whole_positions` without the prefix."""
        return self.whole_positions - self.prefix

    @property
    def parameters(self) -> int:
        """Weights, biases and numbers of norms and tables that a checkpoint has of it.

        A head with the embedding's tensor counts once.
        """
        found: dict[str, int] = {}
        for node in self.nodes:
            for role, name in node.tensors.items():
                if isinstance(node, Linear) and role == "weight":
                    found[name] = node.depth * node.columns  # int4 codes stand by twos
                elif isinstance(node, Norm) and role in LEARNT:
                    found[name] = node.width
                elif role in LEARNT or role == "table" and isinstance(node, Embedding | Position):
                    found[name] = prod(self.tensors[name].shape)
        return sum(found.values())

    def readers(self, name: str) -> tuple[Node, ...]:
        """Nodes that read a value."""
        return self._readers.get(name, ())

    @cached_property
    def _readers(self) -> Mapping[str, tuple[Node, ...]]:
        found: dict[str, tuple[Node, ...]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name] = (*found.get(name, ()), node)
        return found

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor by name."""
        found: dict[str, Tensor] = {}
        for node in self.nodes:
            for role, tensor in signature(node).tensors.items():
                found[node.tensors[role]] = tensor
        return found

    @model_validator(mode="after")
    def _check(self) -> Self:
        known: dict[str, Node] = {}
        shared: dict[str, Tensor] = {}
        for node in self.nodes:
            if node.name in known:
                raise ValueError(f"node {node.name!r} must stand once")
            if (node.type.dtype is not DType.FLOAT32) is not self.integer:
                domain = "integers" if self.integer else "float"
                raise ValueError(f"node {node.name!r} must be in {domain} like the first")
            for name in node.inputs:
                if name not in known:
                    raise ValueError(f"node {node.name!r} reads {name!r}, which no node before it computes")
            _check_node(node, known)
            _check_tensors(node, shared)
            _check_tables(node, self)
            known[node.name] = node
        if len({node.causal for node in self.attentions}) > 1:
            raise ValueError("attentions must all be causal, or none")
        if len({node.prefix for node in self.attentions}) > 1 or not self.prefix < self.positions:
            raise ValueError(f"attentions must have one prefix of less than positions = {self.positions} rows")
        if self.output not in known:
            raise ValueError(f"output {self.output!r} must be a node")
        return self


def _check_tables(node: Node, graph: Graph) -> None:
    if isinstance(node, Embedding) and node.vocab != graph.vocab:
        raise ValueError(f"{node.name!r} must have vocab = {graph.vocab} rows, not {node.vocab}")
    if isinstance(node, Position | Rope) and node.positions < graph.positions:
        raise ValueError(f"{node.name!r} must have at least positions = {graph.positions} rows, not {node.positions}")


def _wanted_columns(node: Node, values: list[Node]) -> tuple[int, ...]:
    """Columns that each input must have."""
    match node:
        case Linear():
            return (node.depth,)
        case Attention():
            if node.heads % node.kv_heads:
                raise ValueError(
                    f"{node.name!r} must have heads = {node.heads} a multiple of kv_heads, not {node.kv_heads}")
            if node.columns != node.heads * node.head_dim:
                raise ValueError(f"{node.name!r} must have heads * head_dim columns, not {node.columns}")
            if node.window is not None and not node.causal:
                raise ValueError(f"{node.name!r} must be causal to have a window, not {node.window}")
            if node.prefix and (node.window is not None or not node.causal):
                raise ValueError(f"{node.name!r} must be causal without a window to have a prefix, not {node.prefix}")
            return node.columns, node.kv_heads * node.head_dim, node.kv_heads * node.head_dim
        case Norm():
            if node.columns % node.width or node.head_dim and node.mean:
                raise ValueError(f"{node.name!r} must be an RMSNorm of whole heads of {node.width} columns, not of "
                                 f"{node.columns}")
        case Rope():
            if node.columns % node.head_dim:
                raise ValueError(f"{node.name!r} must have whole heads of {node.head_dim} columns, not {node.columns}")
            if (node.turned or 0) > node.head_dim:
                raise ValueError(f"{node.name!r} must rotate at most {node.head_dim} columns, not {node.turned}")
    return (node.columns,) * len(values)


def _check_node(node: Node, known: Mapping[str, Node]) -> None:
    values = [known[name] for name in node.inputs]
    rule = signature(node)
    if node.type.dtype not in rule.output:
        raise ValueError(f"{node.name!r} must give {' or '.join(rule.output)}, not {node.type.dtype}")
    for value, columns, types in zip(values, _wanted_columns(node, values), rule.inputs, strict=True):
        if value.columns != columns:
            raise ValueError(f"{node.name!r} takes {columns} columns, but {value.name!r} has {value.columns}")
        if value.type.dtype not in types:
            raise ValueError(f"{node.name!r} takes {' or '.join(types)}, but {value.name!r} is {value.type.dtype}")


def _check_tensors(node: Node, shared: dict[str, Tensor]) -> None:
    wanted = signature(node).tensors
    if set(wanted) != set(node.tensors):
        named, needed = (", ".join(sorted(roles)) or "none" for roles in (node.tensors, wanted))
        raise ValueError(f"{node.name!r} must name tensors {needed}, not {named}")
    for role, tensor in wanted.items():
        if shared.setdefault(node.tensors[role], tensor) != tensor:
            raise ValueError(f"tensor {node.tensors[role]!r} cannot be both {shared[node.tensors[role]]} and {tensor}")


@dataclass(frozen=True)
class Network:
    """A graph and its tensors, which may be read only when they are asked for."""

    graph: Graph
    weights: Mapping[str, np.ndarray]
    alike: bool = False
    """Layers have equal numbers in all but their weights' bytes, which are never asked for: a network by shape."""
    notes: tuple[str, ...] = ()
    """What of its checkpoint was left out or cut, a line each, for people."""

    def tensor(self, node: Node, role: str) -> np.ndarray:
        """The tensor of a role of a node."""
        return self.weights[node.tensors[role]]

    def with_softmax(self, softmax: Softmax | None, block: int | None = None) -> Network:
        """The same with another exponential in every attention (None: the device's own), online by blocks of keys."""
        changed = {"softmax": softmax, "block": block}
        nodes = tuple(node.model_copy(update=changed) if isinstance(node, Attention) else node
                      for node in self.graph.nodes)
        graph = self.graph
        return replace(self, graph=Graph(family=graph.family, vocab=graph.vocab, positions=graph.positions,
                                         nodes=nodes, output=graph.output))


def _fields(node: Node) -> Iterator[str]:
    shared, told = {*Node.model_fields, *node.INPUTS}, node.model_dump()
    for name in told:
        value = getattr(node, name)
        if name not in shared and value is not None and value is not False:
            yield name if value is True else f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def listing(graph: Graph) -> str:
    """A line a node: ``name: type[columns] = op inputs fields``; equal graphs give equal text."""
    lines = [f"{graph.family}: vocab {graph.vocab}, positions {graph.positions}, output {graph.output}"]
    for node in graph.nodes:
        words = [node.op, *node.inputs, *_fields(node)]
        lines.append(f"{node.name}: {node.type.dtype}[{node.columns}] = {' '.join(words)}")
    return "\n".join(lines) + "\n"
