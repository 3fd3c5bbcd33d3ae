"""A network in float32, node by node: what calibration observes and what the integers are measured against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir.cache import Cache, check_borrowed, check_rows
from gemmule.compiler.ir.functions import activate
from gemmule.compiler.ir.graph import Network
from gemmule.compiler.ir.nodes import (
    Activation,
    Add,
    Attention,
    Borrowed,
    Embedding,
    Linear,
    Node,
    Norm,
    Position,
    Product,
    Rope,
)
from gemmule.compiler.ir.rows import Rows

__all__ = ["FloatInterpreter", "Observer"]

Observer = Callable[[str, np.ndarray], None]
"""Gets a node's name and its value  # float32 [rows, columns]."""


class FloatInterpreter:
    """Runs passes over a float network. A tensor is asked for when its node is computed, and not kept."""

    def __init__(self, network: Network) -> None:
        if network.graph.integer:
            raise CompileError("a network in integers must be run by the integer interpreter, not in float")
        self.network = network
        self._readers_left = {node.name: len(network.graph.readers(node.name)) for node in network.graph.nodes}

    def forward(self, rows: Rows, cache: Cache, observe: Observer | None = None,
                feed: Mapping[str, np.ndarray] = MappingProxyType({})) -> np.ndarray:
        """One pass; its rows are cached afterwards.

        Args:
            rows: what to compute.
            cache: of this network; keys and values of earlier rows.
            observe: gets every node's computed value, in order.
            feed: values by node that all later nodes read instead of the computed ones, so that one pass can
                measure every layer on given inputs  # each [rows, columns].

        Returns:
            The value of the graph's output, float32 [rows, columns].

        Raises:
            CompileError: a token or position is beyond the network's, the cache is another network's, a fed value is
                none of a node's.
        """
        for node, value in self.steps(rows, cache, feed):
            if observe is not None:
                observe(node.name, value)
        cache.advance(rows)
        return self._values[self.network.graph.output]

    def steps(self, rows: Rows, cache: Cache, feed: Mapping[str, np.ndarray] = MappingProxyType({}),
              ) -> Iterator[tuple[Node, np.ndarray]]:
        """A pass node by node, each with its value; one pass at a time.

        Later nodes read what ``feed`` has of a node when the next one is asked for. Whoever goes to the end ends the
        pass with :meth:`Cache.advance`.

        Raises:
            CompileError: as :meth:`forward`.
        """
        graph = self.network.graph
        self._check(rows, cache, feed)
        values = self._values = dict[str, np.ndarray]()
        left = dict(self._readers_left)
        for node in graph.nodes:
            value = self._compute(node, [values[name] for name in node.inputs], rows, cache)
            yield node, value
            values[node.name] = np.asarray(feed[node.name], dtype=np.float32) if node.name in feed else value
            for name in {*node.inputs}:  # long passes over wide networks: nothing is kept for longer than it is read
                left[name] -= 1
                if not left[name] and name != graph.output:
                    del values[name]

    def _check(self, rows: Rows, cache: Cache, feed: Mapping[str, np.ndarray]) -> None:
        graph = self.network.graph
        if cache.dtype != np.float32 or cache.width != Cache(graph).width:
            raise CompileError("a pass must have a cache of its own network, not of another one")
        if rows.hidden is not None and not feed:
            raise CompileError("hidden rows are in a device's memory: feed them")
        check_rows(rows, graph)
        check_borrowed(graph, feed)
        for name, value in feed.items():
            node = graph.by_name.get(name)
            if node is None:
                raise CompileError(f"a fed value must be that of a node, not of {name!r}")
            if np.shape(value) != (len(rows), node.columns):
                raise CompileError(f"the fed value of {name!r} must have shape {(len(rows), node.columns)}, not "
                                   f"{np.shape(value)}")

    def _compute(self, node: Node, inputs: list[np.ndarray], rows: Rows, cache: Cache) -> np.ndarray:
        tensor = self.network.tensor
        match node:
            case Embedding():
                return tensor(node, "table")[rows.tokens]
            case Position():
                return tensor(node, "table")[rows.table_rows(self.network.graph.positions)]
            case Borrowed():
                return np.zeros((len(rows), node.columns), dtype=np.float32)  # what is fed takes its place
            case Add():
                return inputs[0] + inputs[1]
            case Product():
                return inputs[0] * inputs[1]
            case Linear():
                return self.linear(node, inputs[0])
            case Norm():
                return self._norm(node, inputs[0])
            case Rope():
                return _rotate(node, inputs[0], rows.positions)
            case Activation():
                return activate(node.function, inputs[0])
            case Attention():
                prefix = (tensor(node, "prefix_key"), tensor(node, "prefix_value")) if node.prefix else None
                return _attend(node, inputs, rows, cache, prefix)
        raise TypeError(f"no float rule for {type(node).__name__}")

    def linear(self, node: Linear, x: np.ndarray) -> np.ndarray:
        """A linear's value of any rows of its input."""
        value: np.ndarray = x @ self.network.tensor(node, "weight").T
        return value + self.network.tensor(node, "bias") if node.bias else value

    def _norm(self, node: Norm, x: np.ndarray) -> np.ndarray:
        gamma = self.network.tensor(node, "gamma")
        if not node.mean:
            x = x.reshape(len(x), -1, node.width)  # [rows, heads, columns], of whole rows one head
            normed = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + np.float32(node.eps)) * gamma
            return normed.reshape(len(x), -1)
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt(np.square(centred).mean(-1, keepdims=True) + np.float32(node.eps))
        return centred / spread * gamma + self.network.tensor(node, "beta")


def _rotate(node: Rope, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Pair i of each head by ``position * rates[i]``."""
    angle = positions[:, None] * node.rates
    cosine, sine = (part.astype(np.float32)[:, None] for part in (np.cos(angle), np.sin(angle)))  # [rows, 1, pairs]
    pairs = x.reshape(len(x), -1, node.head_dim // 2, 2)
    even, odd = pairs[..., 0], pairs[..., 1]  # [rows, heads, pairs]
    return np.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).reshape(x.shape)


def _attend(node: Attention, inputs: list[np.ndarray], rows: Rows, cache: Cache,
            prefix: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
    """Each sequence by itself, one KV head after the other."""
    query, key, value = inputs
    out = np.empty_like(query)
    group = node.heads // node.kv_heads
    for part in cache.attend(node, rows, key, value, prefix):
        heads = query[part.own].reshape(len(part.own), node.kv_heads, group, node.head_dim)
        context = np.empty_like(heads)
        for at in range(node.kv_heads):
            columns = slice(at * node.head_dim, (at + 1) * node.head_dim)
            q = heads[:, at].transpose(1, 0, 2)  # [group, new, head_dim]
            scores = q @ part.keys[:, columns].T * np.float32(node.scale)
            scores = np.where(part.seen, scores, np.float32(-np.inf))  # [group, new, all]
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            context[:, at] = (powers / powers.sum(-1, keepdims=True) @ part.values[:, columns]).transpose(1, 0, 2)
        out[part.own] = context.reshape(len(part.own), -1)
    return out
