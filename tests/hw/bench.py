"""One helper for every test bench: clock, benches, watchdog, optional waveform."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal, UnusedElaboratable
from amaranth.sim import Simulator

__all__ = ["Bench", "Simulated", "WatchdogError", "rejection", "run_bench"]

Bench = Callable[[Any], Awaitable[None]]


class WatchdogError(AssertionError):
    """A bench did not end within its cycles."""


def run_bench(
    component: Elaboratable,
    *benches: Bench,
    cycles: int = 10000,
    traces: Iterable[Any] | None = None,
    waveform: str | Path | None = None,
) -> None:
    """Simulate ``component`` until every bench has returned.

    Parameters
    ----------
    component:
        Anything that elaborates, combinational too; domain ``sync`` is clocked.
    benches:
        ``async def bench(ctx)`` functions, added as test benches in order.
    cycles:
        The watchdog raises :class:`WatchdogError` after as many cycles.
    traces:
        Signals shown first in the waveform.
    waveform:
        Name below ``build/waves`` (or a path) of a VCD file to write; none by default.
    """
    sim = _simulator(component)
    for bench in benches:
        sim.add_testbench(bench)
    if waveform is None:
        _advance(sim, cycles)
        return
    path = Path("build/waves") / waveform
    path.parent.mkdir(parents=True, exist_ok=True)
    with sim.write_vcd(str(path.with_suffix(".vcd")), traces=list(traces or ())):
        _advance(sim, cycles)


def _simulator(component: Elaboratable) -> Simulator:
    top = Module()
    top.submodules.dut = component
    beat = Signal()
    top.d.sync += beat.eq(~beat)  # a combinational component has no clock domain of its own
    sim = Simulator(top)
    sim.add_clock(1e-6)
    return sim


def _advance(sim: Simulator, cycles: int) -> None:
    # Two steps of time a cycle, one for each edge. A bench that counts would take part in each cycle.
    for _ in range(2 * cycles):
        if not sim.advance():
            return
    raise WatchdogError(f"bench still running after {cycles} cycles")


class Simulated:
    """A component that several benches run on, one after the other, each from power-up: it is compiled once."""

    def __init__(self, component: Elaboratable) -> None:
        self.component = component
        self._sim: Simulator | None = None
        self._bench: Bench | None = None

    async def _testbench(self, ctx: Any) -> None:
        assert self._bench is not None
        await self._bench(ctx)

    def run(self, bench: Bench, cycles: int = 10000) -> None:
        """As :func:`run_bench`."""
        sim, self._sim, self._bench = self._sim, None, bench
        if sim is None:
            sim = _simulator(self.component)
            sim.add_testbench(self._testbench)
        else:
            sim.reset()
        _advance(sim, cycles)
        self._sim = sim  # not that of a bench that failed: it stopped anywhere


def rejection(make: Callable[[], Elaboratable]) -> str:
    """Message of the ``ValueError`` with which a constructor rejects its arguments.

    Amaranth warns about components that were created and not used; here that is the purpose.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedElaboratable)
        try:
            make()
        except ValueError as error:
            message = str(error)
        else:
            raise AssertionError("the constructor accepted its arguments")
        gc.collect()  # the half-made component holds itself; it warns when it goes
        return message
