"""Attention of branches: rows of several texts that begin alike, in one cache, each of which sees rows of its own.

The commands of :mod:`gemmule.compiler.kernels.attention.block`, in two loops. The first one takes the turns in front,
of which each row sees everything: a prompt. In the second one maxima and probabilities come by *pieces* of a block,
each with a bitmap for every row: a bitmap reaches over as many columns as a product has rows. What stands where changes
nothing: a row that nobody sees is outside of maxima and counts 0. New rows are stored by list, to places that nobody
sees. All rows of a product are computed, those that a pass lacks too, since bitmaps count columns from behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.block import BlockAttention, BlockHead, BlockMapping
from gemmule.compiler.kernels.attention.cache_list import CACHE_ROWS
from gemmule.compiler.kernels.attention.shared import CACHE, attention_rows
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.config import Config
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Dyn, Length, MoveFlag, SoftmaxFlag, SOp, Source, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["SEEN", "BranchesAttention", "BranchesMapping", "list_places"]

SEEN = "seen"
"""Region of the bitmaps: for each piece of the cache and each row which of its positions the row sees."""


@dataclass(frozen=True, kw_only=True)
class BranchesMapping(BlockMapping):
    """How attention is cut into blocks, and these into pieces that bitmaps reach."""

    piece: int
    """Positions of a piece: whole column groups, unless a block has fewer."""

    @property
    def pieces(self) -> int:
        """Of a block."""
        return self.block // self.piece

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        bitmaps = self.blocks * self.pieces * attention_rows(node, rows)
        return super().scratchpad_rows(node, dim, rows) + bitmaps

    @staticmethod
    def of(blocks: BlockMapping, node: Attention, config: Config, rows: int) -> BranchesMapping | None:
        """None where no bitmap reaches over a piece, or scores stay: their register says what all rows see."""
        every = attention_rows(node, rows)
        piece = min(blocks.block, 1 << every.bit_length() - 1)
        if piece < min(blocks.block, config.dim) or blocks.kept:
            return None
        return BranchesMapping(
            context=blocks.context, block=blocks.block, blocks=blocks.blocks, pair=blocks.pair, kept=0,
            pipelined=blocks.pipelined, piece=piece)


def list_places(b: Builder) -> None:
    """Bring the places of the new rows to the index list, behind tokens and positions.

    Raises:
        CompileError: the list is too short.
    """
    first = 2 * b.rows
    if first + b.rows > b.config.list_entries:
        raise CompileError(f"the index list must hold {first + b.rows} entries, tokens, positions and places, not "
                           f"{b.config.list_entries}: use fewer rows, or raise list_entries")
    rows = ceil_div(2 * b.rows, b.config.dim)
    b.reserve(CACHE_ROWS, rows * b.config.dim)
    buffer = At(Buffer("places", rows, Bank.STATE))
    b.add(Unit.LOAD, "places", region=CACHE_ROWS, bytes=rows * b.config.dim, row=buffer, block_stride=1, rows=1)
    b.add(Unit.SELECT, "places to the list", op=SOp.LIST_LOAD, src0=buffer, dst=first, n=b.m)


class BranchesAttention(BlockAttention):
    """One layer."""

    mapping: BranchesMapping

    def __init__(self, b: Builder, node: Attention, mapping: BranchesMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        super().__init__(b, node, mapping, number, masks, nobody, ring)
        self.m = Length(self.one)
        self.listed = {"flags": {MoveFlag.INDEXED}, "list": 2 * b.rows, "last_index": mapping.context - 1}
        pieces = mapping.pieces * self.one
        self.moved = {SEEN: mapping.blocks * pieces * b.config.dim}
        self.seen = [At(Buffer(f"seen of block {j}", pieces, Bank.STATE)) for j in range(mapping.blocks)]
        self.masked = False
        """Whether the commands that are written now are of positions that some rows do not see."""
        b.reserve(SEEN, ceil_div(mapping.context, mapping.turn) * self.moved[SEEN])

    def _head(self, kv: int, statistics: int, sequence: int) -> BlockHead:
        return _BranchesHead(self, kv, statistics, sequence)

    def _stored_dyn(self) -> tuple[Dyn, int, int]:
        return Dyn.NONE, 0, 0

    def _loop(self, second: BlockHead | None, first: BlockHead | None) -> None:
        b = self.b
        b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.CONTEXT, amount=-self.prefix),
                  SetDisplacement(CACHE, 0))
        for self.masked, positions in ((False, LengthReg.ROW), (True, LengthReg.LEFT)):
            self._turns(second, first, Length(MAX_LENGTH, positions), keeping=False)
        b.control(*(SetDisplacement(region, 0) for region in self.moved))

    def _load_blocks(self, second: BlockHead | None, first: BlockHead | None, blocks: range) -> None:
        super()._load_blocks(second, first, blocks)
        if not self.masked:
            return
        mapping, step = self.mapping, blocks.step
        size = mapping.pieces * self.one * self.b.config.dim
        for j in (i for start in blocks for i in range(start, start + step)):
            self.b.add(Unit.LOAD, f"{self.node.name}: seen of block {j}", region=SEEN, offset=j * size, bytes=size,
                       row=self.seen[j], block_stride=1, row_stride=1,
                       rows=Length(1, LengthReg.LEFT, j * mapping.block))


class _BranchesHead(BlockHead):
    """One KV head with the heads that share it."""

    kernel: BranchesAttention

    def block_maxima(self, j: int) -> None:
        if not self.kernel.masked:
            super().block_maxima(j)
            return
        for piece in range(self.kernel.mapping.pieces):
            self.add_softmax(VOp.SOFTMAX_MAX, self._scores_of(0, j, piece), self._of_piece(j, piece),
                             {SoftmaxFlag.CONTINUE, SoftmaxFlag.TREE} | self.maxima,
                             src1=self._seen(j, piece))

    def block_probabilities(self, j: int) -> None:
        if not self.kernel.masked:
            super().block_probabilities(j)
            return
        self.scores_again(j)
        for piece in range(self.kernel.mapping.pieces):
            self.add_softmax(VOp.SOFTMAX_EXP, self._scores_of(1, j, piece), self._of_piece(j, piece),
                             {SoftmaxFlag.CONTINUE, SoftmaxFlag.MORE, SoftmaxFlag.TREE},
                             dst=self.probabilities[j] + self._rows_before(piece), dst_stride=self.k.one,
                             src1=self._seen(j, piece))

    def _rows_before(self, piece: int) -> int:
        """Rows of scores, and of probabilities, of the pieces before one in a block."""
        return piece * ceil_div(self.kernel.mapping.piece, self.b.config.dim) * self.k.one

    def _scores_of(self, number: int, j: int, piece: int) -> At:
        return self._cached(number, j) + self._rows_before(piece)

    def _of_piece(self, j: int, piece: int) -> Length:
        """Positions of a piece of block ``j`` of a turn."""
        mapping = self.kernel.mapping
        return Length(mapping.piece, LengthReg.LEFT, j * mapping.block + piece * mapping.piece)

    def _seen(self, j: int, piece: int) -> At:
        return self.kernel.seen[j] + piece * self.k.one
