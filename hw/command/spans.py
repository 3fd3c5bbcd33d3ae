"""Spans: where a command's operands begin, and how far their parts reach: all products of resolve."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Const, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from gemmule.config import Config
from gemmule.hw.command.extents import extents_layout
from gemmule.hw.command.fields import CLAIMS, FIRST_BITS, fields_of, named
from gemmule.hw.command.meaning import meaning_layout
from gemmule.hw.interfaces import LENGTH_BITS
from gemmule.isa import COMMAND_BYTES, SOp, TopKFlag, Unit, field_bits
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES

__all__ = ["Spans", "ones", "spans_layout"]

_STRIDE = field_bits(Unit.LOAD, "row_stride")
_COUNT = field_bits(Unit.LOAD, "bytes")
_DRAM = field_bits(Unit.LOAD, "last_index") + field_bits(Unit.LOAD, "stride")
ANGLE_BITS = LENGTH_BITS + 2 + (1 << field_bits(Unit.VECTOR, "period")) - 1


def ones(width: int) -> Const:
    return C((1 << width) - 1, width)


def spans_layout() -> data.StructLayout:
    """Parts whose sums are the last rows of an operand's hull, without loss.

    ``first``: resolved rows and entries of the unit's operands (load, store: row, list; matrix: a, b, c; vector: src0,
    src1, dst; select: src0, first, dst). ``span*``: count * stride; ``inner*``: rows of one block, less 1;
    ``angle``: rows of angles, less 1. ``dram``: bytes from the first DRAM row to the last
    one. ``results``: entries or keys that a select command writes. ``bad``: weights not aligned for the preload, or too
    large for reuse.
    """
    return data.StructLayout({
        "first": data.ArrayLayout(FIRST_BITS, CLAIMS),
        "span0": LENGTH_BITS + _STRIDE, "span1": _COUNT + _STRIDE, "span2": LENGTH_BITS + _STRIDE,
        "inner0": LENGTH_BITS, "inner1": LENGTH_BITS + 2, "inner2": LENGTH_BITS + 1,
        "angle": ANGLE_BITS, "dram": _DRAM, "results": LENGTH_BITS,
        "bad": 1,
    })


class Spans(wiring.Component):
    """Combinational. The units share the multipliers. Means nothing for a command that is illegal or of length zero.

    Members
    -------
    word: In
        Command.
    meaning: In(meaning_layout)
    extents: In(extents_layout)
    result: Out(spans_layout)
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "word": In(8 * COMMAND_BYTES), "meaning": In(meaning_layout()), "extents": In(extents_layout()),
            "result": Out(spans_layout()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dim, log = self.config.dim, exact_log2(self.config.dim)
        header, move, matrix, vector, select = fields_of(self.word)
        means, extents, result = self.meaning, self.extents, self.result

        def either(of_move: Value, of_matrix: Value, of_vector: Value, of_select: Value) -> Value:
            return Mux(means.move, of_move, Mux(means.matrix, of_matrix, Mux(means.select, of_select, of_vector)))

        def put(field: str, value: Value) -> None:
            """Into a field of the result, none of its bits lost."""
            assert len(value) <= len(Value.cast(result[field])), (field, len(value))
            assert not value.shape().signed, field
            m.d.comb += result[field].eq(value)

        rows = (
            either(move.row, matrix.a_row, vector.src0, select.src0),
            either(move.list, matrix.b_row, vector.src1, Cat(select.first, select.first_high)),
            Mux(means.matrix, matrix.c_row, Mux(means.select, select.dst, vector.dst)),
        )
        for i, row in enumerate(rows):
            m.d.comb += result.first[i].eq(row + (extents.dynamic & means.moves[i].replicate(len(extents.dynamic))))

        m_last, n_last, k_last = extents.rows_last, extents.columns_last, extents.depth_last
        m_group, n_group, k_group = m_last >> log, n_last >> log, k_last >> log
        block = named(m, "block", Mux(means.wide_dram, extents.bytes_last >> (log + 2), extents.bytes_last >> log))

        def span(name: str, count: Value, stride: Value) -> None:
            put(name, named(m, f"{name}_count", count) * named(m, f"{name}_stride", stride))

        span("span0", Mux(means.table | means.lists, 0, either(
            m_last, Mux(means.transposed_a, m_group, k_group), n_group, n_group)),
            either(move.row_stride, matrix.a_stride, vector.src0_stride, select.src0_stride))
        of_blocks = Mux(means.transposed_b, k_group, n_group)
        span("span1", Mux(means.move, block, of_blocks), Mux(
            means.move, move.block_stride, Mux(means.matrix, matrix.b_stride, Mux(
                means.pair, Mux(means.product, vector.aux, vector.src0_stride), means.parameters))))
        span("span2", Mux(means.select & ~means.pack, 0, n_group), Mux(
            means.matrix, matrix.c_stride, Mux(means.select, select.src0_stride, vector.dst_stride)))

        # Rows of B within one block, less 1: int4 packs two into one, scale rows stand behind the weights.
        inner = named(m, "b_inner", Mux(means.transposed_b, n_last, k_last))
        weight_row = Cat(ones(log - 1), k_group)  # (k_group + 1) * dim / 2 - 1
        scale_row = named(m, "b_scale_row", Cat(k_group >> matrix.group, C(0, log))[:LENGTH_BITS + 1])
        b_rows = named(m, "b_rows", Mux(
            means.scales, (weight_row - ~scale_row)[:len(scale_row)],  # a - ~b = a + b + 1
            Mux(means.int4, inner >> 1, inner)))
        list_row = n_last >> (log - 1)
        table_last = Mux(  # less 1
            means.byte_table, max(1, BYTE_TABLE_ENTRIES // dim) - 1, 2 * -(-WORD_TABLE_ENTRIES // dim) - 1)
        angle = Cat(ones(2), m_last)  # m << (period + 2), less 1
        for i, bit in enumerate(vector.period):
            angle = Mux(bit, Cat(ones(1 << i), angle), angle)
        put("inner0", Mux(means.table, table_last, Mux(means.lists, list_row, Mux(
            means.transposed_a, k_last, Mux(means.select & ~means.by_rows, 0, m_last)))))
        put("inner1", Mux(means.matrix, b_rows, Mux(
            means.tree | means.pair, m_last, (means.parameters - 1)[:3])))
        put("inner2", Mux(means.select & ~means.pack, list_row, m_last))
        put("angle", angle)
        last_index = move.last_index[:self.config.index_bits]
        put("dram", Mux(means.broadcast, 0, Mux(means.indexed, last_index, m_last)) * move.stride)
        put("results", Mux(header.op == SOp.ARGMAX, extents.rows, Mux(
            (header.op == SOp.TOP_K) & ~header.flags[TopKFlag.NONZERO] & (extents.depth < extents.columns),
            extents.depth, extents.columns)))

        low_bits = ceil_log2(self.config.preload)
        unaligned = (Cat(result.first[1][:low_bits], matrix.b_stride[:low_bits]).any() if low_bits
                     else Const(0))
        m.d.comb += result.bad.eq(
            means.matrix & Mux(means.reuse, Cat(n_group, k_group).any(), unaligned))
        return m
