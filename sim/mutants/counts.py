"""Checks of counts: programs of which the length has high bits, and more commands than other programs have."""

from __future__ import annotations

from collections.abc import Iterator

from gemmule.csr import Control, Csr
from gemmule.isa import COMMAND_BYTES, Command, SOp, Unit, VOp
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.setup import DRAM_BYTES, Setup, launch_of
from gemmule.sim.rtl.device import RtlDevice

__all__ = ["count_checks"]

SHORTEST = 7
"""Exponent of the shortest program whose length is more than there is of it."""
FEW = range(4, 9)
"""Exponents of the counts of every unit's commands after which waits are tried."""
MANY = (14, (Unit.MATRIX, Unit.VECTOR)), (17, (Unit.MATRIX,)), (18, (Unit.MATRIX,))
"""Of some units' counts."""
FIRST = 1 << 20
"""Address of the program of so many commands."""


def lengths(setup: Setup) -> Check:
    """A program of any length that ends with an early fault runs as a short one: fetch stops when its queue is full."""
    config = setup.config
    before, behind = 24, config.fetch_queue + 2 * config.burst_bytes // COMMAND_BYTES
    commands = [Command.make(Unit.LOAD)] * before + [Command.make(Unit.LOAD, op=31)] + [
        Command.make(Unit.LOAD)] * behind
    launches = [setup.record(launch_of("early fault", commands, program=(1 << 13) + place * COMMAND_BYTES))
                for place in range(config.burst_bytes // COMMAND_BYTES)]

    def run(rtl: RtlDevice) -> str:
        for program in launches:
            if found := program.exact(rtl):
                return found
            for bit in range(SHORTEST, 24):
                for more in (0, 1):
                    rtl.load(program.launch)
                    rtl.steps([("write", Csr.PROGRAM_COMMANDS, (1 << bit) + more),
                               ("write", Csr.CONTROL, Control.START)])
                    if difference := program.expected.first_difference(rtl.finish()):
                        return f"a program of {(1 << bit) + more} commands: {difference}"
        return setup.recovered(rtl)

    return Check("lengths", run)


def _round(slow: dict[Unit, Command]) -> Iterator[Command]:
    """Every unit waits for every other one, which takes its time."""
    for unit, command in slow.items():
        for other in slow:
            if other is not unit:
                yield Command(command.unit, command.fields, command.op, {other: 1}, command.flags)
                yield Command.make(other, waits={unit: 1})


def many(setup: Setup) -> Check:
    """More commands than 18 bits count; waits hold all the same. Counters of cycles and bytes grow beyond 21 bits."""
    config = setup.config
    columns = 64 * config.dim
    slow = {
        Unit.LOAD: Command.make(Unit.LOAD, bytes=4 * config.burst_bytes, row=0, block_stride=1, rows=1),
        Unit.STORE: Command.make(Unit.STORE, bytes=4 * config.burst_bytes, row=0, block_stride=1, rows=1, offset=4096),
        Unit.MATRIX: Command.make(Unit.MATRIX, m=1, n=8 * config.dim, k=8 * config.dim),
        Unit.VECTOR: Command.make(Unit.VECTOR, op=VOp.REQUANT, m=1, n=columns, mult=1, shift=8),
        Unit.SELECT: Command.make(Unit.SELECT, op=SOp.ARGMAX, m=1, n=columns),
    }
    tries = list(_round(slow))
    commands: list[Command] = [*tries]
    done = dict.fromkeys(Unit, 0)
    for exponent, units in (*((exponent, tuple(Unit)) for exponent in FEW), *MANY):
        for unit in units:
            commands += [Command.make(unit)] * ((1 << exponent) - done[unit])
            done[unit] = 1 << exponent
        commands += tries
    assert FIRST + len(commands) * COMMAND_BYTES <= DRAM_BYTES
    program = setup.record(launch_of("many commands", commands, program=FIRST))
    assert program.expected.fault == 0, program.expected.summary()

    return Check("many commands", lambda rtl: program.exact(rtl) or setup.recovered(rtl))


def count_checks(setup: Setup) -> list[Check]:
    return [lengths(setup), many(setup)]
