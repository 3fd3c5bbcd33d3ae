"""The network in integers, row by row as the device computes it: the golden for every compiled program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import singledispatchmethod
from types import MappingProxyType

import numpy as np

from gemmule import numerics
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir.cache import Attended, Cache, check_borrowed, check_rows
from gemmule.compiler.ir.float_interpreter import Observer
from gemmule.compiler.ir.graph import Network
from gemmule.compiler.ir.nodes import (
    RESCALE_BITS,
    Activation,
    Add,
    Attention,
    Borrowed,
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
from gemmule.compiler.ir.pages import Pages, chosen_pages, page_means, page_scores
from gemmule.compiler.ir.products import FEW_ROWS, few_rows
from gemmule.compiler.ir.rows import Rows
from gemmule.numerics.ibert import i_gelu_unit
from gemmule.numerics.online import online_softmax, prefixed_softmax
from gemmule.numerics.products import exact_matmul, largest_of
from gemmule.numerics.softmax import octave_max

__all__ = ["ROPE_SHIFT", "IntegerInterpreter", "int4_weights"]

ROPE_SHIFT = 21
"""Fraction bits of an angle (14), and those that q and k carry before the rotation rounds them away (7)."""
MOST_SCORES = 1 << 18
"""Scores that are held at a time."""
MOST_PRODUCTS = 1 << 21
"""Results of a linear that are requantised at a time."""
NUMPY = {DType.INT8: np.int8, DType.INT16: np.int16, DType.INT32: np.int32}
Weighing = Callable[[np.ndarray], np.ndarray]
"""What 16-bit probabilities count for importance."""
BITS = {DType.INT8: 8, DType.INT16: 16, DType.INT32: 32}


def int4_weights(packed: np.ndarray, depth: int) -> np.ndarray:
    """int8 [columns, depth] in -8 .. 7 of bytes that hold two, the even column in the low nibble."""
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)[:, :depth].astype(np.int8)
    return np.where(codes > 7, codes - 16, codes).astype(np.int8)


class _Values:
    """Values of a pass by node: kept in their types until their last reader, read as int64."""

    def __init__(self, left: Mapping[str, int], kept: str) -> None:
        self._left, self._kept = dict(left), kept
        self._found: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._found[name].astype(np.int64)

    def take(self, index: np.ndarray) -> None:
        """Some of the rows of all values that are kept  # int [rows]."""
        self._found = {name: value[index] for name, value in self._found.items()}

    def put(self, node: Node, value: np.ndarray) -> None:
        """Keep a node's value, and no longer what it was the last to read."""
        self._found[node.name] = value
        for name in {*node.inputs}:
            self._left[name] -= 1
            if not self._left[name] and name != self._kept:
                del self._found[name]


def _typed(node: Node, value: np.ndarray) -> np.ndarray:
    """A value in its node's type. An int32 one may be beyond it: what adds int16 to it and saturates sees no change."""
    kind = NUMPY[node.type.dtype]
    if value.dtype == kind:
        return value
    return (numerics.saturate(value, 32) if kind is np.int32 else value).astype(kind)


