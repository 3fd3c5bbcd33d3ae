"""One lane's reads of the tables: a byte, or two words and how far apart they are."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.hw.vector.ops import WORDS
from gemmule.numerics import BYTE_TABLE_ENTRIES

__all__ = ["PLACE", "STEP_BITS", "WordLookup"]

STEP_BITS = 7
PLACE = data.StructLayout({"entry": exact_log2(WORDS), "byte": 1})
"""An entry in the memory of low bytes: of the word table, or of the byte table behind it."""


class WordLookup(wiring.Component):
    """T[i], T[i+1] - T[i] and w of ``numerics.interpolate``, for one operand every two cycles; or byte T[x & 255].

    Both words come through one port, one cycle after the other. Latency: the operand ``x`` stands still in stages 6
    and 7 (bytes: only in 6); ``byte`` is there in stage 7, ``rise`` and ``weight`` in stage 9, ``base`` in stages 9 and
    10.

    Members
    -------
    clear: In(1)
        Makes base, rise and weight 0, so that they may be combined with other operands.
    lookup: In(1)
        Byte table.
    enable: In(3)
        Word table: an operand is in stage 6, 7, 8.
    x: In(signed(16))
    place: Out(PLACE)
        Of the byte in stage 6; of T[i] in stage 6, of T[i+1] in stage 7.
    low, high: In(8)
        What stands there, one cycle later.
    end: In(16)
        T[512], which no memory row holds.
    byte: Out(8)
    base: Out(signed(16)), rise: Out(signed(17)), weight: Out(7)
    """

    def __init__(self) -> None:
        super().__init__({
            "clear": In(1), "lookup": In(1), "enable": In(3), "x": In(signed(16)), "place": Out(PLACE),
            "low": In(8), "high": In(8), "end": In(16),
            "byte": Out(8), "base": Out(signed(16)), "rise": Out(signed(17)), "weight": Out(STEP_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        place, index, past = Signal(16), Signal(range(WORDS + 1)), Signal()
        m.d.comb += [
            place.eq(self.x ^ 0x8000),
            index.eq(place[STEP_BITS:] + self.enable[1]),
            self.place.entry.eq(Mux(self.lookup, self.x[:exact_log2(BYTE_TABLE_ENTRIES)], index)),
            self.place.byte.eq(self.lookup),
        ]
        m.d.sync += past.eq(index[-1])

        entry, first = Signal(signed(16)), Signal(signed(16))
        m.d.comb += [self.byte.eq(self.low), entry.eq(Mux(past, self.end, Cat(self.low, self.high)))]
        with m.If(self.enable[1]):
            m.d.sync += [first.eq(entry), self.weight.eq(place)]
        with m.If(self.enable[2]):
            m.d.sync += [self.base.eq(first), self.rise.eq(entry - first)]
        with m.If(self.clear):
            m.d.sync += [self.base.eq(0), self.rise.eq(0), self.weight.eq(0)]
        return m
