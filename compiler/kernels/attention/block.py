"""Attention block by block over a cache of any length: scores stay in the accumulator, or are computed twice.

For each KV head the new rows' scores come first, then blocks of the cache, as many as there are: a first pass finds
the rows' maxima, a second one probabilities, their sums and contexts. Both passes are exact, so the order of pieces and
what stands beyond a block change nothing. Scores of as many positions as the accumulator takes are kept between the
passes; for those behind, in a loop of their own, the second pass loads the keys again. A loop takes the second pass of
a head and the first pass of the next, whose scores take the place of those just used. The sequences of a batch come one
after another, each with its own cache and as many new rows. Where cached rows go by list (pages), a sequence's list
comes to the index list while the one before is still read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.batch import set_context
from gemmule.compiler.kernels.attention.cache_list import CacheLists
from gemmule.compiler.kernels.attention.least import drop_small, load_least
from gemmule.compiler.kernels.attention.shared import (
    CACHE,
    PARTLY,
    AttentionKernel,
    AttentionMapping,
    HeadKernel,
    attention_rows,
)
from gemmule.compiler.kernels.virtual import NO_DYN, At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Dyn, Length, MatrixFlag, SoftmaxFlag, Source, Unit, VOp
from gemmule.numerics import KEPT_BITS
from gemmule.timing import ceil_div

__all__ = ["BlockAttention", "BlockHead", "BlockMapping"]


@dataclass(frozen=True, kw_only=True)
class BlockMapping(AttentionMapping):
    """How attention is cut into blocks."""

    block: int
    """Cached positions of a block, a power of two."""
    blocks: int
    """Blocks of a turn, each with a buffer of its own: 1, 2 or 4."""
    pair: int
    """Neighbouring blocks that come with one load: 1 or 2."""
    kept: int
    """Cached positions whose scores stay in the accumulator between the passes: all (:attr:`context`), none, or the
    first ones, in whole turns."""
    pipelined: bool
    """A loop takes the values of a head and the keys of the next one; needs two contexts of statistics."""
    joined: int = 0
    """Of a cache that a program beside this one lays out so."""
    least: int = 1
    """8-bit probabilities below it count as 0."""

    @property
    def keep(self) -> bool:
        return self.kept >= self.context

    @property
    def scores(self) -> str:
        return PARTLY if 0 < self.kept < self.context else super().scores

    @property
    def ring(self) -> int:
        """Buffers for pairs of blocks: of keys, of values, and of keys again where scores are not kept."""
        return (2 if self.keep else 3) * self.blocks // self.pair

    @property
    def turn(self) -> int:
        """Positions of a turn."""
        return self.block * self.blocks

    def moved(self, node: Attention, dim: int, rows: int) -> int:
        """From the first turn's scores to the last one's."""
        turns = max(1, ceil_div(self.kept, self.turn))
        return (turns - 1) * self.blocks * ceil_div(self.block, dim) * attention_rows(node, rows)

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        probabilities = self.blocks * ceil_div(self.block, dim) * attention_rows(node, rows)
        return self.ring * ceil_div(node.head_dim, dim) * self.block * self.pair + probabilities

    def buffers(self, node: Attention, dim: int, preload: int) -> tuple[Buffer, ...]:
        """A turn's keys, then its values."""
        rows = ceil_div(node.head_dim, dim) * self.block * self.pair
        return tuple(Buffer(f"block {i}", rows, Bank.STREAM, preload) for i in range(self.ring))


