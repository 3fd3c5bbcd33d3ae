"""Checks of counts that only very many cycles or commands reach: the device leaps over those that change nothing else.

It must be one with leaps (``hw/flow/leaps.py``, which says why its state is then that of a device that took them all).
"""

from __future__ import annotations

import random

from gemmule.control import MAX_COMMANDS, repeat, set_length
from gemmule.csr import COUNTER_BITS, COUNTERS, WATCHDOG_CYCLES, Control, Csr, counter_offset
from gemmule.hw.tb import LEAP_CYCLES, LEAP_CYCLES_AT, LEAP_TOTAL_AT, LEAP_UNIT_AT, LEAP_UNIT_BITS
from gemmule.isa import MAX_LENGTH, Unit
from gemmule.resolve import FAULTS
from gemmule.sim.mutants.counts import rounds
from gemmule.sim.mutants.recorded import MARGIN, Check
from gemmule.sim.mutants.setup import Setup, barked, launch_of, wanted
from gemmule.sim.rtl.device import RtlDevice

__all__ = ["leap_checks"]

LEAPS = 12
"""Leaps of any length; the reference is one of no length."""
LIMITS = 1, 265, 530, 800, 1060, 2000
"""Leaps up to 2^32 cycles, with every high bit."""
AROUND = 500
"""Cycles around a leap."""
NEAR = 8
"""Commands of a unit that its count lacks to its highest bit: fewer than a round of waits has."""
SHORT = 1 << 13, 100
"""Commands that are left of the most ones after a leap: the rest is run, with a carry into these bits."""


def silence(setup: Setup, rtl: RtlDevice) -> str:
    """A memory that is silent from the start on, without a limit: the launch counts its cycles, and that all units are
    empty."""
    draw, reference = random.Random(1), {}  # type: random.Random, dict[str, int]
    for by in (0, *(draw.getrandbits(32) for _ in range(LEAPS))):
        rtl.load(setup.program.launch)
        rtl.write_register(Csr.WATCHDOG, 0)
        rtl.set_stall(255)
        rtl.start()
        places = {"cycles": int(Csr.CYCLES)} | {name: counter_offset(name) for name in COUNTERS}
        words = rtl.steps([("wait", AROUND), ("write", LEAP_CYCLES_AT, by), ("wait", AROUND), *(
            ("read", place + half) for place in places.values() for half in (0, 4))])
        seen = {name: low | high << 32 for name, low, high in zip(places, words[::2], words[1::2], strict=True)}
        rtl.set_stall(0)
        rtl.write_register(Csr.CONTROL, Control.RESET)
        rtl.reset()
        rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
        reference = reference or seen
        for name, value in seen.items():
            more = by * LEAP_CYCLES if name == "cycles" or name.endswith("_empty") else 0
            bits = 64 if name == "cycles" else COUNTER_BITS
            if found := wanted(f"{name} after {by} leaps", reference[name] + more & (1 << bits) - 1, value):
                return found
    return setup.recovered(rtl)


def limits(setup: Setup, rtl: RtlDevice) -> str:
    """The same with a limit: the launch ends there, in a certain cycle."""
    begin = set()
    for by in LIMITS:
        limit = by * LEAP_CYCLES + 2 * AROUND
        rtl.watchdog = 2 * AROUND + MARGIN
        rtl.load(setup.program.launch)
        rtl.write_register(Csr.WATCHDOG, limit)
        rtl.set_stall(255)
        rtl.start()
        rtl.steps([("wait", AROUND), ("write", LEAP_CYCLES_AT, by)])
        seen = barked(rtl)
        begin.add(seen.cycles - limit)
        if found := wanted(f"fault of {limit} silent cycles", "watchdog", FAULTS[seen.fault]):
            return found
    rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
    return wanted("launches whose watchdog began to count elsewhere", 0, len(begin) - 1) or setup.recovered(rtl)


def commands(setup: Setup, rtl: RtlDevice) -> str:
    """A body of one SET, very often: one command more than a launch may have is illegal, at its place."""
    for left in SHORT:
        rtl.watchdog = 16 * max(SHORT) + MARGIN
        rtl.load(launch_of("commands", [repeat(1, MAX_LENGTH), set_length(1, amount=1)]))
        rtl.start()
        rtl.steps([("wait", AROUND), ("write", LEAP_TOTAL_AT, MAX_COMMANDS - left - AROUND)])
        seen = rtl.finish()
        if found := wanted(f"fault, number, place of the end, {left} before it", ("illegal", MAX_COMMANDS, 1),
                           (FAULTS[seen.fault], seen.fault_index, seen.fault_place)):
            return found
    return setup.recovered(rtl)


def unit_leaps(most: int) -> list[dict[Unit, int]]:
    """Commands of units that a launch may have had before; the first leap is of no length, which is the reference."""
    draw = random.Random(2)
    return [{}, *({unit: (MAX_COMMANDS + 1) // 2 - NEAR} for unit in Unit),
            *({unit: draw.randrange(most)} for unit in Unit for _ in range(LEAPS // 4)),
            *({unit: draw.randrange(most // len(Unit)) for unit in Unit} for _ in range(LEAPS))]


def of_units(setup: Setup) -> Check:
    """Any number of commands of every unit has finished before: the rest of the program runs as it does without them,
    waits and the end included."""
    program = setup.record(launch_of("of units", [
        repeat(1, 2 * AROUND), set_length(1, amount=1), *rounds(setup.config)], size=1 << 17))
    leaps = unit_leaps(MAX_COMMANDS - 2 * AROUND - len(program.launch.image))

    def run(rtl: RtlDevice) -> str:
        for leap in leaps:
            rtl.watchdog = program.expected.cycles + MARGIN
            rtl.load(program.launch)
            rtl.start()
            rtl.steps([("wait", AROUND), *(("write", LEAP_UNIT_AT, count << LEAP_UNIT_BITS | unit)
                                           for unit, count in leap.items())])
            if difference := program.expected.first_difference(rtl.finish()):
                return f"after leaps over {leap}: {difference}"
        return setup.recovered(rtl)

    return Check("leaps over units' commands", run)


def leap_checks(setup: Setup) -> list[Check]:
    return [Check("leaps of silence", lambda rtl: silence(setup, rtl)),
            Check("leaps to a limit", lambda rtl: limits(setup, rtl)),
            Check("leaps over commands", lambda rtl: commands(setup, rtl)), of_units(setup)]
