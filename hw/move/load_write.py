"""Second half of the load unit: chunks into the scratchpad or the accumulator."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import AccRead, AccWrite, SpmWrite, move_layout, part
from gemmule.hw.move.row_walker import WORD_BYTES, RowWalker, holds_words
from gemmule.hw.queue import Queue
from gemmule.isa import MoveFlag

__all__ = ["LoadWriter"]


class LoadWriter(wiring.Component):
    """Walks the load commands again, chunk by chunk, and writes what comes.

    Latency 1: a chunk taken in cycle w - 1 is written in w; a ZERO command's first chunk is written
    two cycles after ``start``. Throughput: one write a cycle, over all commands. With BROADCAST a
    chunk is taken once and written to every row. ADD reads the accumulator row in w - 1; a sum
    written in that same cycle is forwarded. int32 lanes wrap. On a 2-byte bus the first half of an
    int32 waits for the second one.

    Parameters
    ----------
    config: Config
        Device configuration.

    Members
    -------
    start: In(1), command: In(move_layout)
        Append a command (rows and bytes not 0). At most ``load_commands`` may be unfinished; ZERO and
        BROADCAST only alone.
    valid, data: In, take: Out(1)
        The oldest chunk.
    spm, acc_read, acc_write: Out
        Memories.
    finish: Out(1)
        High with the last write of a command.
    filling: Out(1)
        A ZERO command writes in this cycle.
    busy: Out(1)
        A write is in this cycle, or a BROADCAST chunk is not yet in all rows.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "start": In(1), "command": In(move_layout(config)),
            "valid": In(1), "data": In(config.bus_bytes * 8), "take": Out(1),
            "spm": Out(SpmWrite(config)), "acc_read": Out(AccRead(config)), "acc_write": Out(AccWrite(config)),
            "finish": Out(1), "filling": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, dim, bus = self.config, self.config.dim, self.config.bus_bytes

        # A command goes past the queue into an idle walker: ZERO has to write two cycles after its start.
        layout = move_layout(config)
        m.submodules.commands = commands = Queue(shape=layout, depth=max(2, config.load_commands))
        m.submodules.walker = walker = RowWalker(config=config)
        free, step = Signal(), Signal()
        m.d.comb += [
            free.eq(~walker.active | (step & walker.last)),
            walker.start.eq(free & (commands.valid | self.start)),
            walker.command.eq(Mux(commands.valid, commands.head.as_value(), self.command.as_value())),
            walker.next.eq(step),
            commands.push.eq(self.start & ~(free & ~commands.valid)),
            commands.push_data.eq(self.command),
            commands.pop.eq(free & commands.valid),
        ]

        # Cycle w - 1: take the chunk, find its lanes, read the accumulator.
        flags = walker.flags
        accumulator, words, zero = flags[MoveFlag.ACCUMULATOR], holds_words(flags), flags[MoveFlag.ZERO]
        needs = walker.active & walker.fresh & ~zero
        half = Signal()  # of an int32, nothing to write yet
        if bus < WORD_BYTES:
            m.d.comb += half.eq(words & ~walker.chunk[0])
        m.d.comb += [
            step.eq(walker.active & (self.valid | ~walker.fresh | zero)),
            self.take.eq(needs & self.valid),
            self.acc_read.en.eq(step & flags[MoveFlag.ADD] & ~half),
            self.acc_read.row.eq(walker.row),
        ]

        def covers(last_byte: int) -> Signal:
            """Whether the chunk brings this byte of the memory row: the last one of some lane."""
            return (walker.chunk == last_byte // bus) & walker.mask[last_byte % bus]

        # Cycle w: write.
        row, mask = Signal.like(walker.row), Signal(dim)
        chunk = Signal(bus * 8)
        write = Signal()
        narrow, add = Signal(), Signal()
        group, next_group = Signal.like(walker.chunk), Signal.like(walker.chunk)  # which bus_bytes lanes of the row
        m.d.comb += next_group.eq(Mux(words, walker.chunk // WORD_BYTES, walker.chunk))
        m.d.sync += [
            write.eq(step),
            self.spm.en.eq(step & ~accumulator),
            self.acc_write.en.eq(step & accumulator & ~half),
            self.finish.eq(step & walker.last),
            self.filling.eq(step & zero),
            row.eq(walker.row),
            mask.eq(Mux(words, Cat(covers(WORD_BYTES * lane + WORD_BYTES - 1) for lane in range(dim)),
                        Cat(covers(lane) for lane in range(dim)))),
            narrow.eq(~words),
            add.eq(flags[MoveFlag.ADD]),
            group.eq(next_group),
        ]
        with m.If(step & walker.fresh):
            m.d.sync += chunk.eq(Mux(zero, 0, self.data))
        m.d.comb += [
            self.busy.eq(write | (walker.active & ~walker.fresh)),
            self.spm.row.eq(row), self.spm.mask.eq(mask), self.spm.data.eq(chunk.replicate(dim // bus)),
            self.acc_write.row.eq(row), self.acc_write.mask.eq(mask),
        ]

        # The chunk as bus_bytes lanes of int32; words repeat, the mask says which ones count.
        wide = chunk
        if bus < WORD_BYTES:
            low = Signal(bus * 8)
            waits = Signal()
            m.d.sync += waits.eq(step & half)
            with m.If(waits):
                m.d.sync += low.eq(chunk)
            wide = Cat(low, chunk)
        count = len(wide) // 32
        last_sums = Signal(bus * 32)
        sums = []
        old = Signal(bus * 32)
        again = Signal(bus)  # lanes written in the cycle in which they were read
        m.d.comb += [
            old.eq(part(self.acc_read.data, group, bus * 32)),
        ]
        m.d.sync += again.eq(Mux(self.acc_write.en & (walker.row == row), part(mask, next_group, bus), 0))
        for lane in range(bus):
            value = Mux(narrow, chunk.word_select(lane, 8).as_signed(), wide.word_select(lane % count, 32).as_signed())
            before = Mux(again[lane], last_sums.word_select(lane, 32), old.word_select(lane, 32))
            sums.append((Mux(add, before, 0) + value)[:32])
        m.d.comb += self.acc_write.data.eq(Cat(sums).replicate(dim // bus))
        with m.If(self.acc_write.en):
            m.d.sync += last_sums.eq(Cat(sums))
        return m
