"""The two walks over a load or store command, shared by both units.

:class:`BurstSplitter` walks the DRAM side (one step a burst), :class:`RowWalker` the scratchpad
side (one step a beat). Both count whole beats: addresses and strides are multiples of the bus
width, so only the last beat of a DRAM row can be partial.
"""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS, move_layout

__all__ = ["BurstSplitter", "RowWalker", "beats_of", "tail_mask"]

BYTES_BITS = 20
STRIDE_BITS = 24


def beats_of(config: Config, count: Value) -> Value:
    """Bus beats that hold ``count`` (20 bits) bytes, rounded up."""
    shift = exact_log2(config.bus_bytes)
    return ((count + (config.bus_bytes - 1)) >> shift)[:BYTES_BITS - shift + 1]


def tail_mask(config: Config, count: Value) -> Value:
    """Valid bytes of a row's last beat: the low ``count % bus_bytes`` bits, or all when that is 0."""
    tail = count[:exact_log2(config.bus_bytes)]
    ones = Const(-1, unsigned(config.bus_bytes))
    return Mux(tail == 0, ones, ((Const(1, unsigned(config.bus_bytes + 1)) << tail) - 1)[:config.bus_bytes])


class BurstSplitter(wiring.Component):
    """Cuts the DRAM rows of a command into bursts at ``burst_bytes`` boundaries, rows in order.

    Latency 1: a command given with ``start`` in cycle t offers its first burst in t + 1.
    Throughput: one burst a cycle; the burst stands until ``next``.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    start: In(1)
        Take ``command`` (rows and bytes not 0). Only while ``active`` is low.
    active: Out(1)
        Registered: a burst is offered.
    address, beats: Out
        First byte and length of the offered burst.
    row_end, last: Out(1)
        The burst ends its DRAM row, its command.
    next: In(1)
        Step to the next burst (with ``active``).
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "start": In(1),
            "command": In(move_layout(config)),
            "active": Out(1),
            "address": Out(config.address_bits),
            "beats": Out(range(config.burst_beats + 1)),
            "row_end": Out(1),
            "last": Out(1),
            "next": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        low = exact_log2(config.bus_bytes)
        beat_bits = BYTES_BITS - low + 1

        # All addresses are beat numbers: the bits below the bus width are 0 by contract.
        beat = Signal(config.address_bits - low)
        row = Signal(config.address_bits - low)
        stride = Signal(STRIDE_BITS - low)
        left = Signal(beat_bits)
        row_beats = Signal(beat_bits)
        rows = Signal(LENGTH_BITS)

        room = Signal(range(config.burst_beats + 1))
        next_row = Signal.like(row)
        m.d.comb += [
            room.eq(config.burst_beats - beat[:exact_log2(config.burst_beats)]),
            self.row_end.eq(left <= room),
            self.beats.eq(Mux(self.row_end, left, room)),
            self.last.eq(self.row_end & (rows == 1)),
            self.address.eq(beat << low),
            next_row.eq(row + stride),
        ]
        with m.If(self.next):
            m.d.sync += [beat.eq(beat + room), left.eq(left - room)]
            with m.If(self.row_end):
                m.d.sync += [
                    beat.eq(next_row), row.eq(next_row), left.eq(row_beats), rows.eq(rows - 1),
                ]
            with m.If(self.last):
                m.d.sync += self.active.eq(0)
        with m.If(self.start):
            total = beats_of(config, self.command.bytes)
            m.d.sync += [
                self.active.eq(1),
                beat.eq(self.command.address[low:]), row.eq(self.command.address[low:]),
                stride.eq(self.command.stride[low:]),
                left.eq(total), row_beats.eq(total), rows.eq(self.command.rows),
            ]
        return m


class RowWalker(wiring.Component):
    """Scratchpad row, lanes and valid bytes of every beat of a command.

    Byte k of DRAM row r stands in scratchpad row ``row + r * row_stride + (k // dim) *
    block_stride``, lane ``k % dim``. Latency 1 from ``start``; throughput one beat a cycle.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    start: In(1)
        Take ``command``: while ``active`` is low, or together with the ``next`` of the last beat.
    active: Out(1)
        Registered: a beat is described.
    row: Out(16)
        Scratchpad row of the beat.
    chunk: Out
        Which bus-wide part of the row (0 when the bus is as wide as the row).
    mask: Out(bus_bytes)
        Valid bytes of the beat.
    last: Out(1)
        Last beat of the command.
    next: In(1)
        Step to the next beat (with ``active``).
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        self.chunks = config.dim // config.bus_bytes
        super().__init__({
            "start": In(1),
            "command": In(move_layout(config)),
            "active": Out(1),
            "row": Out(ROW_BITS),
            "chunk": Out(range(max(2, self.chunks))),  # Verilog has no empty vectors
            "mask": Out(config.bus_bytes),
            "last": Out(1),
            "next": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        beat_bits = BYTES_BITS - exact_log2(config.bus_bytes) + 1

        first = Signal(ROW_BITS)  # scratchpad row of the DRAM row's byte 0
        row_stride = Signal(ROW_BITS)
        block_stride = Signal(ROW_BITS)
        left = Signal(beat_bits)
        row_beats = Signal(beat_bits)
        rows = Signal(LENGTH_BITS)
        tail = Signal(config.bus_bytes)

        row_end = Signal()
        next_row = Signal(ROW_BITS)
        m.d.comb += [
            row_end.eq(left == 1),
            next_row.eq(first + row_stride),
            self.last.eq(row_end & (rows == 1)),
            self.mask.eq(Mux(row_end, tail, Const(-1, unsigned(config.bus_bytes)))),
        ]
        with m.If(self.next):
            m.d.sync += [self.chunk.eq(self.chunk + 1), left.eq(left - 1)]
            with m.If(self.chunk == self.chunks - 1):
                m.d.sync += [self.chunk.eq(0), self.row.eq(self.row + block_stride)]
            with m.If(row_end):
                m.d.sync += [
                    self.row.eq(next_row), first.eq(next_row), self.chunk.eq(0),
                    left.eq(row_beats), rows.eq(rows - 1),
                ]
            with m.If(self.last):
                m.d.sync += self.active.eq(0)
        with m.If(self.start):
            total = beats_of(config, self.command.bytes)
            m.d.sync += [
                self.active.eq(1), self.row.eq(self.command.row), first.eq(self.command.row),
                self.chunk.eq(0), row_stride.eq(self.command.row_stride),
                block_stride.eq(self.command.block_stride),
                left.eq(total), row_beats.eq(total), rows.eq(self.command.rows),
                tail.eq(tail_mask(config, self.command.bytes)),
            ]
        return m
