"""Attention of whole contexts: a KV head's cached and new keys and values in the scratchpad at once, scores too.

The new rows' keys and values go to the cache and come back with the cached ones, so that a head is one piece: scores,
maxima, probabilities, contexts, each one command. Rows of the cache hold keys and values of several heads, so that
stores and loads are few. Where one buffer takes all heads nothing has to come back: cached rows are loaded before the
layer's products, and new ones are computed to where they belong behind them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.shared import (
    CACHE,
    OLD,
    AttentionKernel,
    AttentionMapping,
    HeadKernel,
    attention_rows,
)
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg
from gemmule.isa import Dyn, Length, SoftmaxFlag, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["WholeAttention", "WholeMapping"]


@dataclass(frozen=True, kw_only=True)
class WholeMapping(AttentionMapping):
    """How whole contexts pass through the scratchpad."""

    heads: int
    """KV heads of a buffer, which one load fills; divides their number."""
    ring: int
    """Buffers."""
    pipelined: bool
    """Scores of a head before the contexts of the one before; needs two contexts of statistics."""

    @property
    def keep(self) -> bool:
        return True

    @property
    def joined(self) -> int:
        return self.heads

    @property
    def totals(self) -> bool:
        return True

    def moved(self, node: Attention, dim: int, rows: int) -> int:
        return self.context - rows

    def in_place(self, node: Attention) -> bool:
        """One buffer takes all heads, and new rows are computed to where they belong in it: without a prefix, which
        stands apart.
        """
        return self.heads == node.kv_heads and not self.pool and not node.prefix

    def pitch(self, preload: int) -> int:
        """Scratchpad rows of a column group of a buffer."""
        return ceil_div(self.context, preload) * preload

    def buffer_rows(self, node: Attention, dim: int, preload: int) -> int:
        """Scratchpad rows of a buffer: keys of its heads, then values."""
        return 2 * self.heads * ceil_div(node.head_dim, dim) * self.pitch(preload)

    def buffers(self, node: Attention, dim: int, preload: int) -> tuple[Buffer, ...]:
        rows = self.buffer_rows(node, dim, preload)
        return tuple(Buffer(f"cache {i}", rows, Bank.STREAM, preload) for i in range(self.ring))

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        probabilities = ceil_div(self.context, dim) * attention_rows(node, rows)
        return self.ring * self.buffer_rows(node, dim, 1) + probabilities


class WholeAttention(AttentionKernel):
    """One layer."""

    def __init__(self, b: Builder, node: Attention, mapping: WholeMapping, number: int, masks: At,
                 ring: tuple[Buffer, ...]) -> None:
        """``ring``: buffers for keys and values, of all layers."""
        self.mapping, self.pitch = mapping, mapping.pitch(b.config.preload)
        self.total = Length(mapping.context, LengthReg.TOTAL, node.prefix)
        self.in_place = mapping.in_place(node)
        self.ring = tuple(map(At, ring))
        super().__init__(b, node, mapping, number, masks)

    def _new_rows(self) -> tuple[At, int, tuple[Dyn, int, int]]:
        if self.in_place:
            return self.ring[0], self.pitch, (Dyn.DST, LengthReg.ROW, 1)
        return super()._new_rows()

    def begin(self) -> None:
        """What need not wait for new rows: the cached ones, where the new ones come behind them."""
        if self.in_place:
            self._load(0)

    def write(self) -> None:
        """Loads as many ahead as there are buffers."""
        step, kv_heads = self.mapping.heads, self.node.kv_heads
        heads = [_WholeHead(self, kv, kv % 2 if self.mapping.pipelined else 0) for kv in range(kv_heads)]
        for run in () if self.in_place else range(min(self.mapping.ring, kv_heads // step)):
            self._load(run)
        begun = False  # the head's scores and probabilities are already under way
        for head, following in zip(heads, [*heads[1:], None], strict=True):
            if not begun:
                head.scores()
                head.probabilities()
            begun = following is not None and self._ahead(following)
            if following and begun:
                following.scores()
            head.contexts()
            if head.kv % step == step - 1:
                self._load(head.kv // step + self.mapping.ring)
            if following and begun:
                following.probabilities()
            head.normalise()

    def _ahead(self, head: _WholeHead) -> bool:
        """Whether its scores come before the contexts of the head before: not where they would wait for a load."""
        return self.mapping.pipelined and head.kv % self.mapping.heads > 0

    def _load(self, run: int) -> None:
        """Bring a run of the layer, if there is such a one."""
        row, kv = self.layout.row, run * self.mapping.heads
        region, rows = CACHE, self.total
        if self.in_place:
            region, rows = OLD, Length(self.mapping.context, LengthReg.CONTEXT)
        if kv < self.node.kv_heads:
            offset, listed = self.layout.offset(self.number, kv, 0), dict(self.listed)
            if listed:
                listed["list"] += self.prefix
            else:
                offset += self.prefix * row
            self.b.add(Unit.LOAD, f"{self.node.name}: keys and values from head {kv}", region=region, stride=row,
                       bytes=row, offset=offset, row=self.ring[run % len(self.ring)],
                       row_stride=1, block_stride=self.pitch, rows=rows, **listed)

    def cached(self, part: int, kv: int) -> At:
        """First group of a head's keys (0) or values (1) in its buffer."""
        run, inside = divmod(kv, self.mapping.heads)
        return self.ring[run % len(self.ring)] + (part * self.mapping.heads + inside) * self.groups * self.pitch


class _WholeHead(HeadKernel):
    """One KV head with the heads that share it."""

    def __init__(self, kernel: WholeAttention, kv: int, statistics: int) -> None:
        super().__init__(kernel, kv, statistics)
        rows = ceil_div(kernel.mapping.context, self.b.config.dim) * kernel.one
        self.kernel = kernel
        self.all_scores = At(Buffer(f"{self.name} scores", rows, Bank.ACCUMULATOR))
        self.all_probabilities = At(Buffer(f"{self.name} probabilities", rows, Bank.OPERAND))

    def scores(self) -> None:
        """Scores of all positions, those of a prefix aside."""
        self.score_prefix()
        self.add_scores(self.kernel.cached(0, self.kv), self.kernel.pitch, self.all_scores, self.kernel.total)

    def probabilities(self) -> None:
        """The rows' maxima, probabilities, and the reciprocals of their sums."""
        total, tree = self.kernel.total, {SoftmaxFlag.TREE}
        more = {SoftmaxFlag.MORE} if self.k.prefix else set()
        self.add_softmax(VOp.SOFTMAX_MAX, self.all_scores, total, tree | self.maxima, src1=self.masks)
        self.add_softmax(VOp.SOFTMAX_EXP, self.all_scores, total, tree | more, src1=self.masks,
                         dst=self.all_probabilities, dst_stride=self.k.one)

    def contexts(self) -> None:
        """Sums of values by probability."""
        self.add_contexts(self.all_probabilities, self.kernel.cached(1, self.kv), self.kernel.pitch,
                          self.kernel.total, False)
        if self.k.prefix:
            self.mix_prefix()
