"""Attention over a cache by online softmax: keys once, in blocks, with a running maximum in whole octaves.

As FlashAttention has it (Dao et al., 2022), with Softermax's rule (:mod:`gemmule.numerics.online`). Blocks belong to
the numbers, so they begin at multiples of their size whatever a pass adds: new keys and values go to the cache first
and come back with the cached ones. Each block brings scores, a maximum, probabilities, and its part of the contexts,
which a rise of the maximum shifts first. All blocks are one body; before it, a column that no row sees sets the maximum
to none and sums to 0. The sequences of a batch come one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.batch import set_context
from gemmule.compiler.kernels.attention.shared import (
    CACHE,
    AttentionKernel,
    AttentionMapping,
    HeadKernel,
    attention_rows,
)
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Length, SoftmaxFlag, Source, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["OnlineAttention", "OnlineMapping"]

KEYS = LengthReg.ROW
"""Register of the keys from a turn's first block on."""


@dataclass(frozen=True, kw_only=True)
class OnlineMapping(AttentionMapping):
    """How blocks pass through the scratchpad."""

    block: int
    """Keys of a block, a power of two; it belongs to the numbers."""
    blocks: int
    """Blocks of a turn, each with buffers of its own."""
    contexts: int
    """Contexts of statistics that heads take in turn."""

    @property
    def keep(self) -> bool:
        return True

    @property
    def scores(self) -> str:
        return "seen once"

    @property
    def joined(self) -> int:
        return 0

    @property
    def totals(self) -> bool:
        return True

    @property
    def turn(self) -> int:
        """Positions of a turn."""
        return self.block * self.blocks

    def moved(self, node: Attention, dim: int, rows: int) -> int:
        """Its register counts keys."""
        return self.context

    def scores_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Rows of a turn's scores, and of its probabilities."""
        return self.blocks * ceil_div(self.block, dim) * attention_rows(node, rows)

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        return 2 * self.turn * ceil_div(node.head_dim, dim) + self.scores_rows(node, dim, rows)

    def buffers(self, node: Attention, dim: int, preload: int) -> tuple[Buffer, ...]:
        """Of keys and values, block by block."""
        rows = ceil_div(node.head_dim, dim) * self.block
        return tuple(Buffer(f"block {i}", rows, Bank.STREAM, preload) for i in range(2 * self.blocks))


