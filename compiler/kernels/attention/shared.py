"""What every way of attention shares: where queries, new keys and values and contexts stand, the commands of a head.

The new rows' keys and values leave for the cache first; the heads that share a KV head are rows of one product. Every
way is exact: how keys are cut changes no value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gemmule.compiler.ir import Attention, Graph
from gemmule.compiler.kernels.attention.cache_list import CacheLists
from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.softmax import exponential
from gemmule.compiler.kernels.constants import PrefixRows
from gemmule.compiler.kernels.layout import Span, by_heads
from gemmule.compiler.kernels.virtual import NO_DYN, STATIC, At, Bank, Buffer, Builder, LengthReg
from gemmule.config import Config
from gemmule.isa import Dyn, Length, MatrixFlag, MoveFlag, RequantFlag, SoftmaxFlag, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["CACHE", "MASKS", "NEW", "NEW_SUMS", "OLD", "PACKED", "SUMS", "AttentionKernel", "AttentionMapping", "Form",
           "HeadKernel", "HeadRows", "attention_rows", "load_masks", "load_nobody", "new_region"]

CACHE, OLD, NEW = "cache", "cache_old", "cache_new"
"""The cache as loads see it; as they do where no pass changes a row; from the first new position on, as stores do."""
PACKED = "cache_packed"
"""The cache where rows of 4 bits stand in it, two positions in one."""
SUMS = "running sums"
"""Of each layer, KV head and position behind the constant prefix, int32, where a program counts probabilities."""
NEW_SUMS = f"{SUMS} of new rows"
"""The same from the first new row on, as stores see it."""
KEPT, PARTLY, TWICE = "kept", "kept in part", "computed twice"
"""What becomes of scores: all stay in the accumulator, those of the first positions, or none."""
MASKS = "masks"
"""Region of the bitmaps: for each row which new rows it sees."""


@dataclass(frozen=True, kw_only=True)
class AttentionMapping(ABC):
    """How attention is cut."""

    context: int
    """Most positions, cached and new."""
    pool: int = 0
    """Rows of the cache, which a list names for each position; 0: they are the positions, one behind the other."""
    cache: KvLayout | None = None
    """Of the program beside this one, whose cache it has; None: it has one of its own."""

    @property
    @abstractmethod
    def keep(self) -> bool:
        """Scores stay in the accumulator until they are used; else they are computed twice."""

    @property
    @abstractmethod
    def joined(self) -> int:
        """Heads whose keys and values share rows of the cache; 0: none do."""

    @property
    def scores(self) -> str:
        """What becomes of scores, for reports."""
        return KEPT if self.keep else TWICE

    @property
    def totals(self) -> bool:
        """A register holds the cached and new rows together, in :attr:`Registers.TOTAL`."""
        return False

    def beyond(self, node: Attention, rows: int) -> int:
        """Bitmaps that commands read behind those of ``rows`` new rows."""
        return 0

    @abstractmethod
    def moved(self, node: Attention, dim: int, rows: int) -> int:
        """Rows by which the register :attr:`Registers.ROW` moves at most."""

    @abstractmethod
    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Scratchpad rows of the buffers for keys and values, and of a head's probabilities."""

    @abstractmethod
    def buffers(self, node: Attention, dim: int, preload: int) -> tuple[Buffer, ...]:
        """For cached keys and values, the same for all layers."""

    def layout(self, graph: Graph, config: Config, batch: int, rows: int) -> KvLayout:
        """Of the cache of ``batch`` sequences, to which a pass adds ``rows`` rows each."""
        if self.pool and not self.cache:
            return KvLayout.of(graph, config, self.pool, joined=self.joined)
        return self.cache or KvLayout.of(graph, config, self.context, batch, rows, self.joined)


def attention_rows(node: Attention, rows: int) -> int:
    """Rows of a product: all heads of a KV head."""
    return node.heads // node.kv_heads * rows


def new_region(sequence: int) -> str:
    """The cache of a sequence of the batch from its first new position on."""
    return NEW + (f" {sequence}" if sequence else "")


