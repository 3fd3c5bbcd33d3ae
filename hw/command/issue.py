"""Issue: waits, claims and priority decide which unit starts its head command."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.command.claims import Claims
from gemmule.hw.command.dispatch import UNIT_LAYOUTS, counts_layout
from gemmule.hw.command.resolve import PREDICATE_BITS, UNIT_BITS, WAIT_BITS
from gemmule.hw.command.waits import Waits
from gemmule.isa import NUM_PREDICATES, Unit
from gemmule.operations import ISSUE_PRIORITY
from gemmule.resolve import STREAMS
from gemmule.timing import Timing

__all__ = ["Issue"]


class Issue(wiring.Component):
    """Decides in the same cycle, at most one command per cycle; every count it looks at is registered.

    What a head still waits for is counted from the push of its command on, see :class:`Waits`.

    Commands that run alone issue when nothing of their unit is in flight. Those of length zero never
    reach their unit: they finish here, ``*_zero`` cycles later. A command whose predicate reads 0 in the
    cycle of the decision is skipped: it is one of length zero.

    Members
    -------
    push, unit, distances: In
        What enters the unit queues, see :class:`Dispatch`.
    valid, zero, alone, predicate, claims, following_claims: In
        Heads of the unit queues, see :class:`Dispatch`.
    predicates: In(4)
        From the select unit; bit 0 is 1.
    ready, unit_finish: In(units)
        From the units.
    release: In(streams)
        From the units, streams in the order of ``STREAMS``.
    clear: In(1)
        Start strobe: drop claims, counters to zero.
    issue: Out(units)
        One-hot: the command issued in this cycle; drops the head.
    start: Out(units)
        As ``issue``, without commands of length zero and skipped ones.
    finish: Out(units)
        Finish pulses of all commands.
    finished: Out(array)
        Commands finished, by unit; visible in the cycle after the pulse.
    active, waiting: Out(units)
        For the counters: a command is in flight, visibly, or issues in this cycle; the head waits for
        commands that have not visibly finished.
    """

    def __init__(self, *, config: Config, timing: Timing | None = None) -> None:
        self.config = config
        self.timing = timing or Timing.of(config)
        units = len(UNIT_LAYOUTS)
        for name in UNIT_LAYOUTS:
            if getattr(self.timing, f"{name}_zero") < 1:
                raise ValueError(
                    f"{name}_zero must be at least 1, not {getattr(self.timing, f'{name}_zero')}")
        super().__init__({
            "push": In(1), "unit": In(UNIT_BITS), "distances": In(data.ArrayLayout(WAIT_BITS, units)),
            "valid": In(units),
            "zero": In(units),
            "alone": In(units),
            "predicate": In(data.ArrayLayout(PREDICATE_BITS, units)),
            "predicates": In(NUM_PREDICATES),
            "claims": In(data.ArrayLayout(config.claim_bits, len(STREAMS))),
            "following_claims": In(data.ArrayLayout(config.claim_bits, len(STREAMS))),
            "ready": In(units),
            "unit_finish": In(units),
            "release": In(len(STREAMS)),
            "clear": In(1),
            "issue": Out(units),
            "start": Out(units),
            "finish": Out(units),
            "finished": Out(counts_layout()),
            "active": Out(units),
            "waiting": Out(units),
        })

    def limit(self, name: str) -> int:
        """Commands of a unit between issue and visible finish."""
        return {
            "load": self.config.load_commands, "store": self.timing.store_commands,
            "matrix": self.timing.matrix_commands, "vector": 1, "select": 1,
        }[name]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.waits = waits = Waits(
            depth=self.config.unit_queue, limits=[self.limit(name) for name in UNIT_LAYOUTS])
        m.submodules.claims = claims = Claims(config=self.config, timing=self.timing)
        m.d.comb += [
            *(getattr(waits, name).eq(getattr(self, name)) for name in (
                "push", "unit", "distances", "valid", "finish", "clear")),
            waits.pop.eq(self.issue),
            claims.want.eq(self.claims),
            claims.following.eq(self.following_claims),
            claims.valid.eq(self.valid),
            claims.issue.eq(self.issue),
            claims.start.eq(self.start),
            claims.release.eq(self.release),
            claims.clear.eq(self.clear),
        ]
        may, zero = Signal(len(UNIT_LAYOUTS)), Signal(len(UNIT_LAYOUTS))
        for u, name in enumerate(UNIT_LAYOUTS):
            limit = self.limit(name)
            in_flight = Signal(range(limit + 1), name=f"{name}_in_flight")
            room = Mux(self.alone[u] | zero[u], in_flight == 0, in_flight < limit)
            m.d.comb += [
                zero[u].eq(self.zero[u] | ~self.predicates.bit_select(self.predicate[u], 1)),
                may[u].eq(self.valid[u] & waits.reached[u] & room & (zero[u] | (claims.free[u] & self.ready[u]))),
                self.start[u].eq(self.issue[u] & ~zero[u]),
                self.active[u].eq((in_flight != 0) | self.issue[u]),
                self.waiting[u].eq(self.valid[u] & ~waits.reached[u]),
            ]

            # Finish of a command of length zero, a fixed time after its issue.
            pulse = self.issue[u] & zero[u]
            for i in range(getattr(self.timing, f"{name}_zero")):
                delayed = Signal(name=f"{name}_zero_{i + 1}")
                m.d.sync += delayed.eq(pulse)
                pulse = delayed
            m.d.comb += self.finish[u].eq(self.unit_finish[u] | pulse)
            m.d.sync += [
                in_flight.eq(in_flight + self.issue[u] - self.finish[u]),
                self.finished[u].eq(self.finished[u] + self.finish[u]),
            ]
            with m.If(self.clear):
                m.d.sync += [in_flight.eq(0), self.finished[u].eq(0)]

        higher: list[Unit] = []
        for unit in ISSUE_PRIORITY:
            m.d.comb += self.issue[unit].eq(may[unit] & ~Cat(may[other] for other in higher).any())
            higher.append(unit)
        return m
