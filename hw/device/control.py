"""Control: start strobe, busy and done, interrupt, fault, cycle counter."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.command.dispatch import counts_layout
from gemmule.hw.command.resolve import FAULT_BITS
from gemmule.hw.interfaces import COUNT_BITS
from gemmule.resolve import FAULTS
from gemmule.timing import Timing

__all__ = ["CYCLE_BITS", "Control"]

CYCLE_BITS = 64
_DONE_BASE = 2
"""Finish to visible counter, counter to interrupt register."""
_WATCHDOG = FAULTS.index("watchdog")


class Control(wiring.Component):
    """Sequences one launch.

    ``start`` is high for one cycle, cycle 0, and ``begin`` in the one before it: that is the cycle after the request,
    or later while fetch still has reads outstanding that a fault left behind. Requests while busy are ignored. The
    interrupt rises ``done`` cycles after the last finish, or after the first cycle of a faulting command at
    the end of resolve, whichever is later. The first fault stops dispatch and is kept, until the watchdog
    ends the launch, or its wait for fetch, at once, also in the launch's last cycle: then requests are ignored
    too, until a reset.

    Members
    -------
    request: In(1)
        Start a launch.
    irq_clear: In(1)
        Lower the interrupt, unless it rises at this edge.
    fetch_idle: In(1)
        Nothing outstanding from an earlier launch.
    taken, empty: In(1)
        Every command has been taken, or dropped by a REPEAT; resolve has none.
    oldest: In
        Place in the image of the oldest command that has not left resolve, or of the next one to enter it.
    total, dispatched, finished: In
        Counters of dispatch and issue.
    fault: In
        Code of the faulting command at the end of resolve, or 0.
    error, expired: In(1)
        AXI error response; no transfer for as long as the watchdog allows.
    begin, start, stop: Out(1)
        Fetch starts, and so does all else, a cycle later; no pushes (after a fault and between launches).
    running: Out(1)
        High in cycles 1 .. ``cycles`` - 1.
    busy, done, irq: Out(1)
        From the request to the end; from there to the next request; level of the interrupt.
    code, index, place: Out
        Fault code, number of the command in the launch (faults of the bus: commands dispatched so far), its place in
        the image. ``place`` is that of the command with that number, if it has been taken, else of the next one to be
        taken: behind a whole program the number of its commands.
    cycles: Out
        Cycle number while running, then that of the interrupt's first cycle.
    """

    def __init__(self, *, config: Config, timing: Timing | None = None) -> None:
        self.timing = timing or Timing.of(config)
        if self.timing.done < _DONE_BASE:
            raise ValueError(f"done must be at least {_DONE_BASE}, not {self.timing.done}")
        super().__init__({
            "request": In(1), "irq_clear": In(1), "fetch_idle": In(1), "taken": In(1), "empty": In(1),
            "oldest": In(COUNT_BITS), "total": In(COUNT_BITS),
            "dispatched": In(counts_layout()), "finished": In(counts_layout()),
            "fault": In(FAULT_BITS), "error": In(1), "expired": In(1),
            "begin": Out(1), "start": Out(1), "stop": Out(1), "running": Out(1), "busy": Out(1), "done": Out(1),
            "irq": Out(1), "code": Out(FAULT_BITS), "index": Out(COUNT_BITS), "place": Out(COUNT_BITS),
            "cycles": Out(CYCLE_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pending = Signal()
        running = self.running
        accepted = Signal()
        faulted = Signal()  # there is a code; a register of its own: dispatch and fetch hang on it
        hung = self.code == _WATCHDOG
        m.d.comb += [
            accepted.eq(self.request & ~self.busy & ~hung),
            self.busy.eq(pending | running),
            self.begin.eq(pending & self.fetch_idle & ~self.start),
            self.stop.eq(faulted | ~running),
        ]

        m.d.sync += self.start.eq(self.begin)  # a register: all that a start clears hangs on it

        # The first fault; dispatch itself holds a faulting command back. A fault of the bus takes the total of
        # the next cycle: a command may be pushed in this one.
        settled = Signal()
        m.d.sync += settled.eq(0)
        with m.If(settled):
            m.d.sync += [self.index.eq(self.total), self.place.eq(self.oldest)]
        with m.If(running & ~faulted):
            with m.If(self.fault != 0):
                m.d.sync += [
                    faulted.eq(1), self.code.eq(self.fault), self.index.eq(self.total), self.place.eq(self.oldest)]
            with m.Elif(self.error):
                m.d.sync += [faulted.eq(1), self.code.eq(FAULTS.index("axi")), settled.eq(1)]

        # The end: all that was dispatched has finished, and nothing more will be.
        complete = Signal()
        m.d.comb += complete.eq(
            running & (faulted | self.taken & self.empty) & (self.dispatched == self.finished))
        ended = complete
        for i in range(self.timing.done - _DONE_BASE):
            delayed = Signal(name=f"complete_{i + 1}")
            m.d.sync += delayed.eq(ended & running)
            ended = delayed
        with m.If(self.irq_clear):
            m.d.sync += self.irq.eq(0)
        with m.If(running):
            m.d.sync += self.cycles.eq(self.cycles + 1)
            with m.If(ended):
                m.d.sync += [running.eq(0), self.done.eq(1), self.irq.eq(1)]
        with m.If(accepted):
            m.d.sync += [
                pending.eq(1), self.done.eq(0), self.irq.eq(0), faulted.eq(0), self.code.eq(0), self.index.eq(0),
                self.place.eq(0), self.cycles.eq(0),
            ]
        with m.If(self.start):
            m.d.sync += [pending.eq(0), running.eq(1), self.cycles.eq(1)]
        with m.Elif(self.expired & self.busy & ~self.begin):
            m.d.sync += [
                pending.eq(0), running.eq(0), self.done.eq(1), self.irq.eq(1),
                faulted.eq(1), self.code.eq(_WATCHDOG), settled.eq(running),
            ]
        return m