class OnlineAttention(AttentionKernel):
    """One layer."""

    def __init__(self, b: Builder, node: Attention, mapping: OnlineMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        """``ring``: buffers for keys and values, of all layers."""
        super().__init__(b, node, mapping, number, masks)
        self.mapping, self.ring, self.nobody = mapping, ring, nobody
        self.block_rows = ceil_div(mapping.block, b.config.dim) * self.one

    def write(self) -> None:
        b, mapping = self.b, self.mapping
        for sequence in range(b.batch):
            if b.batch > 1:
                b.control(set_context(b.config, b.batch, sequence),
                          set_length(LengthReg.TOTAL, Source.LENGTH, LengthReg.CONTEXT, amount=b.each))
            for kv in range(self.node.kv_heads):
                head = _OnlineHead(self, kv, kv % mapping.contexts, sequence)
                head.begin()
                with self._turns(head):
                    head.turn()
                head.finish()

    @contextmanager
    def _turns(self, head: _OnlineHead) -> Iterator[None]:
        """A turn for each ``blocks`` blocks of the cache."""
        b, turn = self.b, self.mapping.turn
        b.control(set_length(KEYS, Source.LENGTH, LengthReg.TOTAL, note="keys"),
                  SetDisplacement(CACHE, head.sequence * self.layout.size))
        with b.loop(Length(MAX_LENGTH, LengthReg.TOTAL), turn.bit_length() - 1, f"keys of {head.name}"):
            yield
            b.control(set_length(KEYS, Source.LENGTH, KEYS, amount=-turn),
                      SetDisplacement(CACHE, turn * self.node.head_dim, further=True))


class _OnlineHead(HeadKernel):
    """One KV head with the heads that share it."""

    def __init__(self, kernel: OnlineAttention, kv: int, statistics: int, sequence: int) -> None:
        super().__init__(kernel, kv, statistics, sequence)
        self.kernel, blocks = kernel, range(kernel.mapping.blocks)
        self.scores = [At(Buffer(f"{self.name} scores {j}", kernel.block_rows, Bank.ACCUMULATOR)) for j in blocks]
        self.probabilities = [At(Buffer(f"{self.name} probabilities {j}", kernel.block_rows, Bank.OPERAND))
                              for j in blocks]

    def begin(self) -> None:
        """No maximum yet, and sums of 0."""
        k, values = self.k, self.k.place_new(1, self.kv, self.sequence)
        self._nobody(VOp.SOFTMAX_MAX, {SoftmaxFlag.ONLINE})
        self._nobody(VOp.SOFTMAX_EXP, {SoftmaxFlag.ONLINE, SoftmaxFlag.MORE})
        self.add_contexts(self.probabilities[0], values, k.new, Length(1), False)

    def turn(self) -> None:
        """Blocks of keys and values, their scores together, and block by block what they bring."""
        blocks = range(self.kernel.mapping.blocks)
        for j in blocks:
            for part in range(2):
                self._load(part, j)
        for j in blocks:
            self.add_scores(self._slot(0, j), self.kernel.mapping.block, self.scores[j], self._keys(j))
        for j in blocks:
            self._softmax(j)
            self.add_contexts(self.probabilities[j], self._slot(1, j), self.kernel.mapping.block, self._keys(j), True)

    def finish(self) -> None:
        """The reciprocal of the sum, and the rows' int8 contexts."""
        self._nobody(VOp.SOFTMAX_EXP, {SoftmaxFlag.CONTINUE})
        self.normalise()

    def _nobody(self, op: VOp, flags: set[SoftmaxFlag]) -> None:
        """A column that no row sees."""
        to: dict[str, Any] = {"dst": self.probabilities[0], "dst_stride": self.k.one} if op is VOp.SOFTMAX_EXP else {}
        self.add_softmax(op, self.scores[0], Length(1), flags | {SoftmaxFlag.TREE}, src1=self.kernel.nobody, **to)

    def _softmax(self, j: int) -> None:
        """Maxima and probabilities of block ``j`` of a turn; the contexts are shifted where the maximum rose."""
        k, block = self.k, self.kernel.mapping.block
        flags, behind = {SoftmaxFlag.ONLINE, SoftmaxFlag.CONTINUE, SoftmaxFlag.TREE}, (j + 1) * block << 4 | KEYS
        self.add_softmax(VOp.SOFTMAX_MAX, self.scores[j], self._keys(j), flags, src1=self.masks, aux=behind)
        self.add_softmax(VOp.SOFTMAX_EXP, self.scores[j], self._keys(j), flags | {SoftmaxFlag.MORE}, src1=self.masks,
                         aux=behind, dst=self.probabilities[j], dst_stride=k.one)
        with self._if_there(j):
            self.rescale()

    @contextmanager
    def _if_there(self, j: int) -> Iterator[None]:
        """A body of one turn, or of none where the keys end before block ``j`` of a turn: nothing rises."""
        if not j:
            yield
            return
        with self.b.loop(Length(1, KEYS, j * self.kernel.mapping.block), 0, f"block {j} of {self.name}"):
            yield

    def _keys(self, j: int) -> Length:
        """Those of block ``j`` of a turn."""
        return Length(self.kernel.mapping.block, KEYS, j * self.kernel.mapping.block)

    def _slot(self, part: int, j: int) -> At:
        return At(self.kernel.ring[2 * j + part])

    def _load(self, part: int, j: int) -> None:
        """Keys (0) or values (1) of block ``j`` of a turn."""
        k, size, block = self.k, self.k.node.head_dim, self.kernel.mapping.block
        self.b.add(Unit.LOAD, f"{self.name}: {('keys', 'values')[part]}", region=CACHE, stride=size, bytes=size,
                   offset=k.layout.offset(k.number, self.kv, part) + j * block * size, row=self._slot(part, j),
                   row_stride=1, block_stride=block, rows=self._keys(j))
