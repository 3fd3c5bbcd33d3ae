"""Memories banked by lane: runs of entries that begin anywhere are read or written at once."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.hw.interfaces import ENTRY_BITS, FREE

__all__ = ["GroupMemory", "bank_depth", "bank_rows", "first_lanes", "in_run", "prefix_counts",
           "rotate_lanes"]


def bank_depth(lanes: int, entries: int) -> int:
    """Rows of a bank; at least two, so that every bank has an address."""
    return max(2, entries // lanes)


def bank_rows(entry: Value, lanes: int) -> list[Value]:
    """Row of each bank in the run of ``lanes`` entries from ``entry`` on (entry e: bank e % lanes, row e // lanes)."""
    low, high = entry[:exact_log2(lanes)], entry[exact_log2(lanes):]
    following = (high + 1)[:len(high)]
    return [*(Mux(low > b, following, high) for b in range(lanes - 1)), high]


def rotate_lanes(m: Module, value: Value, width: int, amount: Value, name: str) -> Value:
    """Lane l moves to lane (l + amount) % lanes; ``value`` holds lanes of ``width`` bits, lane 0 lowest."""
    value = Value.cast(value)
    for i in range(len(amount)):
        stage = Signal(len(value), name=f"{name}_rotate_{i}")
        m.d.comb += stage.eq(Mux(amount[i], value.rotate_left(width << i), value))
        value = stage
    return value


def first_lanes(count: Value, lanes: int) -> Value:
    """One bit a lane: whether it is below ``count``, which may be of any width."""
    bits = exact_log2(lanes)
    many = count[bits:].any()
    return Cat(*(many | (count[:bits] > lane) for lane in range(lanes - 1)), many)


def in_run(m: Module, entry: Value, count: Value, lanes: int, name: str) -> Value:
    """One bit a bank: whether it holds one of ``count`` (up to ``lanes``) entries from ``entry`` on."""
    return rotate_lanes(m, first_lanes(count, lanes), 1, entry[:exact_log2(lanes)], name)


def prefix_counts(m: Module, bits: list[Value], name: str) -> list[Value]:
    """Number of set bits before position 0, 1, .. len(bits); logarithmic depth (Sklansky)."""
    if len(bits) == 1:
        return [Const(0, 1), bits[0]]
    half = len(bits) // 2
    low, high = prefix_counts(m, bits[:half], f"{name}l"), prefix_counts(m, bits[half:], f"{name}h")
    sums = []
    for i, more in enumerate(high[1:]):
        sums.append(Signal(range(len(bits) + 1), name=f"{name}_{i}"))
        m.d.comb += sums[i].eq(low[-1] + more)
    return low + sums


class GroupMemory(wiring.Component):
    """One memory a lane; entry e stands in bank e % lanes, so that any ``lanes`` entries in a row are apart.

    Latency: read data one cycle after ``r_en``; a write in x is seen by a read in x + 1. Throughput: a run
    of up to ``lanes`` entries read and one written a cycle. No backpressure. Data are in the order of the banks.

    Parameters
    ----------
    lanes, entries: int
        Powers of two.
    width: int
        Bits of an entry.

    Members
    -------
    r_en, r_entry: In
        Read the ``lanes`` entries from ``r_entry`` on.
    r_data: Out(array over banks)
    w_en, w_entry, w_count: In
        Write the ``w_count`` entries from ``w_entry`` on.
    w_data: In(array over banks)
    """

    def __init__(self, *, lanes: int, entries: int, width: int) -> None:
        if entries < lanes:
            raise ValueError(f"entries must be at least lanes = {lanes}, not {entries}")
        self.lanes = lanes
        self.banks = [Memory(shape=width, depth=bank_depth(lanes, entries), init=[], attrs=FREE)
                      for _ in range(lanes)]
        super().__init__({
            "r_en": In(1), "r_entry": In(ENTRY_BITS), "r_data": Out(data.ArrayLayout(width, lanes)),
            "w_en": In(1), "w_entry": In(ENTRY_BITS), "w_count": In(range(lanes + 1)),
            "w_data": In(data.ArrayLayout(width, lanes)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        hits = in_run(m, self.w_entry, self.w_count, self.lanes, "hits")
        read_rows, write_rows = bank_rows(self.r_entry, self.lanes), bank_rows(self.w_entry, self.lanes)
        for b, memory in enumerate(self.banks):
            m.submodules[f"bank_{b}"] = memory
            read, write = memory.read_port(), memory.write_port()
            m.d.comb += [
                read.en.eq(self.r_en), read.addr.eq(read_rows[b]), self.r_data[b].eq(read.data),
                write.en.eq(self.w_en & hits[b]), write.addr.eq(write_rows[b]), write.data.eq(self.w_data[b]),
            ]
        return m
