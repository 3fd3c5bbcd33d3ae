"""Extents: a command's lengths and the first rows of its operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.hw.command.fields import CLAIMS, FIRST_BITS, fields_of, kind_of, named
from gemmule.hw.interfaces import LENGTH_BITS
from gemmule.isa import COMMAND_BYTES, MAX_LENGTH, NUM_BASES, NUM_LENGTHS, Dyn, SOp, Unit, VOp, field_bits
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES
from gemmule.operations import SOFTMAX_OPS

__all__ = ["Extents", "extents_layout"]


def extents_layout() -> data.StructLayout:
    """What a command reaches.

    ``rows`` (matrix m), ``columns`` (n), ``depth`` (k): resolved lengths; TABLE and WORD_TABLE: 1 and
    2 rows of the table's entries.
    ``*_last``: those and a move's bytes, less 1, which divide without rounding; anything if there are none.
    ``after``: columns of a softmax row behind this piece. ``first``: resolved rows of the unit's operands (load, store:
    row; matrix: a, b, c; vector: src0, src1, dst; select: src0, -, dst).
    """
    lengths = "rows", "columns", "depth"
    return data.StructLayout({
        **dict.fromkeys(lengths, LENGTH_BITS), **{f"{name}_last": LENGTH_BITS for name in lengths},
        "bytes_last": field_bits(Unit.LOAD, "bytes"),
        "after": LENGTH_BITS, "first": data.ArrayLayout(FIRST_BITS, CLAIMS),
    })


class Extents(wiring.Component):
    """Combinational: all of resolve that needs the length registers.

    It looks at the head of the fetch queue, one cycle before the rest of resolve looks at the decode register, so
    that neither stage is a long path. Outputs of a command that faults mean nothing.

    Members
    -------
    word: In
        Command.
    lengths: In(array)
        Length registers; number 0 reads ``MAX_LENGTH``, whatever it holds.
    base_index: Out
        Base register that the command names.
    result: Out(extents_layout)
    """

    def __init__(self) -> None:
        super().__init__({
            "word": In(8 * COMMAND_BYTES),
            "lengths": In(data.ArrayLayout(LENGTH_BITS, NUM_LENGTHS)),
            "base_index": Out(range(NUM_BASES)),
            "result": Out(extents_layout()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        header, move, matrix, vector, select = fields_of(self.word)
        op = header.op
        is_load = named(m, "is_load", header.unit == Unit.LOAD)
        kind = kind_of(m, header)
        _, is_move, is_matrix, is_vector, is_select = kind

        softmax = named(m, "softmax", kind.vop(*SOFTMAX_OPS))

        def look_up(name: str, register: Value) -> Signal:
            """LEN[register], as a sum of products: fewer cells than a tree of multiplexers."""
            number = named(m, f"{name}_reg", register)
            values = (Const(MAX_LENGTH, LENGTH_BITS), *(self.lengths[i] for i in range(1, NUM_LENGTHS)))
            return named(m, f"{name}_value", reduce(or_, (
                value & (number == i).replicate(LENGTH_BITS) for i, value in enumerate(values))))

        # Lengths: min(max(LEN[register] - offset, 0), cap); the units share the look-up.
        def less(name: str, register: Value, offset: Value) -> tuple[Signal, Value]:
            """LEN[register] - offset, and whether that is negative."""
            rest = named(m, f"{name}_rest", look_up(name, register) - named(m, f"{name}_offset", offset))
            return named(m, f"{name}_left", rest[:LENGTH_BITS]), rest[-1]

        def capped(name: str, left: Signal, negative: Value, cap: Value) -> Signal:
            limit = named(m, f"{name}_cap", cap)
            return named(m, f"{name}_length", Mux(left < limit, left, limit) & (~negative).replicate(LENGTH_BITS))

        def length(name: str, field: Callable[[str], Value]) -> Signal:
            return capped(name, *less(name, field("reg"), field("offset")), field("cap"))

        def of_unit(name: str, part: str) -> Value:  # matrix and vector commands have m and n in the same place
            field = f"{name}_{part}"
            return Mux(is_select, select[field], vector[field])

        table, word_table = kind.vop(VOp.TABLE), kind.vop(VOp.WORD_TABLE)
        rows = named(m, "rows", Mux(table, 1, Mux(word_table, 2, length("m", lambda part: Mux(
            is_move, move[f"rows_{part}"], of_unit("m", part))))))
        columns = named(m, "columns", Mux(table, BYTE_TABLE_ENTRIES, Mux(
            word_table, WORD_TABLE_ENTRIES, length("n", lambda part: of_unit("n", part)))))
        # Vector commands have no k: there the look-up serves the columns of a softmax row behind this piece,
        # LEN[low bits of aux] - high bits.
        k_left, k_negative = less(
            "k", Mux(is_vector, vector.aux[:4], Mux(is_matrix, matrix.k_reg, select.k_reg)),
            Mux(is_vector, vector.aux[4:], Mux(is_matrix, matrix.k_offset, select.k_offset)))
        counted = capped("k", k_left, k_negative, Mux(is_matrix, matrix.k_cap, select.k_cap))
        depth = named(m, "depth", Mux(is_select & (op != SOp.TOP_K), 1, counted))
        after = k_left & (softmax & vector.aux[:4].any() & ~k_negative).replicate(LENGTH_BITS)
        # First rows.
        dynamic = named(m, "dynamic", look_up("dyn", header.dyn_reg) * header.dyn_stride)

        def first(name: str, row: Value, moves: Value) -> Signal:
            return named(m, name, row + Mux(moves, dynamic, 0))

        which = header.dyn_which
        first_rows = (
            first("row0", Mux(is_move, move.row, Mux(
                is_matrix, matrix.a_row, Mux(is_select, select.src0, vector.src0))),
                  which == Mux(is_load, Dyn.DST, Dyn.SRC0)),
            first("row1", Mux(is_matrix, matrix.b_row, vector.src1), which == Dyn.SRC1),
            first("row2", Mux(is_matrix, matrix.c_row, Mux(is_select, select.dst, vector.dst)),
                  (is_vector | is_select) & (which == Dyn.DST)),
        )
        m.d.comb += [
            self.base_index.eq(move.base),
            self.result.rows.eq(rows), self.result.columns.eq(columns), self.result.depth.eq(depth),
            *(self.result[f"{name}_last"].eq(length - 1) for name, length in (
                ("rows", rows), ("columns", columns), ("depth", depth), ("bytes", move.bytes))),
            self.result.after.eq(after),
            *(self.result.first[i].eq(row) for i, row in enumerate(first_rows)),
        ]
        return m
