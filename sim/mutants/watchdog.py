"""Checks of the watchdog: a memory that never answers, stops, owes some answers, or answers just in time."""

from __future__ import annotations

from typing import Any

from gemmule.csr import FAULT_SHIFT, WATCHDOG_CYCLES, Control, Csr, Status
from gemmule.isa import COMMAND_BYTES, Command, Unit
from gemmule.resolve import FAULTS
from gemmule.sim.mutants.recorded import MARGIN, Check
from gemmule.sim.mutants.setup import Setup, barked, launch_of, wanted
from gemmule.sim.rtl.device import RtlDevice
from gemmule.timing import ceil_div

__all__ = ["watchdog_checks"]

IDLE = 300
"""Cycles for which a brief program may leave the memory alone."""
PACES = range(10, 170, 20)
"""Chances of stalls, in 256."""
OWED = 500
"""Limit while answers are owed."""


def silent(setup: Setup, rtl: RtlDevice) -> str:
    """A memory that never answers: the launch ends ``WATCHDOG`` cycles after the first request, whatever it is."""
    program, found = setup.program, ""
    begin = set()
    for limit in (1, 2, 3, 4, 7, 8, 100, 256, 700, 1023, 4096, 70000):
        rtl.watchdog = limit + MARGIN
        rtl.load(program.launch)
        rtl.write_register(Csr.WATCHDOG, limit)
        rtl.set_stall(255)
        seen = rtl.run()
        rtl.set_stall(0)
        begin.add(seen.cycles - limit)
        found = found or wanted("fault", "watchdog", FAULTS[seen.fault]) or wanted("index", 0, seen.fault_index)
        rtl.write_register(Csr.CONTROL, Control.START)  # refused until a reset
        found = found or wanted("status", int(Status.DONE) | seen.fault << FAULT_SHIFT,
                                rtl.read_register(Csr.STATUS))
        rtl.write_register(Csr.CONTROL, Control.RESET)
        found = found or wanted("status after a reset", 0, rtl.read_register(Csr.STATUS))
        rtl.reset()
    if not found and (len(begin) != 1 or not 0 < min(begin) < 20):
        found = f"cycles before the watchdog counts: {sorted(begin)}"
    return found or setup.recovered(rtl)


