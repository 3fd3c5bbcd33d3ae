"""Store unit: rows of the scratchpad or the accumulator, strided or scattered, to DRAM."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import AccRead, ListRead, SpmRead, UnitControl, axi_write, move_layout
from gemmule.hw.move.bursts import INDEX_CYCLES
from gemmule.hw.move.store_read import StoreReader, burst_layout
from gemmule.hw.queue import Queue
from gemmule.timing import Timing

__all__ = ["Store"]

LATENCIES = {"store_first": 1, "store_send": 3, "index_cycles": INDEX_CYCLES}


class Store(wiring.Component):
    """Store unit: a reader fills one of two burst buffers while a sender empties the other.

    Latency: first beat taken ``store_first`` cycles after the start, INDEXED ``index_cycles`` later, its memory read a
    cycle after that; a burst is sent from ``store_send`` cycles after its last beat was taken on (it is wholly
    buffered, so W never starves).
    Throughput: one beat a cycle. Backpressure: awready and wready may stall at will; address and
    data channels proceed independently.

    Parameters
    ----------
    config: Config
        Device configuration.
    timing: Timing
        Its store constants and ``index_cycles`` must be those of this implementation.

    Members
    -------
    control: In(UnitControl)
        One stream (store.r), released when the last beat is taken; finish comes with the response of the
        last burst.
    axi: Out(axi_write)
        At most ``write_bursts`` responses outstanding. Only bytes of the DRAM rows are strobed.
    list: Out(ListRead)
        Row numbers of INDEXED commands.
    spm, acc: Out
        At most one read a beat.
    error: Out(1)
        High in the cycle of an error response.
    moved: Out(1)
        A W beat is accepted.
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        for name, cycles in LATENCIES.items():
            if getattr(timing, name) != cycles:
                raise ValueError(f"{name} must be {cycles}, as built, not {getattr(timing, name)}")
        self.config = config
        super().__init__({
            "control": In(UnitControl(move_layout(config), 1)),
            "axi": Out(axi_write(config)),
            "list": Out(ListRead(config)),
            "spm": Out(SpmRead(config)),
            "acc": Out(AccRead(config)),
            "error": Out(1),
            "moved": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, control, axi = self.config, self.control, self.axi
        burst = burst_layout(config)
        m.submodules.reader = reader = StoreReader(config=config)
        m.submodules.buffer = buffer = Memory(
            shape=config.bus_bytes * 8, depth=2 * config.burst_beats, init=[])
        slots = Array(Signal(burst, name=f"slot_{i}") for i in range(2))
        write_port, read_port = buffer.write_port(), buffer.read_port(domain="comb")

        # A buffer is busy from its burst's last beat to the send end, full once the data stand in it.
        busy = Signal(2)
        read = Signal(2)
        full = Signal(2)
        sent = Signal(2)
        m.d.sync += [busy.eq((busy | reader.fill) & ~sent), read.eq(busy & ~sent), full.eq(read & ~sent)]
        m.d.comb += [
            control.ready.eq(~reader.active),
            reader.start.eq(control.start),
            reader.command.eq(control.command),
            reader.busy.eq(busy),
            control.release.eq(reader.fill.any() & reader.burst.last),
            write_port.en.eq(reader.write_en),
            write_port.addr.eq(reader.write_beat),
            write_port.data.eq(reader.write_data),
        ]
        wiring.connect(m, wiring.flipped(self.list), reader.list)
        wiring.connect(m, wiring.flipped(self.spm), reader.spm)
        wiring.connect(m, wiring.flipped(self.acc), reader.acc)
        for i, slot in enumerate(slots):
            with m.If(reader.fill[i]):
                m.d.sync += slot.eq(reader.burst)

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
        passes = Signal()  # a burst of one beat is sent in the cycle in which it is written
        ones = Const(-1, unsigned(config.bus_bytes))
        m.d.comb += [
            slot.eq(slots[send_slot]),
            begin.eq(~sending & Mux(send_slot, full[1], full[0]) & (outstanding != config.write_bursts)),
            axi.awvalid.eq(begin | (sending & ~aw_done)),
            axi.awaddr.eq(slot.address),
            axi.awlen.eq(slot.beats - 1),
            axi.wvalid.eq(begin | (sending & ~w_done)),
            axi.wlast.eq(sent_beats + 1 == slot.beats),
            axi.wstrb.eq(Mux(sent_beats == 0, slot.first_strobe, ones) & Mux(axi.wlast, slot.last_strobe, ones)),
            read_port.addr.eq(Cat(sent_beats[:exact_log2(config.burst_beats)], send_slot)),
            passes.eq(reader.write_en & (reader.write_beat == Cat(C(0, exact_log2(config.burst_beats)), send_slot))),
            axi.wdata.eq(Mux(passes, reader.write_data, read_port.data)),
            aw_now.eq(axi.awvalid & axi.awready),
            w_now.eq(axi.wvalid & axi.wready),
            self.moved.eq(w_now),
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
        m.submodules.lasts = lasts = Queue(shape=1, depth=max(2, config.write_bursts))
        response = Signal()
        m.d.comb += [
            axi.bready.eq(1),
            response.eq(axi.bvalid & axi.bready),
            lasts.push.eq(begin),
            lasts.push_data.eq(slot.last),
            lasts.pop.eq(response),
            control.finish.eq(response & lasts.head),
            self.error.eq(response & axi.bresp[1]),
        ]
        m.d.sync += outstanding.eq(outstanding + begin - response)
        return m
