"""Attention of rows that choose pages: for each row and KV head the device scores pages, takes the best, loads these.

A page's representative is the mean of its keys; the representatives stand in DRAM beside the cache. A pass adds those
of the pages that become candidates in it: a page is *settled* as soon as it lies before the newest rows of a row, and a
candidate from then on, so the representative is there before any row asks for it, and rejected rows are in none. For
each KV head products of all rows with the representatives are page scores. TOP_K chooses; a table in DRAM has the rows
of each page, so that a gather and LIST_LOAD make a list of rows of the list of pages. A row then sees, as one piece:
the rows that it always sees (a list from the host), and those of the pages.

The rows of a product are the heads that share a KV head, of one row of the pass. Queries stand by heads, so a product
with a permutation puts them by rows, and another one puts contexts back.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.ir import Attention, Network
from gemmule.compiler.ir.pages import score_shift
from gemmule.compiler.kernels.attention.chosen.pages_mapping import ROW_HALVES, PagesMapping, page_half
from gemmule.compiler.kernels.attention.shared import CACHE, AttentionKernel, HeadKernel, HeadRows
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder, LengthReg
from gemmule.compiler.place import round_up
from gemmule.config import Config
from gemmule.control import set_length
from gemmule.isa import (
    Dyn,
    Length,
    MatrixFlag,
    MoveFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Source,
    Unit,
    VOp,
)
from gemmule.timing import ceil_div

__all__ = ["MEANS", "PAGE_LISTS", "PagesAttention", "Paging"]

MEANS = "page means"
"""Region of the pages' representatives: [layer][KV head][page], each as a row of keys."""
PAGE_LISTS = "page lists"
"""Region of the launch's input, uint16: settling pages, their rows, and for each row those that it always sees."""
PAGE_ROWS = "rows of pages"
"""Region of the rows of each page, uint16."""


@dataclass(frozen=True)
class _RowsOfPages:
    """The table of a page's rows, uint16 [page][row]."""

    pages: int
    page: int

    @property
    def size(self) -> int:
        return 2 * self.pages * self.page

    @property
    def key(self) -> Hashable:
        return PAGE_ROWS, self.pages, self.page

    def groups(self, dim: int) -> Sequence[_RowsOfPages]:
        return [self]

    def pack(self, network: Network, config: Config) -> np.ndarray:
        return np.arange(self.pages * self.page).astype("<u2").view(np.uint8)


