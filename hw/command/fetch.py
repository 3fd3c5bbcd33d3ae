"""Command fetch: reads the program through AXI, in bursts, into the command queue."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gemmule.config import Config
from gemmule.hw.interfaces import COUNT_BITS, read_request
from gemmule.hw.queue import Queue
from gemmule.isa import COMMAND_BYTES
from gemmule.timing import Timing

__all__ = ["Fetch"]


class Fetch(wiring.Component):
    """Prefetches commands in program order.

    Latency: requests from ``start + fetch_start`` on; a command is the queue's head in the cycle after
    its last beat, at the earliest. Throughput: one request per cycle, one beat per cycle.
    Backpressure: a burst is requested only when the queue has room for all its commands, so beats
    are always taken. Bursts end at ``burst_bytes`` boundaries.

    Parameters
    ----------
    config:
        Device.
    timing:
        Constants; those of ``config`` by default.

    Members
    -------
    start: In(1)
        Start strobe; takes ``program`` (byte address, multiple of 32) and ``commands``.
    read: Out(read_request)
        DRAM reads.
    valid, command: Out
        Head of the queue.
    take: In(1)
        Drops the head.
    idle: Out(1)
        Nothing is requested or awaited.
    error: Out(1)
        High in the cycle of a beat with an error response.
    """

    def __init__(self, *, config: Config, timing: Timing | None = None) -> None:
        self.config = config
        self.timing = timing or Timing.of(config)
        if self.timing.fetch_start < 1:
            raise ValueError(f"fetch_start must be at least 1, not {self.timing.fetch_start}")
        super().__init__({
            "start": In(1), "program": In(config.address_bits), "commands": In(COUNT_BITS),
            "read": Out(read_request(config)),
            "valid": Out(1), "command": Out(8 * COMMAND_BYTES), "take": In(1),
            "idle": Out(1), "error": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, read = self.config, self.read

        # Request: n commands up to the next burst boundary or the program's end.
        most = config.burst_bytes // COMMAND_BYTES
        command_bits, bus_bits = ceil_log2(COMMAND_BYTES), ceil_log2(config.bus_bytes)
        beats = max(1, COMMAND_BYTES // config.bus_bytes)  # per command
        lanes = max(1, config.bus_bytes // COMMAND_BYTES)  # commands per beat
        remaining = Signal(COUNT_BITS)
        address = Signal(config.address_bits)
        room = Signal(range(config.fetch_queue + 1))  # fetch_queue - occupancy - reserved
        to_boundary = Signal(range(most + 1))
        n = Signal(range(most + 1))
        slot = address[command_bits:ceil_log2(config.burst_bytes)]
        first_lane = address[command_bits:max(bus_bits, command_bits)]
        requested = Signal()
        m.d.comb += [
            to_boundary.eq(most - slot if most > 1 else 1),
            n.eq(Mux(remaining < to_boundary, remaining, to_boundary)),
            read.req_valid.eq((remaining != 0) & (room >= n)),
            read.req_addr.eq(Cat(Const(0, bus_bits), address[bus_bits:])),
            read.req_len.eq((n << ceil_log2(beats)) - 1 if lanes == 1 else (n + first_lane - 1) >> 1),
            requested.eq(read.req_valid & read.req_ready),
        ]
        with m.If(requested):
            m.d.sync += [remaining.eq(remaining - n), address.eq(address + (n << command_bits))]
        m.d.sync += room.eq(room - Mux(requested, n, 0) + self.take)

        # Queue: one lane per command of a beat, commands in turn.
        queues = [Queue(shape=8 * COMMAND_BYTES, depth=config.fetch_queue // lanes) for _ in range(lanes)]
        for i, queue in enumerate(queues):
            m.submodules[f"queue_{i}"] = queue
            m.d.comb += queue.clear.eq(self.start)
        arrived = Signal(range(lanes + 1))
        m.d.comb += arrived.eq(sum(queue.push for queue in queues))
        if lanes == 1:
            queue = queues[0]
            m.d.comb += [
                queue.pop.eq(self.take), self.valid.eq(queue.valid), self.command.eq(queue.head),
            ]
        else:
            turn, lane, awaited = Signal(), Signal(), Signal(COUNT_BITS)
            even, odd = queues
            m.d.comb += [
                even.pop.eq(self.take & ~turn), odd.pop.eq(self.take & turn),
                self.valid.eq(Mux(turn, odd.valid, even.valid)),
                self.command.eq(Mux(turn, odd.head, even.head)),
                # Only a program's first and last beat can carry one command alone.
                even.push.eq(read.beat_valid & ~lane),
                odd.push.eq(read.beat_valid & (lane | (awaited > 1))),
                Cat(even.push_data, odd.push_data).eq(read.beat_data),
            ]
            m.d.sync += [turn.eq(turn ^ self.take), awaited.eq(awaited - arrived)]
            with m.If(read.beat_valid):
                m.d.sync += lane.eq(0)
            with m.If(self.start):
                m.d.sync += [
                    turn.eq(self.program[command_bits]), lane.eq(self.program[command_bits]),
                    awaited.eq(self.commands),
                ]

        # Beats: the last one of a command pushes the whole word.
        if beats > 1:
            index = Signal(range(beats))
            earlier = Signal(8 * (COMMAND_BYTES - config.bus_bytes))
            word = Cat(earlier, read.beat_data)
            with m.If(read.beat_valid):
                m.d.sync += [index.eq(index + 1), earlier.eq(word >> (8 * config.bus_bytes))]
            m.d.comb += [
                queue.push.eq(read.beat_valid & (index == beats - 1)), queue.push_data.eq(word),
            ]
            with m.If(self.start):
                m.d.sync += index.eq(0)
        elif lanes == 1:
            m.d.comb += [queue.push.eq(read.beat_valid), queue.push_data.eq(read.beat_data)]
        reserved = Signal(range(config.fetch_queue + 1))
        m.d.sync += reserved.eq(reserved + Mux(requested, n, 0) - arrived)
        m.d.comb += [
            self.idle.eq(~read.req_valid & (reserved == 0)),
            self.error.eq(read.beat_valid & read.beat_resp[1]),  # SLVERR, DECERR
        ]

        # Launch: the work becomes visible fetch_start cycles after the strobe.
        launch = self.start
        for i in range(self.timing.fetch_start - 1):
            delayed = Signal(name=f"launch_{i + 1}")
            m.d.sync += delayed.eq(launch)
            launch = delayed
        with m.If(self.start):
            m.d.sync += [remaining.eq(0), room.eq(config.fetch_queue), reserved.eq(0)]
        with m.If(launch):
            m.d.sync += [remaining.eq(self.commands), address.eq(self.program)]
        return m
