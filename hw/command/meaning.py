"""Meaning: what operation and flags of a command say about its operands, a bit each."""

from __future__ import annotations

from enum import IntEnum
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.hw.command.fields import fields_of, kind_of
from gemmule.hw.interfaces import shared_bit
from gemmule.isa import (
    COMMAND_BYTES,
    AddFlag,
    ColumnFlag,
    CompareFlag,
    Dyn,
    ImportanceFlag,
    KeysFlag,
    MatrixFlag,
    MoveFlag,
    NormFlag,
    ProductFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Unit,
    VOp,
)
from gemmule.operands import BIAS_ROWS, COLUMN_ROWS, GAMMA_ROWS
from gemmule.operations import SOFTMAX_OPS

__all__ = ["Meaning", "meaning_layout"]


def meaning_layout() -> data.StructLayout:
    """The bits, and ``parameters``: parameter rows of a column group.

    Of a move: ``sums`` the accumulator, ``wide_dram`` int32 in DRAM, ``fill``, ``broadcast``, ``indexed``; of a product
    ``transposed_a``, ``transposed_b``, ``reuse``, ``stationary``, ``int4``, ``scales``; of the vector unit ``pair`` two
    operands, ``product``, ``table``, ``tree``, ``planes`` of int16 at src0, ``rope``, ``rescales``, ``residual``;
    of the select unit ``lists``, ``list_store``, ``pack``, ``by_rows``, ``words``. ``wide``: the result has two planes.
    ``in_spm0``: operand 0 is in the scratchpad; ``uses0``, ``uses1``, ``writes``: the operand exists;
    ``moves``: operand i moves by the dynamic row; ``has_rows``, ``has_depth``: these lengths count.
    ``uses_stat``: row statistics; ``two_contexts``: of the next context too.
    """
    return data.StructLayout({**dict.fromkeys((
        "load", "move", "matrix", "select",
        "sums", "wide_dram", "fill", "broadcast", "indexed",
        "transposed_a", "transposed_b", "reuse", "stationary", "int4", "scales",
        "pair", "product", "table", "byte_table", "tree", "planes", "rope", "rescales", "residual",
        "lists", "list_store", "pack", "by_rows", "words", "wide",
        "in_spm0", "uses0", "uses1", "writes", "has_rows", "has_depth", "uses_stat", "two_contexts"), 1),
        "parameters": 3, "moves": 3})


