"""Fuse: nodes to operators, each of which one kernel writes whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import (
    Activation,
    Add,
    Attention,
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

__all__ = ["Attend", "Embed", "Head", "Inner", "Normalize", "Operator", "Project", "Remember", "fuse", "unanswered"]


@dataclass(frozen=True, kw_only=True)
class Embed:
    """Embedding rows, with learned positions added."""

    embedding: Embedding
    position: Position | None
    add: Add | None


@dataclass(frozen=True, kw_only=True)
class Normalize:
    """A norm of the residual stream; in post-norm layers its rows at both widths."""

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


Operator = Embed | Normalize | Attend | Remember | Inner | Project | Head


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
    found = sorted(_operators(graph), key=lambda operator: max(
        graph.nodes.index(node) for node in nodes_of(operator)))
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


def _operators(graph: Graph) -> Iterator[Operator]:
    inner: set[str] = set()
    for node in graph.nodes:
        if isinstance(node, Attention):
            (query, query_norm, query_rope), (key, key_norm, key_rope), (value, *_) = (
                _rotated(graph, name) for name in (node.query, node.key, node.value))
            inner |= {query.name, key.name, value.name}
            yield Attend(query=query, key=key, value=value, query_rope=query_rope, key_rope=key_rope, attention=node,
                         query_norm=query_norm, key_norm=key_norm)
        elif isinstance(node, Activation):
            first = _linear(graph, node.x)
            products = [reader for reader in graph.readers(node.name) if isinstance(reader, Product)]
            inner.add(first.name)
            if not products:
                yield Inner(up=first, activation=node)
                continue
            product = products[0]
            up = _linear(graph, product.b if product.a == node.name else product.a)
            inner.add(up.name)
            yield Inner(up=up, activation=node, gate=first, product=product)
        elif isinstance(node, Norm) and not node.head_dim:
            if node.name not in graph.wide_norms:
                twins = [name for name, first in graph.wide_norms.items() if first == node.name]
                wide = graph.by_name[twins[0]] if twins else None
                yield Normalize(norm=node, wide=wide if isinstance(wide, Norm) else None)
        elif isinstance(node, Embedding):
            adds = [reader for reader in graph.readers(node.name) if isinstance(reader, Add)]
            other = graph.by_name[adds[0].b] if adds else None
            position = other if isinstance(other, Position) else None
            yield Embed(embedding=node, position=position, add=adds[0] if position else None)
    for node in graph.nodes:
        if isinstance(node, Linear) and node.name not in inner:
            if node.name == graph.output:
                yield Head(linear=node)
                continue
            if node.plane is not Plane.HIGH and (add := _sum(graph, node)):
                high_add = graph.by_name[add.a] if node.plane else None
                high = graph.by_name[high_add.b] if isinstance(high_add, Add) else None
                if node.plane is None or isinstance(high, Linear) and _halves(high, node):
                    yield Project(linear=node, add=add, high=high if isinstance(high, Linear) else None,
                                  high_add=high_add if isinstance(high_add, Add) else None)


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
