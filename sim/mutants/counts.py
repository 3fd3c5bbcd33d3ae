"""Checks of counts: programs of which the length has high bits, and more commands than other programs have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations

from gemmule.config import Config
from gemmule.control import repeat
from gemmule.csr import Control, Csr
from gemmule.isa import COMMAND_BYTES, CONTROL, MAX_LENGTH, Command, COp, SOp, Unit, VOp
from gemmule.resolve import FAULTS
from gemmule.sim.mutants.recorded import MARGIN, SLOW, Check
from gemmule.sim.mutants.setup import Setup, launch_of, wanted
from gemmule.sim.rtl.device import RtlDevice

__all__ = ["count_checks", "rounds"]

SHORTEST = 7
"""Exponent of the shortest program whose length is more than there is of it."""
BODY_BITS = 24
"""Of the length of a program, and of a body."""
SLOWLY = 240
"""Chance of stalls, in 256, of the beats of commands."""
FEW = range(4, 9)
"""Exponents of the counts of every unit's commands after which waits are tried."""
MANY = 17
"""Exponent of the count around which they are tried again; there are twice as many stores."""
NEAR = 40
"""Commands of a unit before that count: more than a round of waits has, so that all bits below are ones in it."""
LONGEST = (1 << 20) - 8, (1 << 18) + 4
"""Bytes of a row."""
TURNS, EACH = 6, 10
"""Times that every pair of units is tried with waits of any distance, and slow commands in each."""
FARTHEST = 12
"""Distance that is not waited for any more: beyond what is under way."""
FAULT_INDEX = 0xC_FFFF
"""Of the command behind them."""


