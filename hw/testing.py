"""One helper for every test bench: clock, benches, watchdog, optional waveform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from amaranth.hdl import Elaboratable
from amaranth.sim import Simulator

__all__ = ["Bench", "WatchdogError", "run_bench"]

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
        Anything that elaborates; domain ``sync`` is clocked.
    benches:
        ``async def bench(ctx)`` functions, added as test benches in order.
    cycles:
        The watchdog raises :class:`WatchdogError` after as many cycles.
    traces:
        Signals shown first in the waveform.
    waveform:
        Name below ``build/waves`` (or a path) of a VCD file to write; none by default.
    """
    sim = Simulator(component)
    sim.add_clock(1e-6)
    for bench in benches:
        sim.add_testbench(bench)

    async def watchdog(ctx: Any) -> None:
        await ctx.tick().repeat(cycles)
        raise WatchdogError(f"bench still running after {cycles} cycles")

    sim.add_testbench(watchdog, background=True)
    if waveform is None:
        sim.run()
        return
    path = Path("build/waves") / waveform
    path.parent.mkdir(parents=True, exist_ok=True)
    with sim.write_vcd(str(path.with_suffix(".vcd")), traces=list(traces or ())):
        sim.run()
