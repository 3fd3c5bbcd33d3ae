"""Performance counters: where each unit's cycles go, and what crosses the DRAM bus."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gemmule.config import Config
from gemmule.csr import CAUSES, COUNTER_BITS, COUNTERS
from gemmule.hw.dispatch import UNIT_LAYOUTS
from gemmule.isa import Unit

__all__ = ["SOURCES", "Counters"]

SOURCES = ("program", "load", "store")
"""Who sends bursts, in the order of ``sent``."""
_MOVERS = (Unit.LOAD, Unit.STORE)
LEN_BITS = 8


class Counters(wiring.Component):
    """Counts the cycles 0 .. cycles - 1 of a launch and keeps the totals to the next start.

    Every cycle is one of ``gemmule.csr.CAUSES`` for each unit (docs/timing.md, section Counters). Latency:
    an event shows in the next cycle.

    Members
    -------
    start: In(1)
        Start strobe, cycle 0: empty for all; everything else to zero.
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
        values: dict[str, Value] = {}

        def count(name: str, step: Value, first: int = 0, shift: int = 0) -> None:
            """A counter that adds ``step << shift`` in every running cycle."""
            register = Signal(COUNTER_BITS - shift, name=name)
            with m.If(self.start):
                m.d.sync += register.eq(first)
            with m.Elif(self.running):
                m.d.sync += register.eq(register + step)
            values[name] = register << shift

        for u, unit in enumerate(UNIT_LAYOUTS):
            active, valid, waiting = self.active[u], self.valid[u], self.waiting[u]
            moved = self.moved[_MOVERS.index(Unit(u))] if u in _MOVERS else None
            steps = {
                "busy": active if moved is None else active & moved,
                "dram": None if moved is None else active & ~moved,
                "empty": ~active & ~valid,
                "waiting": ~active & valid & waiting,
                "ports": ~active & valid & ~waiting,
            }
            for cause in CAUSES:
                if steps[cause] is not None:
                    count(f"{unit}_{cause}", steps[cause], first=int(cause == "empty"))
        for i, source in enumerate(SOURCES):
            count(f"{source}_bytes", Mux(self.sent[i], self.beats[i] + 1, 0), shift=beat_shift)
            count(f"{source}_bursts", self.sent[i])

        with m.Switch(self.index):
            for i, name in enumerate(COUNTERS):
                if name in values:  # only load and store wait for DRAM
                    with m.Case(i):
                        m.d.comb += self.value.eq(values[name])
        return m
