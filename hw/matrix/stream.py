"""The stream sequencer of the matrix unit: the loops over tiles, the reads beside them, the tags."""

from __future__ import annotations

from amaranth.hdl import Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import ROW_BITS, SpmRead, matrix_layout
from gemmule.hw.matrix.drain import Drain, at_most, before, result_tag
from gemmule.hw.matrix.unpack import weight_item
from gemmule.isa import MatrixFlag
from gemmule.timing import Timing

__all__ = ["Stream"]


class Stream(wiring.Component):
    """Stream sequencer: tiles of ``slot`` cycles, in blocks of DIM rows of the scratchpad.

    Weight-stationary: N outer, K, then the blocks of M; every row of A meets the tile's weights.
    Output-stationary: N outer, M, K; a tile is one block of A and one of B, both read here. A command is
    taken from the preload sequencer (``primed``, ``current``) without a gap when one is there.

    Parameters
    ----------
    config: Config
    timing: Timing

    Members
    -------
    primed: In(1)
    current: In(matrix_layout(config))
    advance: Out(1)
        In the next cycle the stream of a command or of a tile with new weights begins.
    reload: Out(1)
        Last cycle in which a tile reads A, before the next tile's weights are read from the same bank.
    a: Out(SpmRead(config))
    unsigned: Out(1)
        A is unsigned.
    serial: Out(1)
        The rows of A that are read go through serial registers.
    phase: Out(range(DIM))
        Number of the row in its block.
    b: Out(SpmRead(config, preload)), item: Out(weight_item(config))
        Output-stationary reads of B.
    swap: Out(1)
        First row of a tile with new weights.
    end: Out(1)
        Output-stationary: last cycle of a block of C or, when none is leaving, the one before a command.
    tag: Out(result_tag)
    release: Out(1)
        Last cycle of the command's stream (e - 1).
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        self.config, self.timing = config, timing
        super().__init__({
            "primed": In(1),
            "current": In(matrix_layout(config)),
            "advance": Out(1),
            "reload": Out(1),
            "a": Out(SpmRead(config)),
            "unsigned": Out(1),
            "serial": Out(1),
            "phase": Out(range(config.dim)),
            "b": Out(SpmRead(config, config.preload)),
            "item": Out(weight_item(config)),
            "swap": Out(1),
            "end": Out(1),
            "tag": Out(result_tag),
            "release": Out(1),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        dim = self.config.dim
        bits = exact_log2(dim)
        m.submodules.drain = drain = Drain(config=self.config)
        command = Signal(matrix_layout(self.config))
        outputs, a_transposed, b_transposed = Signal(), Signal(), Signal()
        m.d.comb += [
            outputs.eq(command.flags[MatrixFlag.OUTPUT_STATIONARY]),
            a_transposed.eq(command.flags[MatrixFlag.A_TRANSPOSED]),
            b_transposed.eq(command.flags[MatrixFlag.B_TRANSPOSED]),
        ]

        active = Signal()
        cycle = Signal(17)  # of the tile
        m_left, n_left, k_left = (Signal(16, name=f"{name}_left") for name in "mnk")  # from this block on
        a_outer, a_block = Signal(ROW_BITS), Signal(ROW_BITS)
        b_outer, b_block = Signal(ROW_BITS), Signal(ROW_BITS)
        c_outer, c_block = Signal(ROW_BITS), Signal(ROW_BITS)
        add = Signal()

        # Last cycle of a tile; of its reads of A. Registers, found out a cycle before: the unit is ready again with the
        # end of a stream, and which unit is started hangs on that.
        tile_end, reads_end = Signal(), Signal()
        begin = Signal()
        # Of a block, from its second cycle on, and asked in its last one: no block has fewer than two.
        last_m, last_k, last_tile = Signal(), Signal(), Signal()
        r = self.phase
        reads, writes = Signal(), Signal()
        m.d.comb += [
            r.eq(cycle[:bits]),
            reads.eq(active & (m_left != 0) & before(r, Mux(a_transposed, k_left, m_left))),
            self.a.en.eq(reads), self.a.row.eq(a_block + r),
            self.unsigned.eq(command.flags[MatrixFlag.A_UNSIGNED]),
            self.serial.eq(active & (a_transposed ^ outputs)),
            # Rows of B enter the mesh in every cycle: zeros for those outside.
            self.b.row.eq(b_block + r),
            self.b.en.eq(self.item.rows[0]),
            self.item.single.eq(active),
            self.item.transposed.eq(b_transposed),
            self.item.rows[0].eq(active & outputs & before(r, Mux(b_transposed, n_left, k_left))),
            self.item.lanes.eq(_limited(Mux(b_transposed, k_left, n_left), dim)),
            self.item.pick.eq(self.b.row[:exact_log2(self.config.preload)]),
            # Results.
            writes.eq(active & before(r, m_left)),
            self.swap.eq(active & (cycle == 0) & ~command.flags[MatrixFlag.REUSE] & ~outputs),
            self.end.eq(drain.end | (begin & self.current.flags[MatrixFlag.OUTPUT_STATIONARY] & ~drain.busy)),
        ]
        with m.If(outputs):
            m.d.comb += self.tag.eq(drain.tag)
        with m.Else():
            m.d.comb += [
                self.tag.write.eq(writes), self.tag.add.eq(add), self.tag.last.eq(self.release),
                self.tag.row.eq(c_block + r),
            ]

        m.d.comb += [
            self.reload.eq(active & command.apart & ~last_tile & reads_end),
            self.release.eq(tile_end & last_tile),
            begin.eq(self.primed & (~active | self.release)),
            self.advance.eq(begin | (tile_end & ~last_tile & ~outputs)),
            drain.end.eq(tile_end & last_k & outputs), drain.last.eq(last_tile), drain.add.eq(add),
            drain.row.eq(c_block), drain.rows.eq(m_left),
        ]

        ends_m, ends_k, ends = at_most(m_left, dim), at_most(k_left, dim), Signal()
        slot, last = self._slots(m, command)
        next_cycle = (cycle + 1)[:len(cycle)]
        m.d.comb += ends.eq(ends_k & at_most(n_left, dim) & (ends_m | ~outputs))
        m.d.sync += [
            last_m.eq(ends_m), last_k.eq(ends_k), last_tile.eq(ends),
            tile_end.eq(active & (next_cycle == Mux(ends, last, slot))), reads_end.eq(next_cycle == last),
        ]
        with m.If(begin | tile_end):  # a tile has two cycles or more
            m.d.sync += [tile_end.eq(0), reads_end.eq(0)]

        # The next block: a step of the inner, the middle or the outer loop.
        inner, middle, outer = Signal(), Signal(), Signal()
        a_inner, a_middle = Signal(16), Signal(16)
        m.d.comb += [
            inner.eq(Mux(outputs, tile_end & ~last_k, active & r.all() & ~tile_end)),
            middle.eq(tile_end & Mux(outputs, last_k & ~last_m, ~last_k)),
            outer.eq(tile_end & last_k & (last_m | ~outputs)),
            a_inner.eq(Mux(outputs ^ a_transposed, command.a_stride, dim)),
            a_middle.eq(Mux(outputs ^ a_transposed, dim, command.a_stride)),
        ]
        m.d.sync += cycle.eq(next_cycle)
        with m.If(tile_end):
            m.d.sync += [cycle.eq(0), active.eq(~last_tile)]
        with m.If(inner):
            m.d.sync += [
                a_block.eq(a_block + a_inner),
                b_block.eq(b_block + Mux(b_transposed, command.b_stride, dim)),
            ]
            with m.If(outputs):
                m.d.sync += k_left.eq(k_left - dim)
            with m.Else():  # a slot may be longer than its rows
                m.d.sync += [m_left.eq(Mux(last_m, 0, m_left - dim)), c_block.eq(c_block + dim)]
        with m.If(middle):
            m.d.sync += [a_outer.eq(a_outer + a_middle), a_block.eq(a_outer + a_middle), b_block.eq(b_outer)]
            with m.If(outputs):
                m.d.sync += [k_left.eq(command.k), m_left.eq(m_left - dim), c_block.eq(c_block + dim)]
            with m.Else():
                m.d.sync += [k_left.eq(k_left - dim), m_left.eq(command.m), c_block.eq(c_outer), add.eq(1)]
        with m.If(outer):
            next_b, next_c = Signal(ROW_BITS), Signal(ROW_BITS)
            m.d.comb += [
                next_b.eq(b_outer + Mux(b_transposed, dim, command.b_stride)),
                next_c.eq(c_outer + command.c_stride),
            ]
            m.d.sync += [
                k_left.eq(command.k), m_left.eq(command.m), n_left.eq(n_left - dim),
                a_outer.eq(command.a_row), a_block.eq(command.a_row), b_outer.eq(next_b), b_block.eq(next_b),
                c_outer.eq(next_c), c_block.eq(next_c), add.eq(command.flags[MatrixFlag.ACCUMULATE]),
            ]
        with m.If(begin):
            first = self.current
            m.d.sync += [
                command.eq(first), active.eq(1), cycle.eq(0),
                m_left.eq(first.m), n_left.eq(first.n), k_left.eq(first.k),
                a_outer.eq(first.a_row), a_block.eq(first.a_row), b_outer.eq(first.b_row), b_block.eq(first.b_row),
                c_outer.eq(first.c_row), c_block.eq(first.c_row), add.eq(first.flags[MatrixFlag.ACCUMULATE]),
            ]
        return m

    def _slots(self, m: Module, command: data.View) -> tuple[Signal, Signal]:
        """Cycles of a tile and of the last tile of a command, less one each."""
        dim = self.config.dim
        items = dim // self.config.preload
        rows, least, last, slot = Signal(16), Signal(range(max(dim, 4))), Signal(16), Signal(17)  # less one
        free = command.flags[MatrixFlag.REUSE] | command.apart  # no preload beside the stream
        m.d.comb += [
            rows.eq((command.m - 1) | Mux(command.flags[MatrixFlag.A_TRANSPOSED], dim - 1, 0)),
            least.eq(Mux(free, self.timing.matrix_rmw, max(items, self.timing.matrix_rmw)) - 1),
            last.eq(Mux(rows > least, rows, least)),
            slot.eq(last + Mux(command.apart, items + command.flags[MatrixFlag.GROUP_SCALES], 0)),
        ]
        with m.If(command.flags[MatrixFlag.OUTPUT_STATIONARY]):
            m.d.comb += [last.eq(dim - 1), slot.eq(dim - 1)]
        return slot, last


def _limited(value: Value, limit: int) -> Value:
    return Mux(value < limit, value[:exact_log2(limit)], limit)
