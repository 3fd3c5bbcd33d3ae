"""One lane's reads of the word table: two entries and how far apart they are."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.vector_ops import WORDS

__all__ = ["WordLookup"]

STEP_BITS = 7


class WordLookup(wiring.Component):
    """T[i], T[i+1] - T[i] and w of ``numerics.interpolate``, for one operand every two cycles.

    A memory row holds DIM entries, so that the table is filled as fast as the scratchpad is read; both entries come
    through one port, one cycle after the other. Latency: the operand ``x`` stands still in stages 6 and 7; ``rise`` and
    ``weight`` are there in stage 9, ``base`` in stages 9 and 10.

    Members
    -------
    enable: In(3)
        An operand is in stage 6, 7, 8.
    x: In(signed(16))
    row: Out
        Memory row of T[i] in stage 6, of T[i+1] in stage 7.
    low, high: In(8 * dim)
        Its low and high bytes, one cycle later.
    end: In(16)
        T[512], which no memory row holds.
    base: Out(signed(16)), rise: Out(signed(17)), weight: Out(7)
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "enable": In(3), "x": In(signed(16)), "row": Out(range(WORDS // config.dim)),
            "low": In(8 * config.dim), "high": In(8 * config.dim), "end": In(16),
            "base": Out(signed(16)), "rise": Out(signed(17)), "weight": Out(STEP_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lane_bits = exact_log2(self.config.dim)
        place, index = Signal(16), Signal(range(WORDS + 1))
        pick, past = Signal(lane_bits), Signal()
        m.d.comb += [
            place.eq(self.x ^ 0x8000),
            index.eq(place[STEP_BITS:] + self.enable[1]),
            self.row.eq(index[lane_bits:exact_log2(WORDS)]),
        ]
        m.d.sync += [pick.eq(index), past.eq(index == WORDS)]

        entry, first = Signal(signed(16)), Signal(signed(16))
        low, high = (Array(side.word_select(i, 8) for i in range(self.config.dim)) for side in (self.low, self.high))
        m.d.comb += entry.eq(Mux(past, self.end, Cat(low[pick], high[pick])))
        with m.If(self.enable[1]):
            m.d.sync += [first.eq(entry), self.weight.eq(place)]
        with m.If(self.enable[2]):
            m.d.sync += [self.base.eq(first), self.rise.eq(entry - first)]
        return m
