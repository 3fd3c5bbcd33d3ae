"""Attention of new rows over a cache of any length: scores stay in the accumulator, or are computed twice.

For each KV head the new rows' scores come first, then blocks of the cache, as many as there are: a first pass finds
the rows' maxima, a second one probabilities, their sums and contexts. Both passes are exact, so the order of pieces and
what stands beyond a block change nothing. Scores are kept between the passes where the accumulator takes those of the
longest context; else the second pass loads the keys again. The heads that share a KV head are rows of one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.layout import Span, by_heads
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, Registers, SetDisplacement
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Dyn, Length, MatrixFlag, MoveFlag, RequantFlag, SoftmaxFlag, Source, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["AttentionKernel", "AttentionMapping", "attention_rows"]

CACHE, NEW = "cache", "cache_new"
"""The cache as loads see it, and from the first new position on, as stores do."""
MASKS = "masks"
"""Region of the bitmaps: for each row which new rows it sees."""


@dataclass(frozen=True, kw_only=True)
class AttentionMapping:
    """How attention is cut."""

    block: int
    """Cached positions of a block, a power of two up to 64."""
    blocks: int
    """Blocks of a turn, each with a buffer of its own: 1, 2 or 4."""
    keep: bool
    """Scores stay in the accumulator between the passes."""
    flight: int
    """KV heads in flight together."""
    context: int
    """Most cached rows."""

    @property
    def ring(self) -> int:
        """Buffers for blocks."""
        return 2 * self.blocks

    def kept_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Accumulator rows from the first turn's scores to the last one's."""
        turns = ceil_div(self.context, self.turn) if self.keep else 1
        return (turns - 1) * self.blocks * ceil_div(self.block, dim) * attention_rows(node, rows)

    @property
    def turn(self) -> int:
        """Positions of a turn."""
        return self.block * self.blocks


def attention_rows(node: Attention, rows: int) -> int:
    """Rows of a product: all heads of a KV head."""
    return node.heads // node.kv_heads * rows


