"""The preload sequencer of the matrix unit: weight tiles of weight-stationary commands."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import ROW_BITS, SpmRead, matrix_layout
from gemmule.hw.matrix.drain import at_most, before
from gemmule.hw.matrix.unpack import weight_item
from gemmule.isa import MatrixFlag

__all__ = ["Preload", "ScaleRows"]


class ScaleRows(wiring.Component):
    """Rows of the group scales of a command, tile after tile (N outer, K inner).

    Members
    -------
    start: In(1)
        Begin with the first tile of ``command``.
    command: In(matrix_layout(config))
    current: In(matrix_layout(config))
        The same command, from the next cycle on.
    step: In(1)
        The row is read in this cycle.
    row: Out(ROW_BITS)
        Of the next tile to be loaded.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        layout = matrix_layout(config)
        super().__init__({
            "start": In(1), "command": In(layout), "current": In(layout), "step": In(1), "row": Out(ROW_BITS),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        bits = exact_log2(self.config.dim)
        first = Signal(ROW_BITS)  # of this column block
        tile = Signal(16)  # along K
        m.d.comb += self.row.eq(first + (tile >> self.current.group))
        with m.If(self.step):
            with m.If(tile == (self.current.k - 1) >> bits):
                m.d.sync += [tile.eq(0), first.eq(first + self.current.b_stride)]
            with m.Else():
                m.d.sync += tile.eq(tile + 1)
        with m.If(self.start):
            weights = (((self.command.k - 1) >> bits) + 1) << (bits - 1)  # rows of one column block
            m.d.sync += [tile.eq(0), first.eq(self.command.b_row + weights)]
        return m


class Preload(wiring.Component):
    """Read the weight tiles of a command, DIM / preload items of ``preload`` rows per tile.

    The first tile is read from the cycle after ``start`` on; each further tile from the first stream
    cycle of the tile before it (``advance`` is high in the cycle before that), or when ``apart`` from the
    end of its stream on (``reload`` is high in the cycle before that). Rows outside B are not read. An
    int4 read holds two items. With group scales a tile's scales are read in the cycle before its first
    item: a cycle of its own for the first tile and apart, else the cycle of ``advance``, in which the port
    is free (with one item per tile it need not be; there is then time for a cycle after it).

    A command without preload (REUSE, output-stationary) only waits for its stream. The unit is ``ready``
    again in the cycle before the stream of the command's last tile begins (REUSE, output-stationary:
    before the stream begins).

    Parameters
    ----------
    config: Config

    Members
    -------
    start: In(1)
        Issue cycle.
    command: In(matrix_layout(config))
    ready: Out(1)
    primed: Out(1)
        The first tile's last read is in this cycle or was earlier: the stream may begin in the next.
    current: Out(matrix_layout(config))
        The command being loaded, for the stream to copy.
    advance: In(1)
        In the next cycle the stream of the tile loaded last begins.
    reload: In(1)
        In the next cycle the read of the next tile may begin, A and B apart.
    release: Out(1)
        First cycle of ``ready``: the B port is free from the next one on.
    b: Out(SpmRead(config, preload))
    item: Out(weight_item(config))
        In the cycle of the read.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "start": In(1),
            "command": In(matrix_layout(config)),
            "ready": Out(1),
            "primed": Out(1),
            "current": Out(matrix_layout(config)),
            "advance": In(1),
            "reload": In(1),
            "release": Out(1),
            "b": Out(SpmRead(config, config.preload)),
            "item": Out(weight_item(config)),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        dim, preload = self.config.dim, self.config.preload
        items = dim // preload
        m.submodules.scale_rows = scale_rows = ScaleRows(config=self.config)
        current = self.current
        transposed, int4, scaled, resident, shift = Signal(), Signal(), Signal(), Signal(), Signal(range(5))
        m.d.comb += [
            transposed.eq(current.flags[MatrixFlag.B_TRANSPOSED]),
            int4.eq(current.flags[MatrixFlag.B_INT4]),
            shift.eq(Mux(current.group > 4, 4, current.group)),
            scaled.eq(current.flags[MatrixFlag.GROUP_SCALES]),
            resident.eq(_resident(current)),
        ]

        idle = Signal(init=1)
        scaling = Signal()  # a cycle for the scales, then the items
        loading = Signal()
        waiting = Signal()  # first tile loaded (or none to load), its stream not yet begun
        first_tile = Signal()
        index = Signal(range(items))
        k_left = Signal.like(current.k)  # rows of B from this tile's first one on
        n_left = Signal.like(current.n)
        outer_row = Signal(ROW_BITS)  # first tile of this column block
        tile_row = Signal(ROW_BITS)
        last_item, scale_read, item_read = Signal(), Signal(), Signal()
        if items > 1:  # a register: the unit may be ready again with it
            m.d.sync += last_item.eq(loading & (index == items - 2))
        else:
            m.d.comb += last_item.eq(loading)

        # Read: scratchpad rows are rows of B, or its columns when transposed; two of them each when int4.
        rows_left = Mux(transposed, n_left, k_left)
        lanes_left = Mux(transposed, k_left, n_left)
        row = Signal(range(dim))
        item_row = Signal(ROW_BITS)
        half = index[0] if items > 1 else tile_row[exact_log2(preload) - 1]
        follows = int4 & index[0] if items > 1 else 0  # its data came with the item before
        m.d.comb += [
            row.eq(index * preload),
            item_row.eq(tile_row + Mux(int4, row >> 1, row)),
            item_read.eq(loading & before(row, rows_left) & ~follows),
            self.b.en.eq(item_read | scale_read),
            self.b.row.eq(Mux(scale_read, scale_rows.row, item_row)),
            self.item.first.eq(loading & (index == 0)),
            self.item.transposed.eq(transposed),
            self.item.rows.eq(Cat(loading & before(row | i, rows_left) for i in range(preload))),
            self.item.lanes.eq(Mux(lanes_left < dim, lanes_left[:exact_log2(dim)], dim)),
            self.item.int4.eq(int4), self.item.half.eq(half), self.item.shift.eq(shift), self.item.scaled.eq(scaled),
            self.item.scale.eq(scale_read), self.item.pick.eq(scale_rows.row[:exact_log2(preload)]),
            scale_rows.start.eq(self.start), scale_rows.command.eq(self.command),
            scale_rows.current.eq(current), scale_rows.step.eq(scale_read),
        ]

        with m.If(scaling):
            m.d.comb += scale_read.eq(1)
            m.d.sync += [scaling.eq(0), loading.eq(1)]
        with m.If(loading):
            m.d.sync += index.eq(index + 1)
            with m.If(last_item):
                m.d.sync += [loading.eq(0), index.eq(0), first_tile.eq(0), waiting.eq(first_tile)]
        m.d.comb += self.primed.eq(waiting | (last_item & first_tile))

        # Next tile: K inner, N outer.
        last_k, last_n = at_most(k_left, dim), at_most(n_left, dim)
        # Nothing comes behind this tile: in a register, because the unit is ready again with it. Tiles take two cycles
        # or more, but the first one's stream may begin in the cycle after ``start``.
        last_tile = Signal()
        m.d.sync += last_tile.eq(last_k & last_n)
        step = Mux(int4, dim // 2, dim)
        next_outer = Signal.like(outer_row)
        m.d.comb += next_outer.eq(outer_row + Mux(transposed, step, current.b_stride))
        with m.If(self.advance):
            m.d.sync += waiting.eq(0)
            with m.If(resident | last_tile):
                m.d.comb += self.release.eq(1)
                m.d.sync += idle.eq(1)
            with m.Elif(~current.apart):
                if items > 1:
                    m.d.comb += scale_read.eq(scaled)
                    m.d.sync += loading.eq(1)
                else:
                    m.d.sync += [scaling.eq(scaled), loading.eq(~scaled)]
            with m.If(last_k):
                m.d.sync += [
                    k_left.eq(current.k), n_left.eq(n_left - dim),
                    outer_row.eq(next_outer), tile_row.eq(next_outer),
                ]
            with m.Else():
                m.d.sync += [
                    k_left.eq(k_left - dim),
                    tile_row.eq(tile_row + Mux(transposed, current.b_stride, step)),
                ]
        with m.If(self.reload):
            m.d.sync += [scaling.eq(scaled), loading.eq(~scaled)]

        m.d.comb += self.ready.eq(idle | self.release)
        with m.If(self.start):
            nothing = _resident(self.command)
            first_scales = self.command.flags[MatrixFlag.GROUP_SCALES]
            m.d.sync += [
                idle.eq(0), scaling.eq(first_scales), loading.eq(~nothing & ~first_scales),
                waiting.eq(nothing), first_tile.eq(~nothing), current.eq(self.command),
                k_left.eq(self.command.k), n_left.eq(self.command.n),
                last_tile.eq(at_most(self.command.k, dim) & at_most(self.command.n, dim)),
                outer_row.eq(self.command.b_row), tile_row.eq(self.command.b_row),
            ]
        return m


def _resident(command: data.View) -> Value:
    """Whether a command has nothing to preload."""
    return command.flags[MatrixFlag.REUSE] | command.flags[MatrixFlag.OUTPUT_STATIONARY]
