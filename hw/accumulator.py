"""Accumulator: int32 rows in banks, each with one read and one write port."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import AccRead, AccWrite

__all__ = ["Accumulator"]

READS = ("matrix_read", "vector_r0")


class Accumulator(wiring.Component):
    """Banked memory of int32 rows; adding is the mesh's business.

    Latency: read data one cycle after ``en``; a write in x is seen by a read in x + 1. Throughput:
    one read and one write per bank and cycle. Claims keep two streams off one port, so reads
    are merged by AND-OR without arbitration.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    matrix_read, vector_r0: In(AccRead)
        One row a cycle each.
    matrix_write: In(AccWrite)
        One row a cycle.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "matrix_read": In(AccRead(config)),
            "vector_r0": In(AccRead(config)),
            "matrix_write": In(AccWrite(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        row_bits = exact_log2(config.acc_bank_rows)
        bank_bits = exact_log2(config.acc_banks)
        width = config.dim * 32

        def bank_of(stream: wiring.PureInterface) -> Value:
            return stream.row[row_bits:row_bits + bank_bits]

        reads = {name: getattr(self, name) for name in READS}
        chosen = {name: Signal(max(1, bank_bits), name=f"{name}_bank") for name in READS}
        for name, stream in reads.items():
            m.d.sync += chosen[name].eq(bank_of(stream))

        data = dict.fromkeys(READS, 0)
        for b in range(config.acc_banks):
            m.submodules[f"bank_{b}"] = memory = Memory(
                shape=width, depth=config.acc_bank_rows, init=[])
            read, write = memory.read_port(), memory.write_port()
            enable, index = 0, 0
            for name, stream in reads.items():
                hit = Signal(name=f"{name}_hit_{b}")
                m.d.comb += hit.eq(stream.en & (bank_of(stream) == b))
                enable |= hit
                index |= Mux(hit, stream.row[:row_bits], 0)
                data[name] |= Mux(chosen[name] == b, read.data, 0)
            m.d.comb += [
                read.en.eq(enable),
                read.addr.eq(index),
                write.en.eq(self.matrix_write.en & (bank_of(self.matrix_write) == b)),
                write.addr.eq(self.matrix_write.row[:row_bits]),
                write.data.eq(self.matrix_write.data),
            ]
        for name, stream in reads.items():
            m.d.comb += stream.data.eq(data[name])
        return m