class BlockAttention(AttentionKernel):
    """One layer, block by block."""

    def __init__(self, b: Builder, node: Attention, mapping: BlockMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...], lists: CacheLists | None = None) -> None:
        """``ring``: buffers for a turn's keys, then for its values, of all layers. ``lists``: of cached rows."""
        super().__init__(b, node, mapping, number, masks)
        self.lists = lists
        dim = b.config.dim
        self.mapping, self.ring, self.nobody = mapping, ring, nobody
        self.block_rows = ceil_div(mapping.block, dim) * self.one
        turn = mapping.blocks * self.block_rows
        self.scores = At(Buffer(f"{node.name} scores", mapping.moved(node, dim, b.each) + turn, Bank.ACCUMULATOR))
        self.passes = [At(Buffer(f"{node.name} scores of pass {i}", turn, Bank.ACCUMULATOR)) for i in (1, 2)]
        self.keeping = mapping.kept > 0
        """Whether the commands that are written now are of positions whose scores stay."""
        self.moved: dict[str, int] = {}
        """By region of DRAM but the cache: bytes by which a turn moves on; 0 outside of the loops."""
        self.ones: At | None = None
        """A row of equal numbers, where small probabilities count as 0."""

    def _head(self, kv: int, statistics: int, sequence: int) -> BlockHead:
        return BlockHead(self, kv, statistics, sequence)

    def begin(self) -> None:
        if self.mapping.least > 1:
            self.ones = load_least(self.b, self.node.name, self.mapping.least)

    def write(self) -> None:
        """All heads: the first pass of the next one runs with the second pass of each."""
        for sequence in range(self.b.batch):
            if self.lists:  # two ahead at the beginning, then one
                for number in range(sequence + 1 if sequence else 0, min(sequence + 2, self.b.batch)):
                    self._set_context(number)
                    self.lists.bring(self.b, number, self.node.name)
            self._set_context(sequence)
            self._sequence(sequence)
        if self.lists:
            self.b.control(set_length(LengthReg.FIRST_WANTED, note="all rows of a batch"))

    def _set_context(self, sequence: int) -> None:
        """The register of cached rows is a sequence's."""
        if self.b.batch > 1:
            self.b.control(set_context(self.b.config, self.b.batch, sequence))

    def _sequence(self, sequence: int) -> None:
        heads = [self._head(kv, kv % 2 if self.mapping.pipelined else 0, sequence)
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

    def _loop(self, second: BlockHead | None, first: BlockHead | None) -> None:
        """Blocks of the cache: the second pass of a head and the first pass of another."""
        b, mapping = self.b, self.mapping
        sequence = next(head.sequence for head in (second, first) if head)
        b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.CONTEXT, amount=-self.prefix),
                  set_length(LengthReg.SEEN) if self.lists else SetDisplacement(CACHE, sequence * self.layout.size))
        if mapping.kept:
            b.control(set_length(LengthReg.ROW))
            most = MAX_LENGTH if mapping.keep else mapping.kept // mapping.turn
            self._turns(second, first, Length(most, LengthReg.CONTEXT, self.prefix),
                        keeping=True)
        if not mapping.keep:
            self._turns(second, first, Length(MAX_LENGTH, LengthReg.LEFT), keeping=False)
        b.control(*(SetDisplacement(region, 0) for region in self.moved))

    def _turns(self, second: BlockHead | None, first: BlockHead | None, positions: Length, *,
               keeping: bool) -> None:
        """The turns of so many positions (the limit counts turns), whose scores are kept or not."""
        b, mapping = self.b, self.mapping
        self.keeping = keeping
        what = " and ".join(
            f"{part} of {head.name}" for part, head in (("contexts", second), ("scores", first)) if head)
        with b.loop(positions, mapping.turn.bit_length() - 1, what):
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
            self._move_on()
            if self.keeping:
                b.control(set_length(LengthReg.ROW, Source.LENGTH, LengthReg.ROW,
                                     amount=mapping.blocks * self.block_rows))

    def _move_on(self) -> None:
        """From a turn's positions to the next one's."""
        turn = self.mapping.turn
        self.b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-turn),
                       set_length(LengthReg.SEEN, Source.LENGTH, LengthReg.SEEN, amount=turn) if self.lists
                       else SetDisplacement(CACHE, turn * self.layout.row, further=True),
                       *(SetDisplacement(region, size, further=True) for region, size in self.moved.items()))

    def _load_blocks(self, second: BlockHead | None, first: BlockHead | None, blocks: range) -> None:
        """Load neighbouring blocks, all of one kind and then of the other: runs in DRAM, not two rows of one bank."""
        for head, part, again in ((second, 0, True), (second, 1, False), (first, 0, False)):
            if head and not (again and self.keeping):
                for j in blocks:
                    head.load(part, j, again=again)


