"""A float network put together node by node, each with where its tensors come from."""

from __future__ import annotations

from gemmule.compiler.importers.weights import Source
from gemmule.compiler.ir import (
    Activation,
    Add,
    AnyNode,
    Attention,
    Embedding,
    FamilyName,
    Function,
    Graph,
    Linear,
    Norm,
    Position,
    Product,
    Rope,
    RopeScaling,
)

__all__ = ["GraphBuilder"]


class GraphBuilder:
    """Nodes in order and the sources of their tensors; each method adds a node and gives its name.

    Within a block names begin with its number: ``3.query``. A tensor is named by its node and role: ``3.query.weight``.
    """

    def __init__(self) -> None:
        self.nodes: list[AnyNode] = []
        self.sources: dict[str, Source] = {}
        self.layer: int | None = None
        """The block that nodes are added to."""
        self._width: dict[str, int] = {}
        self._by_source: dict[Source, str] = {}

    def _named(self, name: str) -> str:
        return name if self.layer is None else f"{self.layer}.{name}"

    def _columns(self, name: str) -> int:
        return self._width[name]

    def _tensors(self, name: str, roles: dict[str, Source | None]) -> dict[str, str]:
        """Names of a node's tensors; a source that another tensor has is not kept twice."""
        found = {}
        for role, source in roles.items():
            if source is not None:
                found[role] = self._by_source.setdefault(source, f"{name}.{role}")
                self.sources[found[role]] = source
        return found

    def _add(self, node: AnyNode) -> str:
        self.nodes.append(node)
        self._width[node.name] = node.columns
        return node.name

    def embedding(self, name: str, table: Source) -> str:
        """Rows of ``table`` [vocab, columns] by token."""
        name = self._named(name)
        return self._add(Embedding(
            name=name, columns=table.shape[1], vocab=table.shape[0], layer=self.layer,
            tensors=self._tensors(name, {"table": table})))

    def position(self, name: str, table: Source) -> str:
        """Rows of ``table`` [positions, columns] by position."""
        name = self._named(name)
        return self._add(Position(
            name=name, columns=table.shape[1], positions=table.shape[0], layer=self.layer,
            tensors=self._tensors(name, {"table": table})))

    def add(self, name: str, a: str, b: str) -> str:
        """a + b."""
        return self._add(Add(name=self._named(name), columns=self._columns(a), layer=self.layer, a=a, b=b))

    def norm(self, name: str, x: str, gamma: Source, beta: Source | None, eps: float) -> str:
        """LayerNorm with ``beta``, else RMSNorm."""
        name = self._named(name)
        return self._add(Norm(
            name=name, columns=gamma.shape[0], layer=self.layer, x=x, mean=beta is not None, eps=eps,
            tensors=self._tensors(name, {"gamma": gamma, "beta": beta})))

    def head_norm(self, name: str, x: str, gamma: Source, eps: float) -> str:
        """RMSNorm of each head by itself."""
        name = self._named(name)
        return self._add(Norm(
            name=name, columns=self._columns(x), layer=self.layer, x=x, mean=False, eps=eps, head_dim=gamma.shape[0],
            tensors=self._tensors(name, {"gamma": gamma})))

    def norms(self, name: str, x: str, gamma: Source, beta: Source, eps: float) -> tuple[str, str]:
        """LayerNorm that is read at two widths: (``name`` by linears, ``name.wide`` by the next sum).

        Each has tensors of its own, as the ranges of what linears read may be evened out.
        """
        narrow, wide = self.norm(name, x, gamma, beta, eps), self._named(f"{name}.wide")
        tensors = {"gamma": f"{wide}.gamma", "beta": f"{wide}.beta"}
        self.sources |= {tensors["gamma"]: gamma, tensors["beta"]: beta}
        return narrow, self._add(Norm(
            name=wide, columns=gamma.shape[0], layer=self.layer, x=x, mean=True, eps=eps, tensors=tensors))

    def linear(self, name: str, x: str, weight: Source, bias: Source | None = None) -> str:
        """``x @ weight.T + bias``, weight [columns, depth]."""
        name = self._named(name)
        return self._add(Linear(
            name=name, columns=weight.shape[0], depth=weight.shape[1], layer=self.layer, x=x, bias=bias is not None,
            tensors=self._tensors(name, {"weight": weight, "bias": bias})))

    def rope(self, name: str, x: str, head_dim: int, theta: float, positions: int, *, turned: int | None = None,
             scaling: RopeScaling | None = None) -> str:
        """Rotary positions, of the first ``turned`` columns of each head or of all."""
        return self._add(Rope(
            name=self._named(name), columns=self._columns(x), layer=self.layer, x=x, head_dim=head_dim, theta=theta,
            positions=positions, turned=turned, scaling=scaling))

    def attention(self, name: str, query: str, key: str, value: str, *, head_dim: int, scale: float,
                  window: int | None = None, causal: bool = True) -> str:
        """Attention; the numbers of heads come from the columns."""
        return self._add(Attention(
            name=self._named(name), columns=self._columns(query), layer=self.layer, query=query, key=key, value=value,
            heads=self._columns(query) // head_dim, kv_heads=self._columns(key) // head_dim, head_dim=head_dim,
            scale=scale, window=window, causal=causal))

    def activation(self, name: str, x: str, function: Function) -> str:
        """A function of each number."""
        return self._add(Activation(
            name=self._named(name), columns=self._columns(x), layer=self.layer, x=x, function=function))

    def product(self, name: str, a: str, b: str) -> str:
        """a * b."""
        return self._add(Product(name=self._named(name), columns=self._columns(a), layer=self.layer, a=a, b=b))

    def graph(self, family: FamilyName, positions: int, output: str) -> Graph:
        """The whole."""
        vocab = next(node.vocab for node in self.nodes if isinstance(node, Embedding))
        return Graph(family=family, vocab=vocab, positions=positions, nodes=tuple(self.nodes), output=output)
