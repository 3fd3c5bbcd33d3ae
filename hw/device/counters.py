"""Performance counters: where each unit's cycles go, and what crosses the DRAM bus."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gemmule.config import Config
from gemmule.csr import COUNTER_BITS, COUNTERS
from gemmule.hw.command.dispatch import UNIT_LAYOUTS
from gemmule.isa import Unit

__all__ = ["SOURCES", "Counters"]

SOURCES = ("program", "load", "store")
"""Who sends bursts, in the order of ``sent``."""
_MOVERS = (Unit.LOAD, Unit.STORE)
LEN_BITS = 8
LOW_BITS = ceil_log2(len(COUNTERS))
"""Bits of a lower part: it does not wrap twice while the upper parts are scanned."""


class Counters(wiring.Component):
    """Counts the cycles 0 .. cycles - 1 of a launch and keeps the totals to the next start.

    Every cycle is one of ``gemmule.csr.CAUSES`` for each unit (docs/timing.md, section Counters). Latency:
    an event shows in the next cycle but one: a register stands behind every input, because what issue decides
    comes late and from far. Lower parts count in registers; the upper parts share a memory and
    one adder, which takes up a carry of each within ``len(COUNTERS)`` cycles, while a look-up adds it.

    Members
    -------
    start: In(1)
        Start strobe, cycle 0: empty for all; everything else to zero. From the next cycle on no look-up finds what
        the launch before counted.
    running: In(1)
        High in cycles 1 .. cycles - 1.
    active, valid, waiting: In(units)
        From issue and dispatch: in flight or issued now; a head exists; the head waits for commands.
    moved: In(load, store)
        The unit moves data of a command in this cycle.
    sent, beats: In
        Bursts of ``SOURCES`` accepted in this cycle, and their AXI lengths (beats - 1).
    index, value:
        Look-up of one counter, by its place in ``gemmule.csr.COUNTERS``, in the same cycle; others read 0.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        units = len(UNIT_LAYOUTS)
        super().__init__({
            "start": In(1), "running": In(1),
            "active": In(units), "valid": In(units), "waiting": In(units), "moved": In(len(_MOVERS)),
            "sent": In(len(SOURCES)), "beats": In(data.ArrayLayout(LEN_BITS, len(SOURCES))),
            "index": In(range(len(COUNTERS))), "value": Out(COUNTER_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat_shift = ceil_log2(self.config.bus_bytes)
        start, running = Signal(), Signal()
        sent, lengths = Signal.like(self.sent), Signal.like(self.beats)
        m.d.sync += [start.eq(self.start), running.eq(self.running), sent.eq(self.sent), lengths.eq(self.beats)]
        steps = self._steps(m)
        scan = Signal(range(len(COUNTERS)))  # the upper part that is brought up to date now
        seen = Signal()  # all have been since the start
        m.submodules.upper = upper = Memory(shape=COUNTER_BITS - LOW_BITS, depth=1 << len(self.index), init=[])
        write, update, look_up = upper.write_port(), upper.read_port(domain="comb"), upper.read_port(domain="comb")

        # Lower parts; a carry waits for the scan, which comes before the next one.
        lower, carries, clears = {}, Signal(len(COUNTERS)), Signal(len(COUNTERS))
        m.d.comb += clears.eq(1 << scan)
        for i, name in enumerate(COUNTERS):
            if name in steps:  # only load and store wait for DRAM
                low = Signal(LOW_BITS, name=name)
                step = Signal(name=f"{name}_step")
                m.d.comb += step.eq(running & steps[name])
                with m.If(step):
                    m.d.sync += low.eq(low + 1)
                with m.If(step & low.all()):
                    m.d.sync += carries[i].eq(1)
                with m.Elif(clears[i]):
                    m.d.sync += carries[i].eq(0)
                with m.If(start):
                    m.d.sync += [low.eq(name.endswith("_empty")), carries[i].eq(0)]
                lower[i] = low

        m.d.sync += scan.eq(scan + 1)
        with m.If(scan == len(COUNTERS) - 1):
            m.d.sync += [scan.eq(0), seen.eq(1)]
        with m.If(start):
            m.d.sync += [scan.eq(0), seen.eq(0)]

        low, high = Signal(LOW_BITS), Signal(COUNTER_BITS - LOW_BITS)
        carry = Array([*carries, 0])
        m.d.comb += [
            update.addr.eq(scan), write.addr.eq(scan), write.en.eq(1),
            write.data.eq(Mux(seen, update.data, 0) + carry[scan]),
            look_up.addr.eq(self.index),
            high.eq(Mux(~start & (seen | (self.index < scan)), look_up.data, 0) + (carry[self.index] & ~start)),
            self.value.eq(Cat(low, high)),
        ]
        with m.Switch(self.index):
            for i, part in lower.items():
                with m.Case(i):
                    m.d.comb += low.eq(Mux(start, 0, part))

        # Bytes: many at once; beats + 1 = 0 - ~beats, so that one adder does.
        ones = C(-1, COUNTER_BITS - beat_shift - LEN_BITS)
        for i, source in enumerate(SOURCES):
            name = f"{source}_bytes"
            beats = Signal(COUNTER_BITS - beat_shift, name=name)
            with m.If(running & sent[i]):
                m.d.sync += beats.eq(beats - Cat(~lengths[i], ones))
            with m.If(start):
                m.d.sync += beats.eq(0)
            with m.If(~start & (self.index == COUNTERS.index(name))):
                m.d.comb += self.value.eq(beats << beat_shift)
        return m

    def _steps(self, m: Module) -> dict[str, Value]:
        """Counters that step by one, and when: a cycle after what they count."""
        events: dict[str, Value] = {}
        for u, unit in enumerate(UNIT_LAYOUTS):
            active, valid, waiting = self.active[u], self.valid[u], self.waiting[u]
            events |= {
                f"{unit}_busy": active, f"{unit}_empty": ~active & ~valid,
                f"{unit}_waiting": ~active & valid & waiting, f"{unit}_ports": ~active & valid & ~waiting,
            }
            if u in _MOVERS:
                moved = self.moved[_MOVERS.index(Unit(u))]
                events |= {f"{unit}_busy": active & moved, f"{unit}_dram": active & ~moved}
        events |= {f"{source}_bursts": self.sent[i] for i, source in enumerate(SOURCES)}
        steps: dict[str, Value] = {}
        for name, event in events.items():
            steps[name] = step = Signal(name=f"{name}_event")
            m.d.sync += step.eq(event)
        return steps
