"""Command fetch: reads the program through AXI, in bursts, and repeats the bodies of REPEAT commands."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2

from gemmule.config import Config
from gemmule.control import MAX_DEPTH
from gemmule.hw.command.loops import Loops, RepeatControl
from gemmule.hw.command.window import Window
from gemmule.hw.interfaces import COUNT_BITS, read_request
from gemmule.isa import COMMAND_BYTES
from gemmule.timing import Timing

__all__ = ["Fetch"]


class Fetch(wiring.Component):
    """Prefetches commands in the order of the stream, and never one that is not due.

    Latency: requests from ``start + fetch_start`` on; a command is the head of the window in the cycle after
    its last beat, at the earliest. Throughput: one request per cycle, one beat per cycle, one command per cycle.
    Backpressure: a burst is requested only when the window has room for all its commands, so beats
    are always taken. Bursts end at ``burst_bytes`` boundaries and at the ends of bodies.

    Two positions move through the stream: that of the next request, and that of the next command to be taken. A body
    of more commands than the window has places is requested anew for every turn. A shorter one is *anchored*, unless
    it is within such a one: it is requested once, and holds its places until it has been taken for the last time; at
    the end of a turn the window goes back. Commands that a REPEAT does not want at all are dropped as if taken.

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
        Head of the window, unless it is dropped.
    take: In(1)
        The head is taken.
    repeat: In(RepeatControl)
        The REPEAT that was taken last.
    place: Out
        Place in the image of the next command to be taken.
    done: Out(1)
        Every command has been taken.
    idle: Out(1)
        Nothing is awaited.
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
            "repeat": In(RepeatControl()),
            "place": Out(COUNT_BITS), "done": Out(1),
            "idle": Out(1), "error": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, read, repeat = self.config, self.read, self.repeat
        places = config.fetch_queue
        most = config.burst_bytes // COMMAND_BYTES
        command_bits, bus_bits = ceil_log2(COMMAND_BYTES), ceil_log2(config.bus_bytes)
        beats = max(1, COMMAND_BYTES // config.bus_bytes)  # per command
        lanes = max(1, config.bus_bytes // COMMAND_BYTES)  # commands per beat
        m.submodules.window = window = Window(config=config)
        m.submodules.ahead = ahead = Loops(
            place_bits=config.address_bits - command_bits, most=most, limit_bits=bits_for(places))
        m.submodules.taken = taken = Loops(place_bits=COUNT_BITS, most=1, limit_bits=1)

        # Request: n commands up to the next burst boundary, or the end of a body or of the program.
        address = Cat(Const(0, command_bits), ahead.place)
        n = ahead.count
        room = Signal(range(places + 1))  # places for commands that have not been requested
        slot = address[command_bits:ceil_log2(config.burst_bytes)]
        first_lane = address[command_bits:max(bus_bits, command_bits)]
        requested = Signal()
        m.d.comb += [
            ahead.within.eq(Array(most - i for i in range(most))[slot] if most > 1 else 1), ahead.limit.eq(room),
            # What is offered stays until it is accepted.
            read.req_valid.eq(ahead.fits & (~repeat.pause | repeat.standing)),
            read.req_addr.eq(Cat(Const(0, bus_bits), address[bus_bits:])),
            read.req_len.eq(Array(max(0, beats * i - 1) for i in range(most + 1))[n] if lanes == 1
                            else (n + first_lane - 1) >> 1),
            requested.eq(read.req_valid & read.req_ready),
            ahead.step.eq(requested),
        ]
        m.d.sync += repeat.standing.eq(read.req_valid & ~read.req_ready)

        # Take, or drop.
        dropping = Signal()  # the innermost body, of which no turn is wanted
        step = Signal()
        closed = Signal()  # the last command taken was the last one of a body
        m.d.comb += [
            self.valid.eq(window.valid & ~dropping), self.command.eq(window.command),
            step.eq(Mux(dropping, window.valid, self.take)),
            taken.within.eq(1), taken.step.eq(step), window.take.eq(step),
            self.place.eq(taken.place), self.done.eq((taken.left == 0) & (taken.depth == 0)),
        ]
        with m.If(step):
            m.d.sync += closed.eq(taken.closes)
        with m.If(taken.closes):
            m.d.sync += dropping.eq(0)

        # REPEAT. No command is taken before it acts: the positions stand, but for requests up to the cycle before.
        rest = Signal(COUNT_BITS + 1)
        more = Signal(COUNT_BITS)  # of the body's commands: those not requested yet, if there are ``any_more``
        large, low = repeat.body[len(room):].any(), repeat.body[:len(room)]
        any_more = Signal()
        begins, short, anchors = Signal(), Signal(), Signal()
        anchored = Signal()
        anchor = Signal(range(MAX_DEPTH))  # the body below so many others is anchored
        m.d.comb += [
            rest.eq(taken.left - repeat.body),
            # A body ends before the one around it does, so that no command ends two.
            repeat.allows.eq(~closed & (repeat.body != 0) & (taken.depth != MAX_DEPTH) & ~rest[-1]
                             & ((taken.depth == 0) | (rest != 0))),
            more.eq(repeat.body + room - places), any_more.eq(large | (low + room > places)),
            begins.eq(repeat.effect & (repeat.times != 0)),
            short.eq(~large & (low <= places)), anchors.eq(begins & short & ~anchored),
            *(side.body.eq(repeat.body) for side in (taken, ahead)),
            *(side.rest.eq(rest) for side in (taken, ahead)),
            taken.push.eq(repeat.effect), taken.begin.eq(taken.place), taken.turns.eq(repeat.times),
            taken.more.eq(repeat.body),
            ahead.push.eq(begins & ~anchored & any_more),
            ahead.begin.eq(self.program[command_bits:] + taken.place), ahead.more.eq(more),
            ahead.turns.eq(Mux(short, 1, repeat.times)),
        ]
        with m.If(repeat.effect & (repeat.times == 0)):
            m.d.sync += dropping.eq(1)
        with m.If(anchors):
            m.d.sync += [anchored.eq(1), anchor.eq(taken.depth)]

        # Places: an anchored body gives all of its own back when it has been taken for the last time.
        leaves_anchor = Signal()
        frees, gain = Signal(), Signal(range(places + 1))
        more_room = Signal(range(places + 1))
        m.d.comb += [
            leaves_anchor.eq(taken.leaves & (taken.depth - 1 == anchor)),
            frees.eq(Mux(anchored, leaves_anchor, step)), gain.eq(Mux(anchored, taken.innermost, 1)),
            more_room.eq(room + gain),
            window.back.eq(anchored & ~taken.leaves & taken.closes), window.body.eq(taken.innermost),
        ]
        with m.If(leaves_anchor):
            m.d.sync += anchored.eq(0)
        # All sums first: that a burst is requested, and that a place is free, is known late.
        m.d.sync += room.eq(Mux(frees, Mux(requested, more_room - n, more_room), Mux(requested, room - n, room)))

        # Beats.
        reserved = Signal(range(places + 1))
        m.d.sync += reserved.eq(Mux(requested, reserved + n, reserved) - window.arrived)
        m.d.comb += [
            window.clear.eq(self.start), window.requested.eq(requested), window.odd.eq(address[command_bits]),
            window.count.eq(n),
            window.beat_valid.eq(read.beat_valid), window.beat_data.eq(read.beat_data),
            window.beat_last.eq(read.beat_last),
            self.idle.eq(reserved == 0),
            self.error.eq(read.beat_valid & read.beat_resp[1]),  # SLVERR, DECERR
        ]

        # Launch: the work becomes visible fetch_start cycles after the strobe, its length at once.
        launch = self.start
        for i in range(self.timing.fetch_start - 1):
            delayed = Signal(name=f"launch_{i + 1}")
            m.d.sync += delayed.eq(launch)
            launch = delayed
        m.d.comb += [
            taken.start.eq(self.start), taken.commands.eq(self.commands),
            ahead.start.eq(self.start | launch), ahead.commands.eq(Mux(launch, self.commands, 0)),
            ahead.first.eq(self.program[command_bits:]),
        ]
        with m.If(self.start):
            m.d.sync += [
                room.eq(places), reserved.eq(0), closed.eq(0), dropping.eq(0), anchored.eq(0), repeat.standing.eq(0),
            ]
        return m
