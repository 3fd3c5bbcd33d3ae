"""The network in integers, row by row as the device computes it: the golden for every compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatchmethod
from types import MappingProxyType

import numpy as np

from gemmule import numerics
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir.cache import Attended, Cache, check_rows
from gemmule.compiler.ir.float_interpreter import Observer
from gemmule.compiler.ir.graph import Network
from gemmule.compiler.ir.nodes import (
    RESCALE_BITS,
    Activation,
    Add,
    Attention,
    DType,
    Embedding,
    Form,
    Linear,
    Node,
    Norm,
    Plane,
    Position,
    Product,
    Rope,
)
from gemmule.compiler.ir.rows import Rows
from gemmule.numerics.ibert import i_gelu_unit
from gemmule.numerics.online import online_softmax

__all__ = ["ROPE_SHIFT", "IntegerInterpreter", "exact_matmul", "int4_weights"]

ROPE_SHIFT = 21
"""Fraction bits of an angle (14), and those that q and k carry before the rotation rounds them away (7)."""
MOST_KEPT = 1 << 20
"""Numbers of a linear's weights that are kept as float32."""
MOST_SCORES = 1 << 20
"""Scores that are held at a time."""


def exact_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a @ b`` of 8-bit operands through BLAS, int64: sums stay below 2**24 in float32, else below 2**53."""
    return _matmul(a, b, _largest(b))


def _largest(x: np.ndarray) -> float:
    return float(np.abs(x).max(initial=0))


def _matmul(a: np.ndarray, b: np.ndarray, largest: float) -> np.ndarray:
    """:func:`exact_matmul` with ``b`` of any type, whose largest number is known."""
    kind = np.float32 if _largest(a) * largest * a.shape[-1] < 1 << 24 else np.float64
    return np.rint(a.astype(kind) @ b.astype(kind, copy=False)).astype(np.int64)


def int4_weights(packed: np.ndarray, depth: int) -> np.ndarray:
    """int8 [columns, depth] in -8 .. 7 of bytes that hold two, the even column in the low nibble."""
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)[:, :depth].astype(np.int8)
    return np.where(codes > 7, codes - 16, codes).astype(np.int8)


class IntegerInterpreter:
    """Runs a network in integers on the host."""

    def __init__(self, network: Network) -> None:
        if not network.graph.integer:
            raise CompileError("the integer interpreter takes a quantised network: `gemmule import` makes one")
        self.network = network
        self._kept: dict[str, tuple[np.ndarray, float]] = {}

    def forward(self, rows: Rows, cache: Cache, observe: Observer | None = None,
                feed: Mapping[str, np.ndarray] = MappingProxyType({})) -> np.ndarray:
        """int64 values of the graph's output  # [rows, columns]; the rows' keys and values enter ``cache``.

        ``observe`` gets every computed value by its node's name; later nodes read what is in ``feed`` instead.

        Raises:
            CompileError: a token, position or token type that the network does not have.
        """
        graph, values = self.network.graph, dict[str, np.ndarray]()
        if rows.hidden is not None and not feed:
            raise CompileError("hidden rows are in a device's memory: feed them")
        check_rows(rows, graph)
        self._rows, self._cache, self._values = rows, cache, values
        for node in graph.nodes:
            value = self._value(node)
            if observe:
                observe(node.name, value)
            values[node.name] = np.asarray(feed[node.name], dtype=np.int64) if node.name in feed else value
        cache.advance(rows)
        return values[graph.output]

    def _tensor(self, node: Node, role: str) -> np.ndarray:
        return self.network.tensor(node, role).astype(np.int64)

    def _weights(self, node: Linear) -> tuple[np.ndarray, float]:
        """A linear's weights [depth, columns] and the largest of them; small ones are kept as the product wants them.

        Those of a group times its scale still are 8 bits, so that the groups' sums are one product.
        """
        if node.name in self._kept:
            return self._kept[node.name]
        weight = self.network.tensor(node, "weight")
        weight = (int4_weights(weight, node.depth) if node.bits == 4 else weight).T
        if node.group:
            scales = self.network.tensor(node, "scales").astype(np.int8)
            weight = weight * np.repeat(scales, node.group, axis=0)[:node.depth]
        if weight.size > MOST_KEPT:
            return weight, _largest(weight)
        return self._kept.setdefault(node.name, (weight.astype(np.float32), _largest(weight)))

    @singledispatchmethod
    def _value(self, node: Node) -> np.ndarray:
        raise TypeError(f"no integer arithmetic of {type(node).__name__}")

    @_value.register
    def _(self, node: Embedding) -> np.ndarray:
        tokens = self._rows.tokens
        codes = self.network.tensor(node, "codes")[tokens].astype(np.int64)
        mult, shift = (self._tensor(node, role)[tokens, None] for role in ("mult", "shift"))
        return numerics.saturate(numerics.rshr(codes * mult, shift), 16)

    @_value.register
    def _(self, node: Position) -> np.ndarray:
        rows = self._rows.table_rows(self.network.graph.positions)
        return self.network.tensor(node, "table")[rows].astype(np.int64)

    @_value.register
    def _(self, node: Add) -> np.ndarray:
        a = self._values[node.a]
        if node.rescale:
            a = numerics.requant(a, 1 << RESCALE_BITS, RESCALE_BITS - node.rescale)
        return numerics.saturate(a + self._values[node.b], 16)

    @_value.register
    def _(self, node: Norm) -> np.ndarray:
        x, (shift, mult, eps_shift) = self._values[node.x], (int(v) for v in self._tensor(node, "scalars"))
        statistic = numerics.norm_statistic(x, mult, eps_shift, mean=node.mean)
        beta = self._tensor(node, "beta") if node.mean else None
        bits = 8 if node.type.dtype is DType.INT8 else 16
        return numerics.normalize(x, *statistic, self._tensor(node, "gamma"), shift, beta=beta, bits=bits)

    @_value.register
    def _(self, node: Linear) -> np.ndarray:
        x, (weight, largest) = self._values[node.x], self._weights(node)
        if node.plane:
            x = x >> 8 if node.plane is Plane.HIGH else x & 255
        acc = _matmul(x, weight, largest)
        if node.bias:
            acc = acc + self._tensor(node, "bias")
        acc = acc.astype(np.int32)  # wraps
        found = numerics.requant(acc, self._tensor(node, "mult"), self._tensor(node, "shift"))
        bits = {DType.INT8: 8, DType.INT16: 16}.get(node.type.dtype)
        return found if bits is None else numerics.saturate(found, bits)

    @_value.register
    def _(self, node: Rope) -> np.ndarray:
        heads = node.columns // node.head_dim
        cosine, sine = (np.tile(np.repeat(self._tensor(node, role)[self._rows.positions], 2, axis=1), (1, heads))
                        for role in ("cosine", "sine"))
        return numerics.rope(self._values[node.x], cosine, sine, ROPE_SHIFT)

    @_value.register
    def _(self, node: Activation) -> np.ndarray:
        x = self._values[node.x]
        match node.form:
            case Form.WORD:
                found = numerics.interpolate(x, self.network.tensor(node, "words"))
                return found if node.type.dtype is DType.INT16 else found >> 8  # the high plane
            case Form.IBERT:
                return i_gelu_unit(x, int(self._tensor(node, "shift")[0]))
        return numerics.lookup(x, self.network.tensor(node, "table"))

    @_value.register
    def _(self, node: Product) -> np.ndarray:
        mult, shift = (int(v) for v in self._tensor(node, "scale"))
        bits = 16 if node.type.dtype is DType.INT16 else 8
        return numerics.product(self._values[node.a], self._values[node.b], mult, shift, bits)

    @_value.register
    def _(self, node: Attention) -> np.ndarray:
        query, key, value = (self._values[name] for name in node.inputs)
        found = np.zeros((len(query), node.columns), dtype=np.int64)
        prefix = None
        if node.prefix:
            prefix = self.network.tensor(node, "prefix_key"), self.network.tensor(node, "prefix_value")
        for part in self._cache.attend(node, self._rows, key, value, prefix):
            found[part.own] = self._attend(node, query[part.own], part)
        return found

    def _attend(self, node: Attention, query: np.ndarray, part: Attended) -> np.ndarray:
        """Contexts of one sequence's rows  # int64 [rows, heads * head_dim]."""
        rows, size, heads = len(query), node.head_dim, node.heads
        score, context = self._tensor(node, "score"), self._tensor(node, "context")
        shared = np.arange(heads) // (heads // node.kv_heads)
        queries, keys, values = (_by_head(x, size) for x in (query, part.keys, part.values))
        found = np.zeros((heads, rows, size), dtype=np.int64)
        step = max(1, MOST_SCORES // part.seen.size)
        for some in (slice(first, first + step) for first in range(0, heads, step)):
            kv, count = shared[some], len(shared[some])
            # [heads * rows, 1] of what a head has, so that all heads' rows are rows of one softmax
            mult, shift, mult_back, shift_back = (
                np.repeat(column, rows) for column in np.concatenate([score[some], context[some]], axis=1).T)
            products = exact_matmul(queries[some], keys[kv].transpose(0, 2, 1)).reshape(count * rows, -1)
            t, seen = numerics.scores(products, mult[:, None], shift[:, None]), np.tile(part.seen, (count, 1))
            if node.block:
                each = [online_softmax(scores, values[head], part.seen, node.block, kind=node.kind)
                        for scores, head in zip(np.split(t, count), kv, strict=True)]
                mixed, reciprocal, length = (np.concatenate(found) for found in zip(*each, strict=True))
            else:
                p, total = numerics.row_probabilities(t, numerics.row_max(t, seen), seen, kind=node.kind)
                reciprocal, length = numerics.softmax_reciprocal(total)
                mixed = exact_matmul(p.reshape(count, rows, -1), values[kv]).reshape(count * rows, size)
            found[some] = numerics.saturate(numerics.requant_row(
                mixed, reciprocal, length, mult_back, shift_back), 8).reshape(count, rows, size)
        return found.transpose(1, 0, 2).reshape(rows, -1)


def _by_head(x: np.ndarray, size: int) -> np.ndarray:
    """[rows, heads * size] as [heads, rows, size]."""
    return x.reshape(len(x), -1, size).transpose(1, 0, 2)
