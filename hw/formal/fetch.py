"""Fetch: the rules of its read requests, a place for every command that it asks for, the program whole and in order."""

from __future__ import annotations

from amaranth.hdl import Cat, Signal
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.command.fetch import Fetch
from gemmule.hw.formal.bench import Bench
from gemmule.hw.formal.bursts import PAGE
from gemmule.hw.interfaces import COUNT_BITS
from gemmule.isa import COMMAND_BYTES
from gemmule.timing import Timing

__all__ = ["fetch", "fetch_repeats"]


def fetch(bench: Bench, config: Config) -> None:
    """A program without a REPEAT; one beat of one command, any one, is watched on its way through the window."""
    m, dut = bench.m, bench.dut(Fetch(config=config))
    per, bus = COMMAND_BYTES // config.bus_bytes, config.bus_bytes
    window, read, places = bench.part("window"), dut.read, config.fetch_queue
    bench.assume("no repeat", "no REPEAT takes effect", ~dut.repeat.pause & ~dut.repeat.effect)
    number, lane, value = (bench.constant(COUNT_BITS, "watched_command"), bench.constant(range(per), "watched_beat"),
                           Signal(8 * bus, name="watched_data"))
    requested, arrived, taken, beat = _program(bench, dut, config, value, number, lane)

    room, reserved = bench.register("room"), bench.register("reserved")
    tail = bench.register("window.tail")
    waiting = Signal(range(2 * places))
    m.d.comb += waiting.eq(arrived - taken)
    started = Signal()
    with m.If(dut.start):
        m.d.sync += started.eq(1)
    bench.lemma("places", "a place of the window is free, asked for, or holds a command that is to be taken",
                started | (room == 0) & (reserved == 0) & (bench.part("ahead").left == 0) & (requested == 0),
                ~started | (room + reserved + waiting == places), ~started | (arrived - taken <= places),
                (requested - arrived)[:COUNT_BITS] == reserved, reserved <= places, room <= places,
                taken <= arrived, arrived <= requested)
    ahead, behind = bench.part("ahead"), bench.part("taken")
    total = bench.wire(dut.commands, "total")
    launching = [bench.register(f"launch_{i + 1}") for i in range(Timing.of(config).fetch_start - 1)]
    soon = Cat(*launching).any() if launching else dut.start & 0
    bench.lemma("positions", "both positions move through the program, and no body is open",
                ahead.depth == 0, behind.depth == 0, ~bench.register("anchored"), ~bench.register("dropping"),
                ~bench.register("closed"), ~started | (behind.left + taken == total) & (behind.place == taken),
                ~started | soon | (ahead.left + requested == total), ~soon | (ahead.left == 0) & (requested == 0),
                ~started | soon | (ahead.place == (dut.program >> exact_log2(COMMAND_BYTES)) + requested),
                Cat(*launching).any() == (sum(launching) == 1) if launching else 1,
                *(bench.register(f"{name}.far") == side.left[bits:].any()
                  for name, side, bits in (("ahead", ahead, exact_log2(config.burst_bytes // COMMAND_BYTES) + 1),
                                           ("taken", behind, 1))))
    bench.lemma("window", "its head is the next command to be taken, its tail the next to arrive",
                tail == arrived[:len(tail)],
                bench.register("window.head") == taken[:len(tail)],
                bench.register("window.index") == beat)
    place = (bench.word("window.bank_0", number[:exact_log2(places)])).word_select(lane, 8 * bus)
    there = (arrived > number) & (number >= taken)
    half = (arrived == number) & (beat > lane)
    bench.lemma("watched", "the beat stands where it was written", ~(started & (there | half)) | (place == value),
                ~half | started)
    bench.always("stands", "an offered request stands unchanged until it is accepted, as long as no launch starts",
                 *_stands(
        bench, dut))
    bench.always("boundary", "no request is longer than burst_bytes or crosses 4 KiB, and it is aligned to the bus",
                 ~read.req_valid | (read.req_len < config.burst_beats) & (read.req_addr[:exact_log2(bus)] == 0)
                 & (read.req_addr[exact_log2(bus):exact_log2(PAGE)] + read.req_len < PAGE // bus))
    bench.always("program", "commands are requested once, in order, and none beyond the end",
                 ~read.req_valid | (read.req_addr == (dut.program + (requested << 5))[:len(read.req_addr)]),
                 requested <= total, ~read.req_valid | (requested < total))
    bench.always("room", "no more commands are asked for or waiting than the window has places",
                 requested - taken <= places, ~window.arrived.any() | (waiting < places))
    bench.always("data", "a command is the head as it came from memory, in its turn",
                 ~(dut.valid & (taken == number)) | (dut.command.word_select(lane, 8 * bus) == value),
                 ~started | (dut.place == taken), ~dut.valid | (taken < total))
    bench.always("done", "all has been taken when the program's commands have", ~started
                 | (dut.done == (taken == total)))
    bench.cover("taken", "the watched command is taken behind another", dut.take & (taken == number) & (number == 1)
                & (value == 0x1234))


def fetch_repeats(bench: Bench, config: Config) -> None:
    """A program with bodies, as resolve lets REPEAT take effect."""
    m, dut = bench.m, bench.dut(Fetch(config=config))
    value = Signal(8 * config.bus_bytes, name="watched_data")
    _program(bench, dut, config, value, None, None)
    repeat, since = dut.repeat, Signal(3, name="since_take", init=7)
    with m.If(dut.take):
        m.d.sync += since.eq(0)
    with m.Elif(since != 7):
        m.d.sync += since.eq(since + 1)
    bench.assume("resolve", "REPEAT pauses fetch from its fourth cycle on until it takes effect; nothing is taken "
                            "meanwhile", ~repeat.pause | (since >= 3) & ~dut.take,
                 repeat.effect == (repeat.pause & ~repeat.standing & repeat.allows),
                 ~bench.before(repeat.pause & repeat.standing, "paused") | repeat.pause,
                 ~bench.before(repeat.effect, "acted") | ~repeat.pause)
    stable = Cat(repeat.body, repeat.times)
    bench.assume("stable", "its body and turns stand", (bench.before(stable, "repeat") == stable) | (since == 0))
    occupied = Signal(range(2 * config.fetch_queue))
    m.d.comb += occupied.eq(bench.register("reserved") + bench.register("room"))
    bench.always("stands", "an offered request stands unchanged until it is accepted, as long as no launch starts, "
                           "with bodies too",
                 *_stands(bench, dut),
                 bounded=True)
    bench.always("places", "places free and asked for are never more than there are, with bodies too",
                 occupied <= config.fetch_queue, bounded=True)
    bench.cover("again", "a body of one command is taken twice", dut.take & bench.part("window").back)


def _stands(bench: Bench, dut: Fetch) -> tuple[object, ...]:
    read = dut.read
    waits = bench.before(read.req_valid & ~read.req_ready & ~dut.start, "waits")
    request = Cat(read.req_addr, read.req_len)
    return (~waits | read.req_valid & (bench.before(request, "request") == request),)


def _program(bench: Bench, dut: Fetch, config: Config, value: Signal, number: Signal | None,
             lane: Signal | None) -> tuple[Signal, ...]:
    """Counts of commands requested, arrived and taken, and of beats; what memory and control keep."""
    m, read, per = bench.m, dut.read, COMMAND_BYTES // config.bus_bytes
    requested, arrived, taken = (Signal(COUNT_BITS, name=name) for name in ("requested", "arrived", "taken_commands"))
    beat = Signal(range(per), name="beat_of_command")
    accepted = read.req_valid & read.req_ready
    commands = (read.req_len + 1) >> exact_log2(per)
    ends = read.beat_valid & (beat == per - 1)
    with m.If(accepted):
        m.d.sync += requested.eq(requested + commands)
    with m.If(read.beat_valid):
        m.d.sync += beat.eq(beat + 1)
        if number is not None:
            with m.If((arrived == number) & (beat == lane)):
                m.d.sync += value.eq(read.beat_data)
    with m.If(ends):
        m.d.sync += arrived.eq(arrived + 1)
    with m.If(dut.take):
        m.d.sync += taken.eq(taken + 1)
    with m.If(dut.start):
        m.d.sync += [signal.eq(0) for signal in (requested, arrived, taken, beat)]
    bench.assume("beats", "the memory answers what was requested", ~read.beat_valid | (arrived != requested))
    bench.assume("take", "what is taken is there", ~dut.take | dut.valid)
    bench.assume("program", "the program's address and length stand, it is aligned to commands and ends in the memory",
                 dut.program == bench.constant(len(dut.program), "address"),
                 dut.commands == bench.constant(len(dut.commands), "length"),
                 dut.program[:exact_log2(COMMAND_BYTES)] == 0,
                 dut.program + (dut.commands << exact_log2(COMMAND_BYTES)) < 1 << len(dut.program))
    launched = bench.before(dut.start, "start")
    launching = [launched]
    for i in range(Timing.of(config).fetch_start - 1):
        launching.append(bench.before(launching[-1], f"start_{i}"))
    bench.assume("start", "a launch starts when nothing is requested or awaited, and not while one begins",
                 ~dut.start | dut.idle & ~Cat(launching).any())
    return requested, arrived, taken, beat
