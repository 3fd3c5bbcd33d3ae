"""A skewed edge of the mesh that takes rows as they are or transposed."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.hw.matrix.skew import Skew

__all__ = ["Edge"]


class Edge(wiring.Component):
    """Rows of lanes to the skewed stream of a mesh edge.

    Plain rows: lane i of the row given in cycle x leaves at lane i in x + 1 + i. Serial (transposed)
    rows: element k of the row given in cycle x + r with ``index`` r leaves at lane r in x + 1 + r + k. So
    a block of ``lanes`` rows with indices 0, 1, .. leaves transposed, skewed by itself, and blocks of
    both kinds follow each other without a gap. What an incomplete block leaves is not said. One row per
    cycle, no flow control.

    Element k leaves the skew registers k cycles after element 0, so that lane r finds the elements of its
    row one after the other, at their ends: a choice among the skewed lanes transposes.

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
        The row is taken, if it is serial; else it is zeros.
    index: In(range(lanes))
        Number of the row in its block of serial rows.
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
        m.d.comb += skew.i.eq(Mux(self.transpose & ~self.load, 0, self.row.as_value()))

        # What lane 0 shows, another lane some cycles later: the ends of its own skew lane or of lane k (bit k). The
        # register stands behind the choice: a multiplier follows.
        shows = Signal(1 + lanes)
        m.d.comb += shows.eq(Mux(self.transpose, 2 << self.index, 1))
        for r in range(lanes):
            plain = shows[0]
            picks = [shows[1 + k] | plain if k == r else shows[1 + k] for k in range(lanes)]
            passed = Signal.like(shows, name=f"shows_{r}")
            m.d.sync += passed.eq(shows)
            shows = passed
            m.d.sync += self.o[r].eq(Cat(
                _either([Mux(pick, skew.o[k][:serial], 0) for k, pick in enumerate(picks)]),
                Mux(plain, skew.o[r][serial:], 0)))
        return m


def _either(parts: list[Value]) -> Value:
    """Their "or" as a tree, of which every look-up table takes four."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return _either(parts[:half]) | _either(parts[half:])
