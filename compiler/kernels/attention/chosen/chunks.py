"""Attention over a whole cache that also says which chunks of it matter: for each KV head a list of their rows.

A chunk is some consecutive rows, represented by the mean of its keys; its score is the product of the last row's query
with it, summed over the heads that share the KV head (retrieval, TriForce, Sun et al. 2024). Behind each head's
attention a loop loads the keys again: a product with ones adds up each chunk's keys, and means and scores of a turn
follow. TOP_K chooses, among chunks and not rows, so the device lists far longer caches than it has keys. The first
chunks have the largest key. A table in DRAM has the rows of each chunk, and a gather of it writes the list as
:mod:`gemmule.compiler.kernels.attention.selecting` does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Attention
from gemmule.compiler.ir.pages import score_shift
from gemmule.compiler.kernels.attention.block import BlockHead
from gemmule.compiler.kernels.attention.selecting import SelectingAttention, SelectingHead, SelectingMapping
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.moves import LISTS
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.config import Config
from gemmule.control import params, set_length
from gemmule.isa import (
    MAX_LENGTH,
    PARAMS_WORDS,
    Command,
    Dyn,
    Length,
    MatrixFlag,
    MoveFlag,
    RequantFlag,
    SOp,
    Source,
    Unit,
    VOp,
)
from gemmule.timing import ceil_div

__all__ = ["CHUNK_ROWS", "ChunkingAttention", "ChunkingMapping", "chunk_constants", "chunk_words",
           "most_chunked"]

CHUNK_ROWS = "rows of chunks"
"""Region of the rows of each chunk, uint16, and behind them of what sums and keys are made with."""
SETTLED, CHOSEN, LINES = range(3)
"""Halves of the parameter memory: chunks among which rows choose, and the first ones; those that are listed; rows of
DRAM that the list takes."""


def most_chunked(config: Config, context: int, rows: int, page: int) -> int:
    """Positions of which ``rows`` rows of a pass can list chunks of ``page`` rows."""
    return min(context, page * min(config.select_keys, config.list_entries - 2 * rows))


def chunk_words(config: Config, settled: int, chosen: int, page: int) -> Command:
    """PARAMS with the launch's numbers; a launch's first command."""
    lines = 2 * page * chosen // config.dim
    return params(config.parameter_words - PARAMS_WORDS, settled | chosen << 16, lines, *(PARAMS_WORDS - 2) * (0,),
                  note="chunks that are chosen")


@dataclass(frozen=True, kw_only=True)
class ChunkingMapping(SelectingMapping):
    """How attention is cut into blocks, each of whole chunks; a head is done before the next one begins."""

    page: int
    """Rows of a chunk."""

    @property
    def chunks(self) -> int:
        """Of all positions."""
        return ceil_div(self.context, self.page)

    @property
    def sinks(self) -> int:
        """Chunks of the first rows, which are always listed."""
        return ceil_div(self.first, self.page)

    @property
    def together(self) -> int:
        """Chunks of a turn."""
        return self.turn // self.page

    def cuts(self, dim: int) -> bool:
        """Whether chunks are whole in blocks, and scores of a turn fill whole rows."""
        return self.block % self.page == 0 and self.together % dim == 0 and 2 * self.page % dim == 0

    def score_rows(self, dim: int) -> int:
        """Accumulator rows of the scores of all chunks, in whole turns."""
        return ceil_div(self.context, self.turn) * self.together // dim

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Beside those of plain attention means of a turn, ones, scores and the list."""
        means = ceil_div(node.head_dim, dim) * self.together + ceil_div(self.block, dim) * self.block // self.page
        return super().scratchpad_rows(node, dim, rows) + means + 2 * ceil_div(self.chunks, dim)


