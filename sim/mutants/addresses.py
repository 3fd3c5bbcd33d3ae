"""Checks of addresses: every bit alone, of moves and programs; where no memory is; errors far into a program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from gemmule.csr import FAULT_SHIFT, Control, Csr, Status
from gemmule.isa import COMMAND_BYTES, Command, MoveFlag, Unit, encode_program
from gemmule.resolve import FAULTS
from gemmule.sim.mutants.recorded import MARGIN, SLOW, Check
from gemmule.sim.mutants.setup import Setup, launch_of, wanted
from gemmule.sim.rtl.device import RtlDevice

__all__ = ["address_checks"]

ROW = 64
"""Bytes from a row to the next."""
LOW = 14
"""Lowest bit of an address that is tried alone: above the launch itself."""
BEYOND = 6
"""Bursts of a move to where no memory is."""
LATE = 15
"""Bits of the place of an error."""


def _far(bits: int) -> Iterator[tuple[str, int, list[Command], dict[int, int]]]:
    """Launches whose last move is at an address of one high bit: by its base or by its offset, through either buffer of
    the store unit, as a row of a list, or as the row behind the first."""
    for bit in range(LOW, bits):
        for name, base, offset in (("base", 1 << bit, 0), ("offset", 0, 1 << bit)):
            for unit, moves in ((Unit.LOAD, 1), (Unit.STORE, 1), (Unit.STORE, 2))[:1 if offset else 3]:
                near, there = (Command.make(unit, bytes=4, row=0, block_stride=1, rows=1, base=at, offset=offset)
                               for at, offset in ((0, 0), (1, offset)))
                yield (f"{unit.label} {moves} with bit {bit} of its {name}", 1 << bit, [near, there][-moves:],
                       {1: base})
        for unit in (Unit.LOAD, Unit.STORE):
            yield f"indexed {unit.label} with bit {bit}", 1 << bit, [Command.make(
                unit, flags=(MoveFlag.INDEXED,), bytes=4, row=0, block_stride=1, rows=1, base=1)], {1: 1 << bit}
            yield f"second row of a {unit.label} with bit {bit}", (1 << bit) + ROW, [Command.make(
                unit, bytes=4, row=0, row_stride=1, block_stride=1, rows=2, stride=ROW, base=1)], {1: 1 << bit}


def addresses(setup: Setup, rtl: RtlDevice) -> str:
    """The memory answers with an error at one place: a move that goes there, and no other, ends with fault ``axi``."""
    rtl.watchdog = MARGIN
    for name, place, commands, bases in _far(setup.config.address_bits):
        rtl.load(launch_of(name, commands, bases=bases, program=1 << 12, limit=(1 << setup.config.address_bits) - 1))
        if place < rtl.dram_bytes:  # beyond there is nothing that could answer
            rtl.set_axi_error(place)
        seen = rtl.run()
        rtl.set_axi_error(None)
        if found := wanted(f"fault of a {name}", "axi", FAULTS[seen.fault]):
            return found
    return setup.recovered(rtl)


def beyond(setup: Setup, rtl: RtlDevice) -> str:
    """A move of many bursts to an address of one high bit, where no memory is, ends as one to any other bit does: in
    the same cycle, with as many bursts."""
    rtl.watchdog = SLOW * MARGIN
    burst, bits = setup.config.burst_bytes, setup.config.address_bits
    for unit, flags in product((Unit.LOAD, Unit.STORE), ((), (MoveFlag.INDEXED,))):
        ends = {}
        for bit in range(rtl.dram_bytes.bit_length() - 1, bits):
            rtl.load(launch_of("beyond", [Command.make(
                unit, flags=flags, bytes=BEYOND * burst, row=0, block_stride=1, rows=1, base=1)],
                bases={1: 1 << bit}, limit=(1 << bits) - 1))
            seen = rtl.run()
            ends[bit] = FAULTS[seen.fault], seen.cycles, *seen.dram_bursts.values()
            rtl.wait(MARGIN)
        if len(set(ends.values())) > 1:
            return f"{unit.label} of {BEYOND} bursts where no memory is, by the bit of the address: {ends}"
    return setup.recovered(rtl)


def programs(setup: Setup, rtl: RtlDevice) -> str:
    """A program at an address of one high bit is fetched from there: it ends where it should, or with an error where no
    memory is."""
    commands = [*[Command.make(Unit.LOAD)] * 3, Command.make(Unit.LOAD, op=31)]
    for bit in range(LOW, setup.config.address_bits):
        at = 1 << bit
        there = at < rtl.dram_bytes
        if there:
            rtl.load_program(encode_program(commands), at)
        expected = FAULTS.index("illegal" if there else "axi") << FAULT_SHIFT | Status.DONE, 3 if there else 0
        seen = rtl.steps([
            ("write", Csr.PROGRAM_LO, at & 0xFFFFFFFF), ("write", Csr.PROGRAM_HI, at >> 32),
            ("write", Csr.PROGRAM_COMMANDS, len(commands)), ("write", Csr.CONTROL, Control.START), ("wait", MARGIN),
            ("read", Csr.STATUS), ("read", Csr.FAULT_INDEX), ("write", Csr.IRQ_CLEAR, 1)])
        if found := wanted(f"status and number of the fault of a program with bit {bit} of its address", expected,
                           tuple(seen)):
            return found
    return setup.recovered(rtl)


def late(setup: Setup, rtl: RtlDevice) -> str:
    """An error behind a program of any length, all of which has been taken: its place is the program's end."""
    for bit in range(5, LATE):
        rtl.watchdog = MARGIN + (COMMAND_BYTES << bit)
        commands = [*[Command.make(Unit.LOAD)] * ((1 << bit) - 1),
                    Command.make(Unit.LOAD, bytes=4, row=0, block_stride=1, rows=1)]
        rtl.load(launch_of("late error", commands, size=1 << max(14, bit + 7)))
        rtl.set_axi_error(0)
        seen = rtl.run()
        rtl.set_axi_error(None)
        if found := wanted(f"fault, number and place behind {1 << bit} commands", ("axi", 1 << bit, 1 << bit),
                           (FAULTS[seen.fault], seen.fault_index, seen.fault_place)):
            return found
    return setup.recovered(rtl)


def address_checks(setup: Setup) -> list[Check]:
    return [Check("addresses", lambda rtl: addresses(setup, rtl)), Check("beyond", lambda rtl: beyond(setup, rtl)),
            Check("programs", lambda rtl: programs(setup, rtl)), Check("late errors", lambda rtl: late(setup, rtl))]
