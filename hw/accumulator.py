"""Accumulator: int32 rows in banks, each with one read and one write port."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import AccRead, AccWrite

__all__ = ["Accumulator"]

READS = ("matrix_read", "vector_r0", "load_r", "store_r")
WRITES = ("matrix_write", "load_w")


class Accumulator(wiring.Component):
    """Banked memory of int32 rows; adding is the writers' business.

    Latency: read data one cycle after ``en``; a write in x is seen by a read in x + 1, a read in x
    sees the old row. Throughput: one read and one write per bank and cycle. Claims keep two streams
    off one port, so requests are merged by AND-OR without arbitration.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    matrix_read, vector_r0, load_r, store_r: In(AccRead)
        One row a cycle each.
    matrix_write, load_w: In(AccWrite)
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

        def bank_of(stream: wiring.PureInterface) -> Value:
            return stream.row[row_bits:row_bits + bank_bits] if bank_bits else Const(0, 1)

        reads = {name: getattr(self, name) for name in READS}
        writes = {name: getattr(self, name) for name in WRITES}
        chosen = {name: Signal(max(1, bank_bits), name=f"{name}_bank") for name in READS}
        for name, stream in reads.items():
            m.d.sync += chosen[name].eq(bank_of(stream))

        data = dict.fromkeys(READS, 0)
        for b in range(config.acc_banks):
            m.submodules[f"bank_{b}"] = memory = Memory(
                shape=config.dim * 32, depth=config.acc_bank_rows, init=[])
            read, write = memory.read_port(), memory.write_port(granularity=32)

            def hit_of(name: str, stream: wiring.PureInterface, b: int = b) -> Signal:
                hit = Signal(name=f"{name}_hit_{b}")
                m.d.comb += hit.eq(stream.en & (bank_of(stream) == b))
                return hit

            enable, index = 0, 0
            for name, stream in reads.items():
                hit = hit_of(name, stream)
                enable |= hit
                index |= Mux(hit, stream.row[:row_bits], 0)
                data[name] |= Mux(chosen[name] == b, read.data, 0)
            m.d.comb += [read.en.eq(enable), read.addr.eq(index)]

            lanes, index, value = 0, 0, 0
            for name, stream in writes.items():
                hit = hit_of(name, stream)
                lanes |= Mux(hit, stream.mask, 0)
                index |= Mux(hit, stream.row[:row_bits], 0)
                value |= Mux(hit, stream.data, 0)
            m.d.comb += [write.en.eq(lanes), write.addr.eq(index), write.data.eq(value)]
        for name, stream in reads.items():
            m.d.comb += stream.data.eq(data[name])
        return m
