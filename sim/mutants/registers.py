"""Checks of the registers: every bit, every offset, writes while busy, the interrupt, counters at once."""

from __future__ import annotations

import random

from gemmule.config import Config
from gemmule.csr import COUNTERS, FAULT_SHIFT, IDENTITY, WATCHDOG_CYCLES, Control, Csr, Status, counter_offset
from gemmule.isa import COMMAND_BYTES, NUM_BASES, NUM_LENGTHS
from gemmule.sim.mutants.recorded import MARGIN, Check
from gemmule.sim.mutants.setup import Setup, first_of, launch_of, wanted
from gemmule.sim.rtl.device import RtlDevice

__all__ = ["register_checks"]

READ_CYCLES = 5
"""Cycles from one access to the next, at most."""
READ_ONLY = (Csr.STATUS, Csr.FAULT_INDEX, Csr.CYCLES, Csr.CYCLES_HI)


def _masks(config: Config) -> dict[int, int]:
    """Every parameter's offset and the bits that it has."""
    address = (1 << config.address_bits) - 1
    masks = {int(Csr.PROGRAM_LO): address & 0xFFFFFFFF, int(Csr.PROGRAM_HI): address >> 32,
             int(Csr.PROGRAM_COMMANDS): 0xFFFFFF, int(Csr.WATCHDOG): 0xFFFFFFFF}
    masks |= {Csr.LENGTH0 + 4 * i: 0xFFFF for i in range(1, NUM_LENGTHS)}
    for where in (Csr.BASE_LO, Csr.LIMIT_LO):
        masks |= {where + 8 * i + 4 * high: address >> 32 * high & 0xFFFFFFFF
                  for i in range(NUM_BASES) for high in (0, 1)}
    return masks


def _different(expected: dict[int, int], rtl: RtlDevice) -> str:
    """The first of these registers that reads something else."""
    seen = rtl.steps([("read", at) for at in expected])
    return first_of(*(lambda at=at, seen=seen: wanted(  # type: ignore[misc]
        f"register {at:#x}", expected[at], seen) for at, seen in zip(expected, seen, strict=True)))


def registers(setup: Setup, rtl: RtlDevice) -> str:
    """Every parameter reads back what was written, whole and by bytes, and over a reset of the device."""
    draw, masks = random.Random(1), _masks(setup.config)
    if rtl.read_register(Csr.WATCHDOG) != WATCHDOG_CYCLES:
        return "WATCHDOG after power-up"
    rtl.write_register(Csr.CONTROL, Control.RESET)
    held = dict.fromkeys(masks, 0)

    def write(where: int, strobe: int) -> None:
        value = draw.getrandbits(32)
        bits = sum(0xFF << 8 * i for i in range(4) if strobe >> i & 1)
        held[where] = (held[where] & ~bits | value & bits) & masks[where]
        rtl.write_register(where, value, strobe)

    def compare() -> str:
        fixed = {int(Csr.LENGTH0): 0xFFFF, int(Csr.IDENTITY): IDENTITY,
                 int(Csr.CONFIGURATION): setup.config.identity} | dict.fromkeys((
            int(Csr.CONTROL), *map(int, READ_ONLY), int(Csr.IRQ_CLEAR), 0x028, 0x03C, 0x080, 0x0FC,
            Csr.COUNTER_LO + 8 * len(COUNTERS), 0x400, 0x800, 0xA14, 0xFFC), 0)
        return _different(held | fixed, rtl)

    for register in masks:
        write(register, 0xF)
    found = compare()
    for register in masks:  # each bit has been 0 and 1
        rtl.write_register(register, ~held[register] & 0xFFFFFFFF)
        held[register] ^= masks[register]
    found = found or compare()
    for _ in range(120):
        write(draw.choice(list(masks)), draw.randrange(16))
    for offset in (*READ_ONLY, Csr.LENGTH0, 0x3F8, 0xFFC):
        rtl.write_register(offset, 0xFFFFFFFF)
    found = found or compare()
    rtl.write_register(Csr.CONTROL, Control.RESET)
    found = found or compare() or wanted("interrupt", False, rtl.wait())
    for register in masks:
        rtl.write_register(register, 0)
    rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
    return found or setup.recovered(rtl)