class AttentionKernel(ABC):
    """Writes the attention of one layer; the caller fills queries, new keys and new values first."""

    def __init__(self, b: Builder, node: Attention, mapping: AttentionMapping, number: int,
                 masks: At | None) -> None:
        """``number`` of the layer among the cached ones; no ``masks``: no row sees but what lists say."""
        dim = b.config.dim
        self.b, self.node, self.number, self.masks = b, node, number, masks
        self.layout = mapping.layout(b.network.graph, b.config, b.batch, b.each)
        self.lists: CacheLists | None = None
        """Of cached rows, where they go by list and attention by blocks."""
        self.listed: dict[str, Any] = {}
        """Fields of loads from the cache whose rows a list names."""
        if mapping.pool:
            self.listed = {"flags": {MoveFlag.INDEXED}, "list": 2 * b.rows, "last_index": mapping.pool - 1}
        self.share = node.heads // node.kv_heads
        self.groups, self.one = ceil_div(node.head_dim, dim), self.share * b.each
        self.all = b.batch * self.one
        self.one_new = ceil_div(b.each, b.config.preload) * b.config.preload
        self.new = b.batch * self.one_new
        self.query = At(Buffer(f"{node.name} query", node.kv_heads * self.groups * self.all, Bank.OPERAND))
        self.context = At(Buffer(f"{node.name} context", node.kv_heads * self.groups * self.all, Bank.OPERAND))
        self.prefix = 0 if node.block else node.prefix
        """Constant rows in front of the cache, which come last and on their own; online, blocks have them as others."""
        self.score, self.scale = (np.asarray(b.network.tensor(node, role)) for role in ("score", "context"))
        self.m = b.m_each if self.share == 1 else Length(self.one)
        self.fresh, self.new_stride, self.new_dyn = self._new_rows()

    # -- places

    def place_query(self, head: int) -> At:
        """First group of a head's query rows; groups are :attr:`all` rows apart, sequences :attr:`one`."""
        kv, share = divmod(head, self.share)
        return self.query + kv * self.groups * self.all + share * self.b.each

    def _new_rows(self) -> tuple[At, int, tuple[Dyn, int, int]]:
        """Where new keys and values stand until all is done, rows from a group to the next, what moves them."""
        rows = 2 * self.node.kv_heads * self.groups * self.new
        name = f"{self.node.name} new keys and values"
        return At(Buffer(name, rows, Bank.OPERAND, self.b.config.preload)), self.new, NO_DYN

    def place_new(self, part: int, kv: int, sequence: int = 0) -> At:
        """First group of a KV head's new keys (0) or values (1), in the cache's order."""
        joined = self.layout.joined or self.node.kv_heads  # without joined heads all keys come first
        run, inside = divmod(kv, joined)
        return self.fresh + ((2 * run + part) * joined + inside) * self.groups * self.new_stride \
            + sequence * self.one_new

    @property
    def query_pitch(self) -> int | None:
        """Rows from a sequence's queries of a head to the next one's, where others stand between them."""
        return self.one if self.share > 1 and self.b.batch > 1 else None

    @property
    def new_pitch(self) -> int | None:
        """The same of new keys and values, which begin where the mesh takes them."""
        return self.one_new if self.one_new != self.b.each and self.b.batch > 1 else None

    def spans(self) -> list[Span]:
        """The contexts, as the output projection reads them: one span for each of the heads that share."""
        return [Span(self.context + i * self.b.each, self.all, by_heads(
            np.arange(self.node.kv_heads) * self.share + i, self.node.head_dim, self.b.config.dim), self.query_pitch)
            for i in range(self.share)]

    # -- commands

    def begin(self) -> None:  # noqa: B027
        """What comes before the layer's products."""

    @abstractmethod
    def write(self) -> None:
        """All heads."""

    def store_new(self) -> None:
        """Keep the new keys and values in the cache: a store for each run."""
        step = self.layout.joined or 1
        runs = product(range(0, self.node.kv_heads, step), range(1 if self.layout.joined else 2))
        for sequence, (kv, part) in product(range(self.b.batch), runs):
            what = "new " + ("keys and values" if self.layout.joined else ("keys", "values")[part])
            listed = dict(self.listed)
            if self.lists:
                listed["list"] += sequence * self.b.each
            self.b.add(Unit.STORE, f"{self.node.name}: {what} {kv}",
                       region=NEW if self.listed else new_region(sequence),
                       offset=self.layout.offset(self.number, kv, part), stride=self.layout.row,
                       bytes=self.layout.row, row=self.place_new(part, kv, sequence), row_stride=1,
                       block_stride=self.new_stride, rows=self.b.m_each, dyn=self._stored_dyn(), **listed)

    def _stored_dyn(self) -> tuple[Dyn, int, int]:
        """What moves a store of new rows: their entry of the list, or where they stand."""
        if self.listed and not self.lists:
            return Dyn.SRC1, LengthReg.ROW, 1
        return (Dyn.SRC0, *self.new_dyn[1:]) if self.new_dyn is not NO_DYN else NO_DYN


