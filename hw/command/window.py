"""Window: the commands that fetch has read and that may be taken, once or again."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.queue import Queue
from gemmule.isa import COMMAND_BYTES

__all__ = ["Window"]

_WORD = 8 * COMMAND_BYTES


class Window(wiring.Component):
    """A ring of ``fetch_queue`` places, in the order of the stream; makes commands of beats.

    Latency: a command is the head in the cycle after its last beat, at the earliest. Throughput: one beat and one
    command a cycle. There is no backpressure: fetch asks only for what has a place, and counts the places.

    A bus wider than a command carries two of them in a beat, and a burst may begin and end with either half. Places
    are then in two banks, in turn, so that two commands are written at once whichever half is the next one.

    Members
    -------
    clear: In(1)
        Start strobe: drop everything.
    requested, odd, count: In
        A burst has been asked for: its first command is the high half of a beat (for a wide bus), its commands.
    beat_valid, beat_data, beat_last: In
        Beats of these bursts, in order.
    arrived: Out
        Commands that this beat completes.
    valid, command: Out
        Head.
    take: In(1)
        On to the next place.
    back, body: In
        With ``take``: the head was the last one of ``body`` commands, and the first of them is the next head.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        depth = config.fetch_queue
        super().__init__({
            "clear": In(1),
            "requested": In(1), "odd": In(1), "count": In(range(depth + 1)),
            "beat_valid": In(1), "beat_data": In(8 * config.bus_bytes), "beat_last": In(1), "arrived": Out(2),
            "valid": Out(1), "command": Out(_WORD), "take": In(1), "back": In(1), "body": In(range(depth + 1)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        depth, bits = config.fetch_queue, exact_log2(config.fetch_queue)
        lanes = max(1, config.bus_bytes // COMMAND_BYTES)  # commands per beat
        banks = [Memory(shape=_WORD, depth=depth // lanes, init=[]) for _ in range(lanes)]
        writes, reads = [], []
        for i, bank in enumerate(banks):
            m.submodules[f"bank_{i}"] = bank
            writes.append(bank.write_port(granularity=min(_WORD, 8 * config.bus_bytes)))
            reads.append(bank.read_port(domain="comb"))

        # Head and tail have one bit more than a place, so that equal ones mean empty, and only that.
        head = Signal(bits + 1)
        tail = Signal(bits + 1)
        after = Signal(bits + 1)
        m.d.comb += [after.eq(head + 1 - Mux(self.back, self.body, 0)), self.valid.eq(head != tail)]
        with m.If(self.take):
            m.d.sync += head.eq(after)
        m.d.sync += tail.eq(tail + self.arrived)
        with m.If(self.clear):
            m.d.sync += [head.eq(0), tail.eq(0)]

        if lanes == 1:
            (write,), (read,) = writes, reads
            beats = COMMAND_BYTES // config.bus_bytes  # per command
            m.d.comb += [
                write.addr.eq(tail[:bits]), read.addr.eq(head[:bits]), self.command.eq(read.data),
            ]
            if beats == 1:
                m.d.comb += [
                    self.arrived.eq(self.beat_valid), write.en.eq(self.beat_valid), write.data.eq(self.beat_data)]
            else:  # the last beat of a command makes it the head
                index = Signal(range(beats))
                with m.If(self.beat_valid):
                    m.d.sync += index.eq(index + 1)
                with m.If(self.clear):
                    m.d.sync += index.eq(0)
                m.d.comb += [
                    self.arrived.eq(self.beat_valid & (index == beats - 1)),
                    write.data.eq(self.beat_data.replicate(beats)),
                    *(enable.eq(self.beat_valid & (index == i)) for i, enable in enumerate(write.en)),
                ]
            return m

        # Which halves a burst's first and last beat do without; a burst in flight has a place for a command or more.
        halves = data.StructLayout({"first": 1, "last": 1})
        m.submodules.bursts = bursts = Queue(shape=halves, depth=depth)
        begins = Signal(init=1)  # the next beat is the first one of its burst
        low, high, both, any_half = Signal(), Signal(), Signal(), Signal()
        with m.If(self.beat_valid):
            m.d.sync += begins.eq(self.beat_last)
        with m.If(self.clear):
            m.d.sync += begins.eq(1)
        (even, odd), (read_even, read_odd) = writes, reads
        low_word, high_word = self.beat_data[:_WORD], self.beat_data[_WORD:]
        first_word = Signal(_WORD)
        m.d.comb += [
            bursts.push.eq(self.requested), bursts.push_data.first.eq(self.odd),
            bursts.push_data.last.eq(self.odd ^ self.count[0]),
            bursts.pop.eq(self.beat_valid & self.beat_last), bursts.clear.eq(self.clear),
            low.eq(~(begins & bursts.head.first)), high.eq(~(self.beat_last & bursts.head.last)),
            both.eq(self.beat_valid & low & high), any_half.eq(self.beat_valid & (low | high)),
            self.arrived.eq(Mux(both, 2, any_half)),
            first_word.eq(Mux(low, low_word, high_word)),
            even.addr.eq((tail + 1)[1:bits]), odd.addr.eq(tail[1:bits]),
            even.en.eq(Mux(tail[0], both, any_half)), odd.en.eq(Mux(tail[0], any_half, both)),
            even.data.eq(Mux(tail[0], high_word, first_word)), odd.data.eq(Mux(tail[0], first_word, high_word)),
            read_even.addr.eq(head[1:bits]), read_odd.addr.eq(head[1:bits]),
            self.command.eq(Mux(head[0], read_odd.data, read_even.data)),
        ]
        return m