def silence(setup: Setup, after: int, limit: int) -> Check:
    """A memory that stops in the middle: silent for ``limit`` cycles it ends the launch, for less it does not."""
    program = setup.program

    def stop(rtl: RtlDevice) -> int:
        rtl.load(program.launch)
        rtl.write_register(Csr.WATCHDOG, limit)
        rtl.start()
        rtl.wait(after)
        rtl.set_stall(255)
        return rtl.read_register(Csr.CYCLES)

    def run(rtl: RtlDevice) -> str:
        rtl.watchdog = program.expected.cycles + 4 * limit + MARGIN
        begin = stop(rtl)
        seen = rtl.finish()
        rtl.set_stall(0)
        found = wanted("fault", "watchdog", FAULTS[seen.fault])
        # The last transfer: at most some cycles after the memory stopped; before, no longer than nothing was due.
        if not found and not begin - IDLE < seen.cycles - limit < begin + 40 + 200:
            found = f"watchdog: stopped at {begin}, ended at {seen.cycles}"
        found = found or ("" if 0 < seen.fault_index <= len(seen.issue) else f"fault index {seen.fault_index}")
        rtl.write_register(Csr.CONTROL, Control.RESET)
        found = found or wanted("status after a reset", 0, rtl.read_register(Csr.STATUS))
        rtl.reset()
        if found := found or setup.recovered(rtl) or setup.clean.exact(rtl):
            return found
        rtl.watchdog = program.expected.cycles + 4 * limit + MARGIN
        stop(rtl)
        rtl.wait(limit // 2)  # less than the limit in a row
        rtl.set_stall(0)
        seen = rtl.finish()
        rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
        return wanted("fault", program.expected.fault, seen.fault) or program.bytes(rtl)

    return Check(f"silence from {after} on", run)


def owed(setup: Setup, rtl: RtlDevice) -> str:
    """Any number of reads, or of responses to writes, that never come: the watchdog counts all the same."""
    config, found = setup.config, ""

    def launch(unit: Unit, bursts: int) -> int:
        """Starts a move of whole bursts; the cycle of its issue."""
        program = setup.record(launch_of("move", [Command.make(
            unit, bytes=bursts * config.burst_bytes, row=0, block_stride=1, rows=1)]))
        rtl.watchdog = OWED + MARGIN
        rtl.load(program.launch)
        rtl.write_register(Csr.WATCHDOG, OWED)
        rtl.start()
        return int(program.expected.issue[0])

    def ended(what: str) -> int:
        nonlocal found
        seen = barked(rtl)
        found = found or wanted(f"fault, {what} owed", "watchdog", FAULTS[seen.fault])
        return seen.cycles

    ends: list[int] = []
    for bursts in range(1, config.fetch_queue * COMMAND_BYTES // config.burst_bytes + 1):
        commands = [Command.make(Unit.LOAD)] * (bursts * config.burst_bytes // COMMAND_BYTES)
        rtl.watchdog = OWED + MARGIN
        rtl.load(launch_of("commands", commands))
        rtl.write_register(Csr.WATCHDOG, OWED)
        rtl.set_stall(255, ["r"])
        rtl.start()
        ends.append(ended(f"{bursts} reads of commands") - bursts)
    found = found or ("" if len(set(ends)) == 1 else f"the end less the reads of commands owed: {ends}")
    ends.clear()
    most = min(config.read_bursts, ceil_div(config.read_beats, config.burst_beats), config.dram.latency // 2)
    for bursts in range(1, most + 1):
        cycle = launch(Unit.LOAD, bursts)
        rtl.wait(max(1, cycle + bursts + config.dram.latency // 4 - rtl.read_register(Csr.CYCLES)))
        rtl.set_stall(255)  # all requests are out, no data have come
        ends.append(ended(f"{bursts} reads") - bursts)
    found = found or ("" if len(set(ends)) == 1 else f"the end less the reads owed: {ends}")
    ends.clear()
    for bursts in range(1, config.write_bursts + 1):
        rtl.set_stall(255, ["b"])
        launch(Unit.STORE, bursts)
        ends.append(ended(f"{bursts} responses"))
    rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
    found = found or ("" if ends == sorted(set(ends)) else f"the ends, by responses owed: {ends}")
    return found or setup.recovered(rtl)


def patience(setup: Setup, rtl: RtlDevice) -> str:
    """Without a watchdog a silent memory is waited for."""
    program = setup.program
    rtl.watchdog = program.expected.cycles + 20 * MARGIN
    rtl.load(program.launch)
    rtl.write_register(Csr.WATCHDOG, 0)
    rtl.set_stall(255)
    rtl.start()
    if rtl.wait(MARGIN) or not rtl.read_register(Csr.STATUS) & Status.BUSY:
        return "ended without a watchdog"
    rtl.set_stall(0)
    seen = rtl.finish()
    rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
    return wanted("fault", program.expected.fault, seen.fault) or program.bytes(rtl)


def idle(setup: Setup) -> Check:
    """Nothing is due for longer than ``WATCHDOG``: after as many reads as can be, all of them answered; or ever."""
    config = setup.config
    each: dict[str, Any] = {"row": 0, "row_stride": 0, "block_stride": 1, "rows": 2 * config.read_bursts,
                            "stride": config.burst_bytes}
    many = [Command.make(Unit.LOAD)] * (config.fetch_queue - 4)
    rest = Command.make(Unit.VECTOR, n=2 * OWED * config.dim, m=1, mult=1, shift=8,
                        waits=dict.fromkeys((Unit.LOAD, Unit.STORE), 1))
    moves = [command for beats in range(1, 7) for command in (
        *(Command.make(unit, bytes=beats * config.bus_bytes, **each) for unit in (Unit.LOAD, Unit.STORE)), rest)]
    launches = [setup.record(launch_of(name, commands)) for name, commands in (
        ("none", []), ("one", [rest]), ("reads", [*many, *moves]))]
    end = launches[-1].expected
    assert end.cycles > 12 * OWED, f"nothing is to be due for long, not {end.summary()}"

    def run(rtl: RtlDevice) -> str:
        for program, limit in zip(launches, (1, OWED, OWED), strict=True):
            rtl.watchdog = program.expected.cycles + MARGIN
            rtl.load(program.launch)
            rtl.write_register(Csr.WATCHDOG, limit)
            difference = program.expected.first_difference(rtl.run())
            if difference:
                return f"{program.launch.name}, WATCHDOG {limit}: {difference}"
        rtl.write_register(Csr.WATCHDOG, limit)
        for chance in PACES:  # any number of reads is outstanding for any number of cycles
            if found := launches[-1].moved(rtl, chance):
                return f"WATCHDOG {limit}: {found}"
        rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
        return setup.recovered(rtl)

    return Check("nothing due", run)


def watchdog_checks(setup: Setup) -> list[Check]:
    end = setup.program.expected.cycles
    return [
        Check("watchdog", lambda rtl: silent(setup, rtl)), Check("owed", lambda rtl: owed(setup, rtl)),
        Check("patience", lambda rtl: patience(setup, rtl)), idle(setup),
        *(silence(setup, end * part // 8, 600) for part in (2, 6)),
    ]
