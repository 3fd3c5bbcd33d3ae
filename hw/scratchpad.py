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
from gemmule.hw.interfaces import SpmRead, SpmWrite

__all__ = ["Scratchpad"]

SINGLE_READS = ("store_r", "matrix_a", "vector_r0", "vector_r1", "select_r")
READS = (*SINGLE_READS, "matrix_b")
WRITES = ("load_w", "vector_w", "select_w")


def any_of(terms: Iterable[Value]) -> Value:
    """OR of terms of which at most one is not 0."""
    return reduce(or_, terms)


class Scratchpad(wiring.Component):
    """Banked row memory. Banks are contiguous row ranges; a bank is ``preload`` sub-banks,
    interleaved by the low bits of the row, so that ``preload`` aligned rows are read at once.

    Latency: read data one cycle after ``en``; a write in x is seen by a read in x + 1. Throughput:
    one read and one write per bank and cycle. Claims keep two streams off one port, so requests
    are merged by AND-OR without arbitration.

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

        def place(stream: wiring.PureInterface) -> tuple[Value, Value, Value]:
            """Bank, sub-bank and index of a stream's row."""
            row = stream.row
            bank = row[row_bits:row_bits + bank_bits] if bank_bits else Const(0, 1)
            sub = row[:sub_bits] if sub_bits else Const(0, 1)
            return bank, sub, row[sub_bits:row_bits]

        reads = {name: getattr(self, name) for name in READS}
        writes = [getattr(self, name) for name in WRITES]
        chosen = {}  # place of the row on each stream's data port
        for name, stream in reads.items():
            chosen[name] = (Signal(max(1, bank_bits), name=f"{name}_bank"),
                            Signal(max(1, sub_bits), name=f"{name}_sub"))
            bank, sub, _ = place(stream)
            m.d.sync += [chosen[name][0].eq(bank), chosen[name][1].eq(sub)]

        rows: list[list[Signal]] = []  # [bank][sub-bank]
        for b in range(config.spm_banks):
            rows.append([])
            for s in range(config.preload):
                m.submodules[f"bank_{b}_{s}"] = memory = Memory(
                    shape=width, depth=config.spm_bank_rows // config.preload, init=[])
                read, write = memory.read_port(), memory.write_port(granularity=8)
                rows[b].append(read.data)

                hits = []
                for name, stream in reads.items():
                    bank, sub, index = place(stream)
                    hit = Signal(name=f"{name}_hit_{b}_{s}")
                    whole = name == "matrix_b"
                    m.d.comb += hit.eq(stream.en & (bank == b) & (True if whole else sub == s))
                    hits.append((hit, index))
                m.d.comb += [
                    read.en.eq(any_of(hit for hit, _ in hits)),
                    read.addr.eq(any_of(Mux(hit, index, 0) for hit, index in hits)),
                ]
                targets = []
                for name, stream in zip(WRITES, writes, strict=True):
                    bank, sub, index = place(stream)
                    hit = Signal(name=f"{name}_hit_{b}_{s}")
                    m.d.comb += hit.eq(stream.en & (bank == b) & (sub == s))
                    targets.append((hit, index, stream))
                m.d.comb += [
                    write.addr.eq(any_of(Mux(hit, index, 0) for hit, index, _ in targets)),
                    write.en.eq(any_of(Mux(hit, w.mask, 0) for hit, _, w in targets)),
                    write.data.eq(any_of(Mux(hit, w.data, 0) for hit, _, w in targets)),
                ]

        for name, stream in reads.items():
            bank, sub = chosen[name]
            for s in range(config.preload):
                picked = any_of(Mux(bank == b, rows[b][s], 0) for b in range(config.spm_banks))
                if name == "matrix_b":
                    m.d.comb += stream.data.word_select(s, width).eq(picked)
                else:
                    with m.If(sub == s):
                        m.d.comb += stream.data.eq(picked)
        return m
