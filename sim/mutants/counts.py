"""Checks of counts: programs of which the length has high bits, and more commands than other programs have."""

from __future__ import annotations

from collections.abc import Iterator

from gemmule.control import repeat
from gemmule.csr import Control, Csr
from gemmule.isa import COMMAND_BYTES, MAX_LENGTH, Command, SOp, Unit, VOp
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.setup import Setup, launch_of
from gemmule.sim.rtl.device import RtlDevice

__all__ = ["count_checks"]

SHORTEST = 7
"""Exponent of the shortest program whose length is more than there is of it."""
FEW = range(4, 9)
"""Exponents of the counts of every unit's commands after which waits are tried."""
MANY = 2
"""Times 2^16 - 1 commands of every unit after which they are tried again."""
FAULT_INDEX = 0xA_FFFF
"""Of the command behind them."""


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
    """More commands of every unit than 17 bits count; waits hold all the same, and a fault has a number of 20 bits."""
    config = setup.config
    columns = 64 * config.dim
    slow = {
        Unit.LOAD: Command.make(Unit.LOAD, bytes=4 * config.burst_bytes, row=0, block_stride=1, rows=1),
        Unit.STORE: Command.make(Unit.STORE, bytes=4 * config.burst_bytes, row=0, block_stride=1, rows=1, offset=4096),
        Unit.MATRIX: Command.make(Unit.MATRIX, m=1, n=8 * config.dim, k=8 * config.dim),
        Unit.VECTOR: Command.make(Unit.VECTOR, op=VOp.REQUANT, m=1, n=columns, mult=1, shift=8),
        Unit.SELECT: Command.make(Unit.SELECT, op=SOp.ARGMAX, m=1, n=columns),
    }
    tries, each = list(_round(slow)), [Command.make(unit) for unit in Unit]
    commands = [*tries]
    for exponent in FEW:
        commands += [command for command in each for _ in range(1 << exponent - (exponent > FEW[0]))]
        commands += tries
    body = [repeat(len(each), MAX_LENGTH), *each, each[Unit.MATRIX]]
    commands += [repeat(len(body), MANY), *body, *tries]
    before = len(commands) - len(body) - 1 + MANY * (len(body) + (MAX_LENGTH - 1) * len(each)) + 1
    commands += [repeat(1, FAULT_INDEX - before - 1), each[Unit.MATRIX], Command.make(Unit.LOAD, op=31)]
    program = setup.record(launch_of("many commands", commands, size=1 << 17))
    assert program.expected.fault_index == FAULT_INDEX, program.expected.summary()

    return Check("many commands", lambda rtl: program.exact(rtl) or setup.recovered(rtl))


def count_checks(setup: Setup) -> list[Check]:
    return [lengths(setup), many(setup)]
