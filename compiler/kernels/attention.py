"""Attention of new rows over a cache of any length: scores stay in the accumulator, or are computed twice.

For each KV head the new rows' scores come first, then blocks of the cache, as many as there are: a first pass finds
the rows' maxima, a second one probabilities, their sums and contexts. Both passes are exact, so the order of pieces and
what stands beyond a block change nothing. Scores are kept between the passes where the accumulator takes those of the
longest context; else the second pass loads the keys again. One loop takes the second pass of a head and the first pass
of the next, whose scores take the place of those just used. The heads that share a KV head are rows of one product. The
sequences of a batch come one after another, each with its own cache and as many new rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.batch import set_context
from gemmule.compiler.kernels.kv_layout import KvLayout
from gemmule.compiler.kernels.layout import Span, by_heads
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, Registers, SetDisplacement
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Dyn, Length, MatrixFlag, MoveFlag, RequantFlag, SoftmaxFlag, Source, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["CACHE", "MASKS", "NEW", "AttentionKernel", "AttentionMapping", "attention_rows", "new_region"]

CACHE, NEW = "cache", "cache_new"
"""The cache as loads see it, and from the first new position on, as stores do."""
MASKS = "masks"
"""Region of the bitmaps: for each row which new rows it sees."""


@dataclass(frozen=True, kw_only=True)
class AttentionMapping:
    """How attention is cut."""

    block: int
    """Cached positions of a block, a power of two."""
    blocks: int
    """Blocks of a turn, each with a buffer of its own: 1, 2 or 4."""
    pair: int
    """Neighbouring blocks that come with one load: 1 or 2."""
    keep: bool
    """Scores stay in the accumulator between the passes."""
    pipelined: bool
    """A loop takes the values of a head and the keys of the next one; needs two contexts of statistics."""
    context: int
    """Most cached rows."""

    @property
    def ring(self) -> int:
        """Buffers for pairs of blocks: of keys, of values, and of keys again where scores are not kept."""
        return (2 if self.keep else 3) * self.blocks // self.pair

    def kept_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Accumulator rows from the first turn's scores to the last one's."""
        turns = ceil_div(self.context, self.turn) if self.keep else 1
        return (turns - 1) * self.blocks * ceil_div(self.block, dim) * attention_rows(node, rows)

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Scratchpad rows of the buffers for blocks, and of a head's probabilities."""
        probabilities = self.blocks * ceil_div(self.block, dim) * attention_rows(node, rows)
        return self.ring * ceil_div(node.head_dim, dim) * self.block * self.pair + probabilities

    @property
    def turn(self) -> int:
        """Positions of a turn."""
        return self.block * self.blocks


def attention_rows(node: Attention, rows: int) -> int:
    """Rows of a product: all heads of a KV head."""
    return node.heads // node.kv_heads * rows


def new_region(sequence: int) -> str:
    """The cache of a sequence of the batch from its first new position on."""
    return NEW + (f" {sequence}" if sequence else "")


