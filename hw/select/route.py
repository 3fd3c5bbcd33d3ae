"""Routing of results: survivors move, side by side, to the lanes where keys and lists go on."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.hw.interfaces import ENTRY_BITS
from gemmule.hw.select.group_memory import prefix_counts
from gemmule.numerics.select import KEY_BITS

__all__ = ["Route", "keyed_bits", "spread"]


def keyed_bits(index_bits: int) -> int:
    """A key (low bits) with its id."""
    return KEY_BITS + index_bits


def spread(m: Module, lanes: list[Value], keep: Value, to: list[Value], name: str) -> list[Signal]:
    """The lanes in ``keep`` move to lanes ``to``, which rise by 1 from each to the next, modulo the number of lanes.

    Step i sets bit i of the lane's number, lowest first. Two kept lanes never meet: they would be of one block of
    2 ** (i + 1) lanes, whose places differ in their i + 1 lowest bits (an omega network in reverse concentrates
    without blocking). Other lanes hold anything.
    """
    count = len(lanes)
    for i in range(exact_log2(count)):
        moved = [Signal(len(lanes[0]), name=f"{name}_{i}_{lane}") for lane in range(count)]
        kept = Signal(count, name=f"{name}_kept_{i}")
        places = [Signal(len(to[0]), name=f"{name}_to_{i}_{lane}") for lane in range(count)]
        for lane in range(count):
            other, bit = lane ^ 1 << i, lane >> i & 1
            stays, comes = keep[lane] & (to[lane][i] == bit), keep[other] & (to[other][i] == bit)
            m.d.comb += [
                moved[lane].eq(Mux(comes, lanes[other], lanes[lane])),
                places[lane].eq(Mux(comes, to[other], to[lane])),
                kept[lane].eq(stays | comes),
            ]
        lanes, keep, to = moved, kept, places
    return lanes


class Route(wiring.Component):
    """Takes up to one key with its id per lane, and gives them in the order of the banks, with where they go.

    Latency 1: what ``load`` takes in x is at the outputs in x + 1. One group a cycle, no backpressure.

    Parameters
    ----------
    lanes, index_bits: int
        Keys a cycle, and bits of an id.

    Members
    -------
    begin, key_entry, list_entry: In
        Where the command's first key and list entry go; the following ones go behind them.
    load: In(1)
        Takes ``lanes`` (keys with ids), ``keep`` (which of them go on) and ``count`` (how many of them count).
    turn: In
        Lanes by which keys are moved up when they did not begin at lane 0 in their source; else 0.
    keys, ids: Out(array over banks)
        For the key memory and for the lists.
    en, count_out, key_at, list_at: Out
        Write ``count_out`` entries from ``key_at`` or ``list_at`` on.
    """

    def __init__(self, *, lanes: int, index_bits: int) -> None:
        self.size = lanes
        bits = exact_log2(lanes)
        keyed = data.ArrayLayout(keyed_bits(index_bits), lanes)
        super().__init__({
            "begin": In(1), "key_entry": In(ENTRY_BITS), "list_entry": In(ENTRY_BITS),
            "load": In(1), "lanes": In(keyed), "keep": In(lanes),
            "count": In(range(lanes + 1)), "turn": In(bits),
            "keys": Out(keyed), "ids": Out(data.ArrayLayout(index_bits, lanes)),
            "en": Out(1), "count_out": Out(range(lanes + 1)), "key_at": Out(ENTRY_BITS), "list_at": Out(ENTRY_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size, bits = self.size, exact_log2(self.size)
        taken, keep = Signal.like(self.lanes), Signal.like(self.keep)
        m.d.sync += self.en.eq(self.load)
        with m.If(self.load):
            m.d.sync += [taken.eq(self.lanes), keep.eq(self.keep), self.count_out.eq(self.count)]
        with m.If(self.begin):
            m.d.sync += [self.key_at.eq(self.key_entry), self.list_at.eq(self.list_entry)]
        with m.Elif(self.en):
            m.d.sync += [self.key_at.eq(self.key_at + self.count_out), self.list_at.eq(self.list_at + self.count_out)]

        before = prefix_counts(m, list(keep), "before")
        first = Signal(bits)
        m.d.comb += first.eq(self.key_at - self.turn)
        for out, low, start, name in ((self.keys, 0, first, "key"), (self.ids, KEY_BITS, self.list_at, "id")):
            to = [Signal(bits, name=f"{name}_place_{i}") for i in range(size)]
            m.d.comb += [to[i].eq(start + before[i]) for i in range(size)]
            m.d.comb += Cat(out).eq(Cat(spread(m, [taken[i][low:] for i in range(size)], keep, to, name)))
        return m