class Meaning(wiring.Component):
    """Combinational. Means nothing for an illegal command.

    Members
    -------
    word: In
        Command.
    result: Out(meaning_layout)
    """

    def __init__(self) -> None:
        super().__init__({"word": In(8 * COMMAND_BYTES), "result": Out(meaning_layout())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        header = fields_of(self.word)[0]
        flags, kind, result = header.flags, kind_of(m, header), self.result
        vop, sop = kind.vop, kind.sop

        def flag(*of_operations: IntEnum) -> Value:
            return flags[shared_bit(*of_operations)]

        is_load = header.unit == Unit.LOAD
        scaled = vop(VOp.REQUANT, VOp.ROPE, VOp.I_GELU)
        column = scaled & flag(RequantFlag.COLUMN, ColumnFlag.COLUMN)
        apply = vop(VOp.NORM_APPLY)
        bias = (scaled | apply) & flag(RequantFlag.BIAS, ColumnFlag.BIAS, NormFlag.BIAS)
        residual = vop(VOp.REQUANT) & flag(RequantFlag.RESIDUAL)
        # A vector command without pair has parameter rows, or no rows, at src1. Those that a command can have
        # together have no bit in common.
        kinds = (apply, GAMMA_ROWS), (column, COLUMN_ROWS), (bias, BIAS_ROWS)
        pair, softmax = vop(VOp.PRODUCT, VOp.ADD), vop(*SOFTMAX_OPS)
        tree = softmax & flag(SoftmaxFlag.TREE)
        by_rows = sop(SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE, SOp.PACK)
        sums = kind.move & flag(MoveFlag.ACCUMULATOR)
        table, word_product = vop(VOp.TABLE, VOp.WORD_TABLE), vop(VOp.PRODUCT) & flag(ProductFlag.WIDE)
        planes = vop(VOp.NORM_STAT, VOp.NORM_APPLY) | word_product
        which = header.dyn_which
        m.d.comb += [
            result.load.eq(is_load), result.move.eq(kind.move), result.matrix.eq(kind.matrix),
            result.select.eq(kind.select),
            result.sums.eq(sums), result.wide_dram.eq(sums & ~flag(MoveFlag.NARROW)),
            # legal for loads only
            result.fill.eq(flag(MoveFlag.ZERO)), result.broadcast.eq(flag(MoveFlag.BROADCAST)),
            result.indexed.eq(flag(MoveFlag.INDEXED)),
            *(result[name].eq(kind.matrix & flags[bit]) for name, bit in (
                ("transposed_a", MatrixFlag.A_TRANSPOSED), ("transposed_b", MatrixFlag.B_TRANSPOSED),
                ("reuse", MatrixFlag.REUSE), ("stationary", MatrixFlag.OUTPUT_STATIONARY),
                ("int4", MatrixFlag.B_INT4), ("scales", MatrixFlag.GROUP_SCALES))),
            result.pair.eq(pair), result.product.eq(header.op == VOp.PRODUCT), result.table.eq(table),
            result.byte_table.eq(header.op == VOp.TABLE), result.tree.eq(tree),
            result.planes.eq(planes), result.rope.eq(vop(VOp.ROPE)), result.rescales.eq(vop(VOp.RESCALE)),
            result.residual.eq(residual), result.lists.eq(sop(SOp.LIST_LOAD, SOp.LIST_STORE)),
            result.list_store.eq(sop(SOp.LIST_STORE)), result.pack.eq(sop(SOp.PACK)), result.by_rows.eq(by_rows),
            result.words.eq(sop(SOp.ARGMAX, SOp.KEYS) | sop(SOp.IMPORTANCE, SOp.COMPARE) & flag(
                ImportanceFlag.WIDE, CompareFlag.WIDE)),
            result.wide.eq(residual | kind.vector & flag(
                RequantFlag.WIDE, ProductFlag.WIDE, AddFlag.WIDE, NormFlag.WIDE, SoftmaxFlag.WIDE)),
            result.in_spm0.eq(Cat(kind.move & ~sums, kind.matrix, pair | planes | table, kind.select).any()),
            result.uses0.eq(~kind.select | by_rows | sop(SOp.LIST_LOAD)
                            | sop(SOp.KEYS) & ~flag(KeysFlag.FROM_IMPORTANCE)),
            result.uses1.eq(kind.matrix & ~flag(MatrixFlag.REUSE) | pair | apply | column | bias | tree),
            result.writes.eq(pair | apply | vop(
                VOp.REQUANT, VOp.ROPE, VOp.I_GELU, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)),
            result.has_rows.eq(~kind.select | by_rows), result.has_depth.eq(kind.matrix | kind.select),
            result.uses_stat.eq(softmax | vop(VOp.NORM_STAT, VOp.NORM_APPLY, VOp.ABSMAX, VOp.RESCALE)
                                | vop(VOp.REQUANT) & flags[RequantFlag.ROW]),
            result.two_contexts.eq(vop(VOp.ABSMAX)),
            result.parameters.eq(Cat(
                reduce(or_, (has for has, rows in kinds if rows >> i & 1)) for i in range(3))),
            result.moves[0].eq(Mux(is_load, which == Dyn.DST, which == Dyn.SRC0)),
            result.moves[1].eq(which == Dyn.SRC1),
            result.moves[2].eq(~kind.move & (which == Dyn.DST)),
        ]
        return m
