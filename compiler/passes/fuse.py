"""Fuse: nodes to operators, each of which one kernel writes whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import (
    Activation,
    Add,
    Attention,
    Borrowed,
    DType,
    Embedding,
    Graph,
    Linear,
    Node,
    Norm,
    Plane,
    Position,
    Product,
    Rope,
)

__all__ = ["Attend", "Borrow", "Embed", "Head", "Inner", "Normalize", "Operator", "Project", "Remember", "fuse",
           "headless", "unanswered"]


@dataclass(frozen=True, kw_only=True)
class Embed:
    """Embedding rows, with learned positions added."""

    embedding: Embedding
    position: Position | None
    add: Add | None


@dataclass(frozen=True, kw_only=True)
class Borrow:
    """Rows of another network's residual stream."""

    borrowed: Borrowed


@dataclass(frozen=True, kw_only=True)
class Normalize:
    """A norm of the residual stream, or of borrowed rows; in post-norm layers its rows at both widths."""

    norm: Norm
    wide: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class Attend:
    """Queries, keys and values of a norm's rows, and their attention."""

    query: Linear
    key: Linear
    value: Linear
    query_rope: Rope | None
    key_rope: Rope | None
    attention: Attention
    query_norm: Norm | None = None
    """Of each head, before the rotation."""
    key_norm: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class Remember:
    """Keys and values of a norm's rows for the cache alone: what a pass without answers needs of its last layer."""

    key: Linear
    value: Linear
    key_rope: Rope | None
    attention: Attention
    key_norm: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class Inner:
    """An MLP's inner rows, gated or not."""

    up: Linear
    activation: Activation
    gate: Linear | None = None
    product: Product | None = None


@dataclass(frozen=True, kw_only=True)
class Project:
    """A linear whose result is added to the residual stream; of an int16 input the high plane's product goes first."""

    linear: Linear
    add: Add
    high: Linear | None = None
    high_add: Add | None = None


@dataclass(frozen=True, kw_only=True)
class Head:
    """The last linear: logits."""

    linear: Linear


Kind = TypeVar("Kind", bound=Node)
Operator = Embed | Borrow | Normalize | Attend | Remember | Inner | Project | Head


def nodes_of(operator: Operator) -> tuple[Node, ...]:
    """The nodes that an operator computes."""
    return tuple(value for value in vars(operator).values() if isinstance(value, Node))


def fuse(graph: Graph) -> list[Operator]:
    """Operators in the order of the graph; each node belongs to one.

    Raises:
        CompileError: a node that no operator takes; the message names it.
    """
    if not graph.integer:
        raise CompileError("the network must be quantised before it is compiled: `gemmule import` does it")
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    found = sorted(_matches(graph), key=lambda operator: max(places[node.name] for node in nodes_of(operator)))
    taken = {node.name for operator in found for node in nodes_of(operator)}
    left = [node for node in graph.nodes if node.name not in taken]
    if left or sum(len(nodes_of(operator)) for operator in found) != len(graph.nodes):
        name = left[0].name if left else "a node"
        raise CompileError(f"{name} must be part of a decoder as the compiler knows them (pre-norm layers of attention "
                           "and MLP)")
    return found


def unanswered(operators: Sequence[Operator]) -> list[Operator]:
    """What of these a pass has to do of which no answer is wanted: the cache gets all its rows, and nothing follows."""
    last = max(i for i, operator in enumerate(operators) if isinstance(operator, Attend))
    attend = operators[last]
    assert isinstance(attend, Attend)
    return [*operators[:last], Remember(key=attend.key, value=attend.value, key_rope=attend.key_rope,
                                        attention=attend.attention, key_norm=attend.key_norm)]


def headless(operators: Sequence[Operator]) -> list[Operator]:
    """What of these a pass has to do of which no answer is wanted, but the rows behind its last layer."""
    last = max(i for i, operator in enumerate(operators) if nodes_of(operator)[-1].layer is not None)
    return list(operators[:last + 1])


def _matches(graph: Graph) -> Iterator[Operator]:
    """What :data:`PATTERNS` find, one pattern after the other; a node that one has taken is no root for another."""
    taken: set[str] = set()
    for pattern in PATTERNS:
        for node in graph.nodes:
            if isinstance(node, pattern.root) and node.name not in taken and (operator := pattern.match(graph, node)):
                taken |= {part.name for part in nodes_of(operator)}
                yield operator


def _attend(graph: Graph, node: Attention) -> Attend:
    (query, query_norm, query_rope), (key, key_norm, key_rope), (value, *_) = (
        _rotated(graph, name) for name in (node.query, node.key, node.value))
    return Attend(query=query, key=key, value=value, query_rope=query_rope, key_rope=key_rope, attention=node,
                  query_norm=query_norm, key_norm=key_norm)