class BlockHead(HeadKernel):
    """One KV head with the heads that share it."""

    def __init__(self, kernel: BlockAttention, kv: int, statistics: int, sequence: int) -> None:
        super().__init__(kernel, kv, statistics, sequence)
        self.kernel, self.mapping = kernel, kernel.mapping
        new = ceil_div(self.b.each, self.b.config.dim) * kernel.one
        self.kept = At(Buffer(f"{self.name} sum of what counts", kernel.one, Bank.ACCUMULATOR))
        self.new_scores = At(Buffer(f"{self.name} new scores", new, Bank.ACCUMULATOR))
        self.new_probabilities = At(Buffer(f"{self.name} new probabilities", new, Bank.OPERAND))
        self.probabilities = [At(Buffer(f"{self.name} probabilities {j}", kernel.block_rows, Bank.OPERAND))
                              for j in range(kernel.mapping.blocks)]

    def begin(self) -> None:
        """Scores of the new rows, and their maxima."""
        k, b = self.k, self.b
        self.add_scores(k.place_new(0, self.kv, self.sequence), k.new, self.new_scores, b.m_each)
        self.add_softmax(VOp.SOFTMAX_MAX, self.new_scores, b.m_each, {SoftmaxFlag.TREE} | self.maxima, src1=self.masks)
        self.score_prefix()

    def block_scores(self, j: int) -> None:
        """First pass: scores of block ``j`` of a turn."""
        mapping = self.mapping
        self.add_scores(self._slot(0, j), mapping.block * mapping.pair, self._cached(0, j), self._left(j),
                        self.kernel.keeping)

    def block_maxima(self, j: int) -> None:
        """First pass: the rows' maxima go on."""
        self.add_softmax(VOp.SOFTMAX_MAX, self._cached(0, j), self._left(j),
                         {SoftmaxFlag.CONTINUE} | self.maxima, moved=self.kernel.keeping)

    def mix_new(self) -> None:
        """Probabilities of the new rows, and their part of the contexts."""
        k, b = self.k, self.b
        self.add_softmax(VOp.SOFTMAX_EXP, self.new_scores, b.m_each, {SoftmaxFlag.TREE, SoftmaxFlag.MORE},
                         src1=self.masks, dst=self.new_probabilities, dst_stride=k.one)
        self.new_contexts()

    def new_contexts(self) -> None:
        """The new rows' part of the contexts."""
        k = self.k
        self.drop(self.new_probabilities, self.b.m_each)
        self.add_kept(self.new_probabilities, self.b.m_each, False)
        self.add_contexts(self.new_probabilities, k.place_new(1, self.kv, self.sequence), k.new, self.b.m_each, False)

    def block_probabilities(self, j: int) -> None:
        """Second pass: probabilities of block ``j`` of a turn, of its scores again where they were not kept."""
        if not self.kernel.keeping:
            self.scores_again(j)
        self.add_softmax(VOp.SOFTMAX_EXP, self._cached(1, j), self._left(j), {SoftmaxFlag.CONTINUE, SoftmaxFlag.MORE},
                         moved=self.kernel.keeping, dst=self.probabilities[j], dst_stride=self.k.one)
        self.drop(self.probabilities[j], self._left(j))

    def drop(self, probabilities: At, n: Length) -> None:
        """Those that are too small become 0, by the vector unit's table."""
        if self.mapping.least > 1:
            drop_small(self.b, self.name, probabilities, self.k.one, self.own.m, n)

    def add_kept(self, probabilities: At, n: Length, more: bool) -> None:
        """The sum of what is left, ``more``: added to what there is."""
        if self.kernel.ones:
            self.b.add(Unit.MATRIX, f"{self.name}: sum of what counts", a_row=probabilities, a_stride=self.k.one,
                       flags={MatrixFlag.A_UNSIGNED, MatrixFlag.B_TRANSPOSED} | (
                           {MatrixFlag.ACCUMULATE} if more else set()),
                       b_row=self.kernel.ones, b_stride=0, c_row=self.kept, c_stride=self.k.one, m=self.own.m, n=1, k=n)

    def mix_prefix(self) -> None:
        super().mix_prefix()
        self.add_kept(self.prefix_probabilities, Length(self.k.prefix), True)

    def rescale(self) -> None:
        super().rescale()
        if self.kernel.ones:
            self.b.add(Unit.VECTOR, f"{self.name}: rise", op=VOp.RESCALE, src0=self.kept, src0_stride=self.k.one,
                       dst=self.kept, dst_stride=self.k.one, m=self.own.m, n=1, context=self.statistics)

    def normalise(self) -> None:
        """By the sum of what is left, whose reciprocal goes to the first context and overwrites none that is needed."""
        if self.kernel.ones:
            self.b.add(Unit.VECTOR, f"{self.name}: sum of what counts", op=VOp.ABSMAX, src0=self.kept,
                       src0_stride=self.k.one, m=self.own.m, n=1, context=0)
            self.normalise_by(0, KEPT_BITS)
        else:
            super().normalise()

    def scores_again(self, j: int) -> None:
        """Second pass: the same scores of block ``j``."""
        self.add_scores(self._slot(2, j), self.mapping.block * self.mapping.pair, self._cached(1, j), self._left(j))

    def block_contexts(self, j: int) -> None:
        """Second pass: the block's part of the contexts."""
        mapping = self.mapping
        self.add_kept(self.probabilities[j], self._left(j), True)
        self.add_contexts(self.probabilities[j], self._slot(1, j), mapping.block * mapping.pair, self._left(j), True)

    def finish(self) -> None:
        """The reciprocal of the sum, which a piece makes of which no row sees anything, or the prefix; the rows' int8
        contexts.
        """
        if self.k.prefix:
            self.mix_prefix()
        if self.k.prefix or self.kernel.ones:
            self.normalise()
            return
        self.add_softmax(VOp.SOFTMAX_EXP, self.new_scores, Length(1), {SoftmaxFlag.CONTINUE, SoftmaxFlag.TREE},
                         src1=self.kernel.nobody, dst=self.new_probabilities, dst_stride=self.k.one)
        self.normalise()

    @property
    def region(self) -> str:
        """Of the cached rows that are loaded now."""
        return CACHE

    def _left(self, j: int) -> Length:
        """Positions of block ``j`` of a turn."""
        return Length(self.mapping.block, LengthReg.LEFT, j * self.mapping.block)

    def _cached(self, number: int, j: int) -> At:
        """Scores of block ``j``: where the pass before left them, or for pass ``number`` alone."""
        kernel = self.kernel
        return (kernel.scores if kernel.keeping else kernel.passes[number]) + j * kernel.block_rows

    def _slot(self, kind: int, j: int) -> At:
        """Where the keys (0), values (1) or keys for the second pass (2) of block ``j`` of a turn stand."""
        mapping = self.mapping
        number, inside = divmod(j, mapping.pair)
        return At(self.kernel.ring[kind * mapping.blocks // mapping.pair + number], inside * mapping.block)

    def load(self, part: int, j: int, *, again: bool = False) -> None:
        """Load keys (0) or values (1) of the blocks from ``j`` on, the keys perhaps for the second pass."""
        k, layout, block, pair = self.k, self.k.layout, self.mapping.block, self.mapping.pair
        first = k.prefix + j * block
        where, dyn, listed = layout.offset(k.number, self.kv, part), NO_DYN, dict[str, Any]()
        if self.kernel.lists:
            listed = {**k.listed, "list": self.kernel.lists.entry(self.sequence) + first}
            dyn = Dyn.SRC1, LengthReg.SEEN, 1
        else:
            where += first * layout.row
        self.b.add(Unit.LOAD, f"{self.name}: {('keys', 'values')[part]}", region=self.region, stride=layout.row,
                   bytes=layout.head, offset=where, dyn=dyn, **listed,
                   row=self._slot(2 if again else part, j), row_stride=1, block_stride=block * pair,
                   rows=Length(block * pair, LengthReg.LEFT, j * block))
