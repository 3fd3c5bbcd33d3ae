"""The core: fetch, dispatch, issue, control, counters, watchdog and the units."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Component, In, Out, connect

from gemmule.config import Config
from gemmule.hw.command.dispatch import UNIT_LAYOUTS, Dispatch
from gemmule.hw.command.fetch import Fetch
from gemmule.hw.command.issue import Issue
from gemmule.hw.device.control import Control
from gemmule.hw.device.counters import Counters
from gemmule.hw.device.read_arbiter import ReadArbiter
from gemmule.hw.device.request_register import RequestRegister
from gemmule.hw.device.units import Units
from gemmule.hw.device.watchdog import Watchdog
from gemmule.hw.interfaces import COUNT_BITS, axi_read, axi_write
from gemmule.isa import Unit
from gemmule.resolve import STREAM_UNIT
from gemmule.timing import Timing

__all__ = ["TRACE_BITS", "Core"]

TRACE_BITS = len(Unit)
_REQUESTS = ("request", "irq_clear")
_STATUS = ("start", "busy", "done", "irq", "code", "index", "place", "cycles")


class Core(Component):
    """Everything but the registers: what a device reset clears.

    Members
    -------
    request, irq_clear, program, commands, length_index, length, base_index, base, limit, watchdog, counter_index,
    counter:
        From and to the registers, see :class:`CsrBlock`.
    busy, done, irq, code, index, place, cycles, start: Out
        See :class:`Control`.
    issue, finish: Out(units)
        Traces.
    read: Out(axi_read), write: Out(axi_write)
        DRAM.
    """

    def __init__(self, *, config: Config, timing: Timing | None = None,
                 units: Component | None = None) -> None:
        timing = timing or Timing.of(config)
        if (timing.unit_start, timing.unit_report) != (1, 1):
            raise ValueError("unit_start and unit_report must be 1, as built, "
                             f"not {timing.unit_start} and {timing.unit_report}")
        self.config = config
        self.units = units if units is not None else Units(config=config, timing=timing)
        self.fetch = Fetch(config=config, timing=timing)
        self.dispatch = Dispatch(config=config)
        self.issue_logic = Issue(config=config, timing=timing)
        self.control = Control(config=config, timing=timing)
        self.arbiter = ReadArbiter(config=config)
        self.asked = RequestRegister(config=config)  # between fetch and the arbiter
        self.counters = Counters(config=config)
        self.dog = Watchdog(config=config)
        control, dispatch = self.control.signature.members, self.dispatch.signature.members
        super().__init__({
            **{name: control[name] for name in (*_REQUESTS, *_STATUS)},
            **{name: dispatch[name] for name in ("length_index", "length", "base_index", "base", "limit")},
            "program": In(config.address_bits), "commands": In(COUNT_BITS),
            "watchdog": self.dog.signature.members["limit"],
            "counter_index": self.counters.signature.members["index"],
            "counter": self.counters.signature.members["value"],
            "issue": Out(TRACE_BITS), "finish": Out(TRACE_BITS),
            "read": Out(axi_read(config)), "write": Out(axi_write(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetch, asked = self.fetch, self.asked
        dispatch, issue, control = self.dispatch, self.issue_logic, self.control
        units, arbiter, counters, dog = self.units, self.arbiter, self.counters, self.dog
        m.submodules.fetch, m.submodules.asked = fetch, asked
        m.submodules.dispatch, m.submodules.issue = dispatch, issue
        m.submodules.control, m.submodules.arbiter, m.submodules.units = control, arbiter, units
        m.submodules.counters, m.submodules.watchdog = counters, dog

        connect(m, dispatch.repeat, fetch.repeat)
        connect(m, fetch=fetch.read, register=asked.offered)
        connect(m, register=asked.read, arbiter=arbiter.fetch)
        connect(m, load=units.read, arbiter=arbiter.load)
        connect(m, wiring.flipped(self.read), arbiter.axi)
        connect(m, wiring.flipped(self.write), units.write)

        m.d.comb += [
            fetch.start.eq(control.begin),
            asked.clear.eq(control.begin),
            fetch.program.eq(self.program),
            fetch.commands.eq(self.commands),
            dispatch.command_valid.eq(fetch.valid),
            dispatch.command.eq(fetch.command),
            dispatch.command_place.eq(fetch.place),
            fetch.take.eq(dispatch.command_take),
            *(getattr(dispatch, name).eq(getattr(self, name)) for name in ("length", "base", "limit")),
            self.length_index.eq(dispatch.length_index), self.base_index.eq(dispatch.base_index),
            dispatch.stop.eq(control.stop),
            dispatch.clear.eq(control.begin | control.start),  # a REPEAT that a fault left behind ends with fetch
            issue.clear.eq(control.start),
            *(getattr(issue, name).eq(getattr(dispatch, name)) for name in (
                "push", "unit", "distances", "valid", "zero", "alone", "predicate", "claims",
                "following_claims")),
            units.clear.eq(control.start),
            dispatch.pop.eq(issue.issue),
        ]
        m.d.sync += issue.predicates.eq(units.predicates)
        for u, name in enumerate(UNIT_LAYOUTS):
            unit = getattr(units, name)
            streams = [s for s, owner in enumerate(STREAM_UNIT) if owner == u]
            # A register behind every wire between issue and a unit: they stand far from each other. What a unit says
            # before it can have seen the last start does not count.
            ready, started = Signal(name=f"{name}_ready"), Signal(name=f"{name}_started")
            m.d.sync += [
                unit.command.eq(getattr(dispatch, name)),
                unit.start.eq(issue.start[u]), started.eq(unit.start), ready.eq(unit.ready),
                issue.unit_finish[u].eq(unit.finish),
                issue.release[streams[0]:streams[-1] + 1].eq(unit.release),
            ]
            m.d.comb += issue.ready[u].eq(ready & ~unit.start & ~started)
        m.d.comb += [
            *(getattr(control, name).eq(getattr(self, name)) for name in _REQUESTS),
            control.fetch_idle.eq(fetch.idle),
            control.taken.eq(fetch.done),
            control.empty.eq(dispatch.empty),
            control.oldest.eq(dispatch.place),
            control.total.eq(dispatch.total),
            control.dispatched.eq(dispatch.dispatched),
            control.finished.eq(issue.finished),
            control.fault.eq(dispatch.fault),
            control.error.eq(fetch.error | units.error),
            control.expired.eq(dog.expired),
            *(getattr(self, name).eq(getattr(control, name)) for name in _STATUS),
            self.issue.eq(issue.issue),
            self.finish.eq(issue.finish),
            counters.start.eq(control.start),
            counters.running.eq(control.running),
            counters.active.eq(issue.active),
            counters.valid.eq(dispatch.valid),
            counters.waiting.eq(issue.waiting),
            counters.moved.eq(Cat(units.load_moved, units.store_moved)),
            counters.index.eq(self.counter_index),
            self.counter.eq(counters.value),
            dog.enable.eq(control.busy),
            dog.limit.eq(self.watchdog),
        ]
        read, write = self.read, self.write
        bursts = (
            (asked.read.req_valid & asked.read.req_ready, asked.read.req_len),
            (units.read.req_valid & units.read.req_ready, units.read.req_len),
            (write.awvalid & write.awready, write.awlen),
        )
        for i, (sent, beats) in enumerate(bursts):
            m.d.comb += [counters.sent[i].eq(sent), counters.beats[i].eq(beats)]
        for channel, port in (("ar", read), ("r", read), ("aw", write), ("w", write), ("b", write)):
            for side in ("valid", "ready"):
                m.d.sync += getattr(dog, f"{channel}_{side}").eq(getattr(port, channel + side))
        m.d.sync += dog.r_last.eq(read.rlast)
        return m
