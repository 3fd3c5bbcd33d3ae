"""Attention in two halves of its rows, which take turns in the accumulator, over keys that come once.

Scores of all rows behind a long context do not fit the accumulator, and computing them twice keeps the mesh busy half
as long again. Those of half the rows fit up to twice as far. So a KV head is two *units*, one a half of the rows. The
second pass of a unit (probabilities, contexts) runs with the first pass (scores, maxima) of the next unit, block by
block; scores of a block take the place of those that the block before has just left. Both units of a head use a block
of keys, and then of values, while it stays in the scratchpad: keys leave while the second unit's scores are made, and
values take their place. So one ring holds a head's keys or values, and a few blocks more, which are loaded ahead.

Blocks stand one behind the other, not in a loop, so loads of weights spread between them. Blocks behind the context are
empty. All is exact, so halves change no value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import (
    CACHE,
    AttentionKernel,
    AttentionMapping,
    HeadKernel,
    HeadRows,
    attention_rows,
)
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg
from gemmule.config import Config
from gemmule.control import set_length
from gemmule.isa import Length, SoftmaxFlag, Source, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["SplitAttention", "SplitMapping", "half_rows"]

BLOCK = 64
"""Cached positions of a block."""
PROBABILITIES = 2
"""Buffers for a block's probabilities."""
AHEAD = 6
"""Blocks that are loaded ahead: two are in use, and a load takes as long as a block's products, about."""
FIRST = 4
"""Blocks that are loaded before the first product: dispatch is in order, and a unit's queue is short."""


def half_rows(node: Attention, rows: int) -> int:
    """Rows of a unit."""
    return ceil_div(attention_rows(node, rows), 2)


