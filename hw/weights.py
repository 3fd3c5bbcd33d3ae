"""Weights of the matrix unit: the preload sequencer and the injector at the mesh's edges."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import SpmRead, matrix_layout
from gemmule.isa import MatrixFlag

__all__ = ["Injector", "Preload", "weight_item"]


def weight_item(config: Config) -> data.StructLayout:
    """What is known of a weight item when it is read: ``rows`` and ``lanes`` mark what is inside B."""
    return data.StructLayout({
        "first": 1, "transposed": 1, "rows": config.preload, "lanes": config.dim,
    })


class Preload(wiring.Component):
    """Read the weight tiles of a command, DIM / preload items of ``preload`` rows per tile.

    The first tile is read from the cycle after ``start`` on; each further tile from the first stream
    cycle of the tile before it (``advance`` is high in the cycle before that). Rows outside B are not
    read. The unit is ``ready`` again when the stream of the command's last tile begins.

    Parameters
    ----------
    config: Config

    Members
    -------
    start: In(1)
        Issue cycle of a command with non-zero lengths.
    command: In(matrix_layout(config))
    ready: Out(1)
        Registered.
    primed: Out(1)
        The first tile's last read is in this cycle or was earlier: the stream may begin in the next.
    current: Out(matrix_layout(config))
        The command being loaded, for the stream to copy.
    advance: In(1)
        In the next cycle the stream of the tile loaded last begins.
    release: Out(1)
        Cycle before ``ready``: the B port is free.
    b: Out(SpmRead(config, preload))
    item: Out(weight_item(config))
        In the cycle of the read.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "start": In(1),
            "command": In(matrix_layout(config)),
            "ready": Out(1, init=1),
            "primed": Out(1),
            "current": Out(matrix_layout(config)),
            "advance": In(1),
            "release": Out(1),
            "b": Out(SpmRead(config, config.preload)),
            "item": Out(weight_item(config)),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        dim, preload = self.config.dim, self.config.preload
        items = dim // preload
        current = self.current
        transposed = Signal()
        m.d.comb += transposed.eq(current.flags[MatrixFlag.B_TRANSPOSED])

        loading = Signal()
        waiting = Signal()  # first tile loaded, its stream not yet begun
        first_tile = Signal()
        index = Signal(range(items))
        k_left = Signal.like(current.k)  # rows of B from this tile's first one on
        n_left = Signal.like(current.n)
        outer_row = Signal(16)  # first tile of this column block
        tile_row = Signal(16)
        last_item = Signal()
        m.d.comb += last_item.eq(loading & (index == items - 1))

        # Read: scratchpad rows are rows of B, or its columns when transposed.
        rows_left = Mux(transposed, n_left, k_left)
        lanes_left = Mux(transposed, k_left, n_left)
        row = index * preload
        m.d.comb += [
            self.b.row.eq(tile_row + row),
            self.b.en.eq(loading & (row < rows_left)),
            self.item.first.eq(loading & (index == 0)),
            self.item.transposed.eq(transposed),
            self.item.rows.eq(Cat(loading & (row + i < rows_left) for i in range(preload))),
            self.item.lanes.eq(Cat(i < lanes_left for i in range(dim))),
        ]

        with m.If(loading):
            m.d.sync += index.eq(index + 1)
            with m.If(last_item):
                m.d.sync += [loading.eq(0), index.eq(0), first_tile.eq(0), waiting.eq(first_tile)]
        m.d.comb += self.primed.eq(waiting | (last_item & first_tile))

        # Next tile: K inner, N outer.
        last_k, last_n = k_left <= dim, n_left <= dim
        next_outer = Signal.like(outer_row)
        m.d.comb += next_outer.eq(outer_row + Mux(transposed, dim, current.b_stride))
        with m.If(self.advance):
            m.d.sync += waiting.eq(0)
            with m.If(last_k & last_n):
                m.d.comb += self.release.eq(1)
                m.d.sync += self.ready.eq(1)
            with m.Else():
                m.d.sync += loading.eq(1)
            with m.If(last_k):
                m.d.sync += [
                    k_left.eq(current.k), n_left.eq(n_left - dim),
                    outer_row.eq(next_outer), tile_row.eq(next_outer),
                ]
            with m.Else():
                m.d.sync += [
                    k_left.eq(k_left - dim),
                    tile_row.eq(tile_row + Mux(transposed, current.b_stride, dim)),
                ]

        with m.If(self.start):
            m.d.sync += [
                self.ready.eq(0), loading.eq(1), first_tile.eq(1), current.eq(self.command),
                k_left.eq(self.command.k), n_left.eq(self.command.n),
                outer_row.eq(self.command.b_row), tile_row.eq(self.command.b_row),
            ]
        return m


class Injector(wiring.Component):
    """Zero what lies outside B, regroup by lane, and register: two cycles after the read.

    Parameters
    ----------
    config: Config

    Members
    -------
    item: In(weight_item(config))
        In the cycle of the read.
    data: In(preload * DIM * 8)
        Read data, one cycle after the read; lowest row in the lowest bits.
    weights: Out(ArrayLayout(8 * preload, DIM))
        By lane; two cycles after the read, as the next three.
    transposed: Out(1)
    capture_row, capture_column: Out(1)
        First item of a normal tile, of a transposed tile.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "item": In(weight_item(config)),
            "data": In(config.preload * config.dim * 8),
            "weights": Out(data.ArrayLayout(8 * config.preload, config.dim)),
            "transposed": Out(1),
            "capture_row": Out(1),
            "capture_column": Out(1),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        dim, preload = self.config.dim, self.config.preload
        # Stage 1: the item's facts wait for its data.
        item = Signal(weight_item(self.config))
        m.d.sync += item.eq(self.item)
        # Stage 2: mask and register.
        rows = data.View(data.ArrayLayout(data.ArrayLayout(8, dim), preload), self.data)
        for lane in range(dim):
            m.d.sync += self.weights[lane].eq(Cat(
                Mux(item.rows[i] & item.lanes[lane], rows[i][lane], 0) for i in range(preload)))
        m.d.sync += [
            self.transposed.eq(item.transposed),
            self.capture_row.eq(item.first & ~item.transposed),
            self.capture_column.eq(item.first & item.transposed),
        ]
        return m
