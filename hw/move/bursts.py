"""The walk over the DRAM side of a load or store command, one step a burst."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import ENTRY_BITS, LENGTH_BITS, ListRead, move_layout
from gemmule.isa import MoveFlag, Unit, field_bits

__all__ = ["BYTES_BITS", "INDEX_CYCLES", "BurstSplitter", "beats_of"]

BYTES_BITS = field_bits(Unit.LOAD, "bytes")
INDEX_CYCLES = 4
"""Last step of a DRAM row to the first offer of the next, whose number comes from a list."""


def beats_of(config: Config, count: Value) -> Value:
    """Bus beats that hold ``count`` bytes, rounded up."""
    return (count + (config.bus_bytes - 1)) >> exact_log2(config.bus_bytes)


class BurstSplitter(wiring.Component):
    """Cuts the DRAM rows of a command into bursts at ``burst_bytes`` boundaries, rows in order.

    A row may begin and end at any byte; bursts cover whole beats. With INDEXED row r stands at
    ``address + min(LIST[list + r], last_index) * stride``, else at ``address + r * stride``. Joined rows are one of
    ``stride`` bytes. With BROADCAST row 0 is all that is read.

    Latency 1: a command given with ``start`` in cycle t offers its first burst in t + 1, INDEXED 3 cycles
    later. Throughput: one burst a cycle, INDEXED rows follow in 3 cycles; the burst stands until ``next``.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    start: In(1)
        Take ``command`` (rows and bytes not 0). Only while ``active`` is low.
    list: Out(ListRead)
        Row numbers; the first one also in cycles before ``start``.
    active, valid: Out(1)
        Registered: bursts of a command are to come; one is offered.
    address, beats: Out
        Bus-aligned first byte and length of the offered burst.
    first_byte, last_byte: Out
        Place of the row's first byte in its first beat, and of its last byte in its last beat.
    row_start, row_end, last: Out(1)
        The burst begins its DRAM row, ends it, ends the command.
    next: In(1)
        Step to the next burst (with ``valid``).
    take: In(1)
        One beat of the offered burst is taken, by a unit that takes them one by one: ``next`` comes with the last.
    burst_over, row_over: Out(1)
        Known early in the cycle: the beat to be taken is the last one of its burst, of its DRAM row.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "start": In(1),
            "command": In(move_layout(config)),
            "list": Out(ListRead(config)),
            "active": Out(1),
            "valid": Out(1),
            "address": Out(config.address_bits),
            "beats": Out(range(config.burst_beats + 1)),
            "first_byte": Out(range(config.bus_bytes)),
            "last_byte": Out(range(config.bus_bytes)),
            "row_start": Out(1),
            "row_end": Out(1),
            "last": Out(1),
            "next": In(1),
            "take": In(1),
            "burst_over": Out(1),
            "row_over": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        low = exact_log2(config.bus_bytes)

        beat = Signal(config.address_bits - low)  # bus-wide words
        left = Signal(max(BYTES_BITS, config.address_bits) - low + 1)  # beats of the row
        row = Signal(config.address_bits)  # bytes
        stride = Signal.like(self.command.stride)
        bytes_ = Signal(BYTES_BITS)
        rows = Signal(LENGTH_BITS)

        # Row numbers: an entry is read when the row before begins, and is an address INDEX_CYCLES - 1 cycles later.
        indexed = Signal()
        gap = Signal(range(INDEX_CYCLES + 1))  # cycles to the next row's first offer
        begin = Signal()  # of such a row, in the last one of them
        arrives, arrived = Signal(), Signal()
        listed = Signal(config.index_bits)  # the entry as it was read
        entry = Signal(ENTRY_BITS)
        last_index, index = Signal(config.index_bits), Signal(config.index_bits)
        origin, found = Signal(config.address_bits), Signal(config.address_bits)
        m.d.comb += [
            begin.eq(gap == 1),
            self.valid.eq(self.active & (gap == 0)),
            # Before a command starts its entry is read in every cycle: ``start`` is known late.
            self.list.en.eq(Mux(self.active, begin & (rows != 1), self.command.flags[MoveFlag.INDEXED])),
            self.list.entry.eq(Mux(self.active, entry, self.command.list)),
        ]
        m.d.sync += [arrives.eq(self.list.en & (self.active | self.start)), arrived.eq(arrives),
                     listed.eq(self.list.data), found.eq(origin + index * stride)]
        with m.If(begin):
            m.d.sync += entry.eq(entry + 1)
        with m.If(arrived):
            m.d.sync += index.eq(Mux(listed < last_index, listed, last_index))
        with m.If(gap != 0):
            m.d.sync += gap.eq(gap - 1)

        room = Signal(range(config.burst_beats + 1))
        offset = beat[:exact_log2(config.burst_beats)]  # in its burst
        few = left[:len(room)]
        next_row = Signal.like(row)
        place = Signal.like(row)  # of the row that begins
        count = Signal.like(stride)  # bytes of it
        first_byte = place[:low]
        m.d.comb += [
            room.eq(config.burst_beats - offset),
            self.row_end.eq(~left[len(room):].any() & (few + offset <= config.burst_beats)),  # left <= room
            self.beats.eq(Mux(self.row_end, left, room)),
            self.last.eq(self.row_end & (rows == 1)),
            self.address.eq(beat << low),
            next_row.eq(row + stride),
            place.eq(Mux(self.active, Mux(indexed, found, next_row), self.command.address)),
            count.eq(Mux(self.active, bytes_, Mux(self.command.joined, self.command.stride, self.command.bytes))),
        ]
        with m.If(self.next):
            m.d.sync += [beat.eq(beat + room), left.eq(left - room), self.row_start.eq(0)]
            with m.If(self.row_end):
                m.d.sync += rows.eq(rows - 1)
                with m.If(indexed & ~self.last):
                    m.d.sync += gap.eq(INDEX_CYCLES - 1)
            with m.If(self.last):
                m.d.sync += self.active.eq(0)
        # Beat by beat.
        rest = Signal.like(left)  # beats of the row from this one on
        spot = Signal(range(max(2, config.burst_beats)))  # of the beat in its burst
        few_bytes = Signal()  # the row that begins has one beat
        m.d.comb += [
            self.burst_over.eq(self.row_over | (spot.all() if config.burst_beats > 1 else 1)),
            few_bytes.eq(~count[low + 1:].any() & (first_byte + count[:low + 1] <= config.bus_bytes)),
        ]
        with m.If(self.take):
            m.d.sync += [rest.eq(rest - 1), spot.eq(spot + 1), self.row_over.eq(rest == 2)]
        # All but ``active`` follow the command until it is taken: ``start`` is known late.
        with m.If(self.start):
            m.d.sync += self.active.eq(1)
        with m.If(~self.active):
            m.d.sync += [
                entry.eq(self.command.list + 1), stride.eq(self.command.stride), bytes_.eq(self.command.bytes),
                rows.eq(Mux(self.command.joined | self.command.flags[MoveFlag.BROADCAST], 1, self.command.rows)),
                indexed.eq(self.command.flags[MoveFlag.INDEXED]),
                gap.eq(Mux(self.command.flags[MoveFlag.INDEXED], INDEX_CYCLES, 0)),
                origin.eq(self.command.address), last_index.eq(self.command.last_index),
            ]
        with m.If(~self.active | begin | (self.next & self.row_end)):
            m.d.sync += [
                row.eq(place), beat.eq(place[low:]), left.eq(beats_of(config, first_byte + count)),
                rest.eq(beats_of(config, first_byte + count)), spot.eq(place[low:]), self.row_over.eq(few_bytes),
                self.first_byte.eq(first_byte), self.last_byte.eq(first_byte + count - 1), self.row_start.eq(1),
            ]
        return m
