"""Attention over a cache whose first positions have 4 bits: the upper halves of values, or of keys and values.

A packed row stands in a row of the cache: its low nibbles are of one position, the high ones of the next. The mesh
takes nibbles, shifted to the left, so sums are those of bytes whose lower halves are 0. All else is
:mod:`gemmule.compiler.kernels.attention.block`'s: packed positions come first, in a loop of their own, and the scores
of the others stand behind theirs. What packs rows is :mod:`gemmule.compiler.kernels.attention.halves.packing`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.block import BlockAttention, BlockHead, BlockMapping
from gemmule.compiler.kernels.attention.halves.packing import Halves
from gemmule.compiler.kernels.attention.shared import CACHE, PACKED, Form, attention_rows
from gemmule.compiler.kernels.virtual import At, LengthReg, SetDisplacement
from gemmule.config import Config
from gemmule.control import params, set_length
from gemmule.isa import MAX_LENGTH, PARAMS_WORDS, Command, Length, MatrixFlag, Source, Unit
from gemmule.numerics import HALF_BITS
from gemmule.timing import ceil_div

__all__ = ["LOWER", "PackedAttention", "PackedHead", "PackedMapping", "packed_half", "packed_words"]

BESIDE = PACKED + " beside"
"""The same where keys or values of 8 bits stand beside others of 4."""
LOWER = PACKED + " lower"
"""The same where lower halves of keys stand, behind the upper ones."""
HALVES: Form = {MatrixFlag.B_INT4: {"group": HALF_BITS}}


def packed_words(config: Config, pairs: int) -> Command:
    """PARAMS with how many positions and rows of 4 bits the cache begins with; a launch's first command."""
    return params(_word(config), 2 * pairs | pairs << 16, *(PARAMS_WORDS - 1) * (0,), note="rows of 4 bits")


def packed_half(config: Config) -> int:
    """The half of the parameter memory that says how many positions have 4 bits; the next one says it of rows."""
    return 2 * _word(config)


def _word(config: Config) -> int:
    return config.parameter_words - PARAMS_WORDS


@dataclass(frozen=True, kw_only=True)
class PackedMapping(BlockMapping):
    """How attention is cut into blocks, of packed positions too."""

    packed: Halves

    def moved(self, node: Attention, dim: int, rows: int) -> int:
        """Both kinds of rows end in a turn of their own."""
        more = self.blocks * ceil_div(self.block, dim) * attention_rows(node, rows) if self.kept else 0
        return super().moved(node, dim, rows) + more

    @staticmethod
    def of(blocks: BlockMapping, config: Config, packed: Halves) -> PackedMapping | None:
        """None where scores are kept in part, or where half a block does not begin where the mesh takes it."""
        if 0 < blocks.kept < blocks.context or blocks.block % (2 * config.preload):
            return None
        return PackedMapping(
            context=blocks.context, cache=blocks.cache, block=blocks.block, blocks=blocks.blocks, pair=blocks.pair,
            kept=blocks.kept, pipelined=blocks.pipelined, joined=blocks.joined, packed=packed)


class PackedAttention(BlockAttention):
    """One layer."""

    mapping: PackedMapping
    packed = False
    """Whether the commands that are written now are of packed positions."""

    def _head(self, kv: int, statistics: int, sequence: int) -> BlockHead:
        return PackedHead(self, kv, statistics, sequence)

    def _loop(self, second: BlockHead | None, first: BlockHead | None) -> None:
        b, mapping, half = self.b, self.mapping, packed_half(self.b.config)
        if mapping.keep:
            b.control(set_length(LengthReg.ROW))
        b.control(set_length(LengthReg.LEFT, Source.HALF, index=half),
                  set_length(LengthReg.PAIRS, Source.HALF, index=half + 1), SetDisplacement(PACKED, 0),
                  *(() if all(mapping.packed.packed) else (SetDisplacement(BESIDE, 0),)))
        heads = [head for head in (second, first) if head]
        self.packed = True
        for head in heads:
            keys, values = (HALVES if packed else {} for packed in mapping.packed.packed)
            head.forms = (keys, values)
        self._turns(second, first, Length(MAX_LENGTH, LengthReg.LEFT), keeping=mapping.keep)
        self.packed = False
        for head in heads:
            head.forms = ({}, {})
        b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.CONTEXT, amount=-self.prefix),
                  SetDisplacement(CACHE, 0))
        self._turns(second, first, Length(MAX_LENGTH, LengthReg.CONTEXT, self.prefix), keeping=mapping.keep)

    def _move_on(self) -> None:
        if not self.packed:
            super()._move_on()
            return
        turn = self.mapping.turn
        self.b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-turn),
                       set_length(LengthReg.PAIRS, Source.LENGTH, LengthReg.PAIRS, amount=-turn // 2),
                       SetDisplacement(PACKED, turn // 2 * self.layout.row, further=True))
        if not all(self.mapping.packed.packed):
            self.b.control(SetDisplacement(BESIDE, turn * self.layout.row, further=True))


class PackedHead(BlockHead):
    """One KV head with the heads that share it."""

    kernel: PackedAttention

    def _slot(self, kind: int, j: int) -> At:
        at, block = super()._slot(kind, j), self.mapping.block
        return At(at.buffer, at.row // block * (block // 2)) if self._is_packed(kind) else at

    def _is_packed(self, kind: int) -> bool:
        """Whether the keys (0, again: 2) or values (1) that are taken now are."""
        return self.kernel.packed and self.kernel.mapping.packed.packed[kind == 1]

    @property
    def region(self) -> str:
        return BESIDE if self.kernel.packed else CACHE

    def load(self, part: int, j: int, *, again: bool = False) -> None:
        if not self._is_packed(part):
            super().load(part, j, again=again)
        else:
            self.load_packed(part, j, self._slot(2 if again else part, j), PACKED)

    def load_packed(self, part: int, j: int, to: At, region: str) -> None:
        """Packed keys (0) or values (1) of the blocks from ``j`` on."""
        k, layout, every, half = self.k, self.k.layout, self.mapping.block * self.mapping.pair, self.mapping.block // 2
        self.b.add(Unit.LOAD, f"{self.name}: {('keys', 'values')[part]} of 4 bits", region=region, stride=layout.row,
                   bytes=layout.head, row=to, row_stride=1, block_stride=every,
                   offset=layout.offset(k.number, self.kv, part) + (k.prefix + j * half) * layout.row,
                   rows=Length(every // 2, LengthReg.PAIRS, j * half))
