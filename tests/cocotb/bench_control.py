"""cocotb bench of control (``hw/device/control.py``): start, end, interrupt, faults, watchdog, cycle counter."""

import random
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from support import now, start

from gemmule.hw.interfaces import COUNT_BITS
from gemmule.isa import Unit
from gemmule.resolve import FAULTS

UNITS = len(Unit)
NONE, ILLEGAL, ROWS, LIMIT, ALIGN, AXI, WATCHDOG = range(7)


async def drive(dut: Any, cycles: int = 1, **inputs: int) -> None:
    """Set inputs in the middle of a cycle; wait until that of ``cycles`` later."""
    for name, value in inputs.items():
        getattr(dut, name).value = value
    for _ in range(cycles):
        await FallingEdge(dut.clk)


class Watch:
    """First cycle of every output that is high, since the bench began."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.high: dict[str, list[int]] = {name: [] for name in ("start", "stop", "running", "busy", "done", "irq")}
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            for name, cycles in self.high.items():
                if getattr(self.dut, name).value:
                    cycles.append(now())


async def launch(dut: Any) -> tuple[Watch, int]:
    """Reset, request; returns in the middle of cycle 0 with its number. No command has been taken."""
    await start(dut)
    watch = Watch(dut)
    await drive(dut, fetch_idle=1, empty=1, taken=0)
    await drive(dut, request=1)
    await drive(dut, request=0)
    return watch, now()


@cocotb.test()
@cocotb.parametrize(seed=[1, 2, 3])
async def latency(dut: Any, seed: int) -> None:
    """Requested in r, the launch starts in r + 2. The last finish f shows in f + 1; the interrupt rises in f + 2."""
    rng, commands = random.Random(seed), 6
    watch, zero = await launch(dut)
    dispatched, finished = [0] * UNITS, [0] * UNITS
    await drive(dut, 3)
    while sum(finished) < commands:
        if sum(dispatched) < commands and rng.random() < 0.5:
            dispatched[rng.randrange(UNITS)] += 1
        open_units = [u for u in range(UNITS) if finished[u] < dispatched[u]]
        if open_units and rng.random() < 0.3:
            finished[rng.choice(open_units)] += 1
        counts = {name: sum(n << COUNT_BITS * u for u, n in enumerate(values))
                  for name, values in (("dispatched", dispatched), ("finished", finished))}
        shown = now()
        # The last command is in resolve for a while, or nothing is.
        empty = sum(dispatched) == commands or rng.random() < 0.5
        taken = sum(dispatched) == commands or not empty
        await drive(dut, total=sum(dispatched), taken=taken, empty=empty, **counts)
    await drive(dut, 10)
    assert watch.high["start"] == [zero]
    assert watch.high["irq"][0] == watch.high["done"][0] == shown + 1  # shown is f + 1
    assert watch.high["running"] == list(range(zero + 1, shown + 1))
    assert watch.high["busy"] == list(range(zero - 1, shown + 1))
    assert int(dut.cycles.value) == shown + 1 - zero
    assert int(dut.code.value) == NONE
    await drive(dut, 2, irq_clear=1)
    assert (int(dut.irq.value), int(dut.done.value)) == (0, 1)


@cocotb.test()
async def clear_does_not_hide_an_interrupt(dut: Any) -> None:
    """One that rises while it is being cleared is seen; the clear acts in the cycle after."""
    watch, _ = await launch(dut)
    await drive(dut, 3, irq_clear=1, total=1, taken=1, dispatched=1)
    shown = now()
    await drive(dut, 6, finished=1)
    assert watch.high["irq"] == [shown + 1]
    assert watch.high["done"][0] == shown + 1


@cocotb.test()
async def waits_for_fetch(dut: Any) -> None:
    """A start is put off while fetch has reads of an earlier launch outstanding; a second request is ignored."""
    await start(dut)
    watch = Watch(dut)
    await drive(dut, fetch_idle=0)
    await drive(dut, request=1)
    await drive(dut, 9, request=0)
    assert watch.high["start"] == []
    begin = now()
    await drive(dut, 3, fetch_idle=1)
    await drive(dut, request=1)
    await drive(dut, 5, request=0)
    assert watch.high["start"] == [begin + 1]
    assert int(dut.cycles.value) == now() - begin - 1


@cocotb.test()
@cocotb.parametrize(code=[ILLEGAL, ROWS, LIMIT, ALIGN, AXI])
async def faults(dut: Any, code: int) -> None:
    """The first fault stops dispatch; the launch ends when all that was dispatched has finished. A faulting command
    seen in q ends it in q + 2 when nothing is open, one cycle after the fault is known; later faults are ignored."""
    assert FAULTS[code] == ("none", "illegal", "rows", "limit", "align", "axi", "watchdog")[code]
    watch, zero = await launch(dut)
    await drive(dut, 4, total=3, dispatched=3, finished=1, empty=0, oldest=7)
    faulted = now()
    await drive(dut, **({"error": 1} if code == AXI else {"fault": code}))
    assert dut.stop.value
    await drive(dut, 5, error=0, fault=0 if code == AXI else code)
    dut.oldest.value = 8
    assert watch.high["irq"] == []
    await drive(dut, error=1)
    await drive(dut, 3, error=0)
    assert int(dut.code.value) == code
    ended = now()
    await drive(dut, 4, finished=3)
    assert watch.high["irq"][0] == ended + 1
    assert (int(dut.code.value), int(dut.index.value), int(dut.place.value)) == (code, 3, 7)
    assert int(dut.cycles.value) == ended + 1 - zero
    assert faulted < ended


@cocotb.test()
@cocotb.parametrize(code=[ILLEGAL, AXI])
async def fault_with_nothing_open(dut: Any, code: int) -> None:
    """Seen in q (the first cycle of the command at the end of resolve): the interrupt rises in q + 2."""
    watch, _ = await launch(dut)
    await drive(dut, 4, total=3, dispatched=3, finished=3)
    q = now()
    await drive(dut, 6, **({"error": 1} if code == AXI else {"fault": code}))
    assert watch.high["irq"][0] == q + 2
    assert int(dut.index.value) == 3


@cocotb.test()
async def watchdog_at_the_end(dut: Any) -> None:
    """In the last cycle of a launch with a fault the watchdog comes first."""
    watch, _ = await launch(dut)
    await drive(dut, 4, total=3, dispatched=3, finished=3)
    q = now()
    await drive(dut, fault=ILLEGAL)
    await drive(dut, 4, expired=1)
    assert watch.high["irq"][0] == q + 2
    assert (int(dut.code.value), int(dut.index.value)) == (WATCHDOG, 3)


@cocotb.test()
async def watchdog(dut: Any) -> None:
    """Ends the launch at once, whatever is open; a request is ignored until a reset."""
    watch, _ = await launch(dut)
    await drive(dut, 4, total=5, dispatched=5, finished=1)
    q = now()
    await drive(dut, 4, expired=1)
    assert watch.high["irq"][0] == q + 1
    assert (int(dut.code.value), int(dut.index.value)) == (WATCHDOG, 5)
    await drive(dut, expired=0, irq_clear=1)
    await drive(dut, request=1, irq_clear=0)
    await drive(dut, 5, request=0)
    assert len(watch.high["start"]) == 1
    assert int(dut.code.value) == WATCHDOG
    await drive(dut, 2, rst=1)
    await drive(dut, 2, rst=0)
    await drive(dut, request=1)
    await drive(dut, 5, request=0)
    assert len(watch.high["start"]) == 2
    assert int(dut.code.value) == NONE
