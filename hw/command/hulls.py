"""Hulls: the rows that a command touches, as claims on memory ports, and whether they exist."""

from __future__ import annotations

from enum import IntEnum
from functools import reduce
from operator import or_

from amaranth.hdl import C, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from gemmule.config import Config
from gemmule.hw.command.extents import extents_layout
from gemmule.hw.command.fields import CLAIMS, fields_of, kind_of, named
from gemmule.hw.interfaces import LENGTH_BITS, shared_bit
from gemmule.isa import (
    COMMAND_BYTES,
    AddFlag,
    ColumnFlag,
    CompareFlag,
    ImportanceFlag,
    KeysFlag,
    MatrixFlag,
    MoveFlag,
    NormFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Unit,
    VOp,
)
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES
from gemmule.operands import BIAS_ROWS, COLUMN_ROWS, GAMMA_ROWS
from gemmule.operations import SOFTMAX_OPS

__all__ = ["Hulls"]


def _ones(width: int) -> Const:
    return C((1 << width) - 1, width)


class Hulls(wiring.Component):
    """Combinational. An operand's hull are the rows from its first to its last one, strides included.

    Everything is computed without loss, so that a hull that leaves its memory is always noticed. The
    three strided hulls share their multipliers among the units. Outputs of a command that is illegal
    or of length zero mean nothing.

    Members
    -------
    word: In
        Command.
    extents: In(extents_layout)
    claims: Out(array)
        Port masks of the unit's streams, in their order.
    bad: Out(1)
        Rows outside their memory or not aligned for the preload, weights too large for reuse, or
        output-stationary operands that share a bank.
    apart: Out(1)
        Two operands share a bank.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "word": In(8 * COMMAND_BYTES),
            "extents": In(extents_layout()),
            "claims": Out(data.ArrayLayout(config.claim_bits, CLAIMS)),
            "bad": Out(1), "apart": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, dim = self.config, self.config.dim
        header, move, matrix, vector, select = fields_of(self.word)
        flags = header.flags
        kind = kind_of(m, header)
        _, is_move, is_matrix, is_vector, is_select = kind

        def either(of_move: Value, of_matrix: Value, of_vector: Value, of_select: Value) -> Value:
            return Mux(is_move, of_move, Mux(is_matrix, of_matrix, Mux(is_select, of_select, of_vector)))

        def flag(*of_operations: IntEnum) -> Value:
            return flags[shared_bit(*of_operations)]

        # What the flags and the operation mean for the rows.
        sums = is_move & flag(MoveFlag.ACCUMULATOR)
        wide_dram = sums & ~flag(MoveFlag.NARROW)
        transposed_a, transposed_b = flag(MatrixFlag.A_TRANSPOSED), flag(MatrixFlag.B_TRANSPOSED)
        reuse = named(m, "reuse", is_matrix & flag(MatrixFlag.REUSE))
        pair = named(m, "pair", kind.vop(VOp.PRODUCT, VOp.ADD))
        table = named(m, "table", kind.vop(VOp.TABLE, VOp.WORD_TABLE))
        tree = named(m, "tree", kind.vop(*SOFTMAX_OPS) & flag(SoftmaxFlag.TREE))
        planes = named(m, "planes", kind.vop(VOp.NORM_STAT, VOp.NORM_APPLY))
        scaled = kind.vop(VOp.REQUANT, VOp.ROPE, VOp.I_GELU)
        column = named(m, "column", scaled & flag(RequantFlag.COLUMN, ColumnFlag.COLUMN))
        apply = named(m, "apply", kind.vop(VOp.NORM_APPLY))
        bias = named(m, "bias", (scaled | apply) & flag(RequantFlag.BIAS, ColumnFlag.BIAS, NormFlag.BIAS))
        residual = kind.vop(VOp.REQUANT) & flag(RequantFlag.RESIDUAL)
        wide = residual | is_vector & flag(RequantFlag.WIDE, AddFlag.WIDE, NormFlag.WIDE, SoftmaxFlag.WIDE)
        rope = named(m, "rope", kind.vop(VOp.ROPE))
        rescales = named(m, "rescales", kind.vop(VOp.RESCALE))
        lists = named(m, "lists", kind.sop(SOp.LIST_LOAD, SOp.LIST_STORE))
        maxima = named(m, "maxima", kind.sop(SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE))
        words = (kind.sop(SOp.ARGMAX, SOp.KEYS)
                 | kind.sop(SOp.IMPORTANCE, SOp.COMPARE) & flag(ImportanceFlag.WIDE, CompareFlag.WIDE))
        list_store = named(m, "list_store", kind.sop(SOp.LIST_STORE))
        select_reads = named(m, "select_reads", maxima | kind.sop(SOp.LIST_LOAD)
                             | kind.sop(SOp.KEYS) & ~flag(KeysFlag.FROM_IMPORTANCE))

        log = exact_log2(dim)
        m_last, n_last, k_last = (self.extents[f"{name}_last"] for name in ("rows", "columns", "depth"))
        m_group, n_group, k_group = m_last >> log, n_last >> log, k_last >> log
        byte_last = self.extents.bytes_last
        block = named(m, "block", Mux(wide_dram, byte_last >> (log + 2), byte_last >> log))
        list_row = n_last >> (log - 1)

        # Parameter rows of a column group; a vector command without pair has them, or no rows, at src1. Those that
        # a command can have together have no bit in common.
        kinds = (apply, GAMMA_ROWS), (column, COLUMN_ROWS), (bias, BIAS_ROWS)
        parameters = named(m, "parameters", Cat(
            reduce(or_, (has for has, rows in kinds if rows >> i & 1)) for i in range(3)))

        def span(name: str, count: Value, stride: Value) -> Signal:
            return named(m, name, named(m, f"{name}_count", count) * named(m, f"{name}_stride", stride))

        span0 = span(
            "span0", Mux(table | lists, 0, either(m_last, Mux(transposed_a, m_group, k_group), n_group, n_group)),
            either(move.row_stride, matrix.a_stride, vector.src0_stride, select.src0_stride))
        span1 = span(
            "span1", Mux(is_move, block, Mux(is_matrix & transposed_b, k_group, n_group)),
            Mux(is_move, move.block_stride, Mux(is_matrix, matrix.b_stride, Mux(
                pair, Mux(header.op == VOp.PRODUCT, vector.aux, vector.src0_stride), parameters))))
        span2 = span("span2", Mux(is_select, 0, n_group), Mux(is_matrix, matrix.c_stride, vector.dst_stride))

        # Rows of B within one block, less 1: int4 packs two into one, scale rows stand behind the weights.
        inner = named(m, "b_inner", Mux(transposed_b, n_last, k_last))
        weight_row = Cat(_ones(log - 1), k_group)  # (k_group + 1) * dim / 2 - 1
        scale_row = named(m, "b_scale_row", Cat(k_group >> matrix.group, C(0, log))[:LENGTH_BITS + 1])
        b_rows = named(m, "b_rows", Mux(
            flag(MatrixFlag.GROUP_SCALES), (weight_row - ~scale_row)[:len(scale_row)],  # a - ~b = a + b + 1
            Mux(flag(MatrixFlag.B_INT4), inner >> 1, inner)))

        first0, first1, first2 = self.extents.first
        table_rows = Mux(header.op == VOp.TABLE, max(1, BYTE_TABLE_ENTRIES // dim), 2 * -(-WORD_TABLE_ENTRIES // dim))
        angle = Cat(_ones(2), m_last)  # m << (period + 2), less 1
        for i, bit in enumerate(vector.period):
            angle = Mux(bit, Cat(_ones(1 << i), angle), angle)

        # The memories have powers of two of rows: what an operand has beyond the larger one's bits is only
        # looked at, not added.
        bits = exact_log2(max(config.spm_rows, config.acc_rows))

        def total(name: str, *parts: Value) -> tuple[Signal, Signal]:
            """Sum of the parts' lower bits, and whether one has others."""
            named_parts = [named(m, f"{name}_part{i}", part) for i, part in enumerate(parts)]
            return (named(m, f"{name}_last", sum(part[:bits] for part in named_parts[1:]) + named_parts[0][:bits]),
                    named(m, f"{name}_beyond", Cat(part[bits:] for part in named_parts).any()))

        last0 = total(
            "hull0", first0, span0,
            Mux(is_move, span1, Mux(table, table_rows - 1, Mux(lists, list_row, Mux(
                is_matrix & transposed_a, k_last, Mux(is_select & ~maxima, 0, m_last))))),
            Mux(planes | words, vector.src0_stride >> 1, 0))
        last1 = total("hull1", first1, span1, Mux(is_matrix, b_rows, Mux(tree | pair, m_last, (parameters - 1)[:3])))
        last2 = total(
            "hull2", first2, span2, Mux(is_select, list_row, m_last), Mux(wide, vector.dst_stride >> 1, 0))
        last3 = total("angles", vector.aux, angle)

        def banks(name: str, low: Value, hull: tuple[Signal, Signal], bank_rows: int,
                  count: int) -> tuple[Signal, Signal]:
            """Mask of the banks of rows low..last, and whether they leave the memory; the mask is then anything."""
            last, beyond = hull
            shift, end = exact_log2(bank_rows), exact_log2(bank_rows * count)
            mask = Signal(count, name=f"{name}_banks")
            m.d.comb += mask.eq(
                (_ones(count) << low[shift:end]) & ~(_ones(count) << 1 << last[shift:end])[:count])
            return mask, named(m, f"{name}_outside", beyond | last[end:].any())

        spm = config.spm_bank_rows, config.spm_banks
        acc = config.acc_bank_rows, config.acc_banks
        spm0, spm0_bad = banks("spm0", first0, last0, *spm)
        acc0, acc0_bad = banks("acc0", first0, last0, *acc)
        spm1, spm1_bad = banks("spm1", first1, last1, *spm)
        spm2, spm2_bad = banks("spm2", first2, last2, *spm)
        acc2, acc2_bad = banks("acc2", first2, last2, *acc)
        angles, angles_bad = banks("angles", vector.aux, last3, *spm)

        in_spm0 = named(m, "in_spm0", either(~sums, Const(1), pair | planes | table, Const(1)))
        uses0 = named(m, "uses0", ~is_select | select_reads)
        uses1 = named(m, "uses1", is_matrix & ~reuse | pair | apply | column | bias | tree)
        writes = named(m, "writes", pair | apply | kind.vop(
            VOp.REQUANT, VOp.ROPE, VOp.I_GELU, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM))
        low_bits = ceil_log2(config.preload)
        unaligned = Cat(first1[:low_bits], matrix.b_stride[:low_bits]).any() if low_bits else Const(0)
        too_large = Cat(n_group, k_group).any()
        m.d.comb += [
            self.apart.eq((is_matrix & ~reuse | pair) & (spm0 & spm1).any()),
            self.bad.eq(
                uses0 & Mux(in_spm0, spm0_bad, acc0_bad) | uses1 & spm1_bad | (is_matrix | rescales) & acc2_bad
                | (writes | list_store) & spm2_bad | rope & angles_bad
                | is_matrix & (Mux(reuse, too_large, unaligned)
                               | flag(MatrixFlag.OUTPUT_STATIONARY) & self.apart)),
        ]

        # Ports: scratchpad reads, scratchpad writes, accumulator reads, accumulator writes.
        no_spm, no_acc = Const(0, config.spm_banks), Const(0, config.acc_banks)
        load0 = Mux(
            sums, Cat(no_spm, no_spm, Mux(flag(MoveFlag.ADD), acc0, 0), acc0), Cat(no_spm, spm0))
        read0 = Mux(in_spm0, spm0, Cat(no_spm, no_spm, acc0, no_acc))
        m.d.comb += [
            self.claims[0].eq(Mux(header.unit == Unit.LOAD, load0, Mux(uses0, read0, 0))),
            self.claims[1].eq(Mux(
                list_store, Cat(no_spm, spm2),
                Mux(uses1, spm1, 0) | Mux(rope, angles, 0) | Mux(residual, spm2, 0))),
            self.claims[2].eq(Mux(
                is_matrix | rescales, Cat(no_spm, no_spm, Mux(is_matrix, acc2, 0), acc2),
                Mux(writes, Cat(no_spm, spm2), 0))),
        ]
        return m