class AttentionKernel:
    """Writes the attention of one layer; the caller fills :attr:`query`, :attr:`key` and :attr:`value` first."""

    def __init__(self, b: Builder, node: Attention, mapping: AttentionMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        """``number`` of the layer among the cached ones; ``ring``: buffers for a turn's keys, then for its values."""
        dim = b.config.dim
        self.b, self.node, self.mapping, self.number = b, node, mapping, number
        self.masks, self.nobody, self.ring = masks, nobody, ring
        self.layout = KvLayout.of(b.network.graph, b.config, mapping.context, b.batch, b.each)
        self.share = node.heads // node.kv_heads
        self.groups, self.one = ceil_div(node.head_dim, dim), self.share * b.each
        self.all = b.batch * self.one
        self.one_new = ceil_div(b.each, b.config.preload) * b.config.preload
        self.new = b.batch * self.one_new
        self.query = At(Buffer(f"{node.name} query", node.kv_heads * self.groups * self.all, Bank.OPERAND))
        self.key, self.value = (
            At(Buffer(f"{node.name} {name}", node.kv_heads * self.groups * self.new, Bank.OPERAND, b.config.preload))
            for name in ("keys", "values"))
        self.context = At(Buffer(f"{node.name} context", node.kv_heads * self.groups * self.all, Bank.OPERAND))
        self.score, self.scale = (np.asarray(b.network.tensor(node, role)) for role in ("score", "context"))
        self.m = b.m_each if self.share == 1 else Length(self.one)
        self.block_rows = ceil_div(mapping.block, dim) * self.one
        turn = mapping.blocks * self.block_rows
        self.scores = At(Buffer(f"{node.name} scores", mapping.kept_rows(node, dim, b.each) + turn, Bank.ACCUMULATOR))
        self.passes = [At(Buffer(f"{node.name} scores of pass {i}", turn, Bank.ACCUMULATOR)) for i in (1, 2)]

    # -- places

    def place_query(self, head: int) -> At:
        """First group of a head's query rows; groups are :attr:`all` rows apart, sequences :attr:`one`."""
        kv, share = divmod(head, self.share)
        return self.query + kv * self.groups * self.all + share * self.b.each

    def place_new(self, at: At, kv: int, sequence: int = 0) -> At:
        """First group of a KV head's new keys or values; groups are :attr:`new` rows apart."""
        return at + kv * self.groups * self.new + sequence * self.one_new

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

    def write(self) -> None:
        """All heads: the first pass of the next one runs with the second pass of each."""
        for sequence in range(self.b.batch):
            if self.b.batch > 1:
                self.b.control(set_context(self.b.config, self.b.batch, sequence))
            self._sequence(sequence)

    def _sequence(self, sequence: int) -> None:
        heads = [_Head(self, kv, kv % 2 if self.mapping.pipelined else 0, sequence)
                 for kv in range(self.node.kv_heads)]
        following = [*heads[1:], None]
        if self.mapping.pipelined:
            heads[0].begin()
            self._loop(None, heads[0])
        for head, other in zip(heads, following, strict=True):
            beside = other if self.mapping.pipelined else None
            if not self.mapping.pipelined:
                head.begin()
                self._loop(None, head)
            if beside:
                beside.begin()
            head.mix_new()
            self._loop(head, beside)
            head.finish()

    def _loop(self, second: _Head | None, first: _Head | None) -> None:
        """Blocks of the cache: the second pass of a head and the first pass of another."""
        b, mapping = self.b, self.mapping
        sequence = next(head.sequence for head in (second, first) if head)
        what = " and ".join(
            f"{part} of {head.name}" for part, head in (("contexts", second), ("scores", first)) if head)
        b.control(set_length(Registers.LEFT, Source.LENGTH, Registers.CONTEXT),
                  SetDisplacement(CACHE, sequence * self.layout.size))
        if mapping.keep:
            b.control(set_length(Registers.ROW))
        with b.loop(Length(MAX_LENGTH, Registers.CONTEXT), mapping.turn.bit_length() - 1, what):
            # The vector unit takes the next block's probabilities before this one's maxima: no product waits for it.
            for j in range(mapping.blocks + 1):
                if j % 2 == 0:
                    self._load_blocks(second, first, range(j, min(j + 2, mapping.blocks), mapping.pair))
                if second and j < mapping.blocks:
                    second.block_probabilities(j)
                if first and j:
                    first.block_maxima(j - 1)
                if second and j < mapping.blocks:
                    second.block_contexts(j)
                if first and j < mapping.blocks:
                    first.block_scores(j)
            b.control(set_length(Registers.LEFT, Source.LENGTH, Registers.LEFT, amount=-mapping.turn),
                      SetDisplacement(CACHE, mapping.turn * self.node.head_dim, further=True))
            if mapping.keep:
                b.control(set_length(Registers.ROW, Source.LENGTH, Registers.ROW,
                                     amount=mapping.blocks * self.block_rows))

    def _load_blocks(self, second: _Head | None, first: _Head | None, blocks: range) -> None:
        """Load neighbouring blocks, all of one kind and then of the other: runs in DRAM, not two rows of one bank."""
        for head, part, again in ((second, 0, True), (second, 1, False), (first, 0, False)):
            if head and not (again and self.mapping.keep):
                for j in blocks:
                    head.load(part, j, again=again)

    def store_new(self) -> None:
        """Keep the new keys and values in the cache."""
        size = self.node.head_dim
        for sequence, kv in product(range(self.b.batch), range(self.node.kv_heads)):
            for part, at in enumerate((self.key, self.value)):
                self.b.add(Unit.STORE, f"{self.node.name}: new {('keys', 'values')[part]} {kv}",
                           region=new_region(sequence), offset=self.layout.offset(self.number, kv, part), stride=size,
                           bytes=size, row=self.place_new(at, kv, sequence), row_stride=1, block_stride=self.new,
                           rows=self.b.m_each)


class _Head:
    """One KV head with the heads that share it."""

    def __init__(self, kernel: AttentionKernel, kv: int, statistics: int, sequence: int) -> None:
        self.k, self.kv, self.statistics, self.sequence = kernel, kv, statistics, sequence
        b, dim, one = kernel.b, kernel.b.config.dim, kernel.one
        self.name = f"{kernel.node.name} {kv}" + (f" of sequence {sequence}" if b.batch > 1 else "")
        self.query = kernel.query + kv * kernel.groups * kernel.all + sequence * one
        self.masks = kernel.masks + sequence * one
        first = kv * kernel.share
        self.scaling: dict[str, Any] = {"mult": int(kernel.score[first, 0]), "shift": int(kernel.score[first, 1])}
        new = ceil_div(b.each, dim) * one
        self.new_scores = At(Buffer(f"{self.name} new scores", new, Bank.ACCUMULATOR))
        self.sums = At(Buffer(f"{self.name} sums", kernel.groups * one, Bank.ACCUMULATOR))
        self.new_probabilities = At(Buffer(f"{self.name} new probabilities", new, Bank.OPERAND))
        self.probabilities = [At(Buffer(f"{self.name} probabilities {j}", kernel.block_rows, Bank.OPERAND))
                              for j in range(kernel.mapping.blocks)]

    def begin(self) -> None:
        """Scores of the new rows, and their maxima."""
        k, b = self.k, self.k.b
        self._score(k.place_new(k.key, self.kv, self.sequence), k.new, self.new_scores, b.m_each, False)
        self._softmax(VOp.SOFTMAX_MAX, self.new_scores, b.m_each, {SoftmaxFlag.TREE}, src1=self.masks)

    def block_scores(self, j: int) -> None:
        """First pass: scores of block ``j`` of a turn."""
        mapping = self.k.mapping
        self._score(self._slot(0, j), mapping.block * mapping.pair, self._cached(0, j), self._left(j), mapping.keep)

    def block_maxima(self, j: int) -> None:
        """First pass: the rows' maxima go on."""
        self._softmax(VOp.SOFTMAX_MAX, self._cached(0, j), self._left(j), {SoftmaxFlag.CONTINUE},
                      moved=self.k.mapping.keep)

    def mix_new(self) -> None:
        """Probabilities of the new rows, and their part of the contexts."""
        k, b = self.k, self.k.b
        self._softmax(VOp.SOFTMAX_EXP, self.new_scores, b.m_each, {SoftmaxFlag.TREE, SoftmaxFlag.MORE},
                      src1=self.masks, dst=self.new_probabilities, dst_stride=k.one)
        self._mix(self.new_probabilities, k.place_new(k.value, self.kv, self.sequence), k.new, b.m_each, False)

    def block_probabilities(self, j: int) -> None:
        """Second pass: probabilities of block ``j`` of a turn, of its scores again where they were not kept."""
        k, keep = self.k, self.k.mapping.keep
        if not keep:
            self._score(self._slot(2, j), k.mapping.block * k.mapping.pair, self._cached(1, j), self._left(j), False)
        self._softmax(VOp.SOFTMAX_EXP, self._cached(1, j), self._left(j), {SoftmaxFlag.CONTINUE, SoftmaxFlag.MORE},
                      moved=keep, dst=self.probabilities[j], dst_stride=k.one)

    def block_contexts(self, j: int) -> None:
        """Second pass: the block's part of the contexts."""
        mapping = self.k.mapping
        self._mix(self.probabilities[j], self._slot(1, j), mapping.block * mapping.pair, self._left(j), True)

    def finish(self) -> None:
        """The reciprocal of the sum, which a piece makes of which no row sees anything; the rows' int8 contexts."""
        k = self.k
        self._softmax(VOp.SOFTMAX_EXP, self.new_scores, Length(1), {SoftmaxFlag.CONTINUE, SoftmaxFlag.TREE},
                      src1=k.nobody, dst=self.new_probabilities, dst_stride=k.one)
        mult, shift = (int(v) for v in k.scale[self.kv * k.share])
        k.b.add(Unit.VECTOR, f"{self.name}: normalise", op=VOp.REQUANT, flags={RequantFlag.ROW}, src0=self.sums,
                src0_stride=k.one, dst=k.context + self.kv * k.groups * k.all + self.sequence * k.one,
                dst_stride=k.all, m=k.m, n=k.node.head_dim, mult=mult, shift=shift, context=self.statistics)

    def _left(self, j: int) -> Length:
        """Positions of block ``j`` of a turn."""
        return Length(self.k.mapping.block, Registers.LEFT, j * self.k.mapping.block)

    def _cached(self, number: int, j: int) -> At:
        """Scores of block ``j``: where the pass before left them, or for pass ``number`` alone."""
        k = self.k
        return (k.scores if k.mapping.keep else k.passes[number]) + j * k.block_rows

    def _slot(self, kind: int, j: int) -> At:
        """Where the keys (0), values (1) or keys for the second pass (2) of block ``j`` of a turn stand."""
        mapping = self.k.mapping
        number, inside = divmod(j, mapping.pair)
        return At(self.k.ring[kind * mapping.blocks // mapping.pair + number], inside * mapping.block)

    def load(self, part: int, j: int, *, again: bool = False) -> None:
        """Load keys (0) or values (1) of the blocks from ``j`` on, the keys perhaps for the second pass."""
        k, size, block, pair = self.k, self.k.node.head_dim, self.k.mapping.block, self.k.mapping.pair
        k.b.add(Unit.LOAD, f"{self.name}: {('keys', 'values')[part]}", region=CACHE, stride=size, bytes=size,
                offset=k.layout.offset(k.number, self.kv, part) + j * block * size,
                row=self._slot(2 if again else part, j), row_stride=1, block_stride=block * pair,
                rows=Length(block * pair, Registers.LEFT, j * block))

    def _score(self, keys: At, stride: int, to: At, n: Length, moved: bool) -> None:
        k = self.k
        k.b.add(Unit.MATRIX, f"{self.name}: scores", flags={MatrixFlag.B_TRANSPOSED},
                dyn=(Dyn.DST, Registers.ROW, 1) if moved else (Dyn.NONE, 0, 0), a_row=self.query, a_stride=k.all,
                b_row=keys, b_stride=stride, c_row=to, c_stride=k.one, m=k.m, n=n, k=k.node.head_dim)

    def _mix(self, probabilities: At, values: At, stride: int, count: Length, more: bool) -> None:
        k = self.k
        k.b.add(Unit.MATRIX, f"{self.name}: context",
                flags={MatrixFlag.A_UNSIGNED} | ({MatrixFlag.ACCUMULATE} if more else set()), a_row=probabilities,
                a_stride=k.one, b_row=values, b_stride=stride, c_row=self.sums, c_stride=k.one, m=k.m,
                n=k.node.head_dim, k=count)

    def _softmax(self, op: VOp, scores: At, n: Length, flags: set[SoftmaxFlag], *, moved: bool = False,
                 **fields: Any) -> None:
        k = self.k
        k.b.add(Unit.VECTOR, f"{self.name}: {op.name.lower()}", op=op, flags=flags,
                dyn=(Dyn.SRC0, Registers.ROW, 1) if moved else (Dyn.NONE, 0, 0), src0=scores, src0_stride=k.one, m=k.m,
                n=n, context=self.statistics, **self.scaling, **fields)


def load_masks(b: Builder, rows: int) -> tuple[At, At]:
    """(bitmaps of the new rows, bitmaps that see nothing), ``rows`` rows each."""
    masks, nobody = (At(Buffer(name, rows, Bank.STATE)) for name in ("masks", "nobody"))
    size = rows * b.config.dim
    b.reserve(MASKS, size)
    b.add(Unit.LOAD, "masks", region=MASKS, bytes=size, row=masks, block_stride=1, rows=1)
    b.add(Unit.LOAD, "no row sees anything", region=MASKS, bytes=b.config.dim, rows=rows, row_stride=1, block_stride=1,
          row=nobody, flags={MoveFlag.ZERO})
    return masks, nobody
