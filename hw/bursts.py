"""The walk over the DRAM side of a load or store command, one step a burst."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, move_layout

__all__ = ["BYTES_BITS", "BurstSplitter", "beats_of"]

BYTES_BITS = 20
STRIDE_BITS = 24


def beats_of(config: Config, count: Value) -> Value:
    """Bus beats that hold ``count`` bytes (at most 20 bits, plus an offset), rounded up."""
    shift = exact_log2(config.bus_bytes)
    return ((count + (config.bus_bytes - 1)) >> shift)[:BYTES_BITS - shift + 1]


class BurstSplitter(wiring.Component):
    """Cuts the DRAM rows of a command into bursts at ``burst_bytes`` boundaries, rows in order.

    A row may begin and end at any byte; bursts cover whole beats.

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
        Bus-aligned first byte and length of the offered burst.
    first_byte, last_byte: Out
        Place of the row's first byte in its first beat, and of its last byte in its last beat.
    row_start, row_end, last: Out(1)
        The burst begins its DRAM row, ends it, ends the command.
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
            "first_byte": Out(range(config.bus_bytes)),
            "last_byte": Out(range(config.bus_bytes)),
            "row_start": Out(1),
            "row_end": Out(1),
            "last": Out(1),
            "next": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        low = exact_log2(config.bus_bytes)

        beat = Signal(config.address_bits - low)  # bus-wide words
        left = Signal(BYTES_BITS - low + 1)
        row = Signal(config.address_bits)  # bytes
        stride = Signal(STRIDE_BITS)
        bytes_ = Signal(BYTES_BITS)
        rows = Signal(LENGTH_BITS)

        def begin_row(address: Value, count: Value) -> list:
            """Registers of a row of ``count`` bytes at ``address``."""
            start = address[:low]
            return [
                row.eq(address), beat.eq(address[low:]), left.eq(beats_of(config, start + count)),
                self.first_byte.eq(start), self.last_byte.eq(start + count - 1), self.row_start.eq(1),
            ]

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
            m.d.sync += [beat.eq(beat + room), left.eq(left - room), self.row_start.eq(0)]
            with m.If(self.row_end):
                m.d.sync += [*begin_row(next_row, bytes_), rows.eq(rows - 1)]
            with m.If(self.last):
                m.d.sync += self.active.eq(0)
        with m.If(self.start):
            m.d.sync += [
                *begin_row(self.command.address, self.command.bytes),
                self.active.eq(1), stride.eq(self.command.stride), bytes_.eq(self.command.bytes),
                rows.eq(self.command.rows),
            ]
        return m
