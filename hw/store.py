"""Store unit: strided rows from the scratchpad to DRAM."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.bursts import BurstSplitter, RowWalker
from gemmule.hw.interfaces import SpmRead, UnitControl, axi_write, move_layout
from gemmule.timing import Timing

__all__ = ["Store"]

FIRST = 1
SEND = 2


class Store(wiring.Component):
    """Store unit: a reader fills one of two burst buffers while a sender empties the other.

    Latency: first scratchpad read ``store_first`` cycles after issue; a burst is sent from
    ``store_send`` cycles after its last read on (it is wholly buffered, so W never starves).
    Throughput: one beat a cycle. Backpressure: awready and wready may stall at will; address and
    data channels proceed independently.

    Parameters
    ----------
    config: Config
        Device configuration.
    timing: Timing
        Its ``store_first`` and ``store_send`` must be those of this implementation.

    Members
    -------
    control: In(UnitControl)
        One stream (store.r), released with the last read; finish comes with the response of the
        last burst.
    axi: Out(axi_write)
        At most ``write_bursts`` responses outstanding.
    spm: Out(SpmRead)
        One read per beat.
    error: Out(1)
        High in the cycle of an error response.
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        if (timing.store_first, timing.store_send) != (FIRST, SEND):
            raise ValueError(
                f"store_first and store_send must be {FIRST} and {SEND}, as built, not "
                f"{timing.store_first} and {timing.store_send}"
            )
        self.config = config
        super().__init__({
            "control": In(UnitControl(move_layout(config), 1)),
            "axi": Out(axi_write(config)),
            "spm": Out(SpmRead(config)),
            "error": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, control, axi = self.config, self.control, self.axi
        beat_bits = exact_log2(config.burst_beats)
        burst = data.StructLayout({
            "address": config.address_bits, "beats": range(config.burst_beats + 1),
            "strobe": config.bus_bytes, "last": 1,
        })
        m.submodules.bursts = bursts = BurstSplitter(config=config)
        m.submodules.walker = walker = RowWalker(config=config)
        m.submodules.buffer = buffer = Memory(
            shape=config.bus_bytes * 8, depth=2 * config.burst_beats, init=[])
        slots = Array(Signal(burst, name=f"slot_{i}") for i in range(2))

        # A buffer is busy from its burst's last read to the send end, full once the data stand in it.
        busy = Signal(2)
        full = Signal(2)
        fill = Signal(2)
        sent = Signal(2)
        m.d.sync += [busy.eq((busy | fill) & ~sent), full.eq(busy & ~sent)]

        # Reader: a burst waits for its buffer before its first beat, then runs without gaps.
        write_slot = Signal()
        beat = Signal(range(config.burst_beats + 1))
        read = Signal()
        burst_end = Signal()
        m.d.comb += [
            control.ready.eq(~walker.active),
            bursts.start.eq(control.start),
            bursts.command.eq(control.command),
            walker.start.eq(control.start),
            walker.command.eq(control.command),
            read.eq(walker.active & ((beat != 0) | ~Mux(write_slot, busy[1], busy[0]))),
            burst_end.eq(read & (beat + 1 == bursts.beats)),
            walker.next.eq(read),
            bursts.next.eq(burst_end),
            fill.eq(burst_end << write_slot),
            self.spm.en.eq(read),
            self.spm.row.eq(walker.row),
            control.release.eq(read & walker.last),
        ]
        with m.If(read):
            m.d.sync += beat.eq(beat + 1)
        with m.If(burst_end):
            m.d.sync += [
                beat.eq(0),
                write_slot.eq(~write_slot),
                slots[write_slot].address.eq(bursts.address),
                slots[write_slot].beats.eq(bursts.beats),
                slots[write_slot].strobe.eq(walker.mask),
                slots[write_slot].last.eq(bursts.last),
            ]

        # Data of the read stand on the scratchpad port one cycle later.
        write_port = buffer.write_port()
        chunk = Signal.like(walker.chunk)
        m.d.sync += [
            write_port.en.eq(read),
            write_port.addr.eq(Cat(beat[:beat_bits], write_slot)),
            chunk.eq(walker.chunk),
        ]
        m.d.comb += write_port.data.eq(self.spm.data.word_select(chunk, config.bus_bytes * 8))

        # Sender: a burst begins when buffered, in order; once begun, AW and W run independently.
        send_slot = Signal()
        slot = Signal(burst)
        outstanding = Signal(range(config.write_bursts + 1))
        sending = Signal()
        begin = Signal()
        aw_done = Signal()
        w_done = Signal()
        sent_beats = Signal(range(max(2, config.burst_beats)))
        aw_now = Signal()
        w_now = Signal()
        end = Signal()
        read_port = buffer.read_port(domain="comb")
        m.d.comb += [
            slot.eq(slots[send_slot]),
            begin.eq(~sending & Mux(send_slot, full[1], full[0]) & (outstanding != config.write_bursts)),
            axi.awvalid.eq(begin | (sending & ~aw_done)),
            axi.awaddr.eq(slot.address),
            axi.awlen.eq(slot.beats - 1),
            axi.wvalid.eq(begin | (sending & ~w_done)),
            axi.wlast.eq(sent_beats + 1 == slot.beats),
            axi.wstrb.eq(Mux(axi.wlast, slot.strobe, Const(-1, unsigned(config.bus_bytes)))),
            read_port.addr.eq(Cat(sent_beats[:beat_bits], send_slot)),
            axi.wdata.eq(read_port.data),
            aw_now.eq(axi.awvalid & axi.awready),
            w_now.eq(axi.wvalid & axi.wready),
            end.eq((aw_done | aw_now) & (w_done | (w_now & axi.wlast))),
            sent.eq(end << send_slot),
        ]
        with m.If(begin):
            m.d.sync += sending.eq(1)
        with m.If(aw_now):
            m.d.sync += aw_done.eq(1)
        with m.If(w_now):
            m.d.sync += [sent_beats.eq(sent_beats + 1), w_done.eq(axi.wlast)]
        with m.If(end):
            m.d.sync += [
                sending.eq(0), aw_done.eq(0), w_done.eq(0), sent_beats.eq(0),
                send_slot.eq(~send_slot),
            ]

        # Responses come in order; the queue tells which of them ends a command.
        m.submodules.lasts = lasts = SyncFIFO(width=1, depth=config.write_bursts)
        response = Signal()
        m.d.comb += [
            axi.bready.eq(1),
            response.eq(axi.bvalid & axi.bready),
            lasts.w_en.eq(begin),
            lasts.w_data.eq(slot.last),
            lasts.r_en.eq(response),
            control.finish.eq(response & lasts.r_data),
            self.error.eq(response & axi.bresp[1]),
        ]
        m.d.sync += outstanding.eq(outstanding + begin - response)
        return m
