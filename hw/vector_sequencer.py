"""Sequencer of the vector unit: loops, read addresses, and the token of every row."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS, vector_layout
from gemmule.isa import VectorFlag, VOp

__all__ = ["VectorSequencer", "capture_layout", "flag", "is_op", "token_layout"]

TABLE_BYTES = 256


def token_layout(config: Config) -> data.StructLayout:
    """One pass of the pipeline: a row of one column group, issued with its last read.

    ``first`` and ``final`` mark a row's first and last column group, ``last`` the command's last pass;
    ``mask`` has a bit per lane that is a visible column; ``row`` is the row (TABLE: the table row).
    """
    rows = max(config.stat_rows, TABLE_BYTES // config.dim)
    return data.StructLayout({
        "valid": 1, "first": 1, "final": 1, "last": 1, "row": exact_log2(rows),
        "dst": ROW_BITS, "mask": config.dim,
    })


def capture_layout() -> data.StructLayout:
    """What the data of a read are: one bit for each register that takes them, one cycle later."""
    return data.StructLayout({
        "low0": 1,  # low plane of an int16 operand on r0
        "main": 1,  # operand: accumulator, r0, or r0 with the low plane
        "low1": 1,  # low byte of an int16 value on r1
        "aux": 1,  # second operand: residual, gamma, cosine, or the int8 factor
        "sine": 1, "mult": 1, "shift": 1, "table": 1,
    })


def is_op(command: data.View, *ops: VOp) -> Value:
    """Whether the command's operation is one of ``ops``."""
    return command.op[:3].matches(*(int(op) for op in ops))


def flag(command: data.View, bit: VectorFlag) -> Value:
    """A flag bit of the command."""
    return command.flags[int(bit)]


