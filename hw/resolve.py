"""Resolve: from a command word and the registers to what a unit sees, and its claims or fault."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gemmule.config import COMMAND_BYTES, Config
from gemmule.hw.interfaces import LENGTH_BITS, matrix_layout, move_layout, vector_layout
from gemmule.isa import BODY, HEADER, NUM_BASES, NUM_LENGTHS, Dyn, MatrixFlag, Unit, VectorFlag, VOp
from gemmule.resolve import FAULTS

__all__ = ["CLAIMS", "FAULT_BITS", "WAIT_UNITS", "Resolve"]

CLAIMS = 3
"""Most streams of one unit."""
FAULT_BITS = 4
WAIT_UNITS = (Unit.LOAD, Unit.STORE, Unit.MATRIX, Unit.VECTOR)

_header = data.StructLayout(dict(HEADER))
_body = {unit: data.StructLayout(dict(fields)) for unit, fields in BODY.items()}
_fault = {name: code for code, name in enumerate(FAULTS)}


class Resolve(wiring.Component):
    """Combinational; equal to ``gemmule.resolve.resolve_row`` for every word.

    Rows and DRAM ranges are computed without loss, so that a range that leaves a memory always
    faults. Outputs of a command that faults, and claims of a zero-length one, mean nothing and 0.

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
        dim = config.dim
        header = data.View(_header, self.word[:_header.size])
        body = {unit: data.View(layout, self.word[64:64 + layout.size]) for unit, layout in _body.items()}
        move, matrix, vector = body[Unit.LOAD], body[Unit.MATRIX], body[Unit.VECTOR]

        def named(name: str, value: Value) -> Signal:
            signal = Signal(value.shape(), name=name)
            m.d.comb += signal.eq(value)
            return signal

        def length(name: str, fields: data.View) -> Signal:
            register, offset, cap = (fields[f"{name}_{part}"] for part in ("reg", "offset", "cap"))
            value = named(f"{name}_value", self.lengths[register])
            rest = named(f"{name}_rest", Mux(value > offset, value - offset, 0)[:LENGTH_BITS])
            return named(f"{name}_length", Mux(rest < cap, rest, cap))

        def groups(name: str, count: Value) -> Signal:
            """ceil(count / dim)."""
            return named(name, (count + (dim - 1)) >> ceil_log2(dim))

        # Unit and operation.
        is_move = named("is_move", header.unit < 2)
        is_matrix = named("is_matrix", header.unit == Unit.MATRIX)
        op, flags = header.op, header.flags
        of = {v: named(f"is_{v.name.lower()}", (header.unit == Unit.VECTOR) & (op == v)) for v in VOp}
        reads_spm = of[VOp.PRODUCT] | of[VOp.RMS_STAT] | of[VOp.RMS_APPLY] | of[VOp.TABLE]
        residual = of[VOp.REQUANT] & flags[VectorFlag.RESIDUAL]
        wide = of[VOp.REQUANT] & (flags[VectorFlag.WIDE] | flags[VectorFlag.RESIDUAL])
        column = (of[VOp.REQUANT] | of[VOp.ROPE]) & flags[VectorFlag.COLUMN]
        illegal = named(
            "illegal", Mux(is_move | is_matrix, op != 0, ~Cat(of.values()).any()))

        # Lengths.
        rows = length("rows", move)
        m_matrix, n_matrix, k = (length(f"{name}", matrix) for name in "mnk")
        table = of[VOp.TABLE]
        m_vector = named("m_rows", Mux(table, 1, length("m", vector)))
        n_vector = named("n_columns", Mux(table, 256, length("n", vector)))
        zero_move = (rows == 0) | (move.bytes == 0)
        zero_matrix = (m_matrix == 0) | (n_matrix == 0) | (k == 0)
        zero_vector = (m_vector == 0) | (n_vector == 0)
        zero = named("is_zero", ~illegal & Mux(is_move, zero_move, Mux(is_matrix, zero_matrix, zero_vector)))

        # First rows.
        dynamic = named("dynamic", self.lengths[header.dyn_reg] * header.dyn_stride)

        def first(name: str, row: Value, which: Dyn) -> Signal:
            return named(name, row + Mux(header.dyn_which == which, dynamic, 0))

        move_dyn = Mux(header.unit == Unit.LOAD, Dyn.DST, Dyn.SRC0)
        move_row = named("move_row", move.row + Mux(header.dyn_which == move_dyn, dynamic, 0))
        a_row, b_row, c_row = (
            first("a_row", matrix.a_row, Dyn.SRC0), first("b_row", matrix.b_row, Dyn.SRC1), matrix.c_row)
        src0, src1, dst = (first(name, vector[name], which) for name, which in (
            ("src0", Dyn.SRC0), ("src1", Dyn.SRC1), ("dst", Dyn.DST)))

        # Last rows; the three strided hulls share their multipliers among the units.
        blocks = groups("blocks", move.bytes)
        column_groups = groups("column_groups", Mux(is_matrix, n_matrix, n_vector))
        k_groups = groups("k_groups", k)
        transposed = flags[MatrixFlag.B_TRANSPOSED]

        def span(name: str, count: Value, stride: Value) -> Signal:
            """(count - 1) * stride; anything for count 0."""
            return named(name, (count - 1)[:len(count)] * stride)

        span0 = span(
            "span0", named("count0", Mux(is_move, rows, Mux(is_matrix, k_groups, column_groups))),
            Mux(is_move, move.row_stride, Mux(is_matrix, matrix.a_stride, vector.src0_stride)))
        span1 = span(
            "span1", named("count1", Mux(
                is_move, blocks, Mux(is_matrix & transposed, k_groups, column_groups))),
            Mux(is_move, move.block_stride, Mux(is_matrix, matrix.b_stride, vector.aux)))
        span2 = span("span2", column_groups, Mux(is_matrix, matrix.c_stride, vector.dst_stride))
        table_rows = max(1, 256 // dim)
        two_planes0 = of[VOp.RMS_STAT] | of[VOp.RMS_APPLY]
        m_last = m_vector - 1

        def banks(name: str, low: Value, last: Value, bank_rows: int, count: int) -> tuple[Signal, Signal]:
            """Mask of the banks of rows low..last, and whether they leave the memory."""
            low, last = named(f"{name}_first", low), named(f"{name}_last", last)
            shift = ceil_log2(bank_rows)
            mask = Signal(count, name=f"{name}_banks")
            m.d.comb += mask.eq(Cat(
                ((low >> shift) <= i) & ((last >> shift) >= i if i else 1) for i in range(count)))
            return mask, named(f"{name}_out", last >= bank_rows * count)

        def spm(name: str, low: Value, last: Value) -> tuple[Signal, Signal]:
            return banks(name, low, last.as_unsigned(), config.spm_bank_rows, config.spm_banks)

        def acc(name: str, low: Value, last: Value) -> tuple[Signal, Signal]:
            return banks(name, low, last.as_unsigned(), config.acc_bank_rows, config.acc_banks)

        low0 = Mux(is_move, move_row, Mux(is_matrix, a_row, src0))
        last0 = low0 + Mux(table, table_rows - 1, span0) + Mux(
            is_move, span1, Mux(is_matrix, m_matrix - 1, Mux(
                table, 0, m_last + Mux(two_planes0, vector.src0_stride >> 1, 0))))
        low1 = Mux(is_matrix, b_row, src1)
        last1 = low1 + Mux(
            is_matrix, span1 + Mux(transposed, n_matrix, k) - 1, Mux(
                of[VOp.PRODUCT], span1 + m_last, column_groups * 2 + Mux(column, column_groups, 0) - 1))
        low2 = Mux(is_matrix, c_row, dst)
        last2 = low2 + span2 + Mux(
            is_matrix, m_matrix - 1, m_last + Mux(wide, vector.dst_stride >> 1, 0))
        mask0, out0 = spm("hull0", low0, last0)
        acc0, acc_out0 = acc("sums", low0, last0)
        mask1, out1 = spm("hull1", low1, last1)
        mask2, out2 = spm("hull2", low2, last2)
        acc2, acc_out2 = acc("product", low2, last2)
        rope, rope_out = spm("rope", vector.aux, vector.aux + (m_vector << (vector.period + 2)) - 1)

        # Faults.
        uses1 = of[VOp.PRODUCT] | of[VOp.RMS_APPLY] | column
        uses2 = (of[VOp.REQUANT] | of[VOp.PRODUCT] | of[VOp.ROPE] | of[VOp.RMS_APPLY] | of[VOp.SOFTMAX_EXP])
        uses_stat = (
            two_planes0 | of[VOp.SOFTMAX_MAX] | of[VOp.SOFTMAX_EXP]
            | of[VOp.REQUANT] & flags[VectorFlag.ROW])
        bad_stat = uses_stat & ((m_vector > config.stat_rows) | (vector.context >= config.stat_contexts))
        unaligned_b = b_row[:ceil_log2(config.preload)].any() | (
            matrix.b_stride[:ceil_log2(config.preload)].any()) if config.preload > 1 else Const(0)
        bad_rows = named("bad_rows", Mux(is_move, out0, Mux(
            is_matrix, out0 | out1 | acc_out2 | unaligned_b,
            Mux(reads_spm, out0, acc_out0) | uses1 & out1 | uses2 & out2 | of[VOp.ROPE] & rope_out
            | bad_stat)))
        end = named("end", move.offset + span("dram_span", rows, move.stride) + move.bytes)
        address = named("address", self.base + move.offset)
        low_bits = ceil_log2(config.bus_bytes)
        unaligned = address[:low_bits].any() | move.stride[:low_bits].any()
        with m.If(illegal):
            m.d.comb += self.fault.eq(_fault["illegal"])
        with m.Elif(zero):
            m.d.comb += self.fault.eq(0)
        with m.Elif(bad_rows):
            m.d.comb += self.fault.eq(_fault["rows"])
        with m.Elif(is_move & (end > self.limit)):
            m.d.comb += self.fault.eq(_fault["limit"])
        with m.Elif(is_move & unaligned):
            m.d.comb += self.fault.eq(_fault["align"])

        # Claims: scratchpad reads, scratchpad writes, accumulator reads, accumulator writes.
        no_spm, no_acc = Const(0, config.spm_banks), Const(0, config.acc_banks)
        none, read1 = Const(0, config.claim_bits), mask1
        with m.If(~zero & ~illegal):
            with m.If(is_move):
                m.d.comb += self.claims[0].eq(Mux(
                    header.unit == Unit.LOAD, Cat(no_spm, mask0), Cat(mask0, no_spm)))
            with m.Elif(is_matrix):
                m.d.comb += [
                    self.claims[0].eq(mask0), self.claims[1].eq(mask1),
                    self.claims[2].eq(Cat(no_spm, no_spm, acc2, acc2)),
                ]
            with m.Else():
                extra = Mux(of[VOp.ROPE], rope, Mux(residual, mask2, 0))
                m.d.comb += [
                    self.claims[0].eq(Mux(reads_spm, mask0, Cat(no_spm, no_spm, acc0, no_acc))),
                    self.claims[1].eq(Mux(uses1, read1, 0) | extra),
                    self.claims[2].eq(Mux(uses2, Cat(no_spm, mask2), none)),
                ]

        # The command as its unit sees it.
        m.d.comb += [
            self.base_index.eq(move.base), self.unit.eq(header.unit), self.zero.eq(zero),
            *(self.waits[i].eq(header[f"wait_{unit.name.lower()}"]) for i, unit in enumerate(WAIT_UNITS)),
            self.move.address.eq(address), self.move.rows.eq(rows), self.move.row.eq(move_row),
            *(self.move[name].eq(move[name]) for name in ("bytes", "stride", "row_stride", "block_stride")),
            self.matrix.flags.eq(flags), self.matrix.m.eq(m_matrix), self.matrix.n.eq(n_matrix),
            self.matrix.k.eq(k),
            self.matrix.a_row.eq(a_row), self.matrix.b_row.eq(b_row), self.matrix.c_row.eq(c_row),
            *(self.matrix[name].eq(matrix[name]) for name in ("a_stride", "b_stride", "c_stride")),
            self.vector.op.eq(op), self.vector.flags.eq(flags),
            self.vector.m.eq(m_vector), self.vector.n.eq(n_vector),
            self.vector.src0.eq(src0), self.vector.src1.eq(src1), self.vector.dst.eq(dst),
            *(self.vector[name].eq(vector[name]) for name in (
                "src0_stride", "aux", "dst_stride", "mult", "shift", "shift2", "context", "period")),
            *(command.zero.eq(zero) for command in (self.move, self.matrix, self.vector)),
        ]
        return m
