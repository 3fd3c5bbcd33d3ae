"""Extents: a command's lengths, what is behind a piece of a softmax row, and how far its dynamic row moves."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.hw.command.fields import fields_of, kind_of, named
from gemmule.hw.command.lookup import AFTER_REG_BITS, lookup_layout
from gemmule.hw.interfaces import LENGTH_BITS
from gemmule.isa import COMMAND_BYTES, HEADER, SOp, Unit, VOp, field_bits
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES
from gemmule.operations import SOFTMAX_OPS

__all__ = ["Extents", "extents_layout"]


def extents_layout() -> data.StructLayout:
    """What a command reaches.

    ``rows`` (matrix m), ``columns`` (n), ``depth`` (k): resolved lengths; TABLE and WORD_TABLE: 1 and
    2 rows of the table's entries.
    ``*_last``: those and a move's bytes, less 1, which divide without rounding; anything if there are none.
    Vector commands have no k: there ``depth`` are the columns of a softmax row behind this piece. ``dynamic``: rows by
    which the command's dynamic row moves.
    """
    lengths = "rows", "columns", "depth"
    return data.StructLayout({
        **dict.fromkeys(lengths, LENGTH_BITS), **{f"{name}_last": LENGTH_BITS for name in lengths},
        "bytes_last": field_bits(Unit.LOAD, "bytes"),
        "dynamic": LENGTH_BITS + dict(HEADER)["dyn_stride"],
    })


class Extents(wiring.Component):
    """Combinational. Outputs of a command that faults mean nothing.

    Members
    -------
    word: In
        Command.
    found: In(lookup_layout)
        Of the same word.
    result: Out(extents_layout)
    """

    def __init__(self) -> None:
        super().__init__({
            "word": In(8 * COMMAND_BYTES), "found": In(lookup_layout()), "result": Out(extents_layout()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        header, move, _, vector, _ = fields_of(self.word)
        kind = kind_of(m, header)
        found, result = self.found, self.result

        # Lengths: min(max(LEN[register] - offset, 0), cap), and the same less 1 beside them, not behind them.
        def length(name: str) -> tuple[Signal, Signal, Signal, Signal]:
            """LEN[register] - offset, whether that is negative, the length, and the length - 1."""
            value, offset, cap = (found[f"{name}_{part}"] for part in ("value", "offset", "cap"))
            rest = named(m, f"{name}_rest", value - offset)
            left, negative = named(m, f"{name}_left", rest[:LENGTH_BITS]), named(m, f"{name}_negative", rest[-1])
            less = named(m, f"{name}_less", left < cap)
            negated = ~Cat(offset, C(0, LENGTH_BITS - len(offset)))  # - offset - 1
            before = named(m, f"{name}_before", (value + negated)[:LENGTH_BITS])
            last = Mux(less, before, (cap - 1)[:LENGTH_BITS])
            return left, negative, named(
                m, f"{name}_length", Mux(less, left, cap) & (~negative).replicate(LENGTH_BITS)), named(
                m, f"{name}_last", last)

        (_, _, rows, rows_last), (_, _, columns, columns_last), (k_left, k_negative, depth, depth_last) = map(
            length, "mnk")
        table, word_table = kind.vop(VOp.TABLE), kind.vop(VOp.WORD_TABLE)
        single = kind.select & (header.op != SOp.TOP_K)
        after = kind.vop(*SOFTMAX_OPS) & vector.aux[:AFTER_REG_BITS].any() & ~k_negative
        m.d.comb += [
            result.rows.eq(Mux(table, 1, Mux(word_table, 2, rows))),
            result.rows_last.eq(Mux(table, 0, Mux(word_table, 1, rows_last))),
            result.columns.eq(Mux(table, BYTE_TABLE_ENTRIES, Mux(word_table, WORD_TABLE_ENTRIES, columns))),
            result.columns_last.eq(
                Mux(table, BYTE_TABLE_ENTRIES - 1, Mux(word_table, WORD_TABLE_ENTRIES - 1, columns_last))),
            result.depth.eq(Mux(kind.vector, k_left & after.replicate(LENGTH_BITS), Mux(single, 1, depth))),
            result.depth_last.eq(Mux(single, 0, depth_last)),
            result.bytes_last.eq(move.bytes - 1),
            result.dynamic.eq(found.dyn * header.dyn_stride),
        ]
        return m
