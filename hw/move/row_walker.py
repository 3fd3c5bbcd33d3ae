"""The walk over the memory side of a load or store command, one step a chunk."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS, move_layout
from gemmule.hw.move.bursts import BYTES_BITS, beats_of
from gemmule.isa import MoveFlag

__all__ = ["FLAG_BITS", "WORD_BYTES", "RowWalker", "holds_words"]

WORD_BYTES = 4
FLAG_BITS = len(MoveFlag)


def holds_words(flags: Value) -> Value:
    """Whether a command's DRAM rows hold int32 (else int8)."""
    return flags[MoveFlag.ACCUMULATOR] & ~flags[MoveFlag.NARROW]


class RowWalker(wiring.Component):
    """Memory row, place in it and valid bytes of every chunk of a command.

    Byte k of DRAM row r stands in memory row ``row + r * row_stride + (k // W) * block_stride``,
    byte ``k % W`` of it; W is DIM, for int32 4 * DIM. A chunk is a bus-wide part of a DRAM row.
    Chunks are inner and rows outer; with BROADCAST, where all rows are alike, rows are inner.

    Latency 1 from ``start``; throughput one chunk a cycle.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    start: In(1)
        Take ``command``: while ``active`` is low, or together with the ``next`` of the last chunk.
    active: Out(1)
        Registered: a chunk is described.
    flags: Out
        Registered: flags of the command, until the next one starts.
    row: Out(16)
        Memory row of the chunk.
    chunk: Out
        Which bus-wide part of the memory row.
    mask: Out(bus_bytes)
        Valid bytes of the chunk.
    fresh: Out(1)
        The chunk is another one than the step before (always, but for BROADCAST).
    last: Out(1)
        Last step of the command.
    next: In(1)
        Step on (with ``active``).
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        self.chunks = config.dim // config.bus_bytes
        super().__init__({
            "start": In(1),
            "command": In(move_layout(config)),
            "active": Out(1),
            "flags": Out(FLAG_BITS),
            "row": Out(ROW_BITS),
            "chunk": Out(range(WORD_BYTES * self.chunks)),
            "mask": Out(config.bus_bytes),
            "fresh": Out(1),
            "last": Out(1),
            "next": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, command = self.config, self.command
        low = exact_log2(config.bus_bytes)

        first = Signal(ROW_BITS)  # row of the DRAM row's byte 0; BROADCAST: of the chunk in DRAM row 0
        row_stride = Signal(ROW_BITS)
        block_stride = Signal(ROW_BITS)
        left = Signal(BYTES_BITS - low + 1)
        row_chunks = Signal.like(left)
        rows = Signal(LENGTH_BITS)
        all_rows = Signal(LENGTH_BITS)
        tail = Signal(low)
        first_row = Signal()  # the chunk is that of DRAM row 0

        broadcast = self.flags[MoveFlag.BROADCAST]
        wrap = Signal()  # the chunk ends its memory row
        chunk_end = Signal()  # the last chunk of a DRAM row
        row_end = Signal()  # the last DRAM row
        ones = Const(-1, unsigned(config.bus_bytes))
        m.d.comb += [
            wrap.eq(self.chunk == Mux(holds_words(self.flags), WORD_BYTES * self.chunks - 1, self.chunks - 1)),
            chunk_end.eq(left == 1),
            row_end.eq(rows == 1),
            self.last.eq(chunk_end & row_end),
            self.mask.eq(Mux(chunk_end & (tail != 0), ~(ones << tail)[:config.bus_bytes], ones)),
            self.fresh.eq(~broadcast | first_row),
        ]

        next_chunk = [self.chunk.eq(Mux(wrap, 0, self.chunk + 1)), left.eq(left - 1)]
        block = Mux(wrap, block_stride, 0)
        below = Signal(ROW_BITS)  # the next chunk's row in the same DRAM row
        next_row = Signal(ROW_BITS)  # the same chunk's (BROADCAST), or chunk 0's, in the next DRAM row
        m.d.comb += [
            below.eq(Mux(broadcast, first, self.row) + block),
            next_row.eq(Mux(broadcast, self.row, first) + row_stride),
        ]
        with m.If(self.next):
            m.d.sync += first_row.eq(row_end)
            with m.If(broadcast & row_end):
                m.d.sync += [*next_chunk, self.row.eq(below), first.eq(below), rows.eq(all_rows)]
            with m.Elif(broadcast):
                m.d.sync += [self.row.eq(next_row), rows.eq(rows - 1)]
            with m.Elif(chunk_end):
                m.d.sync += [
                    self.row.eq(next_row), first.eq(next_row), self.chunk.eq(0), left.eq(row_chunks),
                    rows.eq(rows - 1),
                ]
            with m.Else():
                m.d.sync += [*next_chunk, self.row.eq(below)]
            with m.If(self.last):
                m.d.sync += self.active.eq(0)
        # Counters follow the command until it is taken: ``start`` is known late.
        with m.If(self.start):
            m.d.sync += [self.active.eq(1), self.flags.eq(command.flags)]
        with m.If(~self.active | (self.next & self.last)):
            total = beats_of(config, command.bytes)
            m.d.sync += [
                self.row.eq(command.row), first.eq(command.row), self.chunk.eq(0),
                row_stride.eq(command.row_stride), block_stride.eq(command.block_stride),
                left.eq(total), row_chunks.eq(total), rows.eq(command.rows), all_rows.eq(command.rows),
                tail.eq(command.bytes), first_row.eq(1),
            ]
        return m
