"""Resolve: from a command word and the registers to what a unit sees, and its claims or fault."""

from __future__ import annotations

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gemmule.config import COMMAND_BYTES, Config
from gemmule.hw.hulls import CLAIMS, Hulls, fields_of, named
from gemmule.hw.interfaces import LENGTH_BITS, matrix_layout, move_layout, vector_layout
from gemmule.hw.legal import Legal
from gemmule.isa import NUM_BASES, NUM_LENGTHS, Dyn, MoveFlag, Unit, VectorFlag, VOp
from gemmule.resolve import FAULTS

__all__ = ["FAULT_BITS", "WAIT_UNITS", "Resolve"]

FAULT_BITS = 4
WAIT_UNITS = (Unit.LOAD, Unit.STORE, Unit.MATRIX, Unit.VECTOR)

_fault = {name: code for code, name in enumerate(FAULTS)}


class Resolve(wiring.Component):
    """Combinational; equal to ``gemmule.resolve.resolve_row`` for every word.

    Rows and DRAM ranges are computed without loss, so that a range that leaves a memory always
    faults. Outputs of a command that faults mean nothing; claims of a zero-length one are 0.

    Members
    -------
    word: In
        Command.
    lengths: In(array)
        Length registers; number 0 must read 65535.
    base_index: Out
        Register that ``base`` and ``limit`` must show in the same cycle.
    fault, unit, zero: Out
        Fault code (0: none), unit number, length zero.
    waits: Out(array)
        Wait distances of load, store, matrix, vector.
    move, matrix, vector: Out(layouts)
        The command for its unit.
    claims: Out(array)
        Port masks of the unit's streams, in their order.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "word": In(8 * COMMAND_BYTES),
            "lengths": In(data.ArrayLayout(LENGTH_BITS, NUM_LENGTHS)),
            "base_index": Out(range(NUM_BASES)),
            "base": In(config.address_bits),
            "limit": In(config.address_bits),
            "fault": Out(FAULT_BITS),
            "unit": Out(3),
            "zero": Out(1),
            "waits": Out(data.ArrayLayout(6, len(WAIT_UNITS))),
            "move": Out(move_layout(config)),
            "matrix": Out(matrix_layout(config)),
            "vector": Out(vector_layout(config)),
            "claims": Out(data.ArrayLayout(config.claim_bits, CLAIMS)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        header, move, matrix, vector = fields_of(self.word)
        op, flags = header.op, header.flags
        is_load = named(m, "is_load", header.unit == Unit.LOAD)
        is_move = named(m, "is_move", header.unit < 2)
        is_matrix = named(m, "is_matrix", header.unit == Unit.MATRIX)
        is_vector = named(m, "is_vector", header.unit == Unit.VECTOR)

        def vop(*ops: VOp) -> Value:
            return is_vector & Cat(op == v for v in ops).any()

        m.submodules.legal = legal = Legal()
        m.d.comb += [legal.unit.eq(header.unit), legal.op.eq(op), legal.flags.eq(flags)]

        # Lengths: min(max(LEN[register] - offset, 0), cap); the units share the look-up.
        def length(name: str, field: Callable[[str], Value]) -> Signal:
            register, offset, cap = (
                named(m, f"{name}_{part}", field(part)) for part in ("reg", "offset", "cap"))
            value = named(m, f"{name}_value", self.lengths[register])
            rest = named(m, f"{name}_rest", Mux(value > offset, value - offset, 0)[:LENGTH_BITS])
            return named(m, f"{name}_length", Mux(rest < cap, rest, cap))

        table = named(m, "table", vop(VOp.TABLE))
        rows = named(m, "rows", Mux(table, 1, length("m", lambda part: Mux(
            is_move, move[f"rows_{part}"], Mux(is_matrix, matrix[f"m_{part}"], vector[f"m_{part}"])))))
        columns = named(m, "columns", Mux(table, 256, length("n", lambda part: Mux(
            is_matrix, matrix[f"n_{part}"], vector[f"n_{part}"]))))
        depth = length("k", lambda part: matrix[f"k_{part}"])
        zero = named(m, "is_zero", legal.known & (
            (rows == 0) | Mux(is_move, move.bytes == 0, columns == 0) | is_matrix & (depth == 0)))

        # First rows.
        dynamic = named(m, "dynamic", self.lengths[header.dyn_reg] * header.dyn_stride)

        def first(name: str, row: Value, moves: Value) -> Signal:
            return named(m, name, row + Mux(moves, dynamic, 0))

        which = header.dyn_which
        first_rows = (
            first("row0", Mux(is_move, move.row, Mux(is_matrix, matrix.a_row, vector.src0)),
                  which == Mux(is_load, Dyn.DST, Dyn.SRC0)),
            first("row1", Mux(is_matrix, matrix.b_row, vector.src1), which == Dyn.SRC1),
            first("row2", Mux(is_matrix, matrix.c_row, vector.dst), is_vector & (which == Dyn.DST)),
        )

        # Memory rows and their ports.
        m.submodules.hulls = hulls = Hulls(config=config)
        m.d.comb += [
            hulls.word.eq(self.word), hulls.m.eq(rows), hulls.n.eq(columns), hulls.k.eq(depth),
            *(hulls.first[i].eq(row) for i, row in enumerate(first_rows)),
        ]
        with m.If(~zero):
            m.d.comb += self.claims.eq(hulls.claims)
        uses_stat = (
            vop(VOp.RMS_STAT, VOp.RMS_APPLY, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP)
            | vop(VOp.REQUANT) & flags[VectorFlag.ROW])
        bad_stat = named(m, "bad_stat", uses_stat & (
            (rows > config.stat_rows) | (vector.context >= config.stat_contexts)))

        # DRAM range.
        fill, broadcast = flags[MoveFlag.ZERO], flags[MoveFlag.BROADCAST]  # legal for loads only
        int32 = flags[MoveFlag.ACCUMULATOR] & ~flags[MoveFlag.NARROW]
        span = named(m, "dram_span", Mux(broadcast, 0, (rows - 1)[:LENGTH_BITS] * move.stride))
        end = named(m, "dram_end", move.offset + span + move.bytes)
        address = named(m, "address", self.base + move.offset)
        unaligned = (int32 & move.bytes[:2].any()) | (
            broadcast & address[:ceil_log2(config.bus_bytes)].any())

        with m.If(~legal.known):
            m.d.comb += self.fault.eq(_fault["illegal"])
        with m.Elif(zero):
            m.d.comb += self.fault.eq(_fault["none"])
        with m.Elif(hulls.bad | bad_stat):
            m.d.comb += self.fault.eq(_fault["rows"])
        with m.Elif(is_move & ~fill & (end > self.limit)):
            m.d.comb += self.fault.eq(_fault["limit"])
        with m.Elif(is_move & unaligned):
            m.d.comb += self.fault.eq(_fault["align"])

        # The command as its unit sees it.
        apart = ~zero & hulls.apart
        m.d.comb += [
            self.base_index.eq(move.base), self.unit.eq(header.unit), self.zero.eq(zero),
            *(self.waits[i].eq(header[f"wait_{unit.name.lower()}"]) for i, unit in enumerate(WAIT_UNITS)),
            self.move.flags.eq(flags), self.move.address.eq(address), self.move.rows.eq(rows),
            self.move.row.eq(first_rows[0]),
            *(self.move[name].eq(move[name]) for name in ("bytes", "stride", "row_stride", "block_stride")),
            self.matrix.m.eq(rows), self.matrix.n.eq(columns), self.matrix.k.eq(depth),
            *(self.matrix[name].eq(row) for name, row in zip(("a_row", "b_row", "c_row"), first_rows)),
            *(self.matrix[name].eq(matrix[name]) for name in ("a_stride", "b_stride", "c_stride", "group")),
            self.vector.op.eq(op), self.vector.m.eq(rows), self.vector.n.eq(columns),
            *(self.vector[name].eq(row) for name, row in zip(("src0", "src1", "dst"), first_rows)),
            *(self.vector[name].eq(vector[name]) for name in (
                "src0_stride", "aux", "dst_stride", "mult", "shift", "shift2", "context", "period")),
            *(command.zero.eq(zero) for command in (self.move, self.matrix, self.vector)),
            *(command.flags.eq(flags) for command in (self.matrix, self.vector)),
            *(command.apart.eq(apart) for command in (self.matrix, self.vector)),
        ]
        return m