def lengths(setup: Setup) -> Check:
    """A program of any length that ends with an early fault runs as a short one: fetch stops when its queue is full.

    The same behind a body, from whose end on the rest of the program is counted; and where all that has come so far is
    done before the next command comes.
    """
    config = setup.config
    before, behind = 24, config.fetch_queue + 2 * config.burst_bytes // COMMAND_BYTES
    commands = [Command.make(Unit.LOAD)] * before + [Command.make(Unit.LOAD, op=31)] + [
        Command.make(Unit.LOAD)] * behind
    body = [repeat(1, 2), Command.make(Unit.LOAD)]
    launches = [(len(first), setup.record(launch_of(
        "early fault", [*first, *commands], program=(1 << 13) + place * COMMAND_BYTES)))
        for first in ([], body) for place in range(config.burst_bytes // COMMAND_BYTES)]

    def run(rtl: RtlDevice) -> str:
        for first, program in launches:
            if found := program.exact(rtl):
                return found
            rtl.watchdog = SLOW * MARGIN
            for length in ((1 << bit) + more for bit in range(SHORTEST, 24) for more in (first, first + 1)):
                for chance in (0, SLOWLY)[:1 + (length % 2 == 0)]:
                    rtl.load(program.launch)
                    rtl.set_stall(chance, ["r"])
                    rtl.steps([("write", Csr.PROGRAM_COMMANDS, length), ("write", Csr.CONTROL, Control.START)])
                    seen = rtl.finish()
                    rtl.set_stall(0)
                    difference = program.expected.first_difference(seen) if not chance else wanted(
                        "number of the fault", program.expected.fault_index, seen.fault_index)
                    if difference:
                        return f"a program of {length} commands: {difference}"
        return setup.recovered(rtl)

    return Check("lengths", run)


def rests(setup: Setup) -> Check:
    """A program of any length, whose body ends with it, or would be one too long, at once or behind others."""
    nothing, end = Command.make(Unit.MATRIX), Command.make(Unit.LOAD, op=31)
    draw = random.Random(4)
    befores = [[], [nothing] * 5, [repeat(1, 2), nothing], [nothing, repeat(4, 2), repeat(2, 1), *[nothing] * 3]]
    lengths = [(1 << bit) + more for bit in range(6, BODY_BITS) for more in (0, draw.randrange(1 << bit))]

    short = [setup.record(launch_of("rest", [*before, end])) for before in befores]

    def run(rtl: RtlDevice) -> str:
        for before, program in zip(befores, short, strict=True):
            if found := program.exact(rtl):  # the registers of all launches behind it
                return found
            turns = program.expected.fault_index
            for length in lengths:
                body = length - len(before) - 1
                for more in (0, 1):
                    rtl.load(launch_of("rest", [*before, repeat(body + more, 1), end]))
                    rtl.steps([("write", Csr.PROGRAM_COMMANDS, length), ("write", Csr.CONTROL, Control.START)])
                    seen = rtl.finish()
                    if found := wanted(f"fault and number, {length} commands, {body + more} in a body",
                                       ("illegal", turns + 1 - more), (FAULTS[seen.fault], seen.fault_index)):
                        return found
        return setup.recovered(rtl)

    return Check("rests", run)


def _slow(config: Config) -> dict[Unit, Command]:
    """Of every unit a command that takes its time."""
    columns = 64 * config.dim
    return {
        Unit.LOAD: Command.make(Unit.LOAD, bytes=4 * config.burst_bytes, row=0, block_stride=1, rows=1),
        Unit.STORE: Command.make(Unit.STORE, bytes=4 * config.burst_bytes, row=0, block_stride=1, rows=1, offset=4096),
        Unit.MATRIX: Command.make(Unit.MATRIX, m=1, n=8 * config.dim, k=8 * config.dim),
        Unit.VECTOR: Command.make(Unit.VECTOR, op=VOp.REQUANT, m=1, n=columns, mult=1, shift=8),
        Unit.SELECT: Command.make(Unit.SELECT, op=SOp.ARGMAX, m=1, n=columns),
    }


def rounds(config: Config) -> Iterator[Command]:
    """Every unit waits for every other one, which takes its time."""
    slow = _slow(config)
    for unit, command in slow.items():
        for other in slow:
            if other is not unit:
                yield Command(command.unit, command.fields, command.op, {other: 1}, command.flags)
                yield Command.make(other, waits={unit: 1})


def distances(config: Config, seed: int) -> Iterator[Command]:
    """Commands of one unit, slow ones, and among them those of another that wait for any of the last ones: a later one
    for an earlier one, too."""
    draw, slow = random.Random(seed), _slow(config)
    for unit, other in (pair for _ in range(TURNS) for pair in permutations(slow, 2)):
        for _ in range(EACH):
            yield slow[unit]
            for _ in range(draw.randrange(3)):
                yield Command.make(other, waits={unit: draw.randrange(1, FARTHEST)})


def _often(count: int, *body: Command) -> Iterator[Command]:
    """Bodies that come so often in all."""
    for done in range(0, count, MAX_LENGTH):
        yield from (repeat(len(body), min(count - done, MAX_LENGTH)), *body)


def _counted(commands: Sequence[Command]) -> Counter[int]:
    """Commands that run, by unit; of bodies that are not nested."""
    found: Counter[int] = Counter()
    turns, left = 1, 0
    for command in commands:
        found[command.unit] += turns if left > 0 else 1
        left -= 1
        if command.unit == CONTROL and command.op == COp.REPEAT:
            turns, left = command.fields["times_cap"], command.fields["body"]
    return found


def many(setup: Setup) -> Check:
    """As many commands of every unit as 17 bits count, and more; waits hold all the same. Twice as many stores; a fault
    with a number of 20 bits."""
    tries, each = list(rounds(setup.config)), [Command.make(unit) for unit in Unit]
    commands = [*tries]
    for exponent in FEW:
        commands += [command for command in each for _ in range(1 << exponent - (exponent > FEW[0]))]
        commands += tries
    for count in ((1 << MANY) - NEAR, (1 << MANY) + NEAR):  # of every unit, with those before
        commands += [*_often(count - _counted(commands)[Unit.VECTOR], *each), *tries]
    commands += _often((2 << MANY) + NEAR - _counted(commands)[Unit.STORE], each[Unit.STORE])
    left = FAULT_INDEX - _counted(commands).total()
    commands += _often(left - -(-left // (MAX_LENGTH + 1)), each[Unit.MATRIX])  # with the commands that repeat it
    commands.append(Command.make(Unit.LOAD, op=31))
    program = setup.record(launch_of("many commands", commands, size=1 << 17))
    assert program.expected.fault_index == FAULT_INDEX, program.expected.summary()

    return Check("many commands", lambda rtl: program.exact(rtl) or setup.recovered(rtl))


def rows(setup: Setup) -> Check:
    """Two rows of nearly as many bytes as a move may have, all blocks of them to or from one row of the scratchpad."""
    program = setup.record(launch_of("long rows", [
        Command.make(unit, bytes=size, row=0, row_stride=0, block_stride=0, rows=2, stride=4)
        for unit in (Unit.LOAD, Unit.STORE) for size in LONGEST], size=1 << 22, program=1 << 12))
    return Check("long rows", lambda rtl: program.exact(rtl) or setup.recovered(rtl))


def far_waits(setup: Setup, seed: int) -> Check:
    program = setup.record(launch_of("distances", list(distances(setup.config, seed)), size=1 << 18))
    return Check("distances", lambda rtl: program.exact(rtl) or setup.recovered(rtl))


def count_checks(setup: Setup, seed: int) -> list[Check]:
    return [lengths(setup), rests(setup), far_waits(setup, seed), many(setup), rows(setup)]
