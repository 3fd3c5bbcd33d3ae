"""Load unit: strided rows from DRAM into the scratchpad."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.bursts import BurstSplitter, RowWalker
from gemmule.hw.interfaces import SpmWrite, UnitControl, move_layout, read_request
from gemmule.timing import Timing

__all__ = ["Load"]

FIRST = 1
WRITE = 1


class Load(wiring.Component):
    """Load unit: a request generator and a writer that re-walks the command beat by beat.

    Latency: the first request is valid ``load_first`` cycles after issue; a beat is written
    ``load_write`` cycles after it is accepted. Throughput: one request and one beat a cycle;
    the next command's requests follow the last one's at once, up to ``load_commands`` commands
    overlap. No backpressure on beats: a command's scratchpad ports are held from issue to finish.

    Parameters
    ----------
    config: Config
        Device configuration.
    timing: Timing
        Its ``load_first`` and ``load_write`` must be those of this implementation.

    Members
    -------
    control: In(UnitControl)
        One stream (load.w); finish and release come with the last write. At most
        ``load_commands`` commands may be in flight.
    read: Out(read_request)
        Burst requests; at most ``read_bursts`` in flight. Beats come at least one cycle later.
    spm: Out(SpmWrite)
        One write per beat, masked to the valid bytes.
    error: Out(1)
        High with the write of a beat that had an error response.
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        if (timing.load_first, timing.load_write) != (FIRST, WRITE):
            raise ValueError(
                f"load_first and load_write must be {FIRST} and {WRITE}, as built, not "
                f"{timing.load_first} and {timing.load_write}"
            )
        self.config = config
        super().__init__({
            "control": In(UnitControl(move_layout(config), 1)),
            "read": Out(read_request(config)),
            "spm": Out(SpmWrite(config)),
            "error": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, control, read = self.config, self.control, self.read

        # Generator: offered bursts stand until accepted, the limit can only become looser meanwhile.
        m.submodules.bursts = bursts = BurstSplitter(config=config)
        in_flight = Signal(range(config.read_bursts + 1))
        accepted = Signal()
        returned = Signal()
        m.d.comb += [
            control.ready.eq(~bursts.active),
            bursts.start.eq(control.start),
            bursts.command.eq(control.command),
            read.req_valid.eq(bursts.active & (in_flight != config.read_bursts)),
            read.req_addr.eq(bursts.address),
            read.req_len.eq(bursts.beats - 1),
            accepted.eq(read.req_valid & read.req_ready),
            bursts.next.eq(accepted),
            returned.eq(read.beat_valid & read.beat_last),
        ]
        m.d.sync += in_flight.eq(in_flight + accepted - returned)

        # Commands whose beats are still to come; the walker refills in the cycle of its last beat.
        layout = move_layout(config)
        m.submodules.commands = commands = SyncFIFO(width=layout.size, depth=config.load_commands)
        m.submodules.walker = walker = RowWalker(config=config)
        refill = Signal()
        m.d.comb += [
            commands.w_en.eq(control.start),
            commands.w_data.eq(control.command),
            walker.next.eq(read.beat_valid),
            refill.eq(commands.r_rdy & (~walker.active | (walker.next & walker.last))),
            commands.r_en.eq(refill),
            walker.start.eq(refill),
            walker.command.eq(commands.r_data),
        ]

        # Write stage: the beat goes to every bus-wide part of the row, the mask selects one.
        done = Signal()
        m.d.sync += [
            self.spm.en.eq(read.beat_valid),
            self.spm.row.eq(walker.row),
            self.spm.mask.eq(walker.mask << (walker.chunk * config.bus_bytes)),
            self.spm.data.eq(read.beat_data.replicate(walker.chunks)),
            self.error.eq(read.beat_valid & read.beat_resp[1]),
            done.eq(walker.next & walker.last),
        ]
        m.d.comb += [control.finish.eq(done), control.release.eq(done)]
        return m
