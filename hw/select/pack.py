"""Packing of columns: the mask that the last selection left, and rows of whose columns the marked ones move together.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import ENTRY_BITS, LENGTH_BITS, ROW_BITS, SpmWrite, select_layout
from gemmule.hw.select.group_memory import GroupMemory, first_lanes, in_run, prefix_counts
from gemmule.hw.select.sequencer import token_layout

__all__ = ["Pack"]

BYTE_BITS = 8


class Pack(wiring.Component):
    """The mask, a bit for each key, and the row register of PACK, whose columns come routed to their lanes.

    A step of PACK takes a group of columns, the last one of a row takes none. Latency: the mask is read in stage 2,
    columns go to the route in stage 3, come from it in stage 4, and a row is written in stage 5: every step but the
    last writes one, either the next full one or, from the end backwards, a row of zeros, and the last step the columns
    that are left. So a row's results are written whatever their number, and take as many cycles.

    Members
    -------
    held, begin: In
        Command in work, and its first cycle.
    token_2, token_3, token_4: In(token_layout)
        The token as many cycles after its step, of PACK only.
    mark, marked: In
        A group of the selection's filter, and which of its keys survive (TOP_K; with NONZERO: are not 0).
    keep, count: Out
        Columns of ``token_3`` that go on, and their number.
    restart: Out(1)
        The route begins at lane 0 again: the next column is of another row.
    columns: In(array over lanes)
        What the route gives in stage 4: ``routed`` columns, the first of which goes to place ``place`` of the row.
    routed, place: In
    w: Out(SpmWrite)
        Whole rows.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        lanes = config.dim
        self.mask = GroupMemory(lanes=lanes, entries=config.select_keys, width=1)
        super().__init__({
            "held": In(select_layout(config)), "begin": In(1),
            **{f"token_{k}": In(token_layout(config)) for k in (2, 3, 4)},
            "mark": In(1), "marked": In(lanes),
            "keep": Out(lanes), "count": Out(range(lanes + 1)), "restart": Out(1),
            "columns": In(data.ArrayLayout(BYTE_BITS, lanes)), "routed": In(range(lanes + 1)), "place": In(ENTRY_BITS),
            "w": Out(SpmWrite(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, bits = self.config.dim, exact_log2(self.config.dim)
        held = self.held
        m.submodules.mask = mask = self.mask

        # The filter writes the mask, group by group.
        marked_at, left = Signal(ENTRY_BITS), Signal(LENGTH_BITS)
        m.d.comb += [
            mask.w_en.eq(self.mark), mask.w_entry.eq(marked_at), mask.w_count.eq(Mux(left < lanes, left, lanes)),
            Cat(mask.w_data).eq(self.marked),
        ]
        with m.If(self.begin):
            m.d.sync += [marked_at.eq(0), left.eq(held.n)]
        with m.Elif(self.mark):
            m.d.sync += [marked_at.eq(marked_at + lanes), left.eq(left - lanes)]

        # Stage 2: the mask is read. Stage 3: columns that go on.
        at = Signal(ENTRY_BITS)
        m.d.comb += [mask.r_en.eq(self.token_2.valid), mask.r_entry.eq(at)]
        with m.If(self.begin | self.token_2.valid & self.token_2.final):
            m.d.sync += at.eq(0)
        with m.Elif(self.token_2.valid):
            m.d.sync += at.eq(at + lanes)
        inside = first_lanes(self.token_3.count, lanes) & (~self.token_3.final).replicate(lanes)
        m.d.comb += [
            self.keep.eq(Cat(mask.r_data) & inside),
            self.count.eq(prefix_counts(m, [self.keep[i] for i in range(lanes)], "kept")[-1]),
        ]

        # First and last row of the results of the command's row, and the next full row and row of zeros.
        span, begun = Signal(ROW_BITS), Signal()
        first, last, full_at, zero_at = (
            Signal(ROW_BITS, name=name) for name in ("first", "last", "full_at", "zero_at"))
        groups = (held.n - 1)[bits:LENGTH_BITS]
        m.d.sync += [span.eq(groups * held.src0_stride), begun.eq(self.begin)]
        # Stage 4: columns join those that wait. Stage 5: a row is written.
        row = Signal(data.ArrayLayout(BYTE_BITS, lanes))
        fill, hits = Signal(bits), Signal(lanes)
        full, waits = Signal(), Signal(lanes)
        m.d.comb += [
            fill.eq(self.place), hits.eq(in_run(m, self.place, self.routed, lanes, "hits")),
            full.eq((fill + self.routed)[bits:].any()), waits.eq(first_lanes(fill, lanes)),
            self.restart.eq(self.token_4.valid & self.token_4.final),
            self.w.mask.eq(~0),
        ]
        m.d.sync += self.w.en.eq(self.token_4.valid & (~self.token_4.final | (fill != 0)))
        for i in range(lanes):
            new = self.w.data.word_select(i, BYTE_BITS)
            with m.If(self.token_4.final):
                m.d.sync += new.eq(Mux(waits[i], row[i], 0))
            with m.Else():
                m.d.sync += new.eq(Mux(full, Mux(waits[i], row[i], self.columns[i]), 0))
            with m.If(self.token_4.valid & hits[i]):
                m.d.sync += row[i].eq(self.columns[i])
        with m.If(begun):
            m.d.sync += [
                first.eq(held.dst), full_at.eq(held.dst), last.eq(held.dst + span), zero_at.eq(held.dst + span)]
        with m.Elif(self.token_4.valid):
            with m.If(self.token_4.final):
                m.d.sync += [
                    self.w.row.eq(full_at), first.eq(first + 1), full_at.eq(first + 1), last.eq(last + 1),
                    zero_at.eq(last + 1),
                ]
            with m.Elif(full):
                m.d.sync += [self.w.row.eq(full_at), full_at.eq(full_at + held.src0_stride)]
            with m.Else():
                m.d.sync += [self.w.row.eq(zero_at), zero_at.eq(zero_at - held.src0_stride)]
        return m
