"""Bursts of a load or store: no boundary crossed, rows whole and in order, what is offered stands."""

from __future__ import annotations

from amaranth.hdl import Cat, Mux, Signal
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.formal.bench import Bench
from gemmule.hw.move.bursts import BurstSplitter
from gemmule.isa import MoveFlag

__all__ = ["bursts"]

PAGE = 4096
"""No AXI burst crosses a multiple of it."""


def bursts(bench: Bench, config: Config) -> None:
    """Beside the splitter walks a register of the row that is due, and of its beats that were offered."""
    m, dut = bench.m, bench.dut(BurstSplitter(config=config))
    low, bus, register = exact_log2(config.bus_bytes), config.bus_bytes, bench.register
    command, indexed_now = dut.command, dut.command.flags[MoveFlag.INDEXED]
    count = Mux(command.joined, command.stride, command.bytes)
    bench.assume("start", "a command has rows and bytes, and starts when the one before has no more bursts",
                 ~dut.start | ~dut.active & (command.rows != 0) & (count != 0) & (command.bytes != 0)
                 & ~(command.joined & (indexed_now | command.flags[MoveFlag.BROADCAST])))
    bench.assume("next", "a step is of an offered burst, and so is a beat", ~dut.next | dut.valid,
                 ~dut.take | dut.valid)

    # What is due: a row, its beats that were offered, rows to come with it.
    origin, row, stride = (Signal(config.address_bits, name=name) for name in ("origin", "row", "row_stride"))
    done = Signal(config.address_bits, name="beats_done")
    rows, size, entry = Signal.like(command.rows, name="rows_due"), Signal.like(count, name="row_bytes"), Signal(16)
    gathers, asked = Signal(), Signal()
    found = register("found")
    with m.If(dut.start):
        m.d.sync += [
            origin.eq(command.address), row.eq(command.address), stride.eq(command.stride), done.eq(0), size.eq(count),
            rows.eq(Mux(command.joined | command.flags[MoveFlag.BROADCAST], 1, command.rows)),
            gathers.eq(indexed_now), entry.eq(command.list + 1), asked.eq(indexed_now),
        ]
    with m.Elif(dut.next):
        m.d.sync += done.eq(done + dut.beats)
        with m.If(dut.row_end):
            m.d.sync += [row.eq(row + stride), done.eq(0), rows.eq(rows - 1)]
    begins = dut.active & (register("gap") == 1)
    with m.If(begins):
        m.d.sync += row.eq(found)
    with m.If(dut.list.en & dut.active):
        m.d.sync += entry.eq(entry + 1)

    beats = Signal(config.address_bits + 1)  # of the row
    m.d.comb += beats.eq(((row[:low] + size - 1) >> low) + 1)
    bench.lemma("row", "the splitter is at the row that is due", ~dut.active | (
        (register("rows") == rows) & (rows != 0) & (register("stride") == stride) & (size != 0)
        & (register("indexed") == gathers) & (gathers | (register("gap") == 0)) & ((register("entry") == entry)
        | (rows == 1))))
    bench.lemma("bytes", "one row of joined rows, else rows of the command's bytes",
                ~dut.active | (rows == 1) | (register("bytes_") == size), ~dut.active | (register("bytes_") != 0)
                | (rows == 1), ~dut.active | ~gathers | (register("bytes_") == size))
    bench.lemma("place", "and at the beat that is due", ~dut.valid | (
        (register("row") == row) & (register("beat") == (row + (done << low))[low:config.address_bits])
        & (register("left") + done == beats) & (register("left") != 0) & (dut.row_start == (done == 0))))
    bench.lemma("gap", "a row by list is due from its first beat on", (register("gap") == 0) | ~dut.active
                | (done == 0))

    end = Cat(dut.address[low:exact_log2(PAGE)]) + dut.beats
    bench.always("boundary", "no burst is empty, or longer than burst_bytes, or crosses 4 KiB", ~dut.valid | (
        (dut.beats != 0) & (dut.beats <= config.burst_beats) & (end <= PAGE // bus) & (dut.address[:low] == 0)))
    due = Signal(config.address_bits)
    m.d.comb += due.eq(Cat(row[:low] & 0, row[low:]) + (done << low))
    bench.always("contiguous", "the bursts of a row begin with its first byte and follow one another without a gap",
                 ~dut.valid | (dut.address == due))
    bench.always("whole", "a burst ends its row if it holds the row's last byte, and only then",
                 ~dut.valid | ((done + dut.beats >= beats) == dut.row_end), ~dut.valid | (done + dut.beats <= beats))
    bench.always("rows", "a command has its rows, and the last burst of the last one is its last",
                 ~dut.valid | (dut.last == (dut.row_end & (rows == 1))))
    waits = bench.before(dut.valid & ~dut.next, "waits")
    offer = bench.wire(Cat(dut.address, dut.beats, dut.row_start, dut.row_end, dut.last, dut.first_byte, dut.last_byte),
                       "offer")
    bench.always("stable", "an offered burst stands until the step",
                 ~waits | dut.valid & (offer == bench.before(offer, "offer")))
    # A unit that takes beat by beat steps with the last beat of every burst: so far, this one did.
    taken, steady = Signal(range(config.burst_beats + 1)), Signal()
    with m.If(dut.take):
        m.d.sync += taken.eq(taken + 1)
    with m.If(dut.next):
        m.d.sync += taken.eq(0)
    with m.If(dut.next != (dut.take & (taken + 1 == dut.beats))):
        m.d.sync += steady.eq(0)
    with m.If(dut.start):
        m.d.sync += [taken.eq(0), steady.eq(1)]
    bench.lemma("beats taken", "the splitter knows which beat of the burst and of the row is next",
                ~(steady & dut.active) | dut.valid | (taken == 0), ~(steady & dut.valid) | (taken < dut.beats)
                & ((register("rest") + taken)[:len(register("rest"))] == register("left"))
                & ((register("beat") + taken)[:len(register("spot"))] == register("spot"))
                & (dut.row_over == (register("rest") == 1)))
    bench.always("beat by beat", "the last beat of a burst, and of a row, is known as such",
                 ~(steady & dut.valid) | (dut.burst_over == (taken + 1 == dut.beats)),
                 ~(steady & dut.valid) | (dut.row_over == (dut.burst_over & dut.row_end)))
    bench.always("entries", "row numbers are read in order, those behind the first one once each", ~dut.list.en
                 | (dut.list.entry == Mux(dut.active, entry, command.list)))
    bench.cover("rows by list", "the third burst of a second row that came by list",
                dut.valid & gathers & (rows == 1) & (done > config.burst_beats))
    bench.cover("joined", "a joined row beyond 4 KiB ends", dut.valid & dut.last & (size > 2 * config.burst_bytes))