def _ones(block: int, page: int, dim: int) -> np.ndarray:
    """Which rows of a block are of which of its chunks, columns in groups  # uint8 [columns / dim, chunks, dim]."""
    columns = ceil_div(block, dim) * dim
    found = np.arange(columns) // page == np.arange(block // page)[:, None]
    return found.reshape(block // page, -1, dim).transpose(1, 0, 2).astype(np.uint8)


def _largest(sinks: int, dim: int) -> np.ndarray:
    """The largest 16-bit score for each of the first chunks, in planes  # uint8 [groups, 2, dim]."""
    return np.broadcast_to(np.array([0xFF, 0x7F], dtype=np.uint8)[:, None], (ceil_div(sinks, dim), 2, dim))


def chunk_constants(config: Config, mapping: ChunkingMapping, prefix: int) -> tuple[np.ndarray, ...]:
    """What region :data:`CHUNK_ROWS` holds, uint8: the rows of each chunk behind the prefix, ones, largest scores."""
    rows = (prefix + np.arange(mapping.chunks * mapping.page)).astype("<u2").view(np.uint8)
    return rows, _ones(mapping.block, mapping.page, config.dim).reshape(-1), _largest(
        mapping.sinks, config.dim).reshape(-1)


class ChunkingAttention(SelectingAttention):
    """One layer, head by head."""

    mapping: ChunkingMapping

    def __init__(self, b: Builder, node: Attention, mapping: ChunkingMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        super().__init__(b, node, mapping, number, masks, nobody, ring)
        dim = b.config.dim
        self.sizes = [part.size for part in chunk_constants(b.config, mapping, self.prefix)]
        self.ones_of_chunks = At(Buffer(f"{node.name} ones of chunks", self.sizes[1] // dim, Bank.OPERAND))
        self.largest = At(Buffer(f"{node.name} largest scores", max(1, self.sizes[2] // dim), Bank.STATE))
        b.reserve(CHUNK_ROWS, sum(self.sizes))

    def begin(self) -> None:
        """What sums are made with, and the keys of the first chunks."""
        super().begin()
        offset = self.sizes[0]
        for to, size, what in ((self.ones_of_chunks, self.sizes[1], "ones of chunks"),
                               (self.largest, self.sizes[2], "largest scores")):
            if size:
                self.b.add(Unit.LOAD, f"{self.node.name}: {what}", region=CHUNK_ROWS, offset=offset, bytes=size, row=to,
                           block_stride=1, rows=1)
            offset += size

    def _head(self, kv: int, statistics: int, sequence: int) -> BlockHead:
        return _ChunkingHead(self, kv, statistics, sequence)


class _ChunkingHead(SelectingHead):
    """One KV head with the heads that share it."""

    kernel: ChunkingAttention

    def __init__(self, kernel: ChunkingAttention, kv: int, statistics: int, sequence: int) -> None:
        super().__init__(kernel, kv, statistics, sequence)
        mapping, dim, groups = kernel.mapping, self.b.config.dim, kernel.groups
        many, preload = mapping.together, self.b.config.preload
        self.key_sums = At(Buffer(f"{self.name} sums of chunks", groups * many, Bank.ACCUMULATOR))
        self.means = At(Buffer(f"{self.name} means of chunks", groups * many, Bank.OPERAND, preload))
        columns = mapping.score_rows(dim)
        self.chunk_sums = At(Buffer(f"{self.name} products with chunks", columns, Bank.ACCUMULATOR))
        self.chunk_scores = At(Buffer(f"{self.name} scores of chunks", 2 * columns, Bank.STATE))
        self.rows = At(Buffer(f"{self.name} rows of chunks", 2 * mapping.page * mapping.chunks // dim, Bank.STATE))

    def finish(self) -> None:
        """The rows' contexts, then the list."""
        BlockHead.finish(self)
        self._score_chunks()
        self._choose()

    def _score_chunks(self) -> None:
        """Sums, means and scores, turn by turn."""
        b, k, mapping, settled = self.b, self.k, self.kernel.mapping, LengthReg.CHUNKS
        many, each = mapping.together, mapping.block // mapping.page
        b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.CONTEXT, amount=-k.prefix),
                  set_length(settled, Source.HALF, index=self._half(SETTLED)), set_length(LengthReg.CHUNK_ROW),
                  SetDisplacement(CACHE, 0))
        with b.loop(Length(MAX_LENGTH, LengthReg.CONTEXT, k.prefix), mapping.turn.bit_length() - 1,
                    f"chunks of {self.name}"):
            for j in range(0, mapping.blocks, mapping.pair):
                self.load(0, j)
            for j in range(mapping.blocks):
                there = Length(each, settled, j * each)
                b.add(Unit.MATRIX, f"{self.name}: sums of chunks", a_row=self.kernel.ones_of_chunks, a_stride=each,
                      b_row=self._slot(0, j), b_stride=mapping.block * mapping.pair, c_row=self.key_sums + j * each,
                      c_stride=many, m=there, n=k.node.head_dim, k=self._left(j))
                b.add(Unit.VECTOR, f"{self.name}: means of chunks", op=VOp.REQUANT, src0=self.key_sums + j * each,
                      src0_stride=many, dst=self.means + j * each, dst_stride=many, m=there, n=k.node.head_dim, mult=1,
                      shift=mapping.page.bit_length() - 1)
            for head in range(self.kv * k.share, (self.kv + 1) * k.share):
                more = {MatrixFlag.ACCUMULATE} if head % k.share else set()
                b.add(Unit.MATRIX, f"{self.name}: scores of chunks", flags={MatrixFlag.B_TRANSPOSED} | more,
                      a_row=k.place_query(head) + (b.each - 1), a_stride=k.all, b_row=self.means, b_stride=many,
                      c_row=self.chunk_sums, c_stride=1, m=1, n=Length(many, settled), k=k.node.head_dim,
                      dyn=(Dyn.DST, LengthReg.CHUNK_ROW, 1))
            b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-mapping.turn),
                      set_length(settled, Source.LENGTH, settled, amount=-many),
                      set_length(LengthReg.CHUNK_ROW, Source.LENGTH, LengthReg.CHUNK_ROW, amount=many // b.config.dim),
                      SetDisplacement(CACHE, mapping.turn * k.layout.row, further=True))
        b.control(SetDisplacement(CACHE, 0))

    def _choose(self) -> None:
        """The rows of the chunks of largest score, and of the first ones, to the head's list, in rising order."""
        b, mapping, seen, settled = self.b, self.kernel.mapping, LengthReg.SEEN, LengthReg.CHUNKS
        listed, size = 2 * b.rows, 2 * mapping.page
        b.control(set_length(settled, Source.HALF, index=self._half(SETTLED)),
                  set_length(seen, Source.HALF, index=self._half(CHOSEN)))
        every, chosen = Length(mapping.chunks, settled), Length(mapping.chunks, seen)
        b.add(Unit.VECTOR, f"{self.name}: scores of chunks", op=VOp.REQUANT, flags={RequantFlag.WIDE},
              src0=self.chunk_sums, src0_stride=1, dst=self.chunk_scores, dst_stride=2, m=1, n=every, mult=1,
              shift=score_shift(self.k.node))
        self._select(SOp.KEYS, "keys of chunks", src0=self.chunk_scores, src0_stride=2, first=0, dst=0, n=every)
        if mapping.sinks:
            self._select(SOp.KEYS, "the first chunks", src0=self.kernel.largest, src0_stride=2, first=0, dst=0,
                         n=mapping.sinks)
        self._select(SOp.TOP_K, "chosen chunks", n=every, k=chosen, dst=listed)
        b.add(Unit.LOAD, f"{self.name}: rows of chunks", region=CHUNK_ROWS, stride=size, bytes=size,
              row=self.rows, row_stride=size // b.config.dim, block_stride=1, rows=chosen,
              flags={MoveFlag.INDEXED}, list=listed, last_index=mapping.chunks - 1)
        self._store_list(self._half(LINES), LISTS, self.number * self.kernel.list_bytes)
        b.control(set_length(seen, amount=b.each - 1, note="the row that is answered"))

    def _half(self, which: int) -> int:
        return 2 * (self.b.config.parameter_words - PARAMS_WORDS) + which
