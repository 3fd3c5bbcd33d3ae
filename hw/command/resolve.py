"""Resolve: from a command word, its extents and a base register to what a unit sees, and its claims or fault."""

from __future__ import annotations

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from gemmule.config import Config
from gemmule.hw.command.entries import Entries
from gemmule.hw.command.extents import extents_layout
from gemmule.hw.command.fields import CLAIMS, fields_of, kind_of, named
from gemmule.hw.command.hulls import Hulls
from gemmule.hw.command.legal import Legal
from gemmule.hw.interfaces import matrix_layout, move_layout, select_layout, vector_layout
from gemmule.isa import COMMAND_BYTES, HEADER, MAX_WAIT, MoveFlag, RequantFlag, SoftmaxFlag, SOp, Unit, VOp
from gemmule.operations import SOFTMAX_OPS
from gemmule.resolve import FAULTS

__all__ = ["FAULT_BITS", "PREDICATE_BITS", "WAIT_UNITS", "Resolve"]

FAULT_BITS = 4
_BITS = dict(HEADER)
PREDICATE_BITS = _BITS["predicate"]
WAIT_BITS = MAX_WAIT.bit_length()
WAIT_UNITS = tuple(Unit)

_fault = {name: code for code, name in enumerate(FAULTS)}


class Resolve(wiring.Component):
    """Combinational; with :class:`gemmule.hw.command.extents.Extents` equal to ``gemmule.resolve.resolve_row``.

    Rows and DRAM ranges are computed without loss, so that a range that leaves a memory always
    faults. Outputs of a command that faults mean nothing; claims of a zero-length one are 0.

    Members
    -------
    word: In
        Command.
    extents: In(extents_layout)
        Of the same word.
    base, limit: In
        Registers that its field ``base`` names.
    fault, unit, zero: Out
        Fault code (0: none), unit number, length zero.
    waits: Out(array)
        Wait distances by unit.
    predicate: Out(2)
        Predicate that the command depends on; 0: none.
    move, matrix, vector, select: Out(layouts)
        The command for its unit.
    claims: Out(array)
        Port masks of the unit's streams, in their order.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "word": In(8 * COMMAND_BYTES),
            "extents": In(extents_layout()),
            "base": In(config.address_bits),
            "limit": In(config.address_bits),
            "fault": Out(FAULT_BITS),
            "unit": Out(_BITS["unit"]),
            "zero": Out(1),
            "waits": Out(data.ArrayLayout(WAIT_BITS, len(WAIT_UNITS))),
            "move": Out(move_layout(config)),
            "matrix": Out(matrix_layout(config)),
            "vector": Out(vector_layout(config)),
            "select": Out(select_layout(config)),
            "predicate": Out(PREDICATE_BITS),
            "claims": Out(data.ArrayLayout(config.claim_bits, CLAIMS)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        header, move, matrix, vector, select = fields_of(self.word)
        op, flags = header.op, header.flags
        kind = kind_of(m, header)
        _, is_move, is_matrix, is_vector, is_select = kind

        m.submodules.legal = legal = Legal(comparison_modes=config.comparison_modes)
        m.d.comb += [
            legal.unit.eq(header.unit), legal.op.eq(op), legal.flags.eq(flags), legal.period.eq(vector.period)]
        softmax = kind.vop(*SOFTMAX_OPS)
        rows, columns, depth = self.extents.rows, self.extents.columns, self.extents.depth
        first_rows = self.extents.first
        has_rows = ~is_select | kind.sop(SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE)
        known = named(m, "known", legal.known & ~(kind.sop(SOp.COMPARE) & (select.number == 0)))
        zero = named(m, "is_zero", known & (
            has_rows & (rows == 0) | Mux(is_move, move.bytes == 0, columns == 0)
            | (is_matrix | is_select) & (depth == 0)))

        # Memory rows and their ports; entries of other memories.
        m.submodules.hulls = hulls = Hulls(config=config)
        m.submodules.entries = entries = Entries(config=config)
        m.d.comb += [
            hulls.word.eq(self.word), hulls.extents.eq(self.extents),
            entries.word.eq(self.word), entries.m.eq(rows), entries.n.eq(columns), entries.k.eq(depth),
            entries.dst.eq(first_rows[2]),
        ]
        with m.If(~zero):
            m.d.comb += self.claims.eq(hulls.claims)
        last = self.extents.rows_last
        uses_stat = softmax | kind.vop(
            VOp.NORM_STAT, VOp.NORM_APPLY, VOp.ABSMAX, VOp.RESCALE) | kind.vop(VOp.REQUANT) & flags[RequantFlag.ROW]
        last_context = vector.context + kind.vop(VOp.ABSMAX)
        bad_tree = softmax & flags[SoftmaxFlag.TREE] & last[exact_log2(8 * config.dim):].any()
        bad_stat = named(m, "bad_stat", bad_tree | uses_stat & (
            last[exact_log2(config.stat_rows):].any() | last_context[exact_log2(config.stat_contexts):].any()))

        # DRAM range.
        fill, broadcast = flags[MoveFlag.ZERO], flags[MoveFlag.BROADCAST]  # legal for loads only
        int32 = flags[MoveFlag.ACCUMULATOR] & ~flags[MoveFlag.NARROW]
        last_row = Mux(broadcast, 0, Mux(flags[MoveFlag.INDEXED], move.last_index, last))
        span = named(m, "dram_span", last_row * move.stride)
        size = named(m, "dram_size", span + move.bytes)
        end = named(m, "dram_end", move.offset + size)
        top = 1 << config.address_bits
        room = named(m, "dram_room", (top - self.base)[:config.address_bits + 1])  # addresses do not wrap
        address = named(m, "address", self.base + move.offset)
        unaligned = (int32 & move.bytes[:2].any()) | (
            broadcast & address[:ceil_log2(config.bus_bytes)].any())
        joined = named(m, "joined", ~(broadcast | flags[MoveFlag.INDEXED]) & (move.stride == move.bytes)
                       & ~move.bytes[:exact_log2(config.bus_bytes)].any())

        with m.If(~known):
            m.d.comb += self.fault.eq(_fault["illegal"])
        with m.Elif(zero):
            m.d.comb += self.fault.eq(_fault["none"])
        with m.Elif(hulls.bad | entries.bad | bad_stat):
            m.d.comb += self.fault.eq(_fault["rows"])
        with m.Elif(is_move & ~fill & ((end > self.limit) | (end > room))):
            m.d.comb += self.fault.eq(_fault["limit"])
        with m.Elif(is_move & unaligned):
            m.d.comb += self.fault.eq(_fault["align"])

        # The command as its unit sees it.
        apart = ~zero & hulls.apart
        m.d.comb += [
            self.unit.eq(header.unit), self.zero.eq(zero),
            *(self.waits[i].eq(header[f"wait_{unit.label}"]) for i, unit in enumerate(WAIT_UNITS)),
            self.move.flags.eq(flags), self.move.address.eq(address), self.move.rows.eq(rows),
            self.move.row.eq(first_rows[0]), self.move.joined.eq(joined),
            self.move.stride.eq(Mux(joined, size, move.stride)),
            *(self.move[name].eq(move[name]) for name in (
                "bytes", "row_stride", "block_stride", "list", "last_index")),
            self.matrix.m.eq(rows), self.matrix.n.eq(columns), self.matrix.k.eq(depth),
            *(self.matrix[name].eq(row) for name, row in zip(("a_row", "b_row", "c_row"), first_rows)),
            *(self.matrix[name].eq(matrix[name]) for name in ("a_stride", "b_stride", "c_stride", "group")),
            self.vector.op.eq(op), self.vector.m.eq(rows), self.vector.n.eq(columns),
            *(self.vector[name].eq(row) for name, row in zip(("src0", "src1", "dst"), first_rows)),
            *(self.vector[name].eq(vector[name]) for name in (
                "src0_stride", "aux", "dst_stride", "mult", "shift", "shift2", "context", "period")),
            self.vector.after.eq(self.extents.after),
            self.select.op.eq(op), self.select.m.eq(rows), self.select.n.eq(columns), self.select.k.eq(depth),
            self.select.src0.eq(first_rows[0]), self.select.dst.eq(first_rows[2]),
            *(self.select[name].eq(select[name]) for name in ("src0_stride", "first", "aux", "shift", "number")),
            self.predicate.eq(header.predicate),
            *(command.zero.eq(zero) for command in (self.move, self.matrix, self.vector, self.select)),
            *(command.flags.eq(flags) for command in (self.matrix, self.vector, self.select)),
            *(command.apart.eq(apart) for command in (self.matrix, self.vector)),
        ]
        return m
