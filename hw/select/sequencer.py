"""Sequencer of the select unit: loops, scratchpad reads, and the token of every step."""

from __future__ import annotations

from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS, select_layout, shared_bit
from gemmule.isa import CompareFlag, ImportanceFlag, KeysFlag, SOp

__all__ = ["SelectSequencer", "flag", "is_op", "token_layout"]


def token_layout(config: Config) -> data.StructLayout:
    """One group of columns (or one list entry), issued with its last read.

    ``first`` and ``final`` mark the first and last group of what is reduced to one result: the row (ARGMAX, PACK: whose
    last step is behind its groups), the command (COMPARE: ``first`` only), the rows of a column group (IMPORTANCE), a
    scratchpad row's entries (lists); both are set otherwise. ``last`` marks the command's last step,
    ``count`` the columns (entries) within n.
    """
    return data.StructLayout({
        "valid": 1, "first": 1, "final": 1, "last": 1, "count": exact_log2(config.dim) + 1,
    })


def is_op(command: data.View, *ops: SOp) -> Value:
    """Whether the command's operation is one of ``ops``."""
    return command.op[:4].matches(*(int(op) for op in ops))


def flag(command: data.View, *flags: IntEnum) -> Value:
    """The bit of a flag, or of one that several operations share."""
    return command.flags[shared_bit(*flags)]


def has_planes(command: data.View) -> Value:
    """Whether a group takes two reads: the low plane, then the high one."""
    return (is_op(command, SOp.ARGMAX)
            | (is_op(command, SOp.KEYS) & ~flag(command, KeysFlag.FROM_IMPORTANCE))
            | (is_op(command, SOp.IMPORTANCE, SOp.COMPARE) & flag(command, ImportanceFlag.WIDE, CompareFlag.WIDE)))


class SelectSequencer(wiring.Component):
    """Walks the loops of one command, one step a cycle without gaps (TOP_K, which reads no rows, has its own).

    Latency: the first step is in the cycle after ``start``. Order: docs/timing.md, section Select.

    Members
    -------
    start: In(1)
        With ``command``; only while no command is in work.
    command: In(select_layout)
    held: Out(select_layout)
        The command in work, from the cycle after ``start`` until the next one.
    begin: Out(1)
        First cycle of ``held``.
    en, row: Out
        Scratchpad read.
    planes: Out(1)
        The command's groups take two reads: the low plane, then the high one.
    token: Out(token_layout)
        In the cycle of the group's last step.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "start": In(1), "command": In(select_layout(config)), "held": Out(select_layout(config)),
            "begin": Out(1), "en": Out(1), "row": Out(ROW_BITS), "planes": Out(1), "token": Out(token_layout(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dim, new, held, token = self.config.dim, self.command, self.held, self.token
        importance, compare, pack = (is_op(held, op) for op in (SOp.IMPORTANCE, SOp.COMPARE, SOp.PACK))
        lists = is_op(held, SOp.LIST_LOAD, SOp.LIST_STORE)

        # Lengths count down to 0; left are the columns (entries) from this step on.
        active, plane = Signal(), Signal()
        inner, outer, left = (Signal(LENGTH_BITS, name=name) for name in ("inner", "outer", "left"))
        inner_init = Signal(LENGTH_BITS)
        begun = Signal()  # no longer in the first pass of the inner loop
        at, base = Signal(ROW_BITS), Signal(ROW_BITS)
        group_end, inner_begin, inner_end, outer_end = Signal(), Signal(), Signal(), Signal()
        next_base = Signal(ROW_BITS)
        m.d.comb += [
            self.planes.eq(has_planes(held)),
            group_end.eq(active & (plane == self.planes)),
            inner_begin.eq(inner == inner_init),
            inner_end.eq(inner == 0),
            outer_end.eq(outer == 0),
            next_base.eq(base + Mux(importance, held.src0_stride, 1)),
        ]
        with m.If(active):
            m.d.sync += plane.eq(~plane)
        with m.If(group_end):
            m.d.sync += plane.eq(0)
            with m.If(lists):
                m.d.sync += left.eq(left - (left != 0))
            with m.Elif(~importance | inner_end):
                m.d.sync += left.eq(left - dim)
            with m.If(~inner_end):
                m.d.sync += inner.eq(inner - 1)
                with m.If(~lists):
                    m.d.sync += at.eq(at + Mux(importance, 1, held.src0_stride))
            with m.Else():
                m.d.sync += [
                    inner.eq(inner_init), outer.eq(outer - 1), begun.eq(1), at.eq(next_base), base.eq(next_base),
                    active.eq(~outer_end),
                ]
                with m.If(~importance & ~lists):
                    m.d.sync += left.eq(held.n)

        columns, groups, rows = (Signal(LENGTH_BITS, name=f"last_{n}") for n in ("column", "group", "row"))
        m.d.comb += [
            columns.eq(new.n - 1),
            groups.eq(columns >> exact_log2(dim)),
            rows.eq(new.m - 1),
        ]
        m.d.sync += self.begin.eq(self.start)
        with m.If(self.start):
            m.d.sync += [
                held.eq(new), active.eq(~is_op(new, SOp.TOP_K)), plane.eq(0), begun.eq(0), left.eq(new.n),
                at.eq(new.src0), base.eq(new.src0), inner.eq(groups), inner_init.eq(groups), outer.eq(0),
            ]
            with m.If(is_op(new, SOp.ARGMAX, SOp.COMPARE)):
                m.d.sync += outer.eq(rows)
            with m.Elif(is_op(new, SOp.PACK)):
                m.d.sync += [inner.eq(groups + 1), inner_init.eq(groups + 1), outer.eq(rows)]
            with m.Elif(is_op(new, SOp.IMPORTANCE)):
                m.d.sync += [inner.eq(rows), inner_init.eq(rows), outer.eq(groups)]
            with m.Elif(is_op(new, SOp.LIST_LOAD, SOp.LIST_STORE)):
                m.d.sync += [
                    inner.eq(dim // 2 - 1), inner_init.eq(dim // 2 - 1), outer.eq(columns >> exact_log2(dim // 2))]

        reads = (is_op(held, SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE)
                 | (is_op(held, SOp.KEYS) & ~flag(held, KeysFlag.FROM_IMPORTANCE))
                 | (is_op(held, SOp.LIST_LOAD) & inner_begin) | (pack & ~inner_end))
        single = is_op(held, SOp.KEYS, SOp.COMMIT)
        m.d.comb += [
            self.en.eq(active & reads),
            self.row.eq(at + Mux(plane, held.src0_stride >> 1, 0)),
            token.valid.eq(group_end),
            token.first.eq(single | (inner_begin & ~(compare & begun))),
            token.final.eq(single | inner_end),
            token.last.eq(inner_end & outer_end),
            token.count.eq(Mux(lists, left != 0, Mux(left < dim, left, dim))),
        ]
        return m