@dataclass(frozen=True, kw_only=True)
class SplitMapping(AttentionMapping):
    """How attention is cut."""

    block: int
    """Cached positions of a block."""
    steps: int
    """Blocks of a context, together at least as long."""
    ahead: int = AHEAD
    """Blocks that are loaded ahead."""

    @property
    def keep(self) -> bool:
        return True

    @property
    def joined(self) -> int:
        return 0

    @property
    def ring(self) -> int:
        """Buffers for a block's keys or values."""
        return self.steps + self.ahead

    def beyond(self, node: Attention, rows: int) -> int:
        return half_rows(node, rows)

    def moved(self, node: Attention, dim: int, rows: int) -> int:
        """The register holds positions that are left."""
        return self.context

    def accumulator_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Scores of a unit and of a block more, of the new rows and of the prefix and contexts for both units."""
        half, every = half_rows(node, rows), attention_rows(node, rows)
        return (((self.steps + 1) * ceil_div(self.block, dim) + 2 * ceil_div(node.head_dim, dim)
                 + 2 * ceil_div(node.prefix, dim)) * half + ceil_div(rows, dim) * (every + half))

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        probabilities = PROBABILITIES * ceil_div(self.block, dim) * half_rows(node, rows)
        return self.ring * ceil_div(node.head_dim, dim) * self.block + probabilities

    def buffers(self, node: Attention, dim: int, preload: int) -> tuple[Buffer, ...]:
        rows = ceil_div(node.head_dim, dim) * self.block
        return tuple(Buffer(f"block {i}", rows, Bank.STREAM, preload) for i in range(self.ring))

    @staticmethod
    def of(node: Attention, config: Config, rows: int, context: int, cache: KvLayout) -> SplitMapping | None:
        """For up to ``context`` positions; None: a unit's scores or a head's keys do not fit, there is one context of
        statistics, several heads share rows of the cache, or a unit has so few rows that the mesh waits for its tiles.
        """
        half = half_rows(node, rows)
        if cache.joined or config.stat_contexts < 2 or half < config.dim // config.preload:
            return None
        made = SplitMapping(context=context, cache=cache, block=BLOCK,
                            steps=ceil_div(max(1, context - 1 - node.prefix), BLOCK))
        fits = (made.accumulator_rows(node, config.dim, rows) <= config.acc_rows
                and made.scratchpad_rows(node, config.dim, rows) <= config.spm_rows // 2)
        return made if fits else None


class SplitAttention(AttentionKernel):
    """One layer."""

    def __init__(self, b: Builder, node: Attention, mapping: SplitMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        """``ring``: buffers for blocks of keys and values, of all layers."""
        super().__init__(b, node, mapping, number, masks)
        self.mapping, self.nobody, self.ring = mapping, nobody, tuple(map(At, ring))
        self.half = half_rows(node, b.each)
        self.block_rows = ceil_div(mapping.block, b.config.dim) * self.half
        self.scores = At(Buffer(f"{node.name} scores", (mapping.steps + 1) * self.block_rows, Bank.ACCUMULATOR))
        self.probabilities = [At(Buffer(f"{node.name} probabilities {i}", self.block_rows, Bank.OPERAND))
                              for i in range(PROBABILITIES)]
        self.left: dict[int, int] = {}
        """By register, the block from which on it holds the positions that are left."""
        self.loads = self._loads()
        self.room = mapping.ring
        """Buffers in which there is nothing yet."""

    def write(self) -> None:
        """The first pass of the next unit runs with the second pass of each, behind whose first product the unit before
        ends.
        """
        units = [SplitHead(self, kv, half) for kv in range(self.node.kv_heads) for half in range(2)]
        for head, other in zip(units[::2], units[1::2], strict=True):
            other.share(head)
        self._load(FIRST)
        for before, second, first in zip([None, None, *units], [None, *units], [*units, None], strict=False):
            self._begin(before, second, first)
            self._together(second, first)
        units[-1].end()
        units[-1].normalise()

    def _begin(self, before: SplitHead | None, second: SplitHead | None, first: SplitHead | None) -> None:
        """What comes before the blocks, so ordered that the vector unit waits for no product on its way to the second
        pass.
        """
        if first:
            first.block_scores(0)
            self._leave(first)
        if before:
            before.end()
        if second:
            second.mix_new()
            second.block_probabilities(0)
        if before:
            before.normalise()
        if second:
            second.new_contexts()
        if first:
            first.begin()

    def _together(self, second: SplitHead | None, first: SplitHead | None) -> None:
        """All blocks: the second pass of a unit and the first pass of another."""
        steps = self.mapping.steps
        for t in range(steps):
            self._load(min(self.room, 2))
            if second and t:
                second.block_probabilities(t)
            if first:
                first.block_maxima(t)
            if first and t + 1 < steps:
                first.block_scores(t + 1)
                self._leave(first)
            if second:
                second.block_contexts(t)
                self._leave(second)

    # -- keys and values

    def _loads(self) -> Iterator[tuple[int, int, int]]:
        """(KV head, keys (0) or values (1), block) in the order in which they are needed."""
        for kv in range(self.node.kv_heads):
            for part in range(2):
                for t in range(self.mapping.steps):
                    yield kv, part, t

    def slot(self, kv: int, part: int, t: int) -> At:
        """Where the keys (0) or values (1) of a block stand."""
        return self.ring[((2 * kv + part) * self.mapping.steps + t) % len(self.ring)]

    def _leave(self, unit: SplitHead) -> None:
        """A unit has used a block of keys or values: behind a head's last one its place is free."""
        if unit.half:
            self.room += 1
            self._load(1)

    def _load(self, count: int) -> None:
        """The next blocks, where there are any."""
        layout, block = self.layout, self.mapping.block
        self.room -= count
        for _ in range(count):
            kv, part, t = next(self.loads, (-1, 0, 0))
            if kv < 0:
                return
            self.b.add(Unit.LOAD, f"{self.node.name} {kv}: {('keys', 'values')[part]}", region=CACHE,
                       offset=layout.offset(self.number, kv, part) + (self.prefix + t * block) * layout.row,
                       stride=layout.row, bytes=layout.head, row=self.slot(kv, part, t), row_stride=1,
                       block_stride=block, rows=self.positions(t))

    # -- lengths

    def positions(self, t: int) -> Length:
        """Of a block; one of two registers holds how many are left from it on."""
        register = (LengthReg.LEFT, LengthReg.ROW)[t % 2]
        if self.left.get(register) != t:
            self.left[register] = t
            self.b.control(set_length(register, Source.LENGTH, LengthReg.CONTEXT,
                                      amount=-self.prefix - t * self.mapping.block))
        return Length(self.mapping.block, register)


