"""One helper for every test bench: clock, benches, watchdog, optional waveform."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal, UnusedElaboratable
from amaranth.sim import Simulator

__all__ = ["Bench", "WatchdogError", "rejection", "run_bench"]

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
    top = Module()
    top.submodules.dut = component
    beat = Signal()
    top.d.sync += beat.eq(~beat)  # a combinational component has no clock domain of its own
    sim = Simulator(top)
    sim.add_clock(1e-6)
    for bench in benches:
        sim.add_testbench(bench)

    def run() -> None:
        # Two steps of time a cycle, one for each edge. A bench that counts would take part in each cycle.
        for _ in range(2 * cycles):
            if not sim.advance():
                return
        raise WatchdogError(f"bench still running after {cycles} cycles")

    if waveform is None:
        run()
        return
    path = Path("build/waves") / waveform
    path.parent.mkdir(parents=True, exist_ok=True)
    with sim.write_vcd(str(path.with_suffix(".vcd")), traces=list(traces or ())):
        run()


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
