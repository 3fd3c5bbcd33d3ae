"""A skewed edge of the mesh that takes rows as they are or transposed."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.hw.skew import Skew, Stairs

__all__ = ["Edge"]


class Edge(wiring.Component):
    """Rows of lanes to the skewed stream of a mesh edge.

    Plain rows: lane i of the row given in cycle x leaves at lane i in x + 1 + i. Serial (transposed)
    rows: the row given in cycle x + r with ``index`` r goes to the parallel-in serial-out register of
    lane r, and its element k leaves at lane r in x + 1 + r + k. So a block of ``lanes`` rows with
    indices 0, 1, .. leaves transposed, skewed by itself, and blocks of both kinds follow each other
    without a gap. One row per cycle, no flow control. Registers of serial rows rest while there are none.

    Parameters
    ----------
    lanes: int
    width: int
        Bits of a lane.
    serial: int
        Bits of a lane in serial rows, the lower ones; the others are then 0.

    Members
    -------
    row: In(ArrayLayout(width, lanes))
    transpose: In(1)
        In every cycle of a block of serial rows.
    load: In(1)
        The row is taken, if it is serial; a register that misses its row repeats zeros.
    index: In(range(lanes))
    o: Out(ArrayLayout(width, lanes))
    """

    def __init__(self, *, lanes: int, width: int, serial: int) -> None:
        if not 1 <= serial <= width:
            raise ValueError(f"serial must be from 1 to width = {width} bits, not {serial}")
        self.lanes, self.serial = lanes, serial
        layout = data.ArrayLayout(width, lanes)
        self.skew = Skew(lanes=lanes, shape=width)
        super().__init__({
            "row": In(layout), "transpose": In(1), "load": In(1), "index": In(range(lanes)), "o": Out(layout),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        lanes, serial = self.lanes, self.serial
        m.submodules.skew = skew = self.skew
        # Bit i: lane i shows its serial register now.
        m.submodules.shows = shows = Stairs(delays=[1 + i for i in range(lanes)])
        m.d.comb += shows.i.eq(self.transpose)
        m.d.sync += skew.i.eq(self.row)

        elements = Signal(serial * lanes)
        take, busy = Signal(), Signal()
        m.d.comb += [
            elements.eq(Cat(self.row[i][:serial] for i in range(lanes))),
            take.eq(self.load & self.transpose),
            busy.eq(self.transpose | shows.o.any()),
        ]
        for i in range(lanes):
            register = Signal(serial * lanes, name=f"serial_{i}", reset_less=True)
            moved = Mux(take & (self.index == i), elements, Mux(shows.o[i], register >> serial, register))
            m.d.sync += register.eq(Mux(busy, moved, register))  # one condition for all: quick to simulate
            m.d.comb += self.o[i].eq(Mux(shows.o[i], register[:serial], skew.o[i]))
        return m
