"""Routing of results: survivors are pushed together and turned to the lanes where keys and lists go on."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.hw.select_memory import ENTRY_BITS, rotate_lanes
from gemmule.numerics.select import KEY_BITS

__all__ = ["KEYED_BITS", "Route", "compact"]

KEYED_BITS = KEY_BITS + ENTRY_BITS
"""A key (low bits) with its id."""


def compact(m: Module, lanes: list[Value], drop: list[Value]) -> list[Signal]:
    """Lane i moves down by ``drop[i]``; drops of lanes that stay in order never fall, garbage has drop 0.

    Moves by 1, 2, 4 .. meet no other valid lane, lowest first (H. S. Warren, Hacker's Delight, 7-4, compress).
    """
    count = len(lanes)
    for i in range(exact_log2(count)):
        step = 1 << i
        values = [Signal(len(lanes[0]), name=f"compact_{i}_{lane}") for lane in range(count)]
        drops = [Signal(len(drop[0]), name=f"drop_{i}_{lane}") for lane in range(count)]
        for lane in range(count):
            m.d.comb += [values[lane].eq(lanes[lane]), drops[lane].eq(Mux(drop[lane][i], 0, drop[lane]))]
            if lane + step < count:
                with m.If(drop[lane + step][i]):
                    m.d.comb += [values[lane].eq(lanes[lane + step]), drops[lane].eq(drop[lane + step])]
        lanes, drop = values, drops
    return lanes


class Route(wiring.Component):
    """Takes up to one key with its id per lane, and gives them in the order of the banks, with where they go.

    Latency 1: what ``load`` takes in x is at the outputs in x + 1. One group a cycle, no backpressure.

    Members
    -------
    begin, key_entry, list_entry: In
        Where the command's first key and list entry go; the following ones go behind them.
    load: In(1)
        Takes ``lanes`` (keys with ids), ``drop`` (lanes to move down by) and ``count`` (lanes that are left then).
    turn: In
        Lanes by which keys are moved up when they did not begin at lane 0 in their source; else 0.
    keys, ids: Out(array over banks)
        For the key memory and for the lists.
    en, count_out, key_at, list_at: Out
        Write ``count_out`` entries from ``key_at`` or ``list_at`` on.
    """

    def __init__(self, *, lanes: int) -> None:
        self.size = lanes
        bits = exact_log2(lanes)
        keyed = data.ArrayLayout(KEYED_BITS, lanes)
        super().__init__({
            "begin": In(1), "key_entry": In(ENTRY_BITS), "list_entry": In(ENTRY_BITS),
            "load": In(1), "lanes": In(keyed), "drop": In(data.ArrayLayout(bits, lanes)),
            "count": In(range(lanes + 1)), "turn": In(bits),
            "keys": Out(keyed), "ids": Out(data.ArrayLayout(ENTRY_BITS, lanes)),
            "en": Out(1), "count_out": Out(range(lanes + 1)), "key_at": Out(ENTRY_BITS), "list_at": Out(ENTRY_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size, bits = self.size, exact_log2(self.size)
        taken, drop = Signal.like(self.lanes), Signal.like(self.drop)
        m.d.sync += self.en.eq(self.load)
        with m.If(self.load):
            m.d.sync += [taken.eq(self.lanes), drop.eq(self.drop), self.count_out.eq(self.count)]
        with m.If(self.begin):
            m.d.sync += [self.key_at.eq(self.key_entry), self.list_at.eq(self.list_entry)]
        with m.Elif(self.en):
            m.d.sync += [self.key_at.eq(self.key_at + self.count_out), self.list_at.eq(self.list_at + self.count_out)]

        packed = compact(m, [taken[i] for i in range(size)], [drop[i] for i in range(size)])
        amount = Signal(bits)
        keyed, ids = Signal.like(self.keys), Signal.like(self.ids)
        m.d.comb += amount.eq(self.key_at - self.turn)
        for i in range(size):
            m.d.comb += [keyed[i].eq(packed[i]), ids[i].eq(packed[i][KEY_BITS:])]
        m.d.comb += [
            self.keys.eq(rotate_lanes(m, keyed, KEYED_BITS, amount, "key")),
            self.ids.eq(rotate_lanes(m, ids, ENTRY_BITS, self.list_at[:bits], "id")),
        ]
        return m
