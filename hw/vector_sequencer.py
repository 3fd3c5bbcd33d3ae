"""Sequencer of the vector unit: loops, read addresses, and the token of every row."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS, vector_layout
from gemmule.hw.vector_ops import TABLE_BYTES, WORDS, Traits, capture_layout, is_op, token_layout, traits_of
from gemmule.isa import VOp

__all__ = ["VectorSequencer"]


class VectorSequencer(wiring.Component):
    """Walks the loops of one command, one read per port and cycle without gaps.

    Latency: the first read is in the cycle after ``start``. Order of reads: for each column group its
    parameters, then its rows; statistics go row by row over the column groups. A row takes as many cycles as
    its operand with most reads, or its result with most writes. All addresses are registers that step, apart
    from the plane offset.

    Members
    -------
    start: In(1)
        With ``command``; only while nothing is being read.
    command: In(vector_layout)
    held: Out(vector_layout)
        The command in work, from the cycle after ``start`` until the next one.
    begin: Out(1)
        First cycle of ``held``.
    r0_en, r1_en, acc_en: Out(1)
    r0_row, r1_row, acc_row: Out(16)
    capture: Out(capture_layout)
        In the cycle of the read.
    token: Out(token_layout)
        In the cycle of the row's last read.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "start": In(1), "command": In(vector_layout(config)),
            "held": Out(vector_layout(config)), "begin": Out(1),
            **{f"{port}_en": Out(1) for port in ("r0", "r1", "acc")},
            **{f"{port}_row": Out(ROW_BITS) for port in ("r0", "r1", "acc")},
            "capture": Out(capture_layout()), "token": Out(token_layout(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dim, new, held, token = self.config.dim, self.command, self.held, self.token
        new_traits, traits = traits_of(new), traits_of(held)
        by_rows, rotate = traits.by_rows, traits.rotate

        # What a command needs is decoded from the held copy; only initial values come from the new one.
        busy, params = Signal(), Signal()
        phase, phases, param_phases = Signal(3), Signal(2), Signal(3)  # counts are written as last index
        inner, outer, inner_init = Signal(LENGTH_BITS), Signal(LENGTH_BITS), Signal(LENGTH_BITS)
        m.d.comb += [
            phases.eq(Mux(rotate, 3, traits.planes | traits.wide | (traits.pair & held.apart))),
            param_phases.eq(Mux(traits.gamma, Mux(traits.bias, 5, 1), Mux(traits.bias, Mux(traits.column, 6, 3), 2))),
        ]
        at0, at1, at2, at_param = (Signal(ROW_BITS, name=f"at_{n}") for n in ("src0", "src1", "dst", "param"))
        base0, base1, base2 = (Signal(ROW_BITS, name=f"base_{n}") for n in ("src0", "src1", "dst"))
        group = Signal(7)  # position in the period of the ROPE table
        left, left_base = Signal(signed(18)), Signal(signed(18))  # causal: visible columns from this group on
        tail = Signal(dim)  # lanes of the last group that are columns
        row = Signal(LENGTH_BITS)
        row_end, inner_end, outer_end = Signal(), Signal(), Signal()
        m.d.comb += [
            row_end.eq(busy & ~params & (phase == phases)),
            inner_end.eq(inner == 0),
            outer_end.eq(outer == 0),
        ]

        plane = WORDS // dim + 1  # rows with the low, then the high bytes of the word table
        step0_inner = Mux(by_rows, held.src0_stride, 1)
        step0_outer = Mux(by_rows, 1, Mux(traits.words, plane, held.src0_stride))
        step2_inner, step2_outer = Mux(by_rows, held.dst_stride, 1), Mux(by_rows, 1, held.dst_stride)
        step1_inner = Mux(rotate, Const(4, ROW_BITS) << held.period, 1)
        step1_outer = Mux(by_rows, 1, Mux(is_op(held, VOp.ADD), held.src0_stride, held.aux))
        next0, next1, next2 = (Signal(ROW_BITS, name=f"next_{n}") for n in ("src0", "src1", "dst"))
        next_left = Signal(signed(18))
        wrap = Signal()
        m.d.comb += [
            wrap.eq(group == (Const(1, 8) << held.period) - 1),
            next0.eq(base0 + step0_outer),
            next1.eq(Mux(rotate, Mux(wrap, held.aux, base1 + 4), base1 + step1_outer)),
            next2.eq(base2 + step2_outer),
            next_left.eq(left_base + 1),
        ]

        m.d.sync += self.begin.eq(self.start)
        with m.If(busy):
            m.d.sync += phase.eq(phase + 1)
        with m.If(busy & params):
            m.d.sync += at_param.eq(at_param + 1)
            with m.If(phase == param_phases):
                m.d.sync += [params.eq(0), phase.eq(0)]
        with m.If(row_end):
            m.d.sync += phase.eq(0)
            with m.If(~inner_end):
                m.d.sync += [
                    inner.eq(inner - 1),
                    at0.eq(at0 + step0_inner), at1.eq(at1 + step1_inner), at2.eq(at2 + step2_inner),
                ]
                m.d.sync += left.eq(left - dim)
                with m.If(~by_rows):
                    m.d.sync += row.eq(row + 1)
            with m.Else():
                m.d.sync += [
                    inner.eq(inner_init), outer.eq(outer - 1), params.eq(traits.parameters),
                    group.eq(Mux(wrap, 0, group + 1)), row.eq(Mux(by_rows, row + 1, 0)),
                    at0.eq(next0), base0.eq(next0), at1.eq(next1), base1.eq(next1),
                    at2.eq(next2), base2.eq(next2), left.eq(next_left), left_base.eq(next_left),
                ]
                with m.If(outer_end):
                    m.d.sync += busy.eq(0)

        groups, columns, rows = (Signal(LENGTH_BITS, name=f"last_{n}") for n in ("group", "column", "row"))
        start1, start_left = Signal(ROW_BITS), Signal(signed(18))
        m.d.comb += [
            columns.eq(new.n - 1),
            groups.eq(columns >> exact_log2(dim)),
            rows.eq(new.m - 1),
            start1.eq(Mux(new_traits.rotate, new.aux, new.src1)),
            start_left.eq(new.n + new.after - rows),
        ]
        with m.If(self.start):
            m.d.sync += [
                held.eq(new), busy.eq(1), phase.eq(0), row.eq(0), group.eq(0), at_param.eq(new.src1),
                params.eq(new_traits.parameters),
                at0.eq(new.src0), base0.eq(new.src0), at1.eq(start1), base1.eq(start1),
                at2.eq(new.dst), base2.eq(new.dst), left.eq(start_left), left_base.eq(start_left),
                tail.eq((Const(2, dim + 1) << columns[:exact_log2(dim)]) - 1),
            ]
            with m.If(new_traits.table):
                m.d.sync += [inner.eq(TABLE_BYTES // dim - 1), outer.eq(0)]
            with m.Elif(new_traits.words):
                m.d.sync += [inner.eq(plane - 1), inner_init.eq(plane - 1), outer.eq(1)]
            with m.Elif(new_traits.by_rows):
                m.d.sync += [inner.eq(groups), inner_init.eq(groups), outer.eq(rows)]
            with m.Else():
                m.d.sync += [inner.eq(rows), inner_init.eq(rows), outer.eq(groups)]

        count, last_group = Signal(range(dim + 1)), Mux(by_rows, inner_end, outer_end)
        with m.If((left >= dim) | ~traits.causal):
            m.d.comb += count.eq(dim)
        with m.Elif(left > 0):
            m.d.comb += count.eq(left)
        m.d.comb += [
            token.valid.eq(row_end),
            token.first.eq((inner == inner_init) | ~by_rows),
            token.final.eq(inner_end | ~by_rows),
            token.last.eq(inner_end & outer_end),
            token.row.eq(row),
            token.dst.eq(at2),
            token.mask.eq(((Const(1, dim + 1) << count) - 1) & (tail | ~last_group.replicate(dim))),
            self.acc_row.eq(at0),
            self.r0_row.eq(at0 + Mux(phase == 0, 0, held.src0_stride >> 1)),
        ]
        with m.If(params):
            m.d.comb += self.r1_row.eq(at_param)
        with m.Elif(traits.residual):
            m.d.comb += self.r1_row.eq(at2 + Mux(phase == 0, 0, held.dst_stride >> 1))
        with m.Else():
            m.d.comb += self.r1_row.eq(at1 + Mux(rotate, phase, 0))
        with m.If(busy):
            with m.If(params):
                self._read_parameters(m, traits, phase)
            with m.Else():
                self._read_operands(m, traits, phase, token.first, outer_end)
        return m

    def _read_parameters(self, m: Module, traits: Traits, phase: Signal) -> None:
        """Row ``phase`` of a column group's parameters, and what its data are."""
        capture = self.capture
        m.d.comb += [
            self.r1_en.eq(1),
            capture.low1.eq(phase == 0),
            capture.aux.eq(traits.gamma & (phase == 1)),
            capture.mult.eq(traits.column & (phase == 1)),
            capture.shift.eq(traits.column & (phase == 2)),
            capture.bias.eq(traits.bias),  # the last four rows stay
        ]

    def _read_operands(self, m: Module, traits: Traits, phase: Signal, first_group: Value,
                       last_pass: Value) -> None:
        """Reads in cycle ``phase`` of a row and group, and what their data are."""
        capture = self.capture
        first, second = phase == 0, phase == 1
        words = traits.residual | traits.rotate  # int16 on r1
        bytes1 = traits.pair & (phase == self.held.apart)
        bitmap = traits.tree & first & first_group
        m.d.comb += [
            self.acc_en.eq(traits.accumulator & first),
            self.r0_en.eq(traits.planes | traits.table | traits.words | (traits.pair & first)),
            self.r1_en.eq(words | bytes1 | bitmap),
            capture.table.eq(traits.table),
            capture.words_low.eq(traits.words & ~last_pass),
            capture.words_high.eq(traits.words & last_pass),
            capture.bitmap.eq(bitmap),
            capture.low0.eq(traits.planes & first),
            capture.main.eq(Mux(traits.planes, second, first & ~traits.table & ~traits.words)),
            capture.low1.eq(words & ~phase[0]),
            capture.aux.eq(bytes1 | (words & second)),
            capture.sine.eq(traits.rotate & (phase == 3)),
        ]
