"""From bus beats to chunks: takes the bytes of unaligned DRAM rows out of their beats."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.queue import Queue

__all__ = ["Aligner", "rotated"]


def rotated(value: Value, count: Value, *, left: bool) -> Value:
    """``value`` rotated by ``count`` bytes, to higher byte numbers if ``left``, else to lower ones."""
    for i in range(len(count)):
        bits = 8 << i
        value = Mux(count[i], value.rotate_left(bits) if left else value.rotate_right(bits), value)
    return value


class Aligner(wiring.Component):
    """Chunk j of a DRAM row is its bytes j * bus .. j * bus + bus - 1. It leaves as soon as its last
    byte is there: with beat j of an aligned row, else with beat j + 1, or with the row's last beat.

    Latency 0 when nothing older stands here. Throughput one chunk a cycle. A row's last beat can
    complete two chunks, but then its first one completed none, so while every chunk is taken at
    once at most one is ever queue. Backpressure: ``burst_beats`` chunks of aligned rows may stand here.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    beat_valid, beat_data: In
        A beat.
    first_byte: In
        Place of the beat's row in its first beat.
    row_end: In(1)
        The beat ends its row.
    tail: In(1)
        The row's last beat reaches beyond its first byte's place, so that it completes a chunk more.
    valid, data: Out
        The oldest chunk; bytes beyond the row's end are anything.
    take: In(1)
        The chunk is taken (with ``valid``).
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        width = config.bus_bytes * 8
        super().__init__({
            "beat_valid": In(1), "beat_data": In(width), "first_byte": In(range(config.bus_bytes)),
            "row_end": In(1), "tail": In(1),
            "valid": Out(1), "data": Out(width), "take": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        width = config.bus_bytes * 8

        # Rotated to its place the beat holds the end of one chunk and the start of the next.
        beat = Signal(width)
        held = Signal(width)
        inside = Signal()  # a beat of this row came before
        m.d.comb += beat.eq(rotated(self.beat_data, self.first_byte, left=False))
        with m.If(self.beat_valid):
            m.d.sync += [held.eq(beat), inside.eq(~self.row_end)]

        aligned = Signal()
        old = Signal()  # completes the chunk that the beat before began
        new = Signal()  # completes the chunk that it begins itself
        joined = Signal(width)
        m.d.comb += [
            aligned.eq(self.first_byte == 0),
            old.eq(self.beat_valid & inside & ~aligned),
            new.eq(self.beat_valid & (aligned | (self.row_end & self.tail))),
            joined.eq(Cat(
                Mux(k + self.first_byte < config.bus_bytes, held.word_select(k, 8), beat.word_select(k, 8))
                for k in range(config.bus_bytes))),
        ]

        m.submodules.queue = queue = Queue(shape=width, depth=max(2, config.burst_beats))
        m.d.comb += [
            self.valid.eq(queue.valid | old | new),
            self.data.eq(Mux(queue.valid, queue.head, Mux(old, joined, beat))),
            queue.pop.eq(queue.valid & self.take),
            queue.push.eq(Mux(queue.valid | ~self.take, old | new, old & new)),
            queue.push_data.eq(Mux(old & (queue.valid | ~self.take), joined, beat)),
        ]
        return m