class VectorSequencer(wiring.Component):
    """Walks the loops of one command, one read per port and cycle without gaps.

    Latency: the first read is in the cycle after ``start``. Order of reads: for each column group its
    parameters, then its rows; statistics go row by row over the column groups. All addresses are
    registers that step, apart from the plane offset.

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
        dim, new, held, capture, token = self.config.dim, self.command, self.held, self.capture, self.token
        requant, rope = is_op(held, VOp.REQUANT), is_op(held, VOp.ROPE)
        planes = is_op(held, VOp.RMS_STAT, VOp.RMS_APPLY)
        residual = requant & flag(held, VectorFlag.RESIDUAL)
        column = held.op[:3].matches(int(VOp.REQUANT), int(VOp.ROPE)) & flag(held, VectorFlag.COLUMN)
        gamma = is_op(held, VOp.RMS_APPLY)

        # What a command needs is decoded from the held copy; only initial values come from the new one.
        busy, params = Signal(), Signal()
        phase, phases, param_phases = Signal(2), Signal(2), Signal(2)  # counts are written as last index
        inner, outer, inner_init = Signal(LENGTH_BITS), Signal(LENGTH_BITS), Signal(LENGTH_BITS)
        by_rows = Signal()  # rows outer, column groups inner
        m.d.comb += [
            by_rows.eq(is_op(held, VOp.RMS_STAT, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP)),
            phases.eq(Mux(rope, 3, planes | residual | (requant & flag(held, VectorFlag.WIDE)))),
            param_phases.eq(Mux(gamma, 1, 2)),
        ]
        at0, at1, at2, at_param = (Signal(ROW_BITS, name=f"at_{n}") for n in ("src0", "src1", "dst", "param"))
        base0, base1, base2 = (Signal(ROW_BITS, name=f"base_{n}") for n in ("src0", "src1", "dst"))
        group = Signal(7)  # position in the period of the ROPE table
        left, left_base = Signal(signed(18)), Signal(signed(18))  # visible columns from this group on
        row = Signal(LENGTH_BITS)
        row_end, inner_end, outer_end = Signal(), Signal(), Signal()
        m.d.comb += [
            row_end.eq(busy & ~params & (phase == phases)),
            inner_end.eq(inner == 0),
            outer_end.eq(outer == 0),
        ]

        step0_inner, step0_outer = Mux(by_rows, held.src0_stride, 1), Mux(by_rows, 1, held.src0_stride)
        step2_inner, step2_outer = Mux(by_rows, held.dst_stride, 1), Mux(by_rows, 1, held.dst_stride)
        step1_inner = Mux(rope, Const(4, ROW_BITS) << held.period, 1)
        next0, next1, next2 = (Signal(ROW_BITS, name=f"next_{n}") for n in ("src0", "src1", "dst"))
        next_left = Signal(signed(18))
        wrap = Signal()
        causal = flag(held, VectorFlag.CAUSAL) & ~planes
        m.d.comb += [
            wrap.eq(group == (Const(1, 8) << held.period) - 1),
            next0.eq(base0 + step0_outer),
            next1.eq(Mux(rope, Mux(wrap, held.aux, base1 + 4), base1 + held.aux)),
            next2.eq(base2 + step2_outer),
            next_left.eq(Mux(by_rows, left_base + causal, left_base - dim)),
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
                with m.If(by_rows):
                    m.d.sync += left.eq(left - dim)
                with m.Else():
                    m.d.sync += row.eq(row + 1)
            with m.Else():
                m.d.sync += [
                    inner.eq(inner_init), outer.eq(outer - 1), params.eq(column | gamma),
                    group.eq(Mux(wrap, 0, group + 1)), row.eq(Mux(by_rows, row + 1, 0)),
                    at0.eq(next0), base0.eq(next0), at1.eq(next1), base1.eq(next1),
                    at2.eq(next2), base2.eq(next2), left.eq(next_left), left_base.eq(next_left),
                ]
                with m.If(outer_end):
                    m.d.sync += busy.eq(0)

        groups, columns, rows = (Signal(LENGTH_BITS, name=f"last_{n}") for n in ("group", "column", "row"))
        new_by_rows, new_rope, new_table = Signal(), Signal(), Signal()
        start1, start_left = Signal(ROW_BITS), Signal(signed(18))
        m.d.comb += [
            columns.eq(new.n - 1),
            groups.eq(columns >> exact_log2(dim)),
            rows.eq(new.m - 1),
            new_by_rows.eq(is_op(new, VOp.RMS_STAT, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP)),
            new_rope.eq(is_op(new, VOp.ROPE)),
            new_table.eq(is_op(new, VOp.TABLE)),
            start1.eq(Mux(new_rope, new.aux, new.src1)),
            start_left.eq(new.n),
        ]
        with m.If(flag(new, VectorFlag.CAUSAL) & is_op(new, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP)):
            m.d.comb += start_left.eq(new.n - rows)
        with m.If(self.start):
            m.d.sync += [
                held.eq(new), busy.eq(1), phase.eq(0), row.eq(0), group.eq(0), at_param.eq(new.src1),
                params.eq(is_op(new, VOp.RMS_APPLY)
                          | (flag(new, VectorFlag.COLUMN) & is_op(new, VOp.REQUANT, VOp.ROPE))),
                at0.eq(new.src0), base0.eq(new.src0), at1.eq(start1), base1.eq(start1),
                at2.eq(new.dst), base2.eq(new.dst), left.eq(start_left), left_base.eq(start_left),
            ]
            with m.If(new_table):
                m.d.sync += [inner.eq(TABLE_BYTES // dim - 1), outer.eq(0)]
            with m.Elif(new_by_rows):
                m.d.sync += [inner.eq(groups), inner_init.eq(groups), outer.eq(rows)]
            with m.Else():
                m.d.sync += [inner.eq(rows), inner_init.eq(rows), outer.eq(groups)]

        # Reads and what their data are.
        start_phase, work = phase == 0, busy & ~params
        product, table = is_op(held, VOp.PRODUCT), is_op(held, VOp.TABLE)
        from_acc = is_op(held, VOp.REQUANT, VOp.ROPE, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP)
        second0 = Mux(start_phase, 0, held.src0_stride >> 1)
        second2 = Mux(start_phase, 0, held.dst_stride >> 1)
        m.d.comb += [
            self.acc_en.eq(work & from_acc & start_phase),
            self.acc_row.eq(at0),
            self.r0_en.eq(work & (planes | product | table)),
            self.r0_row.eq(at0 + second0),
            self.r1_en.eq(busy & (params | residual | rope | product)),
            capture.low0.eq(work & planes & start_phase),
            capture.main.eq(work & Mux(planes, ~start_phase, start_phase & ~table)),
            capture.table.eq(work & table),
        ]
        with m.If(params):
            m.d.comb += [
                self.r1_row.eq(at_param),
                capture.low1.eq(busy & start_phase),
                capture.aux.eq(busy & gamma & (phase == 1)),
                capture.mult.eq(busy & column & (phase == 1)),
                capture.shift.eq(busy & (phase == 2)),
            ]
        with m.Else():
            m.d.comb += [
                self.r1_row.eq(Mux(residual, at2 + second2, at1 + phase)),
                capture.low1.eq(busy & ((residual & start_phase) | (rope & ~phase[0]))),
                capture.aux.eq(busy & Mux(product, start_phase, (residual | rope) & (phase == 1))),
                capture.sine.eq(busy & rope & (phase == 3)),
            ]

        count = Signal(range(dim + 1))
        with m.If(left >= dim):
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
            token.mask.eq((Const(1, dim + 1) << count) - 1),
        ]
        return m