Form = Mapping[MatrixFlag, Mapping[str, Any]]
"""Flags of a product with what they stand for, and the fields that go with them."""


@dataclass(frozen=True)
class HeadRows:
    """The rows of a KV head's products: those of the heads that share it."""

    query: At
    """First group of the queries; groups are :attr:`AttentionKernel.all` rows apart, those of the contexts too."""
    context: At
    """Where contexts go."""
    m: Length
    one: int
    """At most."""


class HeadKernel:
    """Commands of one KV head with the heads that share it."""

    def __init__(self, kernel: AttentionKernel, kv: int, statistics: int, sequence: int = 0,
                 rows: HeadRows | None = None) -> None:
        """``statistics``: the context of statistics that it takes. ``rows``: by default all of the sequence."""
        self.k, self.b, self.kv, self.statistics, self.sequence = kernel, kernel.b, kv, statistics, sequence
        self.name = f"{kernel.node.name} {kv}" + (f" of sequence {sequence}" if self.b.batch > 1 else "")
        first = kv * kernel.groups * kernel.all + sequence * kernel.one
        self.own = rows or HeadRows(kernel.query + first, kernel.context + first, kernel.m, kernel.one)
        self.masks = kernel.masks + sequence * kernel.one if kernel.masks else 0
        first = kv * kernel.share
        self.scaling: Mapping[str, Any] = {"mult": int(kernel.score[first, 0]), "shift": int(kernel.score[first, 1])}
        self.sums = At(Buffer(f"{self.name} sums", kernel.groups * self.own.one, Bank.ACCUMULATOR))
        self.forms: tuple[Form, Form] = ({}, {})
        """How keys and values stand that are multiplied now."""
        self.maxima = {SoftmaxFlag.ONLINE} if kernel.prefix else set[SoftmaxFlag]()
        """Flags of the rows' maxima: whole octaves, where the prefix makes them rise."""
        self.apart = ceil_div(kernel.prefix, self.b.config.preload) * self.b.config.preload
        """Rows from a group of the prefix' keys or values to the next one."""
        prefix = ceil_div(kernel.prefix, self.b.config.dim) * self.own.one
        self.prefix_scores = At(Buffer(f"{self.name} prefix scores", prefix, Bank.ACCUMULATOR))
        self.prefix_probabilities = At(Buffer(f"{self.name} prefix probabilities", prefix, Bank.OPERAND))
        self.prefix_rows = At(Buffer(f"{self.name} prefix", 2 * kernel.groups * self.apart, Bank.STREAM,
                                     self.b.config.preload))

    def add_scores(self, keys: At, stride: int, to: At, n: Length, moved: bool = False,
                   rows: HeadRows | None = None) -> None:
        """``query @ keys.T``; ``moved``: to the rows at which a loop is; ``rows``: other ones than its own."""
        k, own = self.k, rows or self.own
        self.b.add(Unit.MATRIX, f"{self.name}: scores", flags={MatrixFlag.B_TRANSPOSED, *self.forms[0]},
                   dyn=(Dyn.DST, LengthReg.ROW, 1) if moved else NO_DYN, a_row=own.query, a_stride=k.all,
                   b_row=keys, b_stride=stride, c_row=to, c_stride=own.one, m=own.m, n=n, k=k.node.head_dim,
                   **self.forms[0].get(MatrixFlag.B_INT4, {}))

    def add_softmax(self, op: VOp, scores: At, n: Length, flags: set[SoftmaxFlag], *, moved: bool = False,
                    rows: HeadRows | None = None, **fields: Any) -> None:
        """A piece of the rows' maxima or probabilities; ``rows``: other ones than its own."""
        k, own = self.k, rows or self.own
        self.b.add(Unit.VECTOR, f"{self.name}: {op.name.lower()}", op=op, flags=flags,
                   dyn=(Dyn.SRC0, LengthReg.ROW, 1) if moved else NO_DYN, src0=scores, src0_stride=own.one,
                   m=own.m, n=n, context=self.statistics, **self.scaling, **fields,
                   **(exponential(k.node) if op is not VOp.SOFTMAX_MAX else {}))

    def score_prefix(self) -> None:
        """Scores of the prefix, where there is one that comes on its own."""
        k = self.k
        if k.prefix:
            self.load_prefix()
            self.add_scores(self.prefix_rows, self.apart, self.prefix_scores, Length(k.prefix))

    def load_prefix(self) -> None:
        """Its keys and values."""
        k = self.k
        content = PrefixRows(k.node, self.kv, self.apart, 2 * k.groups * self.apart * self.b.config.dim)
        self.b.load_constants(STATIC, [content], self.prefix_rows, f"{self.name}: prefix")

    def mix_prefix(self) -> None:
        """The prefix' part of the contexts, behind all others': where the maximum rises, these are shifted first."""
        k, count = self.k, Length(self.k.prefix)
        flags = {SoftmaxFlag.ONLINE, SoftmaxFlag.CONTINUE}
        self.add_softmax(VOp.SOFTMAX_MAX, self.prefix_scores, count, flags)
        self.add_softmax(VOp.SOFTMAX_EXP, self.prefix_scores, count, flags, dst=self.prefix_probabilities,
                         dst_stride=self.own.one)
        self.rescale()
        self.add_contexts(self.prefix_probabilities, self.prefix_rows + k.groups * self.apart, self.apart, count, True)

    def rescale(self) -> None:
        """The contexts, shifted by the last rise of the maxima."""
        k = self.k
        self.b.add(Unit.VECTOR, f"{self.name}: rise", op=VOp.RESCALE, src0=self.sums, src0_stride=self.own.one,
                   dst=self.sums, dst_stride=self.own.one, m=self.own.m, n=k.node.head_dim, context=self.statistics)

    def add_contexts(self, probabilities: At, values: At, stride: int, count: Length, more: bool,
                     pitch: int | None = None) -> None:
        """``probabilities @ values``, ``more``: added to what there is; ``pitch``: rows from a column group of
        probabilities to the next, where it has other rows beside its own.
        """
        k = self.k
        self.b.add(Unit.MATRIX, f"{self.name}: context",
                   flags={MatrixFlag.A_UNSIGNED, *self.forms[1]} | ({MatrixFlag.ACCUMULATE} if more else set()),
                   a_row=probabilities, a_stride=pitch or self.own.one, b_row=values, b_stride=stride, c_row=self.sums,
                   c_stride=self.own.one, m=self.own.m, n=k.node.head_dim, k=count,
                   **self.forms[1].get(MatrixFlag.B_INT4, {}))

    def normalise(self) -> None:
        """The rows' int8 contexts, scaled by the reciprocal of their sums."""
        self.normalise_by(self.statistics, 0)

    def normalise_by(self, context: int, bits: int) -> None:
        """By the reciprocals of a context of statistics, of sums that lack so many bits."""
        k = self.k
        mult, shift = (int(v) for v in k.scale[self.kv * k.share])
        self.b.add(Unit.VECTOR, f"{self.name}: normalise", op=VOp.REQUANT, flags={RequantFlag.ROW}, src0=self.sums,
                   src0_stride=self.own.one, dst=self.own.context, dst_stride=k.all, m=self.own.m,
                   n=k.node.head_dim, mult=mult, shift=shift + bits, context=context)


def load_masks(b: Builder, rows: int, beyond: int) -> At:
    """Bitmaps of the new rows, ``rows`` rows, and room for ``beyond`` rows that are nobody's."""
    masks = At(Buffer("masks", rows + beyond, Bank.STATE))
    size = rows * b.config.dim
    b.reserve(MASKS, size)
    b.add(Unit.LOAD, "masks", region=MASKS, bytes=size, row=masks, block_stride=1, rows=1)
    return masks


def load_nobody(b: Builder, rows: int) -> At:
    """``rows`` bitmaps that see nothing."""
    nobody = At(Buffer("nobody", rows, Bank.STATE))
    b.reserve(MASKS, b.config.dim)
    b.add(Unit.LOAD, "no row sees anything", region=MASKS, bytes=b.config.dim, rows=rows, row_stride=1, block_stride=1,
          row=nobody, flags={MoveFlag.ZERO})
    return nobody