class AttentionKernel:
    """Writes the attention of one layer; the caller fills :attr:`query`, :attr:`key` and :attr:`value` first."""

    def __init__(self, b: Builder, node: Attention, mapping: AttentionMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        """``number`` of the layer among the cached ones; ``ring``: buffers for the keys, then the values of a turn."""
        dim = b.config.dim
        self.b, self.node, self.mapping, self.number = b, node, mapping, number
        self.masks, self.nobody, self.ring = masks, nobody, ring
        self.share = node.heads // node.kv_heads
        self.groups, self.all = ceil_div(node.head_dim, dim), self.share * b.rows
        self.new = ceil_div(b.rows, b.config.preload) * b.config.preload
        self.query = At(Buffer(f"{node.name} query", node.kv_heads * self.groups * self.all, Bank.OPERAND))
        self.key, self.value = (
            At(Buffer(f"{node.name} {name}", node.kv_heads * self.groups * self.new, Bank.OPERAND, b.config.preload))
            for name in ("keys", "values"))
        self.context = At(Buffer(f"{node.name} context", node.kv_heads * self.groups * self.all, Bank.OPERAND))
        self.score, self.scale = (np.asarray(b.network.tensor(node, role)) for role in ("score", "context"))
        self.m = b.m if self.share == 1 else Length(self.all)
        self.block_rows = ceil_div(mapping.block, dim) * self.all

    # -- places

    def place_query(self, head: int) -> At:
        """First group of a head's query rows; groups are :attr:`all` rows apart."""
        kv, share = divmod(head, self.share)
        return self.query + kv * self.groups * self.all + share * self.b.rows

    def place_new(self, at: At, kv: int) -> At:
        """First group of a KV head's new keys or values; groups are :attr:`new` rows apart."""
        return at + kv * self.groups * self.new

    def spans(self) -> list[Span]:
        """The contexts, as the output projection reads them: one span for each of the heads that share."""
        return [Span(self.context + i * self.b.rows, self.all, by_heads(
            np.arange(self.node.kv_heads) * self.share + i, self.node.head_dim, self.b.config.dim))
            for i in range(self.share)]

    def offset(self, kv: int, part: int) -> int:
        """Bytes before the cached keys (0) or values (1) of a KV head: [layer][KV head][keys, values][position]."""
        return ((self.number * self.node.kv_heads + kv) * 2 + part) * self.mapping.context * self.node.head_dim

    # -- commands

    def write(self) -> None:
        """All heads: scores of the next ones stand before the contexts of those before."""
        waiting: list[_Head] = []
        for kv in range(self.node.kv_heads):
            head = _Head(self, kv, kv % self.mapping.flight)
            head.scores()
            waiting.append(head)
            if len(waiting) == self.mapping.flight:
                waiting.pop(0).contexts()
        for head in waiting:
            head.contexts()

    def store_new(self) -> None:
        """Keep the new keys and values in the cache."""
        size = self.node.head_dim
        for kv in range(self.node.kv_heads):
            for part, at in enumerate((self.key, self.value)):
                self.b.add(Unit.STORE, f"{self.node.name}: new {('keys', 'values')[part]} {kv}", region=NEW,
                           offset=self.offset(kv, part), stride=size, bytes=size, row=self.place_new(at, kv),
                           row_stride=1, block_stride=self.new, rows=self.b.m)


class _Head:
    """One KV head with the heads that share it."""

    def __init__(self, kernel: AttentionKernel, kv: int, statistics: int) -> None:
        self.k, self.kv, self.statistics = kernel, kv, statistics
        b, mapping = kernel.b, kernel.mapping
        self.name = f"{kernel.node.name} {kv}"
        self.query = kernel.query + kv * kernel.groups * kernel.all
        first = kv * kernel.share
        self.scaling: dict[str, Any] = {"mult": int(kernel.score[first, 0]), "shift": int(kernel.score[first, 1])}
        self.new_scores = At(Buffer(f"{self.name} new scores", ceil_div(b.rows, b.config.dim) * kernel.all,
                                    Bank.ACCUMULATOR))
        kept = mapping.kept_rows(kernel.node, b.config.dim, b.rows)
        self.cached_scores = At(Buffer(f"{self.name} scores", kept + mapping.blocks * kernel.block_rows,
                                       Bank.ACCUMULATOR))
        self.sums = At(Buffer(f"{self.name} sums", kernel.groups * kernel.all, Bank.ACCUMULATOR))

    def scores(self) -> None:
        """The first pass: maxima over all that the rows see."""
        k, b = self.k, self.k.b
        self._score(k.place_new(k.key, self.kv), k.new, self.new_scores, b.m, False)
        self._softmax(VOp.SOFTMAX_MAX, self.new_scores, b.m, {SoftmaxFlag.TREE}, src1=k.masks)
        with self._blocks("keys"):
            for j in range(k.mapping.blocks):
                self._score_block(j, k.mapping.keep)
                self._softmax(VOp.SOFTMAX_MAX, self._at(j), self._left(j), {SoftmaxFlag.CONTINUE},
                              moved=k.mapping.keep)

    def contexts(self) -> None:
        """The second pass: probabilities, their sums, contexts; then the reciprocal and the rows' int8 contexts."""
        k, b, mapping = self.k, self.k.b, self.k.mapping
        probabilities = At(Buffer(f"{self.name} new probabilities", ceil_div(b.rows, b.config.dim) * k.all,
                                  Bank.OPERAND))
        self._softmax(VOp.SOFTMAX_EXP, self.new_scores, b.m, {SoftmaxFlag.TREE, SoftmaxFlag.MORE}, src1=k.masks,
                      dst=probabilities, dst_stride=k.all)
        self._mix(probabilities, k.place_new(k.value, self.kv), k.new, b.m, False)
        blocks = [At(Buffer(f"{self.name} probabilities {j}", k.block_rows, Bank.OPERAND))
                  for j in range(mapping.blocks)]
        with self._blocks("values"):
            for j in range(mapping.blocks):
                if not mapping.keep:
                    self._score_block(j, False)
                self._softmax(VOp.SOFTMAX_EXP, self._at(j), self._left(j), {SoftmaxFlag.CONTINUE, SoftmaxFlag.MORE},
                              moved=mapping.keep, dst=blocks[j], dst_stride=k.all)
                slot = self._load(1, j)
                self._mix(blocks[j], slot, mapping.block, self._left(j), True)
        # No row sees anything of this piece: it makes the reciprocal of the sum so far.
        self._softmax(VOp.SOFTMAX_EXP, self.new_scores, Length(1), {SoftmaxFlag.CONTINUE, SoftmaxFlag.TREE},
                      src1=k.nobody, dst=probabilities, dst_stride=k.all)
        mult, shift = (int(v) for v in k.scale[self.kv * k.share])
        b.add(Unit.VECTOR, f"{self.name}: normalise", op=VOp.REQUANT, flags={RequantFlag.ROW}, src0=self.sums,
              src0_stride=k.all, dst=k.context + self.kv * k.groups * k.all, dst_stride=k.all, m=k.m,
              n=k.node.head_dim, mult=mult, shift=shift, context=self.statistics)

    def _left(self, j: int) -> Length:
        """Positions of block ``j`` of a turn."""
        return Length(self.k.mapping.block, Registers.LEFT, j * self.k.mapping.block)

    def _at(self, j: int) -> At:
        return self.cached_scores + j * self.k.block_rows

    def _blocks(self, what: str):  # type: ignore[no-untyped-def]
        """A loop over the cached positions; registers and the cache's displacement move on behind each turn."""
        k, b, mapping = self.k, self.k.b, self.k.mapping
        b.control(set_length(Registers.LEFT, Source.LENGTH, Registers.CONTEXT), SetDisplacement(CACHE, 0),
                  *([set_length(Registers.ROW)] if mapping.keep else []))
        return _Turn(b, mapping, f"{self.name}: {what}", mapping.blocks * k.block_rows, k.node.head_dim)

    def _score_block(self, j: int, moved: bool) -> None:
        slot = self._load(0, j)
        self._score(slot, self.k.mapping.block, self._at(j), self._left(j), moved)

    def _load(self, part: int, j: int) -> At:
        """Load the keys (0) or values (1) of block ``j`` of a turn; returns where they stand."""
        k, size = self.k, self.k.node.head_dim
        slot = At(k.ring[part * k.mapping.blocks + j])
        k.b.add(Unit.LOAD, f"{self.name}: {('keys', 'values')[part]}", region=CACHE, stride=size, bytes=size,
                offset=k.offset(self.kv, part) + j * k.mapping.block * size, row=slot, row_stride=1,
                block_stride=k.mapping.block, rows=self._left(j))
        return slot

    def _score(self, keys: At, stride: int, to: At, n: Length, moved: bool) -> None:
        k = self.k
        k.b.add(Unit.MATRIX, f"{self.name}: scores", flags={MatrixFlag.B_TRANSPOSED},
                dyn=(Dyn.DST, Registers.ROW, 1) if moved else (Dyn.NONE, 0, 0), a_row=self.query, a_stride=k.all,
                b_row=keys, b_stride=stride, c_row=to, c_stride=k.all, m=k.m, n=n, k=k.node.head_dim)

    def _mix(self, probabilities: At, values: At, stride: int, count: Length, more: bool) -> None:
        k = self.k
        k.b.add(Unit.MATRIX, f"{self.name}: context",
                flags={MatrixFlag.A_UNSIGNED} | ({MatrixFlag.ACCUMULATE} if more else set()), a_row=probabilities,
                a_stride=k.all, b_row=values, b_stride=stride, c_row=self.sums, c_stride=k.all, m=k.m,
                n=k.node.head_dim, k=count)

    def _softmax(self, op: VOp, scores: At, n: Length, flags: set[SoftmaxFlag], *, moved: bool = False,
                 **fields: Any) -> None:
        k = self.k
        k.b.add(Unit.VECTOR, f"{self.name}: {op.name.lower()}", op=op, flags=flags,
                dyn=(Dyn.SRC0, Registers.ROW, 1) if moved else (Dyn.NONE, 0, 0), src0=scores, src0_stride=k.all, m=k.m,
                n=n, context=self.statistics, **self.scaling, **fields)


class _Turn:
    """A loop of the builder that ends its body with what moves on."""

    def __init__(self, b: Builder, mapping: AttentionMapping, note: str, rows: int, head_dim: int) -> None:
        self.b, self.mapping, self.rows, self.bytes = b, mapping, rows, mapping.turn * head_dim
        self.loop = b.loop(Length(MAX_LENGTH, Registers.CONTEXT), mapping.turn.bit_length() - 1, note)

    def __enter__(self) -> None:
        self.loop.__enter__()

    def __exit__(self, kind, error, trace) -> None:  # type: ignore[no-untyped-def]
        if kind is None:
            self.b.control(set_length(Registers.LEFT, Source.LENGTH, Registers.LEFT, amount=-self.mapping.turn),
                           SetDisplacement(CACHE, self.bytes, further=True))
            if self.mapping.keep:
                self.b.control(set_length(Registers.ROW, Source.LENGTH, Registers.ROW, amount=self.rows))
        self.loop.__exit__(kind, error, trace)


def load_masks(b: Builder, rows: int) -> tuple[At, At]:
    """(bitmaps of the new rows, bitmaps that see nothing), ``rows`` rows each."""
    masks, nobody = (At(Buffer(name, rows, Bank.STATE)) for name in ("masks", "nobody"))
    size = rows * b.config.dim
    b.reserve(MASKS, size)
    b.add(Unit.LOAD, "masks", region=MASKS, bytes=size, row=masks, block_stride=1, rows=1)
    b.add(Unit.LOAD, "no row sees anything", region=MASKS, bytes=b.config.dim, rows=rows, row_stride=1, block_stride=1,
          row=nobody, flags={MoveFlag.ZERO})
    return masks, nobody
