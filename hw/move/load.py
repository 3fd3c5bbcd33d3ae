"""Load unit: strided or gathered rows from DRAM into the scratchpad or the accumulator."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import AccRead, AccWrite, ListRead, SpmWrite, UnitControl, move_layout, read_request
from gemmule.hw.move.align import Aligner
from gemmule.hw.move.bursts import INDEX_CYCLES, BurstSplitter
from gemmule.hw.move.load_write import LoadWriter
from gemmule.hw.queue import Queue
from gemmule.isa import MoveFlag
from gemmule.timing import Timing

__all__ = ["Load"]

LATENCIES = {"load_first": 1, "load_write": 3, "load_fill": 2, "index_cycles": INDEX_CYCLES}


class Load(wiring.Component):
    """Load unit: a request generator, an aligner of beats and a writer that walks the command again.

    Latency: the first request is valid ``load_first`` cycles after the start; a chunk is written ``load_write`` cycles
    after the beat that completes it (which waits one of them in a register), or right after the chunk before; a ZERO
    command writes from ``load_fill`` cycles after the start on; rows of an INDEXED command follow each other's last
    request in ``index_cycles``. Throughput: one request, one beat and one write a cycle; the next command's requests
    follow the last one's at once, up to ``load_commands`` commands overlap. No backpressure on beats: a command's
    ports are held from issue to finish.

    Parameters
    ----------
    config: Config
        Device configuration.
    timing: Timing
        Its load constants and ``index_cycles`` must be those of this implementation.

    Members
    -------
    control: In(UnitControl)
        One stream (load.w); finish and release come with the last write. At most
        ``load_commands`` commands may be in flight, and ZERO and BROADCAST start only when none is.
    read: Out(read_request)
        Burst requests, while fewer than ``read_bursts`` bursts and ``read_beats`` beats are in flight. Beats come at
        least one cycle later.
    list: Out(ListRead)
        Row numbers of INDEXED commands.
    spm, acc_read, acc_write: Out
        One write a chunk, masked to the valid lanes; ADD reads the row one cycle before.
    error: Out(1)
        High in the cycle after a beat that had an error response.
    moved: Out(1)
        A beat is accepted, or a ZERO command writes.
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        for name, cycles in LATENCIES.items():
            if getattr(timing, name) != cycles:
                raise ValueError(f"{name} must be {cycles}, as built, not {getattr(timing, name)}")
        self.config = config
        super().__init__({
            "control": In(UnitControl(move_layout(config), 1)),
            "read": Out(read_request(config)),
            "list": Out(ListRead(config)),
            "spm": Out(SpmWrite(config)),
            "acc_read": Out(AccRead(config)),
            "acc_write": Out(AccWrite(config)),
            "error": Out(1),
            "moved": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, control, read = self.config, self.control, self.read
        m.submodules.bursts = bursts = BurstSplitter(config=config)
        m.submodules.aligner = aligner = Aligner(config=config)
        m.submodules.writer = writer = LoadWriter(config=config)

        # Generator: an offered burst stands until accepted, its condition can only become looser meanwhile.
        zero, broadcast = (control.command.flags[flag] for flag in (MoveFlag.ZERO, MoveFlag.BROADCAST))
        alone = Signal()  # a ZERO or BROADCAST command is in flight
        in_flight = Signal(range(config.read_bursts + 1))
        beats = Signal(range(config.read_beats + config.burst_beats))  # of these that are to come
        # The bus's beat a cycle later, and the chunk that it completes, another one: to the memories is a long way.
        beat = Signal(data.StructLayout({"valid": 1, "last": 1, "data": config.bus_bytes * 8}))
        chunk = Signal(data.StructLayout({"valid": 1, "data": config.bus_bytes * 8}))
        quiet = Signal()  # all is written (chunks wait only for writes): what a BROADCAST burst waits for
        accepted = Signal()
        returned = Signal()
        m.d.comb += [
            control.ready.eq(~bursts.active & ~alone),
            bursts.start.eq(control.start & ~zero),
            bursts.command.eq(control.command),
            quiet.eq((in_flight == 0) & ~beat.valid & ~chunk.valid & ~writer.busy),
            read.req_valid.eq(bursts.valid & Mux(
                alone, quiet, (in_flight != config.read_bursts) & (beats < config.read_beats))),
            read.req_addr.eq(bursts.address),
            read.req_len.eq(bursts.beats - 1),
            accepted.eq(read.req_valid & read.req_ready),
            bursts.next.eq(accepted),
            returned.eq(read.beat_valid & read.beat_last),
        ]
        m.d.sync += [
            in_flight.eq(in_flight + accepted - returned),
            beats.eq(beats + Mux(accepted, bursts.beats, 0) - read.beat_valid),
            beat.eq(Cat(read.beat_valid, read.beat_last, read.beat_data)),
        ]
        with m.If(writer.finish):
            m.d.sync += alone.eq(0)
        with m.If(control.start):
            m.d.sync += alone.eq(zero | broadcast)

        # What the aligner must know of each burst in flight, and of one whose last beat waits in the register.
        m.submodules.places = places = Queue(depth=config.read_bursts + 1, shape=data.StructLayout({
            "first_byte": range(config.bus_bytes), "row_end": 1, "tail": 1}))
        m.d.comb += [
            places.push.eq(accepted),
            places.push_data.first_byte.eq(bursts.first_byte),
            places.push_data.row_end.eq(bursts.row_end),
            places.push_data.tail.eq(bursts.last_byte >= bursts.first_byte),
            places.pop.eq(beat.valid & beat.last),
            aligner.beat_valid.eq(beat.valid),
            aligner.beat_data.eq(beat.data),
            aligner.first_byte.eq(places.head.first_byte),
            aligner.row_end.eq(beat.last & places.head.row_end),
            aligner.tail.eq(places.head.tail),
            aligner.take.eq(~chunk.valid | writer.take),
            writer.valid.eq(chunk.valid),
            writer.data.eq(chunk.data),
            writer.start.eq(control.start),
            writer.command.eq(control.command),
        ]
        with m.If(aligner.take):
            m.d.sync += chunk.eq(Cat(aligner.valid, aligner.data))
        wiring.connect(m, wiring.flipped(self.list), bursts.list)
        wiring.connect(m, wiring.flipped(self.spm), writer.spm)
        wiring.connect(m, wiring.flipped(self.acc_read), writer.acc_read)
        wiring.connect(m, wiring.flipped(self.acc_write), writer.acc_write)
        m.d.comb += [
            control.finish.eq(writer.finish),
            control.release.eq(writer.finish),
            self.moved.eq(read.beat_valid | writer.filling),
        ]
        m.d.sync += self.error.eq(read.beat_valid & read.beat_resp[1])
        return m