@dataclass(frozen=True)
class _Ones:
    """A row of ones for a page's sum; and behind it the permutation of ``share * rows`` rows from by heads to by rows,
    each group of columns a block."""

    page: int
    share: int
    rows: int
    dim: int

    @property
    def permuted(self) -> int:
        """Rows of the permutation; 0: there is none."""
        return self.share * self.rows if self.share > 1 and self.rows > 1 else 0

    @property
    def size(self) -> int:
        return (ceil_div(self.page, self.dim) + ceil_div(self.permuted, self.dim) * self.permuted) * self.dim

    @property
    def key(self) -> Hashable:
        return "ones", self.page, self.share, self.rows

    def groups(self, dim: int) -> Sequence[_Ones]:
        return [self]

    def pack(self, network: Network, config: Config) -> np.ndarray:
        count, dim = self.permuted, self.dim
        ones = np.ones(ceil_div(self.page, dim) * dim, dtype=np.uint8)
        if not count:
            return ones
        to = np.arange(count)
        matrix = np.zeros((count, ceil_div(count, dim) * dim), dtype=np.uint8)
        matrix[to, (to % self.share) * self.rows + to // self.share] = 1  # [by rows, by heads]
        blocks = matrix.reshape(count, -1, dim).transpose(1, 0, 2).reshape(-1)
        return np.concatenate([ones, blocks])


class Paging:
    """What all layers share: constants, lists, and the launch's numbers."""

    def __init__(self, b: Builder, node: Attention, mapping: PagesMapping) -> None:
        """Load it, behind tokens and positions in the list memory."""
        self.b, self.mapping = b, mapping
        pages, dim = mapping.pages, b.config.dim
        settling = mapping.settling(b.rows)
        self.settling, self.settling_rows = 2 * b.rows, 2 * b.rows + settling
        self.others = self.settling_rows + settling * pages.page
        """Entries of lists: pages that settle, their rows, and of row 0 the rows that it always sees."""
        behind = 2 * b.rows + mapping.listed(b.rows)
        self.chosen = [behind + i * mapping.chosen * (1 + pages.page) for i in range(mapping.ring)]
        """Chosen pages, by place of the ring; behind them their rows."""
        ones = _Ones(pages.page, node.heads // node.kv_heads, b.rows, dim)
        self.ones = At(Buffer("ones", ones.size // dim, Bank.OPERAND))
        self.permutation = self.ones + ceil_div(pages.page, dim) if ones.permuted else None
        b.load_constants(STATIC, [ones], self.ones, "ones")
        self.table = b.constant(PAGE_ROWS, _RowsOfPages(mapping.every, pages.page))
        entries = mapping.listed(b.rows)
        lists = At(Buffer("page lists", ceil_div(2 * entries, dim), Bank.STATE))
        b.reserve(PAGE_LISTS, lists.buffer.rows * dim)
        b.add(Unit.LOAD, "page lists", region=PAGE_LISTS, bytes=lists.buffer.rows * dim, row=lists, block_stride=1,
              rows=1)
        b.add(Unit.SELECT, "page lists", op=SOp.LIST_LOAD, src0=lists, dst=2 * b.rows, n=Length(entries))

    def set(self, register: int, number: int, note: str) -> None:
        """A length register to one of the launch's numbers."""
        half = page_half(self.b.config, self.b.rows, number)
        self.b.control(set_length(register, Source.HALF, index=half, note=note))

    def set_row(self, register: int, row: int, what: str) -> None:
        """The same of a row's."""
        self.set(register, row * len(ROW_HALVES) + ROW_HALVES.index(what), what)

    def set_pass(self, register: int, number: int, note: str) -> None:
        """The same of the pass's: most candidates (0), settling pages (1), their rows (2)."""
        self.set(register, self.b.rows * len(ROW_HALVES) + number, note)


class PagesAttention(AttentionKernel):
    """One layer."""

    def __init__(self, b: Builder, node: Attention, mapping: PagesMapping, number: int, paging: Paging,
                 ring: tuple[Buffer, ...]) -> None:
        super().__init__(b, node, mapping, number, None)
        self.mapping, self.paging, self.pages = mapping, paging, mapping.pages
        self.ring = tuple(map(At, ring))
        preload = b.config.preload
        self.query = At(Buffer(self.query.buffer.name, self.query.buffer.rows, Bank.OPERAND, preload))
        self.pitch = round_up(mapping.most, preload)
        self.means_size = mapping.every * self.layout.row
        b.reserve(MEANS, (number + 1) * node.kv_heads * self.means_size)
        rows = self.query.buffer.rows
        by_rows = paging.permutation is not None
        apart = round_up(self.prefix, preload)
        self.prefixes = [At(Buffer(f"{node.name} {kv} prefix", 2 * self.groups * apart, Bank.STREAM, preload))
                         for kv in range(node.kv_heads)]
        self.queries = At(Buffer(f"{node.name} query by rows", rows, Bank.OPERAND)) if by_rows else self.query
        self.contexts = At(Buffer(f"{node.name} context by rows", rows, Bank.OPERAND, preload)) if by_rows \
            else self.context

    # -- places

    def keys(self, kv: int, part: int) -> int:
        """Bytes before the keys (0) or values (1) of a KV head, behind the prefix."""
        return self.layout.offset(self.number, kv, part) + self.prefix * self.layout.row

    def means(self, kv: int) -> int:
        """Bytes before a KV head's representatives."""
        return (self.number * self.node.kv_heads + kv) * self.means_size

    def listed_rows(self, first: int) -> dict[str, Any]:
        """Fields of a gather of cached rows by the list from entry ``first`` on."""
        return {"region": CACHE, "flags": {MoveFlag.INDEXED}, "list": first, "stride": self.layout.row,
                "bytes": self.layout.head, "last_index": self.mapping.context - self.prefix - 1, "row_stride": 1}

    # -- commands

    def store_new(self) -> None:
        super().store_new()
        for kv in range(self.node.kv_heads):
            self._settle(kv)

    def _settle(self, kv: int) -> None:
        """Representatives of the pages that become candidates, mostly none."""
        b, paging, page, groups = self.b, self.paging, self.pages.page, self.groups
        count = self.mapping.settling(b.rows)
        name = f"{self.node.name} {kv}"
        keys = At(Buffer(f"{name} settling keys", groups * count * page, Bank.STREAM, b.config.preload))
        sums = At(Buffer(f"{name} settling sums", groups * count, Bank.ACCUMULATOR))
        means = At(Buffer(f"{name} settling means", groups * count, Bank.RESULT))
        paging.set_pass(LengthReg.LEFT, 1, "pages that settle")
        paging.set_pass(LengthReg.ROW, 2, "their rows")
        b.add(Unit.LOAD, f"{name}: settling keys", offset=self.keys(kv, 0), row=keys, block_stride=count * page,
              rows=Length(count * page, LengthReg.ROW), **self.listed_rows(paging.settling_rows))
        for i in range(count):
            there = Length(1, LengthReg.LEFT, i)
            b.add(Unit.MATRIX, f"{name}: sum of a page", a_row=paging.ones, a_stride=1, b_row=keys + i * page,
                  b_stride=count * page, c_row=sums + i, c_stride=count, m=there, n=self.node.head_dim, k=page)
            b.add(Unit.VECTOR, f"{name}: mean of a page", op=VOp.REQUANT, src0=sums + i, src0_stride=count,
                  dst=means + i, dst_stride=count, m=there, n=self.node.head_dim, mult=1, shift=self.pages.shift)
        b.add(Unit.STORE, f"{name}: means of pages", region=stored(MEANS), offset=self.means(kv),
              stride=self.layout.row, bytes=self.layout.row, row=means, row_stride=1, block_stride=count,
              rows=Length(count, LengthReg.LEFT), flags={MoveFlag.INDEXED}, list=paging.settling,
              last_index=self.mapping.every - 1)

    def write(self) -> None:
        scores = [self._score_pages(kv) for kv in range(self.node.kv_heads)]
        if self.paging.permutation:
            for kv in range(self.node.kv_heads):
                self._permute(self.query, self.queries, kv, set())
        for row in range(self.b.rows):
            heads = [_PagesHead(self, kv, row, scores[kv]) for kv in range(self.node.kv_heads)]
            if row == 0:
                if self.prefix:
                    for head in heads:
                        HeadKernel.load_prefix(head)
                self._row(heads)
            else:
                with self.b.loop(Length(1, LengthReg.ROWS, row), 0, f"row {row} of {self.node.name}"):
                    self._row(heads)
        if self.paging.permutation:
            for kv in range(self.node.kv_heads):
                self._permute(self.contexts, self.context, kv, {MatrixFlag.A_TRANSPOSED})

    def _row(self, heads: Sequence[_PagesHead]) -> None:
        """Heads choose as far ahead as there are buffers."""
        ahead = self.mapping.ring - 1
        for head in heads[:ahead]:
            head.choose()
        for number, head in enumerate(heads):
            for other in heads[number + ahead:number + ahead + 1]:
                other.choose()
            head.attend()

    def _permute(self, source: At, to: At, kv: int, flags: set[MatrixFlag]) -> None:
        """A KV head's rows from by heads to by rows, or back."""
        b, at = self.b, kv * self.groups * self.all
        assert self.paging.permutation is not None
        acc = At(Buffer(f"{self.node.name} {kv} {to.buffer.name}", self.groups * self.one, Bank.ACCUMULATOR))
        every = Length(self.one)
        b.add(Unit.MATRIX, f"{self.node.name} {kv}: other order", flags=flags, a_row=self.paging.permutation,
              a_stride=self.one, b_row=source + at, b_stride=self.all, c_row=acc, c_stride=self.one, m=every,
              n=self.node.head_dim, k=every)
        b.add(Unit.VECTOR, f"{self.node.name} {kv}: other order", op=VOp.REQUANT, src0=acc, src0_stride=self.one,
              dst=to + at, dst_stride=self.all, m=every, n=self.node.head_dim, mult=1, shift=0)

    def _score_pages(self, kv: int) -> At:
        """16-bit scores of all candidates of all rows, of the first group; planes stand :attr:`b.rows` apart."""
        b, mapping, preload = self.b, self.mapping, self.b.config.preload
        name, groups = f"{self.node.name} {kv}", max(1, ceil_div(mapping.candidates, b.config.dim))
        pitch = max(preload, round_up(mapping.candidates, preload))
        means = At(Buffer(f"{name} page means", self.groups * pitch, Bank.STREAM, preload))
        sums = At(Buffer(f"{name} page sums", groups * b.rows, Bank.ACCUMULATOR))
        scores = At(Buffer(f"{name} page scores", 2 * groups * b.rows, Bank.STATE))
        if not mapping.candidates:
            return scores
        self.paging.set_pass(LengthReg.LEFT, 0, "candidates")
        every = Length(mapping.candidates, LengthReg.LEFT)
        b.add(Unit.LOAD, f"{name}: means of pages", region=MEANS,
              offset=self.means(kv) + self.pages.sinks * self.layout.row, stride=self.layout.row,
              bytes=self.layout.row, row=means, row_stride=1, block_stride=pitch, rows=every)
        for head in range(kv * self.share, (kv + 1) * self.share):
            more = {MatrixFlag.ACCUMULATE} if head % self.share else set()
            b.add(Unit.MATRIX, f"{name}: scores of pages", flags={MatrixFlag.B_TRANSPOSED} | more,
                  a_row=self.place_query(head), a_stride=self.all, b_row=means, b_stride=pitch, c_row=sums,
                  c_stride=b.rows, m=b.m, n=every, k=self.node.head_dim)
        b.add(Unit.VECTOR, f"{name}: scores of pages", op=VOp.REQUANT, flags={RequantFlag.WIDE}, src0=sums,
              src0_stride=b.rows, dst=scores, dst_stride=2 * b.rows, m=b.m, n=every, mult=1,
              shift=score_shift(self.node))
        return scores


class _PagesHead(HeadKernel):
    """One KV head of one row of the pass."""

    k: PagesAttention

    def __init__(self, kernel: PagesAttention, kv: int, row: int, scores: At) -> None:
        at = kv * kernel.groups * kernel.all + row * kernel.share
        super().__init__(kernel, kv, kv % 2 if kernel.b.config.stat_contexts > 1 else 0, rows=HeadRows(
            kernel.queries + at, kernel.contexts + at, Length(kernel.share), kernel.share))
        mapping, dim = kernel.mapping, self.b.config.dim
        self.row, self.page_scores, self.place = row, scores, kv % mapping.ring
        self.loaded, self.prefix_rows = kernel.ring[self.place], kernel.prefixes[kv]
        self.list = kernel.paging.chosen[self.place]
        self.name = f"{kernel.node.name} {kv} of row {row}"
        self.table = At(Buffer(f"{self.name} rows of pages", max(1, 2 * mapping.chosen * kernel.pages.page // dim),
                               Bank.STATE))
        count = ceil_div(mapping.most, dim) * kernel.share
        self.all_scores = At(Buffer(f"{self.name} scores", count, Bank.ACCUMULATOR))
        self.all_probabilities = At(Buffer(f"{self.name} probabilities", count, Bank.OPERAND))

    def load_prefix(self) -> None:
        """All rows of a pass have it already."""

    def choose(self) -> None:
        """Pages, their rows, and what stands in these."""
        b, paging, mapping, page = self.b, self.k.paging, self.k.mapping, self.k.pages.page
        rows = self.list + mapping.chosen
        if mapping.chosen:
            paging.set_row(LengthReg.LEFT, self.row, "candidates")
            paging.set_row(LengthReg.ROW, self.row, "chosen")
            every, chosen = Length(mapping.candidates, LengthReg.LEFT), Length(mapping.chosen, LengthReg.ROW)
            b.add(Unit.SELECT, f"{self.name}: keys of pages", op=SOp.KEYS, src0=self.page_scores + self.row,
                  src0_stride=2 * b.rows, first=self.k.pages.sinks, dst=0, n=every)
            b.add(Unit.SELECT, f"{self.name}: chosen pages", op=SOp.TOP_K, n=every, k=chosen, dst=self.list)
            b.add(Unit.LOAD, f"{self.name}: rows of pages", region=PAGE_ROWS, offset=paging.table, stride=2 * page,
                  bytes=2 * page, row=self.table, row_stride=2 * page // b.config.dim, block_stride=1, rows=chosen,
                  flags={MoveFlag.INDEXED}, list=self.list, last_index=mapping.every - 1)
        paging.set_row(LengthReg.ROW, self.row, "others")
        if mapping.chosen:
            paging.set_row(LengthReg.LEFT, self.row, "chosen rows")
            count = Length(mapping.chosen * page, LengthReg.LEFT)
            b.add(Unit.SELECT, f"{self.name}: rows of pages", op=SOp.LIST_LOAD, src0=self.table, dst=rows, n=count)
        for part, what in enumerate(("keys", "values")):
            to = self.loaded + part * self.k.groups * self.k.pitch
            b.add(Unit.LOAD, f"{self.name}: {what} always seen", offset=self.k.keys(self.kv, part), row=to,
                  block_stride=self.k.pitch, rows=Length(mapping.others, LengthReg.ROW),
                  **self.k.listed_rows(paging.others + self.row * mapping.others))
            if mapping.chosen:
                b.add(Unit.LOAD, f"{self.name}: {what} of pages", offset=self.k.keys(self.kv, part), row=to,
                      block_stride=self.k.pitch, rows=count, dyn=(Dyn.DST, LengthReg.ROW, 1),
                      **self.k.listed_rows(rows))

    def attend(self) -> None:
        """One softmax over all that it sees, and the prefix."""
        k, values = self.k, self.loaded + self.k.groups * self.k.pitch
        k.paging.set_row(LengthReg.LEFT, self.row, "all")
        every = Length(k.mapping.most, LengthReg.LEFT)
        self.score_prefix()
        self.add_scores(self.loaded, k.pitch, self.all_scores, every)
        more = {SoftmaxFlag.MORE} if k.prefix else set()
        self.add_softmax(VOp.SOFTMAX_MAX, self.all_scores, every, set(self.maxima))
        self.add_softmax(VOp.SOFTMAX_EXP, self.all_scores, every, more, dst=self.all_probabilities,
                         dst_stride=self.own.one)
        self.add_contexts(self.all_probabilities, values, k.pitch, every, False)
        if k.prefix:
            self.mix_prefix()
        self.normalise()
