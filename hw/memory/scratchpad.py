"""Scratchpad: int8 rows in banks, each with one read and one write port."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import FREE, SpmRead, SpmWrite, part

__all__ = ["Scratchpad"]

SINGLE_READS = ("store_r", "matrix_a", "vector_r0", "vector_r1", "select_r")
READS = (*SINGLE_READS, "matrix_b")
WRITES = ("load_w", "vector_w", "select_w")


def any_of(terms: Iterable[Value]) -> Value:
    """OR of terms of which at most one is not 0."""
    return reduce(or_, terms)


def one_of(hits: list[Value], values: list[Value]) -> Value:
    """The value whose hit is 1; anything if none is."""
    chosen = values[-1]
    for hit, value in zip(hits[:-1], values[:-1], strict=True):
        chosen = Mux(hit, value, chosen)
    return chosen


class Scratchpad(wiring.Component):
    """Banked row memory. Banks are contiguous row ranges; a bank is ``preload`` sub-banks,
    interleaved by the low bits of the row, so that ``preload`` aligned rows are read at once.

    Latency: read data one cycle after ``en``; a write waits in a register of its bank: one in x is seen by a read in
    x + 2, and what a read in x or x + 1 sees of its bytes is undefined (no legal program looks). Throughput: one read
    and one write per bank and cycle. Claims keep two streams off one port, so requests are merged without arbitration.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    store_r, matrix_a, vector_r0, vector_r1, select_r: In(SpmRead)
        One row a cycle each.
    matrix_b: In(SpmRead of preload rows)
        The ``preload`` aligned rows that contain ``row``, lowest row in the lowest bits.
    load_w, vector_w, select_w: In(SpmWrite)
        One row a cycle each, with a write mask per lane.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__(
            {name: In(SpmRead(config)) for name in SINGLE_READS}
            | {"matrix_b": In(SpmRead(config, config.preload))}
            | {name: In(SpmWrite(config)) for name in WRITES}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        sub_bits = exact_log2(config.preload)
        row_bits = exact_log2(config.spm_bank_rows)
        bank_bits = exact_log2(config.spm_banks)
        width = config.dim * 8

        reads = {name: getattr(self, name) for name in READS}
        writes = {name: getattr(self, name) for name in WRITES}
        rows = dict.fromkeys(READS, Const(0, 1))
        for b in range(config.spm_banks):
            def hits_of(streams: dict[str, wiring.PureInterface], b: int = b) -> list[Signal]:
                """Whether this bank serves each stream."""
                hits = [Signal(name=f"{name}_hit_{b}") for name in streams]
                m.d.comb += [
                    hit.eq(stream.en & (stream.row[row_bits:row_bits + bank_bits] == b))
                    for hit, stream in zip(hits, streams.values(), strict=True)]
                return hits

            # What stands in a bank once, for whichever stream has it, is cheaper than once for each stream.
            reading, writing = hits_of(reads), hits_of(writes)
            read_row, write_row = Signal(row_bits, name=f"read_{b}"), Signal(row_bits, name=f"write_{b}")
            mask = one_of(writing, [stream.mask for stream in writes.values()])
            m.d.comb += [
                read_row.eq(any_of(Mux(hit, stream.row, 0) for hit, stream in zip(reading, reads.values()))),
                write_row.eq(one_of(writing, [stream.row for stream in writes.values()])),
            ]
            whole = Signal(width * config.preload, name=f"whole_{b}")
            for s in range(config.preload):
                m.submodules[f"bank_{b}_{s}"] = memory = Memory(
                    shape=width, depth=config.spm_bank_rows // config.preload, init=[], attrs=FREE)
                read, write = memory.read_port(), memory.write_port(granularity=8)
                enable = any_of(hit & ((stream.row[:sub_bits] == s) if sub_bits else 1)
                                for hit, stream in zip(writing, writes.values()))
                m.d.comb += [
                    read.en.eq(any_of(reading)), read.addr.eq(read_row[sub_bits:]),
                    whole.word_select(s, width).eq(read.data),
                ]
                m.d.sync += [
                    write.en.eq(Mux(enable, mask, 0)), write.addr.eq(write_row[sub_bits:]),
                    write.data.eq(one_of(writing, [stream.data for stream in writes.values()])),
                ]
            single = whole
            if sub_bits:
                sub, single = Signal(sub_bits, name=f"sub_{b}"), Signal(width, name=f"single_{b}")
                m.d.sync += sub.eq(read_row)
                m.d.comb += single.eq(part(whole, sub, width))
            for name, hit in zip(READS, reading):
                chosen = Signal(name=f"{name}_chosen_{b}")  # for the row on the stream's data port
                m.d.sync += chosen.eq(hit)
                rows[name] |= Mux(chosen, whole if name == "matrix_b" else single, 0)
        for name, stream in reads.items():
            m.d.comb += stream.data.eq(rows[name])
        return m
