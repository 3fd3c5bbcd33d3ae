"""Accumulator: int32 rows in banks, each with one read and one write port."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import FREE, AccRead, AccWrite
from gemmule.hw.memory.scratchpad import any_of, one_of

__all__ = ["Accumulator"]

READS = ("matrix_read", "vector_r0", "load_r", "store_r")
WRITES = ("matrix_write", "vector_w", "load_w")


class Accumulator(wiring.Component):
    """Banked memory of int32 rows; adding is the writers' business.

    Latency: read data one cycle after ``en``; a write in x is seen by a read in x + 1. A read in x sees the old
    value of the lanes that are not written in x; what it sees of the others is undefined (no legal program looks).
    Throughput: one read and one write per bank and cycle. Claims keep two streams off one port, so requests are
    merged without arbitration.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    matrix_read, vector_r0, load_r, store_r: In(AccRead)
        One row a cycle each.
    matrix_write, vector_w, load_w: In(AccWrite)
        One row a cycle each, with a write mask per int32 lane.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__(
            {name: In(AccRead(config)) for name in READS} | {name: In(AccWrite(config)) for name in WRITES})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        row_bits = exact_log2(config.acc_bank_rows)
        bank_bits = exact_log2(config.acc_banks)

        reads = {name: getattr(self, name) for name in READS}
        writes = {name: getattr(self, name) for name in WRITES}
        rows = dict.fromkeys(READS, Const(0, 1))
        for b in range(config.acc_banks):
            def hits_of(streams: dict[str, wiring.PureInterface], b: int = b) -> list[Signal]:
                """Whether this bank serves each stream."""
                hits = [Signal(name=f"{name}_hit_{b}") for name in streams]
                m.d.comb += [
                    hit.eq(stream.en & (stream.row[row_bits:row_bits + bank_bits] == b))
                    for hit, stream in zip(hits, streams.values(), strict=True)]
                return hits

            m.submodules[f"bank_{b}"] = memory = Memory(
                shape=config.dim * 32, depth=config.acc_bank_rows, init=[], attrs=FREE)
            read, write = memory.read_port(), memory.write_port(granularity=32)
            reading, writing = hits_of(reads), hits_of(writes)
            m.d.comb += [
                read.en.eq(any_of(reading)),
                read.addr.eq(any_of(Mux(hit, stream.row, 0) for hit, stream in zip(reading, reads.values()))),
                write.en.eq(Mux(any_of(writing), one_of(writing, [stream.mask for stream in writes.values()]), 0)),
                write.addr.eq(one_of(writing, [stream.row for stream in writes.values()])),
                write.data.eq(one_of(writing, [stream.data for stream in writes.values()])),
            ]
            for name, hit in zip(READS, reading):
                chosen = Signal(name=f"{name}_chosen_{b}")  # for the row on the stream's data port
                m.d.sync += chosen.eq(hit)
                rows[name] |= Mux(chosen, read.data, 0)
        for name, stream in reads.items():
            m.d.comb += stream.data.eq(rows[name])
        return m
