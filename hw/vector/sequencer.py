"""Sequencer of the vector unit: loops, read addresses, and the token of every row."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS, vector_layout
from gemmule.hw.vector.ops import (
    WORDS,
    capture_layout,
    is_op,
    part_bits,
    token_layout,
    traits_layout,
    traits_of,
)
from gemmule.isa import VOp
from gemmule.numerics import BYTE_TABLE_ENTRIES
from gemmule.operands import BIAS_ROWS, COLUMN_ROWS, GAMMA_ROWS

__all__ = ["LEFT_BITS", "VectorSequencer"]

LEFT_BITS = 18
"""A difference of columns: n + after - m."""


class VectorSequencer(wiring.Component):
    """Walks the loops of one command, one read per port and cycle without gaps; the ports read a cycle later.

    Latency: the first read is asked for in the cycle after ``start``. Order of reads: for each column group its
    parameters, then its rows; statistics go row by row over the column groups. With fewer lanes than columns
    each part of a column group goes like a group of its own, from the same memory rows. A row takes as many cycles
    as its operand with most reads, or its result with most writes. All addresses are registers that step, apart
    from the plane offset.

    Members
    -------
    start: In(1)
        With ``command``; only while nothing is being read.
    command: In(vector_layout)
    held: Out(vector_layout)
        The command in work, from the cycle after ``start`` until the next one.
    traits: Out(traits_layout)
        Of ``held``; registers, because all units fan out from them.
    begin: Out(1)
        First cycle of ``held``.
    r0_en, r1_en, acc_en: Out(1)
    r0_row, r1_row, acc_row: Out(16)
    capture: Out(capture_layout)
        In the cycle of the read.
    token: Out(token_layout)
        In the cycle of the row's last read.
    distance: Out(signed(18))
        With ``begin``: n + after - m.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "start": In(1), "command": In(vector_layout(config)),
            "held": Out(vector_layout(config)), "traits": Out(traits_layout()), "begin": Out(1),
            **{f"{port}_en": Out(1) for port in ("r0", "r1", "acc")},
            **{f"{port}_row": Out(ROW_BITS) for port in ("r0", "r1", "acc")},
            "capture": Out(capture_layout(config)), "token": Out(token_layout(config)),
            "distance": Out(signed(LEFT_BITS)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dim, new, held, token = self.config.dim, self.command, self.held, self.token
        new_traits, traits = traits_of(new), self.traits
        by_rows, rotate = traits.by_rows, traits.rotate

        # What a command needs is decoded from the held copy; only initial values come from the new one. Counters and
        # addresses take them until a command starts: ``start`` is known late.
        busy, params = Signal(), Signal()
        phase, phases, param_phases = Signal(3), Signal(2), Signal(3)  # counts are written as last index
        m.d.comb += [
            phases.eq(Mux(rotate, 3, Cat(
                traits.planes | traits.wide | (traits.pair & held.apart), traits.planes & traits.pair & held.apart))),
            param_phases.eq(Mux(
                traits.gamma, Mux(traits.bias, GAMMA_ROWS + BIAS_ROWS - 1, GAMMA_ROWS - 1),
                Mux(traits.bias, Mux(traits.column, COLUMN_ROWS + BIAS_ROWS - 1, BIAS_ROWS - 1), COLUMN_ROWS - 1))),
        ]
        # Loop counters from 1, so that their ends are the lengths.
        inner, outer = Signal(LENGTH_BITS, init=1), Signal(LENGTH_BITS, init=1)
        inner_count, outer_count = Signal(LENGTH_BITS), Signal(LENGTH_BITS)
        fresh = Signal()  # first inner pass
        row_end, inner_end, outer_end, wrap = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            row_end.eq(busy & ~params & (phase == phases)),
            inner_end.eq(inner == inner_count),
            outer_end.eq(outer == outer_count),
            wrap.eq(row_end & inner_end),
        ]
        m.d.sync += self.begin.eq(self.start)
        with m.If(busy):
            m.d.sync += phase.eq(phase + 1)
        with m.If(busy & params & (phase == param_phases)):
            m.d.sync += [params.eq(0), phase.eq(0)]
        with m.If(row_end):
            m.d.sync += [phase.eq(0), inner.eq(inner + 1), fresh.eq(inner_end)]
        with m.If(wrap):
            m.d.sync += [inner.eq(1), outer.eq(outer + 1), params.eq(traits.parameters), busy.eq(~outer_end)]

        # A group's parts are counted like groups; ``turns`` with the last one.
        passes, lane_bits = self.config.vector_passes, exact_log2(self.config.lanes)
        part, turns = Signal(part_bits(self.config)), Signal()
        m.d.comb += turns.eq(part == passes - 1)
        if passes > 1:
            with m.If(~busy):
                m.d.sync += part.eq(0)
            with m.Elif(Mux(by_rows, row_end, wrap)):
                m.d.sync += part.eq(part + 1)
        groups, tables = Signal(LENGTH_BITS), new_traits.table | new_traits.words
        group_bits = exact_log2(dim)
        m.d.comb += groups.eq((new.n[group_bits:] + new.n[:group_bits].any()) << exact_log2(passes))
        with m.If(self.start):
            m.d.sync += [
                held.eq(new), *(traits[name].eq(getattr(new_traits, name)) for name, _ in traits_layout()), busy.eq(1),
            ]
        with m.If(~busy):
            m.d.sync += [
                phase.eq(0), params.eq(new_traits.parameters), inner.eq(1), outer.eq(1), fresh.eq(1),
                inner_count.eq(Mux(new_traits.by_rows, groups, new.m)),
                outer_count.eq(Mux(new_traits.by_rows, new.m, groups)),
            ]
            with m.If(tables):  # rows of one plane; planes
                m.d.sync += [
                    inner_count.eq(Mux(new_traits.table, BYTE_TABLE_ENTRIES // dim, WORDS // dim + 1)),
                    outer_count.eq(Mux(new_traits.table, 1, 2)),
                ]

        # Addresses: one adder each, from the row or, behind the last inner pass, from where the pass began.
        unit = (inner_end == by_rows) | traits.words  # rows follow each other, column groups are a stride apart
        # The rows of the ROPE table: a block for each row, in it four for each column group of the period.
        step1_inner = Mux(rotate, Const(4, ROW_BITS) << held.period, 1)
        step1_outer = Mux(rotate | ~turns, 0, Mux(is_op(held, VOp.ADD), held.src0_stride, held.aux))
        at0 = self._address(m, "src0", busy, wrap, row_end, new.src0, Mux(unit, 1, Mux(turns, held.src0_stride, 0)),
                            inner_end & ~traits.words)
        at1 = self._address(m, "src1", busy, wrap, row_end, Mux(new_traits.rotate, new.aux, new.src1),
                            Mux(inner_end & ~by_rows, step1_outer, step1_inner), inner_end)
        at2 = self._address(m, "dst", busy, wrap, row_end, new.dst, Mux(unit, 1, Mux(turns, held.dst_stride, 0)),
                            inner_end)
        # Causal: visible columns less one from this group on; at first n + after - m.
        left = self._address(m, "left", busy, wrap, row_end, new.n + new.after - new.m,
                             Cat(inner_end, Const(0, lane_bits - 1), (~inner_end).replicate(LEFT_BITS - lane_bits)),
                             inner_end, signed(LEFT_BITS))
        m.d.comb += self.distance.eq(left)

        at_param, group = Signal(ROW_BITS), Signal(7)  # group: position in the period of the ROPE table
        with m.If(~busy):
            m.d.sync += [at_param.eq(new.src1), group.eq(0)]
        with m.Elif(params):
            m.d.sync += at_param.eq(at_param + 1)
        with m.Elif(wrap & turns):
            m.d.sync += group.eq(Mux(group == (Const(1, 8) << held.period) - 1, 0, group + 1))
        if passes > 1:  # the next part has the same parameters
            of_group = Signal(ROW_BITS)
            with m.If(~busy):
                m.d.sync += of_group.eq(new.src1)
            with m.Elif(wrap & turns):
                m.d.sync += of_group.eq(at_param)
            with m.Elif(wrap):
                m.d.sync += at_param.eq(of_group)

        last_group = Mux(by_rows, inner_end, outer_end)
        if passes > 1:
            at, count = Mux(by_rows, inner, outer), Mux(by_rows, inner_count, outer_count)
            last_group = (at + ~part)[:LENGTH_BITS] == count
        rest, shown = held.n[:group_bits], []
        for i in range(self.config.lanes):
            reaches = left[lane_bits:].any() | (left[:lane_bits] >= i) if i else Const(1, 1)
            column = Cat(Const(i, lane_bits), part)[:group_bits]
            inside = (rest == 0) | (rest > column) if passes > 1 or i < dim - 1 else rest == 0
            shown.append((~traits.causal | (left >= 0) & reaches) & (~last_group | inside))
        phase_0 = phase == 0
        m.d.comb += [
            token.valid.eq(row_end),
            token.first.eq(fresh | ~by_rows),
            token.final.eq(inner_end | ~by_rows),
            token.last.eq(inner_end & outer_end),
            token.row.eq(Mux(by_rows, outer, inner)[:len(token.row)] - 1),
            token.dst.eq(at2),
            token.mask.eq(Cat(shown)),
            token.part.eq(part),
            self.capture.part.eq(part),
            self.acc_row.eq(at0),
            self.r0_row.eq(at0 + Mux(phase_0, 0, held.src0_stride >> 1)),
        ]
        row1, offset1 = Signal(ROW_BITS), Signal(ROW_BITS)
        with m.If(params):
            m.d.comb += row1.eq(at_param)
        with m.Elif(traits.residual):
            m.d.comb += [row1.eq(at2), offset1.eq(Mux(phase_0, 0, held.dst_stride >> 1))]
        with m.Else():
            high1 = traits.planes & phase[0]  # of a pair
            m.d.comb += [row1.eq(at1), offset1.eq(Mux(rotate, Cat(phase[:2], group), Mux(high1, held.aux >> 1, 0)))]
        m.d.comb += self.r1_row.eq(row1 + offset1)
        with m.If(busy):
            with m.If(params):
                self._read_parameters(m, traits, phase)
            with m.Else():
                self._read_operands(m, traits, phase, token.first, outer_end)
        return m

    def _address(self, m: Module, name: str, busy: Value, wrap: Value, row_end: Value, first: Value, step: Value,
                 back: Value, shape: ShapeLike = ROW_BITS) -> Signal:
        """A register that starts with ``first`` and steps with every row, ``back`` from where the pass began."""
        at, base, after = Signal(shape, name=f"at_{name}"), Signal(shape, name=f"base_{name}"), Signal(shape)
        m.d.comb += after.eq(Mux(busy, (Mux(back, base, at) + step)[:len(after)], first))
        with m.If(~busy | row_end):
            m.d.sync += at.eq(after)
        with m.If(~busy | wrap):
            m.d.sync += base.eq(after)
        return at

    def _read_parameters(self, m: Module, traits: data.View, phase: Signal) -> None:
        """Row ``phase`` of a column group's parameters, and what its data are."""
        capture = self.capture
        m.d.comb += [
            self.r1_en.eq(1),
            capture.low1.eq(phase == 0),
            capture.aux.eq(traits.gamma & (phase == 1)),
            capture.mult.eq(traits.column & (phase == 1)),
            capture.shift.eq(traits.column & (phase == 2)),
            capture.bias.eq(traits.bias),  # the last ``BIAS_ROWS`` stay
        ]

    def _read_operands(self, m: Module, traits: data.View, phase: Signal, first_group: Value,
                       last_pass: Value) -> None:
        """Reads in cycle ``phase`` of a row and group, and what their data are."""
        capture = self.capture
        first, second = phase == 0, phase == 1
        pair, planes, apart = traits.pair, traits.planes, self.held.apart
        # int16 on r1; of a pair in the cycles of r0's planes, or apart in the two after them
        words = traits.residual | traits.rotate | (pair & planes & (phase[1] == apart))
        bytes1 = pair & ~planes & (phase == apart)
        bitmap = traits.tree & first & first_group
        m.d.comb += [
            self.acc_en.eq(traits.accumulator & first),
            self.r0_en.eq((planes & ~phase[1]) | traits.table | traits.words | (pair & first)),
            self.r1_en.eq(words | bytes1 | bitmap),
            capture.table.eq(traits.table),
            capture.words_low.eq(traits.words & ~last_pass),
            capture.words_high.eq(traits.words & last_pass),
            capture.bitmap.eq(bitmap),
            capture.low0.eq(planes & first),
            capture.main.eq(Mux(planes, second, first & ~traits.table & ~traits.words)),
            capture.low1.eq(words & ~phase[0]),
            capture.aux.eq(bytes1 | (words & Mux(pair, phase[0], second))),
            capture.sine.eq(traits.rotate & (phase == 3)),
        ]