def offsets(setup: Setup, rtl: RtlDevice) -> str:
    """Behind a launch, with the interrupt high: a write anywhere but to a register does nothing, reads there say 0."""
    draw, masks = random.Random(3), _masks(setup.config)
    program = setup.program
    rtl.watchdog = program.expected.cycles + MARGIN
    rtl.load(program.launch)
    rtl.start()
    rtl.wait(rtl.watchdog)
    held = {at: draw.getrandbits(32) & mask for at, mask in masks.items()}
    known = {int(Csr.LENGTH0), int(Csr.IDENTITY), int(Csr.CONFIGURATION), *map(int, READ_ONLY),
             *(counter_offset(name) + half for name in COUNTERS for half in (0, 4))}
    rtl.steps([("write", at, value) for at, value in held.items()])
    kept = dict(zip(known, rtl.steps([("read", at) for at in known]), strict=True))
    rtl.steps([("write", at, 0xFFFFFFFF) for at in range(0, 0x1000, 4)
               if at not in masks and at not in (Csr.CONTROL, Csr.IRQ_CLEAR)])
    found = wanted("interrupt", True, rtl.wait(40)) or _different(
        dict.fromkeys(range(0, 0x1000, 4), 0) | held | kept, rtl)
    rtl.steps([*(("write", at, 0) for at in masks), ("write", Csr.WATCHDOG, WATCHDOG_CYCLES),
               ("write", Csr.IRQ_CLEAR, 1)])
    return found or setup.recovered(rtl)


def busy(setup: Setup, rtl: RtlDevice) -> str:
    """Parameters that are written while a program runs stay as they are, and so does the program."""
    program = setup.program
    rtl.watchdog = program.expected.cycles + MARGIN
    rtl.load(program.launch)
    rtl.start()
    masks = _masks(setup.config)
    held = rtl.steps([("read", at) for at in masks])
    rtl.steps([("write", at, ~value & 0xFFFFFFFF) for at, value in zip(masks, held, strict=True)])
    found = _different(dict(zip(masks, held, strict=True)), rtl)
    difference = program.expected.first_difference(rtl.finish())
    return found or (str(difference) if difference else program.bytes(rtl)) or setup.recovered(rtl)


def pauses(rtl: RtlDevice) -> str:
    """A host that pauses on every channel gets the same answers."""
    draw, held = random.Random(2), {}
    places = [int(Csr.PROGRAM_LO), int(Csr.WATCHDOG), *(Csr.LENGTH0 + 4 * i for i in range(1, 5)),
              *(Csr.LIMIT_LO + 8 * i for i in range(3))]
    accesses, expected = [], []
    for where in places:
        held[where] = 0
        rtl.write_register(where, 0)
    for _ in range(150):
        where, write = draw.choice(places), draw.random() < 0.5
        value, strobe = draw.getrandbits(32), draw.randrange(16)
        accesses.append((write, where, value, strobe))
        if write:
            bits = sum(0xFF << 8 * i for i in range(4) if strobe >> i & 1)
            short = 0xFFFF if Csr.LENGTH0 <= where < Csr.BASE_LO else 0xFFFFFFFF
            held[where] = (held[where] & ~bits | value & bits) & short
        expected.append(0 if write else held[where])
    seen = rtl.access_paused(accesses, 3)
    rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
    wrong = [i for i, (mine, other) in enumerate(zip(expected, seen, strict=True)) if mine != other]
    return f"access {wrong[0]} of a host with pauses" if wrong else ""


def interrupt(setup: Setup, rtl: RtlDevice) -> str:
    """Level until cleared or the next start; a start while busy changes nothing."""
    program = setup.program
    rtl.watchdog = program.expected.cycles + MARGIN
    rtl.load(program.launch)
    rtl.start()
    status = rtl.read_register(Csr.STATUS)
    found = wanted("status", int(Status.BUSY), status) or wanted("interrupt", False, rtl.wait())
    rtl.write_register(Csr.CONTROL, Control.START)
    rtl.write_register(Csr.IRQ_CLEAR, 1)
    rtl.wait(rtl.watchdog)
    done = int(Status.DONE) | program.expected.fault << FAULT_SHIFT
    found = found or wanted("status", done, rtl.read_register(Csr.STATUS)) or wanted(
        "fault index", max(0, program.expected.fault_index), rtl.read_register(Csr.FAULT_INDEX)) or wanted(
        "interrupt", True, rtl.wait())
    rtl.write_register(Csr.IRQ_CLEAR, 0)
    rtl.write_register(Csr.IRQ_CLEAR, 1, 0b1110)
    found = found or wanted("interrupt after no clear", True, rtl.wait())
    rtl.write_register(Csr.IRQ_CLEAR, 1)
    found = found or wanted("cleared interrupt", False, rtl.wait()) or wanted(
        "cycles", program.expected.cycles, rtl.read_register(Csr.CYCLES)) or program.bytes(rtl)
    return found or setup.recovered(rtl)


