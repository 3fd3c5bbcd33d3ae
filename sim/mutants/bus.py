"""Checks of what the bus does: stalls, error responses, resets in the middle."""

from __future__ import annotations

import numpy as np

from gemmule.csr import FAULT_SHIFT, Control, Csr, Status
from gemmule.isa import COMMAND_BYTES, Command, MoveFlag, SOp, Unit, VOp, decode
from gemmule.resolve import FAULTS
from gemmule.sim.mutants.recorded import MARGIN, SLOW, Check
from gemmule.sim.mutants.setup import Setup, first_of, launch_of, wanted
from gemmule.sim.rtl.device import RtlDevice

__all__ = ["bus_checks"]

AROUND = range(-14, 6)
"""Cycles around a start in which the device is reset: no answer of the bus is due."""
SETTLED = 200
"""Cycles for what should not go on."""


def stalls(setup: Setup, chance: int) -> Check:
    def run(rtl: RtlDevice) -> str:
        return setup.program.moved(rtl, chance) or setup.clean.moved(rtl, chance) or setup.after.exact(rtl)

    return Check(f"stalls, {chance} in 256", run)


def _moves(setup: Setup, unit: Unit) -> list[tuple[int, int]]:
    """(index, DRAM address) of the loads or stores through base register 0 that touch DRAM, each the only one whose
    first row holds that address."""
    image, found = setup.program.launch.image, []
    for index in range(len(image) // COMMAND_BYTES):
        command = decode(int.from_bytes(image[index * COMMAND_BYTES:][:COMMAND_BYTES], "little"))
        if command.unit is unit and command.fields["base"] == 0 and MoveFlag.ZERO not in command.flags:
            found.append((index, command.fields["offset"], command.fields["bytes"]))
    return [(index, at) for index, at, _ in found if sum(0 <= at - first < size for _, first, size in found) == 1]


def error(setup: Setup, where: str, last: bool) -> Check:
    """An error response: fault ``axi``; the next program is exact, without a reset of the bus."""
    launch = setup.program.launch
    size = len(launch.image) // COMMAND_BYTES
    at = -1 if last else 0
    index, address = {
        "fetch": (size - 6 if last else 40, launch.program + (size - 6 if last else 40) * COMMAND_BYTES),
        "load": _moves(setup, Unit.LOAD)[at], "store": _moves(setup, Unit.STORE)[at]}[where]

    def run(rtl: RtlDevice) -> str:
        rtl.watchdog = setup.program.expected.cycles + MARGIN
        rtl.load(launch)
        rtl.set_axi_error(address)
        seen = rtl.run()
        rtl.set_axi_error(None)
        right = seen.fault_index <= index if where == "fetch" else index < seen.fault_index <= size
        right = right and bool(np.count_nonzero(seen.issue >= 0) <= seen.fault_index)
        found = wanted("fault", "axi", FAULTS[seen.fault])
        found = found or ("" if right else f"fault index {seen.fault_index} for command {index}")
        if last:
            rtl.wait(1000)  # what is under way comes to its end
            rtl.write_register(Csr.CONTROL, Control.RESET)
            found = found or first_of(*(lambda at=at: wanted(  # type: ignore[misc]
                f"register {at:#x} after a reset", 0, rtl.read_register(at)) for at in (
                    Csr.STATUS, Csr.FAULT_INDEX, Csr.CYCLES)))
        return found or setup.recovered(rtl)

    return Check(f"error of a {where}, {'last' if last else 'first'}", run)


def reset(setup: Setup, cycles: int) -> Check:
    """A reset in the middle of a program, of device and bus."""

    def run(rtl: RtlDevice) -> str:
        rtl.load(setup.program.launch)
        rtl.start()
        rtl.wait(cycles)
        rtl.write_register(Csr.CONTROL, Control.RESET)
        found = wanted("status after a reset", 0, rtl.read_register(Csr.STATUS)) or wanted(
            "cycles after a reset", 0, rtl.read_register(Csr.CYCLES))
        rtl.reset()
        return found or setup.recovered(rtl)

    return Check(f"reset after {cycles} cycles", run)


def at_start(setup: Setup) -> Check:
    """A reset of the device alone in any cycle around the one in which a unit starts, with a bus that is at rest:
    nothing of it goes on behind the reset."""
    config, vector = setup.config, {Unit.VECTOR: 1}
    slow = Command.make(Unit.VECTOR, op=VOp.REQUANT, m=1, n=32 * config.dim, mult=1, shift=8)
    launches = [setup.record(launch_of(f"start of {command.unit.label}", [slow, command])) for command in (
        Command.make(Unit.STORE, bytes=4 * config.bus_bytes, row=0, block_stride=1, rows=1, offset=64, waits=vector),
        Command.make(Unit.LOAD, bytes=4 * config.bus_bytes, row=0, block_stride=1, rows=1, waits=vector),
        Command.make(Unit.MATRIX, m=1, n=config.dim, k=config.dim, waits=vector),
        Command.make(Unit.SELECT, op=SOp.ARGMAX, m=1, n=config.dim, waits=vector))]

    def run(rtl: RtlDevice) -> str:
        for program in launches:
            for cycle in AROUND:
                rtl.load(program.launch)
                rtl.start()
                rtl.steps([("wait", int(program.expected.issue[1]) + cycle), ("write", Csr.CONTROL, Control.RESET),
                           ("wait", SETTLED)])
                if found := program.exact(rtl):
                    return f"{program.launch.name}, after a reset {cycle} cycles behind it: {found}"
        return setup.recovered(rtl)

    return Check("reset at a start", run)


def awaited(setup: Setup, rtl: RtlDevice) -> str:
    """Fetch still awaits beats behind a fault: an error among them changes nothing, and a start waits, busy."""
    launch = launch_of("early fault", [Command.make(Unit.LOAD, op=31), *[Command.make(Unit.LOAD)] * 63])
    done = int(Status.DONE) | FAULTS.index("illegal") << FAULT_SHIFT
    rtl.watchdog = SLOW * MARGIN
    last = launch.program + (setup.config.fetch_queue - 1) * COMMAND_BYTES
    for wrong in (last, None):
        rtl.load(launch)
        rtl.set_axi_error(wrong)
        rtl.set_stall(240)
        rtl.run()
        status = []
        if wrong is None:
            rtl.write_register(Csr.CONTROL, Control.START)
            status = [wanted("status of a start that waits", int(Status.BUSY), rtl.read_register(Csr.STATUS))]
        rtl.set_stall(0)
        if wrong is None:
            rtl.finish()
        rtl.wait(MARGIN)
        status.append(wanted("status behind the last beat", done, rtl.read_register(Csr.STATUS)))
        rtl.set_axi_error(None)
        if found := "".join(status):
            return found
    return setup.recovered(rtl)


def behind(setup: Setup, rtl: RtlDevice) -> str:
    """The last beat of an illegal command has an error response: the command is found when that fault stands already,
    in a launch that still runs."""
    nothing, few = Command.make(Unit.MATRIX), 9
    slow = Command.make(Unit.VECTOR, n=1 << 12, m=1, mult=1, shift=8)
    launch = launch_of("fault behind an error", [slow, *[nothing] * few, Command.make(Unit.LOAD, op=31), nothing])
    rtl.watchdog = SLOW * MARGIN
    rtl.load(launch)
    rtl.set_axi_error(launch.program + (few + 2) * COMMAND_BYTES - setup.config.bus_bytes, beat=True)
    seen = rtl.run()
    rtl.set_axi_error(None)
    return wanted("fault of an illegal command behind an error", "axi", FAULTS[seen.fault]) or setup.recovered(rtl)


def bus_checks(setup: Setup) -> list[Check]:
    end = setup.program.expected.cycles
    return [
        *(stalls(setup, chance) for chance in (30, 200)),
        *(error(setup, where, last) for where in ("fetch", "load", "store") for last in (False, True)),
        Check("awaited", lambda rtl: awaited(setup, rtl)),
        Check("behind an error", lambda rtl: behind(setup, rtl)),
        at_start(setup), *(reset(setup, end * part // 8) for part in (1, 3, 6)),
    ]