def _gated(graph: Graph, node: Activation) -> Inner | None:
    product = _reader(graph, node, Product)
    if product is None:
        return None
    other = product.b if product.a == node.name else product.a
    return Inner(gate=_linear(graph, node.x), up=_linear(graph, other), activation=node, product=product)


def _inner(graph: Graph, node: Activation) -> Inner:
    return Inner(up=_linear(graph, node.x), activation=node)


def _twins(graph: Graph, node: Norm) -> Normalize | None:
    wide = next((graph.by_name[name] for name, first in graph.wide_norms.items() if first == node.name), None)
    return Normalize(norm=node, wide=wide) if isinstance(wide, Norm) and not node.head_dim else None


def _normalize(graph: Graph, node: Norm) -> Normalize | None:
    return None if node.head_dim else Normalize(norm=node)


def _placed(graph: Graph, node: Embedding) -> Embed | None:
    add = _reader(graph, node, Add)
    position = graph.by_name[add.b] if add else None
    return Embed(embedding=node, position=position, add=add) if isinstance(position, Position) else None


def _embed(graph: Graph, node: Embedding) -> Embed:
    return Embed(embedding=node, position=None, add=None)


def _borrow(graph: Graph, node: Borrowed) -> Borrow:
    return Borrow(borrowed=node)


def _head(graph: Graph, node: Linear) -> Head | None:
    return Head(linear=node) if node.name == graph.output else None


def _project(graph: Graph, node: Linear) -> Project | None:
    add = _sum(graph, node)
    return Project(linear=node, add=add) if add and node.plane is None else None


def _project_planes(graph: Graph, node: Linear) -> Project | None:
    add = _sum(graph, node)
    if add is None or node.plane is not Plane.LOW:
        return None
    before = graph.by_name[add.a]
    high = graph.by_name[before.b] if isinstance(before, Add) else None
    if isinstance(before, Add) and isinstance(high, Linear) and _halves(high, node):
        return Project(linear=node, add=add, high=high, high_add=before)
    return None


@dataclass(frozen=True)
class Pattern(Generic[Kind]):
    """What of a network becomes one operator.

    Members
    -------
    shape: the nodes, ``->`` from one to a reader of it, the root in capitals; ``[..]`` may be missing.
    root: class of the node from which the others are found.
    match: the operator of such a node with those around it, or None where these are others.
    """

    shape: str
    root: type[Kind]
    match: Callable[[Graph, Kind], Operator | None]


PATTERNS: tuple[Pattern[Any], ...] = (
    Pattern("query, key, value: linear [-> norm of heads] [-> rope] -> ATTENTION", Attention, _attend),
    Pattern("linear -> ACTIVATION -> product <- linear", Activation, _gated),
    Pattern("linear -> ACTIVATION", Activation, _inner),
    Pattern("NORM, and its wide twin, which stands in the residual stream", Norm, _twins),
    Pattern("NORM", Norm, _normalize),
    Pattern("EMBEDDING -> sum <- position", Embedding, _placed),
    Pattern("EMBEDDING", Embedding, _embed),
    Pattern("BORROWED", Borrowed, _borrow),
    # Behind all others: a linear that is part of something larger is none of these.
    Pattern("LINEAR, the network's output", Linear, _head),
    Pattern("LINEAR -> sum with the residual stream", Linear, _project),
    Pattern("LINEAR of low bytes -> sum with (linear of high bytes -> sum with the residual stream)", Linear,
            _project_planes),
)
"""The operators that the compiler knows. Of those with the same root the first that matches has it."""


def _reader(graph: Graph, node: Node, kind: type[Kind]) -> Kind | None:
    """The first reader of this kind."""
    return next((reader for reader in graph.readers(node.name) if isinstance(reader, kind)), None)


def _sum(graph: Graph, node: Linear) -> Add | None:
    """The sum with the residual stream that alone reads a linear."""
    adds = [reader for reader in graph.readers(node.name) if isinstance(reader, Add)]
    return adds[0] if len(adds) == 1 and adds[0].b == node.name and node.type.dtype is DType.INT32 else None


def _halves(high: Linear, low: Linear) -> bool:
    """Whether these are a product's two planes."""
    weights = [[node.tensors[role] for role in ("weight", "scales") if role in node.tensors] for node in (high, low)]
    return high.plane is Plane.HIGH and high.x == low.x and weights[0] == weights[1] and not high.bias


def _linear(graph: Graph, name: str) -> Linear:
    node = graph.by_name[name]
    if not isinstance(node, Linear):
        raise CompileError(f"{name} must be a linear there, not {node.op}")
    return node


def _rotated(graph: Graph, name: str) -> tuple[Linear, Norm | None, Rope | None]:
    """A value's linear, the norm of its heads and its rotation."""
    node = graph.by_name[name]
    if not isinstance(node, Rope):
        return _linear(graph, name), None, None
    before = graph.by_name[node.x]
    if isinstance(before, Norm) and before.head_dim == node.head_dim:
        return _linear(graph, before.x), before, node
    return _linear(graph, node.x), None, node