class IntegerInterpreter:
    """Runs a network in integers on the host."""

    def __init__(self, network: Network, pages: Pages | None = None, values: int = 1, below: float = 0.0) -> None:
        """``pages``: rows attend to pages of the cache that they choose. ``values``: 8-bit probabilities below it meet
        no value; only those that are 0 do not. ``below``: rows whose largest probability is smaller see lower
        halves of keys, where keys are in two.
        """
        if not network.graph.integer:
            raise CompileError("the integer interpreter takes a quantised network: `gemmule import` makes one")
        if values > 1 and any(node.block or not node.causal for node in network.graph.attentions):
            raise CompileError("values are left out by exact attention over a cache: import the network with "
                               "--attention exact, or load all values")
        self.network, self.pages, self.values, self.below = network, pages, values, below
        self.mass = np.zeros(2, dtype=np.int64)
        """8-bit probabilities so far, and those of them that met a value, where some do not; of a prefix none."""
        self._importance: dict[str, np.ndarray] | None = None
        self._chunks: tuple[Pages, dict[str, np.ndarray]] | None = None
        self._weighing: Weighing | None = None
        self._kept: dict[str, np.ndarray] = {}
        """int8 weights of int4 ones, by tensor."""
        self._readers_left = {node.name: len(network.graph.readers(node.name)) for node in network.graph.nodes}

    def forward(self, rows: Rows, cache: Cache, observe: Observer | None = None,
                feed: Mapping[str, np.ndarray] = MappingProxyType({})) -> np.ndarray:
        """int64 values of the graph's output  # [rows, columns]; the rows' keys and values enter ``cache``.

        ``observe`` gets every computed value by its node's name; later nodes read what is in ``feed`` instead.

        Raises:
            CompileError: a token, position or token type that the network does not have.
        """
        for node, value in self.steps(rows, cache, feed):
            if observe:
                observe(node.name, value.astype(np.int64))
        cache.advance(rows)
        return self._values[self.network.graph.output]

    def importance(self, rows: Rows, cache: Cache, of: Weighing | None = None) -> dict[str, np.ndarray]:
        """What a pass over rows of one sequence attends to, by attention node  # int64 [KV heads, cached and new rows].

        The sum over rows, and over the heads that share a KV head, of normalised 16-bit probabilities, a constant
        prefix left out; as a selecting pass of the device has it. The rows enter ``cache``. ``of``: what a probability
        counts, by default itself.
        """
        self._importance, self._weighing = {}, of
        try:
            self.forward(rows, cache)
            return self._importance
        finally:
            self._importance = self._weighing = None

    def chunk_scores(self, rows: Rows, cache: Cache, pages: Pages) -> dict[str, np.ndarray]:
        """What the last row of a pass finds of whole chunks before the newest rows, by attention node  # int64
        [KV heads, chunks].

        As a selecting pass of the device has it that retrieves chunks. The rows enter ``cache``.
        """
        found: dict[str, np.ndarray] = {}
        self._chunks = pages, found
        try:
            self.forward(rows, cache)
            return found
        finally:
            self._chunks = None

    def steps(self, rows: Rows, cache: Cache, feed: Mapping[str, np.ndarray] = MappingProxyType({}),
              ) -> Iterator[tuple[Node, np.ndarray]]:
        """A pass node by node, each with its value in its type; one pass at a time.

        Later nodes read what ``feed`` has of a node when the next one is asked for. Whoever goes to the end ends the
        pass with :meth:`Cache.advance`.

        Raises:
            CompileError: as :meth:`forward`.
        """
        graph = self.network.graph
        if rows.hidden is not None and not feed:
            raise CompileError("hidden rows are in a device's memory: feed them")
        check_rows(rows, graph)
        check_borrowed(graph, feed)
        self._rows, self._cache, self._values = rows, cache, _Values(self._readers_left, graph.output)
        for node in graph.nodes:
            value = _typed(node, self._value(node))
            yield node, value
            self._values.put(node, _typed(node, np.asarray(feed[node.name])) if node.name in feed else value)

    def _tensor(self, node: Node, role: str) -> np.ndarray:
        return self.network.tensor(node, role).astype(np.int64)

    def _weights(self, node: Linear) -> np.ndarray:
        """A linear's weights, int8 [columns, depth].

        Those of a group times its scale still are 8 bits, so that the groups' sums are one product; these are kept.
        """
        weight = self.network.tensor(node, "weight")
        if node.bits == 8:
            return weight
        name = node.tensors["weight"]
        if name not in self._kept:
            weight = int4_weights(weight, node.depth)
            if node.group:
                scales = self.network.tensor(node, "scales").astype(np.int8).T
                weight = weight * np.repeat(scales, node.group, axis=1)[:, :node.depth]
            self._kept[name] = weight
        return self._kept[name]

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
    def _(self, node: Borrowed) -> np.ndarray:
        return np.zeros((len(self._rows), node.columns), dtype=np.int64)  # what is fed takes its place

    @_value.register
    def _(self, node: Add) -> np.ndarray:
        a = self._values[node.a]
        if node.rescale:
            a = numerics.requant(a, 1 << RESCALE_BITS, RESCALE_BITS - node.rescale)
        return numerics.saturate(a + self._values[node.b], 16)

    @_value.register
    def _(self, node: Norm) -> np.ndarray:
        x, (shift, mult, eps_shift) = self._values[node.x], (int(v) for v in self._tensor(node, "scalars"))
        gamma, beta = self._tensor(node, "gamma"), self._tensor(node, "beta") if node.mean else None
        rows, bits = len(x), 8 if node.type.dtype is DType.INT8 else 16
        if node.head_dim:  # each head is a row
            x, gamma = x.reshape(-1, node.head_dim), np.tile(gamma.reshape(-1, node.head_dim), (rows, 1))
        statistic = numerics.norm_statistic(x, mult, eps_shift, mean=node.mean)
        return numerics.normalize(x, *statistic, gamma, shift, beta=beta, bits=bits).reshape(rows, -1)

    @_value.register
    def _(self, node: Linear) -> np.ndarray:
        return self.linear(node, self._values[node.x])

    def linear(self, node: Linear, x: np.ndarray) -> np.ndarray:
        """A linear's value of any rows of its input, in its type."""
        if node.plane:
            x = x >> 8 if node.plane is Plane.HIGH else x & 255
        weight = self._weights(node)
        wide = weight.T.astype(np.float32) if len(x) > FEW_ROWS else weight
        largest = largest_of(weight) if len(x) > FEW_ROWS else 0.0
        mult, shift = (self._tensor(node, role) for role in ("mult", "shift"))
        bias = self._tensor(node, "bias") if node.bias else 0
        found = np.empty((len(x), node.columns), dtype=NUMPY[node.type.dtype])
        step = max(1, MOST_PRODUCTS // node.columns)
        for some in (slice(first, first + step) for first in range(0, len(x), step)):
            products = exact_matmul(x[some], wide, largest) if len(x) > FEW_ROWS else few_rows(x[some], weight)
            acc = (products + bias).astype(np.int32)  # wraps
            found[some] = numerics.saturate(numerics.requant(acc, mult, shift), BITS[node.type.dtype])
        return found

    @_value.register
    def _(self, node: Rope) -> np.ndarray:
        heads = node.columns // node.head_dim
        cosine, sine = (
            np.tile(np.repeat(self.network.tensor(node, role)[self._rows.positions], 2, axis=1), (1, heads)).astype(
                np.int64) for role in ("cosine", "sine"))
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
        return numerics.product(self._values[node.a], self._values[node.b], mult, shift, bits=bits)

    @_value.register
    def _(self, node: Attention) -> np.ndarray:
        query, key, value = (self._values[name] for name in node.inputs)
        found = np.zeros((len(query), node.columns), dtype=np.int64)
        prefix = None
        if node.prefix:
            prefix = self.network.tensor(node, "prefix_key"), self.network.tensor(node, "prefix_value")
        for part in self._cache.attend(node, self._rows, key, value, prefix):
            attend = self._attend_pages if self.pages and node.causal else self._attend
            found[part.own] = attend(node, query[part.own], part)
        return found

    def _attend_pages(self, node: Attention, query: np.ndarray, part: Attended) -> np.ndarray:
        """:meth:`_attend`, each row over the pages that it chooses by KV head.

        Raises:
            CompileError: a row of a tree chooses among rows of the pass, not all of which it sees.
        """
        pages, first = self.pages, node.prefix
        assert pages is not None
        keys = _by_head(part.keys, node.head_dim)[:, first:]
        scores = page_scores(node, _by_head(query, node.head_dim), page_means(keys, pages))
        masks = np.repeat(part.seen[None], node.kv_heads, axis=0)
        for row, seen in enumerate(part.seen[:, first:].sum(axis=1).tolist()):
            settled = first + pages.settled(seen) * pages.page
            if not part.seen[row, :settled].all():
                raise CompileError(f"a branch of a tree must be at most {pages.last} rows deep, as many as the newest "
                                   "that are always seen")
            if pages.chosen(seen) < pages.candidates(seen):
                masks[:, row, first + pages.sinks * pages.page:settled] = False
                for kv in range(node.kv_heads):
                    rows = chosen_pages(scores[kv, row], pages, seen)[:, None] * pages.page + np.arange(pages.page)
                    masks[kv, row, first + rows.reshape(-1)] = True
        return self._attend(node, query, replace(part, seen=masks))

    def _attend(self, node: Attention, query: np.ndarray, part: Attended) -> np.ndarray:
        """Contexts of one sequence's rows  # int64 [rows, heads * head_dim]."""
        rows, size, heads = len(query), node.head_dim, node.heads
        score, context = self._tensor(node, "score"), self._tensor(node, "context")
        shared = np.arange(heads) // (heads // node.kv_heads)
        queries, keys, values = (_by_head(x, size) for x in (query, part.keys, part.values))
        if self._chunks is not None:
            pages, scores = self._chunks
            settled = pages.settled(keys.shape[1] - node.prefix) * pages.page
            means = page_means(keys[:, node.prefix:node.prefix + settled], pages)
            scores[node.name] = page_scores(node, queries[:, -1:], means)[:, 0]
        found = np.zeros((heads, rows, size), dtype=np.int64)
        masks = np.broadcast_to(part.seen, (node.kv_heads, *part.seen.shape[-2:]))
        step = max(1, MOST_SCORES // masks[0].size)
        for some in (slice(first, first + step) for first in range(0, heads, step)):
            kv, count = shared[some], len(shared[some])
            # [heads * rows, 1] of what a head has, so that all heads' rows are rows of one softmax
            mult, shift, mult_back, shift_back = (
                np.repeat(column, rows) for column in np.concatenate([score[some], context[some]], axis=1).T)
            products = exact_matmul(queries[some], keys[kv].transpose(0, 2, 1)).reshape(count * rows, -1)
            t, seen = numerics.scores(products, mult[:, None], shift[:, None]), masks[kv].reshape(count * rows, -1)
            if part.planes:
                upper = keys[kv].copy()
                halves = slice(node.prefix, node.prefix + part.planes)
                upper[:, halves] = numerics.halved(upper[:, halves])
                products = exact_matmul(queries[some], upper.transpose(0, 2, 1)).reshape(count * rows, -1)
                t = self._progressive(t, numerics.scores(products, mult[:, None], shift[:, None]), seen, node)
            if node.block or node.prefix:
                each = [online_softmax(scores, values[head], masks[head], node.block, kind=node.kind) if node.block
                        else prefixed_softmax(scores, values[head], masks[head], node.prefix, kind=node.kind,
                                              met=self._met, whole_sum=self.values == 1)
                        for scores, head in zip(np.split(t, count), kv, strict=True)]
                mixed, reciprocal, length = (np.concatenate(found) for found in zip(*each, strict=True))
            else:
                p, total = numerics.row_probabilities(t, numerics.row_max(t, seen), seen, kind=node.kind)
                p = self._met(p)
                reciprocal, length = numerics.softmax_reciprocal(numerics.kept_sum(p) if self.values > 1 else total)
                mixed = exact_matmul(p.reshape(count, rows, -1), values[kv]).reshape(count * rows, size)
            if self._importance is not None:
                self._note(node, kv, t, seen, reciprocal, length)
            bits = numerics.KEPT_BITS if self.values > 1 else 0
            found[some] = numerics.saturate(numerics.requant_row(
                mixed, reciprocal, length, mult_back, shift_back + bits), 8).reshape(count, rows, size)
        return found.transpose(1, 0, 2).reshape(rows, -1)


    def _progressive(self, whole: np.ndarray, upper: np.ndarray, seen: np.ndarray, node: Attention) -> np.ndarray:
        """Scores of flat rows with whole keys, of others with upper halves; a constant prefix decides nothing."""
        t, mask = upper[:, node.prefix:], seen[:, node.prefix:]
        _, total = numerics.row_probabilities(t, numerics.row_max(t, mask), mask, kind=node.kind)
        flat = numerics.flat_rows(*numerics.softmax_reciprocal(total), self.below)
        return np.where(flat[:, None], whole, upper)

    def _met(self, probabilities: np.ndarray) -> np.ndarray:
        """Those of 8 bits that are large enough to meet a value; contexts are divided by their sum."""
        if self.values <= 1:
            return probabilities
        kept = numerics.at_least(probabilities, self.values)
        self.mass += int(probabilities.sum()), int(kept.sum())
        return kept

    def _note(self, node: Attention, kv: np.ndarray, t: np.ndarray, seen: np.ndarray, reciprocal: np.ndarray,
              length: np.ndarray) -> None:
        """Add what some heads attend to; ``kv``: the KV head of each."""
        assert self._importance is not None
        maximum = numerics.row_max(t, seen)
        if node.prefix:  # whole octaves, as they rise
            maximum, _ = octave_max(t[:, node.prefix:], seen[:, node.prefix:])
            maximum, _ = octave_max(t[:, :node.prefix], seen[:, :node.prefix], maximum)
        p = numerics.row_normalized(t, maximum, seen, reciprocal, length, wide=True, kind=node.kind)[:, node.prefix:]
        p = self._weighing(p) if self._weighing else p
        total = self._importance.setdefault(node.name, np.zeros((node.kv_heads, p.shape[1]), dtype=np.int64))
        np.add.at(total, kv, p.reshape(len(kv), -1, p.shape[1]).sum(axis=1))


def _by_head(x: np.ndarray, size: int) -> np.ndarray:
    """[rows, heads * size] as [heads, rows, size]."""
    return x.reshape(len(x), -1, size).transpose(1, 0, 2)
