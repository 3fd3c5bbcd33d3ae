"""Load: the rules of its read requests, their limits, and that no count or queue overflows."""

from __future__ import annotations

from amaranth.hdl import Cat, Mux, Signal
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.formal.bench import Bench
from gemmule.hw.formal.bursts import PAGE
from gemmule.hw.move.load import Load
from gemmule.isa import MoveFlag
from gemmule.timing import Timing

__all__ = ["load_requests", "load_whole"]


def load_requests(bench: Bench, config: Config) -> None:
    """The generator of requests, whatever the writer does."""
    _requests(bench, config, cut=("bursts", "aligner", "writer"))


def load_whole(bench: Bench, config: Config) -> None:
    """All of the unit: a BROADCAST waits for its writer."""
    _requests(bench, config, cut=())


def _requests(bench: Bench, config: Config, cut: tuple[str, ...]) -> None:
    m, dut = bench.m, bench.dut(Load(config=config, timing=Timing.of(config)), cut=cut)
    bursts, read, register = bench.part("bursts"), dut.read, bench.register
    low, bus, most = exact_log2(config.bus_bytes), config.bus_bytes, config.burst_beats
    zero, broadcast = (dut.control.command.flags[flag] for flag in (MoveFlag.ZERO, MoveFlag.BROADCAST))
    runs = Signal(range(config.load_commands + 2), name="commands")
    m.d.sync += runs.eq(runs + dut.control.start - dut.control.finish)
    bench.assume("start", "a command starts when the unit is ready and has room, some alone (target issue)",
                 ~dut.control.start | dut.control.ready & (runs < config.load_commands),
                 ~(dut.control.start & (zero | broadcast)) | (runs == 0))
    if cut:
        bench.assume("finish", "the writer finishes what was started", ~dut.control.finish | (runs != 0))
    else:
        command = dut.control.command
        bench.assume("commands", "a command has one or two rows of at most two beats, none by list or joined",
                     ~dut.control.start | (command.rows != 0) & (command.bytes != 0) & (command.rows <= 2)
                     & (command.bytes <= 2 * bus) & ~command.flags[MoveFlag.INDEXED] & ~command.joined
                     & ~(broadcast & zero))

    if cut:
        offer = Cat(bursts.address, bursts.beats)
        stands = bench.before(bursts.valid & ~bursts.next, "stands")
        offset = bursts.address[low:exact_log2(config.burst_bytes)]
        bench.assume("bursts", "an offered burst stands until the step, and ends at a boundary of burst_bytes (target "
                               "bursts)", ~stands | bursts.valid & (bench.before(offer, "burst") == offer),
                     ~bursts.valid | bursts.active & (bursts.beats != 0) & (offset + bursts.beats <= most)
                     & (bursts.address[:low] == 0))

    accepted, returned = read.req_valid & read.req_ready, read.beat_valid & read.beat_last
    open_ = Signal(range(config.read_bursts + 2), name="open_bursts")
    due = Signal(range(config.read_beats + 2 * most), name="due_beats")
    left, rest = Signal.like(open_), Signal.like(due)
    m.d.comb += [left.eq(open_ - returned), rest.eq(due - read.beat_valid)]
    m.d.sync += [open_.eq(left + accepted), due.eq(rest + Mux(accepted, bursts.beats, 0))]
    bench.assume("beats", "the memory answers what was requested, and every burst's last beat is marked",
                 ~read.beat_valid | (due != 0), ~returned | (open_ != 0), (rest == 0) == (left == 0), rest >= left)

    beat = register("beat")  # the bus's, a cycle later: whether there is one, and whether it ends its burst
    bench.lemma("beat", "it stands in a register for one cycle",
                beat[:2] == bench.before(Cat(read.beat_valid, read.beat_last), "beat"))
    bench.lemma("bursts in flight", "the unit counts them; the place of one whose last beat stands there is kept too",
                register("in_flight") == open_, open_ <= config.read_bursts,
                bench.part("places").level == open_ + (beat[0] & beat[1]))
    bench.lemma("beats in flight", "and their beats", register("beats") == due, (due == 0) == (open_ == 0),
                due >= open_)
    if cut:
        writer, aligner = bench.part("writer"), bench.part("aligner")
        empty = ~beat[0] & ~register("chunk")[0]
        quiet = bench.before(register("alone") & (open_ == 0) & empty & ~writer.busy & ~dut.control.start, "quiet")
        bench.assume("quiet", "an aligner whose chunks were taken has none without a beat, and a writer stays idle "
                              "until one comes (bounded: target load-whole)",
                     ~empty | ~aligner.valid, ~quiet | ~writer.busy)
    waits = bench.before(read.req_valid & ~read.req_ready, "waits")
    bench.always("stands", "an offered request stands unchanged until it is accepted",
                 ~waits | read.req_valid & (bench.before(Cat(read.req_addr, read.req_len), "request")
                                            == Cat(read.req_addr, read.req_len)), bounded=not cut)
    if not cut:
        bench.cover("broadcast waits", "a BROADCAST's second burst waits for the first to be written",
                    bursts.valid & register("alone") & ~read.req_valid & (open_ == 0))
        return
    bench.always("boundary", "no request is longer than burst_bytes or crosses 4 KiB, and it is aligned to the bus",
                 ~read.req_valid | (read.req_len < most) & (read.req_addr[:low] == 0)
                 & (read.req_addr[low:exact_log2(PAGE)] + read.req_len < PAGE // bus))
    bench.always("in flight", "no more than read_bursts bursts are in flight, and a request is made only while fewer "
                              "than read_beats beats are", open_ <= config.read_bursts, due < config.read_beats + most)
    bench.always("places", "there is a place for what the aligner has to know of a burst",
                 ~accepted | (bench.part("places").level < bench.part("places").depth))
    bench.always("whole", "every burst of the command is requested once, with its own address and length",
                 bursts.next == accepted, ~accepted | (read.req_addr == bursts.address)
                 & (read.req_len + 1 == bursts.beats))
    bench.cover("most bursts", "as many bursts as may be are in flight", open_ == config.read_bursts)
    bench.cover("broadcast", "a request of a BROADCAST waits for the bus", waits & register("alone"))