class SplitHead(HeadKernel):
    """A unit: half the rows of a KV head."""

    def __init__(self, kernel: SplitAttention, kv: int, half: int) -> None:
        b, first, head = kernel.b, half * kernel.half, kv * kernel.groups * kernel.all
        count = min(kernel.half, kernel.one - first)
        super().__init__(kernel, kv, half, rows=HeadRows(
            kernel.query + head + first, kernel.context + head + first,
            Length(count, LengthReg.ROWS, first) if kernel.share == 1 else Length(count), kernel.half))
        self.kernel, self.half, self.number, self.first = kernel, half, 2 * kv + half, first
        self.name = f"{self.name}, half {half}"
        self.every = HeadRows(kernel.query + head, kernel.context + head, kernel.m, kernel.one)
        """The rows of both halves."""
        assert kernel.masks
        self.masks = kernel.masks + first
        columns = ceil_div(b.each, b.config.dim)
        self.new_scores = At(Buffer(f"{kernel.node.name} {kv} new scores", columns * kernel.one + kernel.half,
                                    Bank.ACCUMULATOR))
        self.new_probabilities = At(Buffer(f"{self.name} new probabilities", columns * kernel.one, Bank.OPERAND))

    def share(self, other: SplitHead) -> None:
        """Scores of new rows, and the prefix, are those of the head's first half."""
        self.new_scores, self.prefix_rows = other.new_scores, other.prefix_rows

    def begin(self) -> None:
        """Scores of the new rows, of both halves at once, and the maxima of this one's."""
        k, b = self.k, self.b
        if self.half == 0:
            self.add_scores(k.place_new(0, self.kv), k.new, self.new_scores, b.m_each, rows=self.every)
        self._add_new(VOp.SOFTMAX_MAX, {SoftmaxFlag.TREE} | self.maxima)
        self.score_prefix()

    def _add_new(self, op: VOp, flags: set[SoftmaxFlag], **fields: Any) -> None:
        """Bitmaps count columns from a command's last rows, so it takes as many as the head has; those behind its own
        are nobody's.
        """
        self.add_softmax(op, self.new_scores + self.first, self.b.m_each, flags, src1=self.masks, rows=self.every,
                         **fields)

    def load_prefix(self) -> None:
        if self.half == 0:
            super().load_prefix()

    def block_scores(self, t: int) -> None:
        """First pass: scores of a block."""
        self.add_scores(self.kernel.slot(self.kv, 0, t), self.kernel.mapping.block, self._scores(t),
                        self.kernel.positions(t))

    def block_maxima(self, t: int) -> None:
        """First pass: the rows' maxima go on."""
        self.add_softmax(VOp.SOFTMAX_MAX, self._scores(t), self.kernel.positions(t),
                         {SoftmaxFlag.CONTINUE} | self.maxima)

    def mix_new(self) -> None:
        """Probabilities of the new rows."""
        self._add_new(VOp.SOFTMAX_EXP, {SoftmaxFlag.TREE, SoftmaxFlag.MORE}, dst=self.new_probabilities,
                      dst_stride=self.k.one)

    def new_contexts(self) -> None:
        """The new rows' part of the contexts."""
        k = self.k
        self.add_contexts(self.new_probabilities, k.place_new(1, self.kv), k.new, self.b.m_each, False, k.one)

    def block_probabilities(self, t: int) -> None:
        """Second pass: probabilities of a block."""
        self.add_softmax(VOp.SOFTMAX_EXP, self._scores(t), self.kernel.positions(t),
                         {SoftmaxFlag.CONTINUE, SoftmaxFlag.MORE}, dst=self._probabilities(t),
                         dst_stride=self.kernel.half)

    def block_contexts(self, t: int) -> None:
        """Second pass: the block's part of the contexts."""
        self.add_contexts(self._probabilities(t), self.kernel.slot(self.kv, 1, t), self.kernel.mapping.block,
                          self.kernel.positions(t), True)

    def end(self) -> None:
        """The reciprocal of the sum, which the prefix makes, or a piece of which no row sees anything."""
        if self.k.prefix:
            self.mix_prefix()
        else:
            self.add_softmax(VOp.SOFTMAX_EXP, self.sums, Length(1), {SoftmaxFlag.CONTINUE, SoftmaxFlag.TREE},
                             src1=self.kernel.nobody, dst=self.new_probabilities, dst_stride=self.k.one)

    def _scores(self, t: int) -> At:
        """Of a block: where the unit before has left those of the block before; of the first one, where nothing is."""
        kernel = self.kernel
        return kernel.scores + (t - self.number) % (kernel.mapping.steps + 1) * kernel.block_rows

    def _probabilities(self, t: int) -> At:
        return self.kernel.probabilities[t % PROBABILITIES]