def prompt(setup: Setup, rtl: RtlDevice) -> str:
    """The interrupt rises as many cycles behind the write that starts a launch as the launch has."""
    program = setup.clean
    rtl.watchdog = program.expected.cycles + MARGIN
    for early in (1, 0):
        rtl.load(program.launch)
        rtl.start()
        found = wanted(f"interrupt {early} before it is due", not early, rtl.wait(program.expected.cycles - early))
        rtl.finish()
        if found:
            return found
    return setup.recovered(rtl)


def restart(setup: Setup, rtl: RtlDevice) -> str:
    """The next start lowers the interrupt and the done bit of the launch before."""
    program = setup.clean
    rtl.watchdog = program.expected.cycles + MARGIN
    rtl.load(program.launch)
    rtl.start()
    rtl.wait(rtl.watchdog)
    rtl.start()
    found = wanted("interrupt", False, rtl.wait()) or wanted(
        "status", int(Status.BUSY), rtl.read_register(Csr.STATUS))
    seen = rtl.finish()
    difference = program.expected.first_difference(seen)
    return found or (str(difference) if difference else setup.after.exact(rtl))


def counters(setup: Setup) -> Check:
    """A counter that is read as soon as a launch of no command has begun holds nothing of the launch before."""
    empty = setup.record(launch_of("empty", []))
    still = [name for name in COUNTERS if not empty.expected.registers[name]][::2]

    def run(rtl: RtlDevice) -> str:
        for name in still:
            if found := setup.clean.exact(rtl):
                return found
            rtl.load(empty.launch)
            rtl.start()
            at = counter_offset(name)
            seen = rtl.steps([("read", at), ("read", at + 4), ("write", Csr.IRQ_CLEAR, 1)])
            if found := wanted(f"{name} at once", [0, 0], seen):
                return found
        return setup.recovered(rtl)

    return Check("counters at once", run)


def scanned(setup: Setup) -> Check:
    """Counters that are read while their upper parts are scanned for the first time: whichever comes first, from any
    cycle on, none holds more than a launch without commands has cycles."""
    cycles, few = setup.clean.expected.cycles, setup.record(launch_of("empty", [])).expected.cycles

    def run(rtl: RtlDevice) -> str:
        if found := setup.clean.exact(rtl):
            return found
        full = len(setup.clean.launch.image) // COMMAND_BYTES
        for first in range(len(COUNTERS)):
            for pause in range(READ_CYCLES):
                names = [COUNTERS[(first + i) % len(COUNTERS)] for i in range(len(COUNTERS) // READ_CYCLES + 1)]
                seen = rtl.steps([
                    ("write", Csr.PROGRAM_COMMANDS, full), ("write", Csr.CONTROL, Control.START),
                    ("wait", cycles + few),
                    ("write", Csr.PROGRAM_COMMANDS, 0), ("write", Csr.CONTROL, Control.START), ("wait", pause),
                    *(("read", counter_offset(name)) for name in names)])
                for name, value in zip(names, seen, strict=True):
                    if value > few:
                        return f"{name} after a start: {value} in a launch of {few} cycles"
        return setup.recovered(rtl)

    return Check("counters in turn", run)


def register_checks(setup: Setup) -> list[Check]:
    return [
        Check("registers", lambda rtl: registers(setup, rtl)), Check("offsets", lambda rtl: offsets(setup, rtl)),
        Check("busy", lambda rtl: busy(setup, rtl)), Check("pauses", pauses),
        Check("interrupt", lambda rtl: interrupt(setup, rtl)), Check("restart", lambda rtl: restart(setup, rtl)),
        counters(setup), scanned(setup), Check("prompt", lambda rtl: prompt(setup, rtl)),
    ]
