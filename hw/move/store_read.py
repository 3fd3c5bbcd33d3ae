"""First half of the store unit: rows of a memory into burst buffers."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import AccRead, ListRead, SpmRead, move_layout, part
from gemmule.hw.move.align import rotated
from gemmule.hw.move.bursts import BurstSplitter
from gemmule.hw.move.row_walker import RowWalker, holds_words
from gemmule.isa import MoveFlag

__all__ = ["StoreReader", "burst_layout"]


def burst_layout(config: Config) -> data.StructLayout:
    """A buffered burst: strobes of its first and its last beat (of its only one: both), end of command."""
    return data.StructLayout({
        "address": config.address_bits, "beats": range(config.burst_beats + 1),
        "first_strobe": config.bus_bytes, "last_strobe": config.bus_bytes, "last": 1,
    })


def saturated(value: Value) -> Value:
    """int32 limited to int8."""
    fits = (value[7:] == 0) | value[7:].all()
    return Mux(fits, value[:8], Cat((~value[31]).replicate(7), value[31]))


class StoreReader(wiring.Component):
    """Reads one chunk a beat and turns it to its place in the beats of its DRAM row.

    Latency: first beat one cycle after ``start``, INDEXED ``INDEX_CYCLES`` later; of a beat taken in x the memory is
    read in x + 1, and it is written to its buffer in x + 3. Throughput: one beat a cycle, INDEXED rows follow in
    ``INDEX_CYCLES``; the two buffers alternate, and a burst waits for its buffer before its first beat. The last beat
    of an unaligned row may hold only bytes that were read before; it takes its cycle all the same.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    start: In(1), command: In(move_layout)
        Take a command (rows and bytes not 0) while ``active`` is low.
    active: Out(1)
        Registered: beats of a command are still to be read.
    busy: In(2)
        The buffer is full or being sent.
    list: Out(ListRead)
        Row numbers of INDEXED commands.
    spm, acc: Out
        Memory reads.
    fill: Out(2)
        The last beat of a burst for this buffer is taken in this cycle; ``burst`` describes it.
    burst: Out(burst_layout)
        Valid with ``fill``.
    write_en, write_beat, write_data: Out
        Buffer write port; the buffer's number is the top bit of the beat's.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "start": In(1), "command": In(move_layout(config)), "active": Out(1), "busy": In(2),
            "list": Out(ListRead(config)), "spm": Out(SpmRead(config)), "acc": Out(AccRead(config)),
            "fill": Out(2), "burst": Out(burst_layout(config)),
            "write_en": Out(1), "write_beat": Out(range(2 * config.burst_beats)),
            "write_data": Out(config.bus_bytes * 8),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, bus = self.config, self.config.bus_bytes
        m.submodules.bursts = bursts = BurstSplitter(config=config)
        m.submodules.walker = walker = RowWalker(config=config)

        # Cycle x: a beat, and the chunk that it begins, if it begins one.
        buffer = Signal()
        beat = Signal(range(config.burst_beats + 1))  # of the burst
        inside = Signal()  # it is not the first one
        take, end, needs = Signal(), Signal(), Signal()
        narrow, words = walker.flags[MoveFlag.NARROW], holds_words(walker.flags)
        accumulator = walker.flags[MoveFlag.ACCUMULATOR]
        m.d.comb += [
            self.active.eq(bursts.active),
            bursts.start.eq(self.start),
            bursts.command.eq(self.command),
            walker.start.eq(self.start),
            walker.command.eq(self.command),
            take.eq(bursts.valid & (inside | ~Mux(buffer, self.busy[1], self.busy[0]))),
            end.eq(take & bursts.burst_over),
            needs.eq(take & ~(bursts.row_over & (bursts.last_byte < bursts.first_byte))),
            bursts.take.eq(take), bursts.next.eq(end),
            walker.next.eq(needs),
            self.fill.eq(end << buffer),
        ]
        wiring.connect(m, wiring.flipped(self.list), bursts.list)
        with m.If(take):
            m.d.sync += [beat.eq(Mux(end, 0, beat + 1)), inside.eq(~end)]
        with m.If(end):
            m.d.sync += buffer.eq(~buffer)

        ones = Const(-1, unsigned(bus))
        head = (ones << bursts.first_byte)[:bus]
        m.d.comb += [
            self.burst.address.eq(bursts.address),
            self.burst.beats.eq(bursts.beats),
            self.burst.first_strobe.eq(Mux(bursts.row_start, head, ones)),
            self.burst.last_strobe.eq(Mux(bursts.row_end, ~(ones << 1 << bursts.last_byte)[:bus], ones)),
            self.burst.last.eq(bursts.last),
        ]

        # Cycle x + 1: the memory is read. Cycle x + 2: the data stand on its port.
        facts = data.StructLayout({
            "arrives": 1, "number": self.write_beat.shape(), "chunk": walker.chunk.shape(),
            "place": bursts.first_byte.shape(), "from_lanes": 1, "from_words": 1})
        asked = Signal(facts)  # each by its name in the netlist, for proofs
        come = Signal(facts)
        m.d.sync += [
            self.spm.en.eq(needs & ~accumulator), self.acc.en.eq(needs & accumulator),
            self.spm.row.eq(walker.row), self.acc.row.eq(walker.row),
            asked.eq(Cat(take, beat[:exact_log2(config.burst_beats)], buffer, walker.chunk, bursts.first_byte,
                         accumulator & narrow, words)),
            come.eq(asked),
        ]
        lanes = Signal(bus * 32)
        m.d.comb += lanes.eq(part(self.acc.data, come.chunk, bus * 32))
        int8 = Cat(saturated(lanes.word_select(lane, 32)) for lane in range(bus))
        read = Signal(bus * 8)
        m.d.sync += read.eq(Mux(come.from_words, part(self.acc.data, come.chunk, bus * 8),
                                Mux(come.from_lanes, int8, part(self.spm.data, come.chunk, bus * 8))))

        # Cycle x + 3: turned to their place in the beat.
        turn = Signal.like(bursts.first_byte)
        turned = Signal(bus * 8)
        held = Signal(bus * 8)
        before = ~(ones << turn)[:bus]  # bytes that an earlier chunk brought
        m.d.sync += [self.write_en.eq(come.arrives), self.write_beat.eq(come.number), turn.eq(come.place)]
        m.d.comb += [
            turned.eq(rotated(read, turn, left=True)),
            self.write_data.eq(Cat(
                Mux(before[k], held.word_select(k, 8), turned.word_select(k, 8)) for k in range(bus))),
        ]
        with m.If(self.write_en):
            m.d.sync += held.eq(turned)
        return m
