"""What a device must do and no program reaches: registers, interrupt, stalls, errors, watchdog, resets.

A check runs on a device and returns what is wrong, or nothing. It fails by an :class:`RtlError` where the device hangs,
breaks a rule of AXI or of its claims, or takes the simulator with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.csr import COUNTERS, FAULT_SHIFT, WATCHDOG_CYCLES, Control, Csr, Status
from gemmule.isa import COMMAND_BYTES, NUM_BASES, NUM_LENGTHS, Command, MoveFlag, Unit, decode, encode_program
from gemmule.resolve import FAULTS
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.fuzz.wipe import wipe
from gemmule.sim.launch import Launch
from gemmule.sim.mutants.recorded import MARGIN, Check, Program
from gemmule.sim.result import Result
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.timing import ceil_div

__all__ = ["directed"]

IDLE = 300
"""Cycles for which a brief program may leave the memory alone."""


def _wanted(what: str, expected: object, seen: object) -> str:
    return f"{what}: expected {expected}, seen {seen}" if expected != seen else ""


def _first(*found: Callable[[], str]) -> str:
    """The first thing that is wrong."""
    return next(filter(None, (look() for look in found)), "")


@dataclass(frozen=True, eq=False)
class _Directed:
    """The checks on one configuration, around a program, what wipes its traces, and what must be exact afterwards."""

    config: Config
    program: Program
    clean: Program
    after: Program

    @staticmethod
    def make(config: Config, seed: int, commands: int) -> _Directed:
        case, after = (generate(config, seed + i, commands, brief=True) for i in range(2))
        model = Simulator(config, dram_bytes=len(case.dram))
        clean, program, _, then = (Program.record(launch, model) for launch in (
            wipe(config, len(case.dram)), case, wipe(config, len(case.dram)), after))
        return _Directed(config, program, clean, then)

    def fresh(self, check: Check) -> Check:
        """The check on a device whose memories hold nothing of earlier ones."""
        return Check(check.name, lambda rtl: self.clean.exact(rtl) or check.run(rtl))

    def recovered(self, rtl: RtlDevice) -> str:
        """The device is as new for the next programs."""
        return self.clean.exact(rtl) or self.after.exact(rtl)

    def registers(self, rtl: RtlDevice) -> str:
        """Every parameter reads back what was written, whole and by bytes, and over a reset of the device."""
        draw = random.Random(1)
        address = (1 << self.config.address_bits) - 1
        masks = {int(Csr.PROGRAM_LO): address & 0xFFFFFFFF, int(Csr.PROGRAM_HI): address >> 32,
                 int(Csr.PROGRAM_COMMANDS): 0xFFFFFF, int(Csr.WATCHDOG): 0xFFFFFFFF}
        masks |= {Csr.LENGTH0 + 4 * i: 0xFFFF for i in range(1, NUM_LENGTHS)}
        for where in (Csr.BASE_LO, Csr.LIMIT_LO):
            masks |= {where + 8 * i + 4 * high: address >> 32 * high & 0xFFFFFFFF
                      for i in range(NUM_BASES) for high in (0, 1)}
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
            fixed = {int(Csr.LENGTH0): 0xFFFF} | dict.fromkeys((
                int(Csr.CONTROL), int(Csr.STATUS), int(Csr.FAULT_INDEX), int(Csr.CYCLES), int(Csr.CYCLES_HI),
                int(Csr.IRQ_CLEAR), 0x028, 0x03C, 0x080, 0x0FC, Csr.COUNTER_LO + 8 * len(COUNTERS), 0x400, 0x800,
                0xA14, 0xFFC), 0)
            return _first(*(lambda at=at, value=value: _wanted(  # type: ignore[misc]
                f"register {at:#x}", value, rtl.read_register(at)) for at, value in (held | fixed).items()))

        for register in masks:
            write(register, 0xF)
        found = compare()
        for register in masks:  # each bit has been 0 and 1
            rtl.write_register(register, ~held[register] & 0xFFFFFFFF)
            held[register] ^= masks[register]
        found = found or compare()
        for _ in range(120):
            write(draw.choice(list(masks)), draw.randrange(16))
        for offset in (Csr.STATUS, Csr.FAULT_INDEX, Csr.CYCLES, Csr.CYCLES_HI, Csr.LENGTH0, 0x3F8, 0xFFC):
            rtl.write_register(offset, 0xFFFFFFFF)
        found = found or compare()
        rtl.write_register(Csr.CONTROL, Control.RESET)
        found = found or compare() or _wanted("interrupt", False, rtl.wait())
        for register in masks:
            rtl.write_register(register, 0)
        rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
        return found or self.recovered(rtl)

    def pauses(self, rtl: RtlDevice) -> str:
        """A host that pauses on every channel gets the same answers."""
        draw, held = random.Random(2), {}
        places = [int(Csr.PROGRAM_LO), int(Csr.WATCHDOG), *(Csr.LENGTH0 + 4 * i for i in range(1, 5)),
                  *(Csr.LIMIT_LO + 8 * i for i in range(3))]
        accesses, wanted = [], []
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
            wanted.append(0 if write else held[where])
        seen = rtl.access_paused(accesses, 3)
        rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
        wrong = [i for i, (mine, other) in enumerate(zip(wanted, seen, strict=True)) if mine != other]
        return f"access {wrong[0]} of a host with pauses" if wrong else ""

    def interrupt(self, rtl: RtlDevice) -> str:
        """Level until cleared or the next start; a start while busy changes nothing."""
        program = self.program
        rtl.watchdog = program.expected.cycles + MARGIN
        rtl.load(program.launch)
        rtl.start()
        status = rtl.read_register(Csr.STATUS)
        found = _wanted("status", int(Status.BUSY), status) or _wanted("interrupt", False, rtl.wait())
        rtl.write_register(Csr.CONTROL, Control.START)
        rtl.write_register(Csr.IRQ_CLEAR, 1)
        rtl.wait(rtl.watchdog)
        done = int(Status.DONE) | program.expected.fault << FAULT_SHIFT
        found = found or _wanted("status", done, rtl.read_register(Csr.STATUS)) or _wanted(
            "interrupt", True, rtl.wait())
        rtl.write_register(Csr.IRQ_CLEAR, 0)
        rtl.write_register(Csr.IRQ_CLEAR, 1, 0b1110)
        found = found or _wanted("interrupt after no clear", True, rtl.wait())
        rtl.write_register(Csr.IRQ_CLEAR, 1)
        found = found or _wanted("cleared interrupt", False, rtl.wait()) or _wanted(
            "cycles", program.expected.cycles, rtl.read_register(Csr.CYCLES)) or program.bytes(rtl)
        return found or self.recovered(rtl)

    def restart(self, rtl: RtlDevice) -> str:
        """The next start lowers the interrupt and the done bit of the launch before."""
        program = self.clean
        rtl.watchdog = program.expected.cycles + MARGIN
        rtl.load(program.launch)
        rtl.start()
        rtl.wait(rtl.watchdog)
        rtl.start()
        found = _wanted("interrupt", False, rtl.wait()) or _wanted(
            "status", int(Status.BUSY), rtl.read_register(Csr.STATUS))
        seen = rtl.finish()
        difference = program.expected.first_difference(seen)
        return found or (str(difference) if difference else self.after.exact(rtl))

    def stalls(self, chance: int) -> Check:
        def run(rtl: RtlDevice) -> str:
            return self.program.moved(rtl, chance) or self.clean.moved(rtl, chance) or self.after.exact(rtl)

        return Check(f"stalls, {chance} in 256", run)

    def _moves(self, unit: Unit) -> list[tuple[int, int]]:
        """(index, DRAM address) of the loads or stores through base register 0 that touch DRAM."""
        image, found = self.program.launch.image, []
        for index in range(len(image) // COMMAND_BYTES):
            command = decode(int.from_bytes(image[index * COMMAND_BYTES:][:COMMAND_BYTES], "little"))
            if command.unit is unit and command.fields["base"] == 0 and MoveFlag.ZERO not in command.flags:
                found.append((index, command.fields["offset"]))
        return found

    def error(self, where: str, last: bool) -> Check:
        """An error response: fault ``axi``; the next program is exact, without a reset of the bus."""
        launch = self.program.launch
        size = len(launch.image) // COMMAND_BYTES
        at = -1 if last else 0
        index, address = {
            "fetch": (size - 6 if last else 40, launch.program + (size - 6 if last else 40) * COMMAND_BYTES),
            "load": self._moves(Unit.LOAD)[at], "store": self._moves(Unit.STORE)[at]}[where]

        def run(rtl: RtlDevice) -> str:
            rtl.watchdog = self.program.expected.cycles + MARGIN
            rtl.load(launch)
            rtl.set_axi_error(address)
            seen = rtl.run()
            rtl.set_axi_error(None)
            right = seen.fault_index <= index if where == "fetch" else index < seen.fault_index <= size
            right = right and bool(np.count_nonzero(seen.issue >= 0) <= seen.fault_index)
            found = _wanted("fault", "axi", FAULTS[seen.fault])
            found = found or ("" if right else f"fault index {seen.fault_index} for command {index}")
            if last:
                rtl.wait(1000)  # what is under way comes to its end
                rtl.write_register(Csr.CONTROL, Control.RESET)
                found = found or _first(*(lambda at=at: _wanted(  # type: ignore[misc]
                    f"register {at:#x} after a reset", 0, rtl.read_register(at)) for at in (
                        Csr.STATUS, Csr.FAULT_INDEX, Csr.CYCLES)))
            return found or self.recovered(rtl)

        return Check(f"error of a {where}, {'last' if last else 'first'}", run)

    def watchdog(self, rtl: RtlDevice) -> str:
        """A memory that never answers: the launch ends ``WATCHDOG`` cycles after the first request, whatever it is."""
        program, found = self.program, ""
        begin = set()
        for limit in (1, 2, 3, 4, 7, 8, 100, 256, 700, 1023, 4096, 70000):
            rtl.watchdog = limit + MARGIN
            rtl.load(program.launch)
            rtl.write_register(Csr.WATCHDOG, limit)
            rtl.set_stall(255)
            seen = rtl.run()
            rtl.set_stall(0)
            begin.add(seen.cycles - limit)
            found = found or _wanted("fault", "watchdog", FAULTS[seen.fault]) or _wanted("index", 0, seen.fault_index)
            rtl.write_register(Csr.CONTROL, Control.START)  # refused until a reset
            found = found or _wanted("status", int(Status.DONE) | seen.fault << FAULT_SHIFT,
                                     rtl.read_register(Csr.STATUS))
            rtl.write_register(Csr.CONTROL, Control.RESET)
            found = found or _wanted("status after a reset", 0, rtl.read_register(Csr.STATUS))
            rtl.reset()
        if not found and (len(begin) != 1 or not 0 < min(begin) < 20):
            found = f"cycles before the watchdog counts: {sorted(begin)}"
        return found or self.recovered(rtl)

    def silence(self, after: int, limit: int) -> Check:
        """A memory that stops in the middle: silent for ``limit`` cycles it ends the launch, for less it does not."""
        program = self.program

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
            found = _wanted("fault", "watchdog", FAULTS[seen.fault])
            # The last transfer: at most some cycles after the memory stopped; before, no longer than nothing was due.
            if not found and not begin - IDLE < seen.cycles - limit < begin + 40 + 200:
                found = f"watchdog: stopped at {begin}, ended at {seen.cycles}"
            found = found or ("" if 0 < seen.fault_index <= len(seen.issue) else f"fault index {seen.fault_index}")
            rtl.write_register(Csr.CONTROL, Control.RESET)
            found = found or _wanted("status after a reset", 0, rtl.read_register(Csr.STATUS))
            rtl.reset()
            if found := found or self.recovered(rtl) or self.clean.exact(rtl):
                return found
            rtl.watchdog = program.expected.cycles + 4 * limit + MARGIN
            stop(rtl)
            rtl.wait(limit // 2)  # less than the limit in a row
            rtl.set_stall(0)
            seen = rtl.finish()
            rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
            return _wanted("fault", program.expected.fault, seen.fault) or program.bytes(rtl)

        return Check(f"silence from {after} on", run)

    def owed(self, rtl: RtlDevice) -> str:
        """Any number of reads, or of responses to writes, that never come: the watchdog counts all the same."""
        config, limit, found = self.config, 500, ""
        ends: list[int] = []
        most = min(config.read_bursts, ceil_div(config.read_beats, config.burst_beats), config.dram.latency // 2)
        for bursts in range(1, most + 1):
            launch, cycle = self._one(Unit.LOAD, bursts)
            rtl.watchdog = limit + MARGIN
            rtl.load(launch)
            rtl.write_register(Csr.WATCHDOG, limit)
            rtl.start()
            rtl.wait(max(1, cycle + bursts + config.dram.latency // 4 - rtl.read_register(Csr.CYCLES)))
            rtl.set_stall(255)  # all requests are out, no data have come
            seen = self._barked(rtl)
            found = found or _wanted(f"fault, {bursts} reads owed", "watchdog", FAULTS[seen.fault])
            ends.append(seen.cycles - bursts)
        found = found or ("" if len(set(ends)) == 1 else f"the end less the reads owed: {ends}")
        ends.clear()
        for bursts in range(1, config.write_bursts + 1):
            launch, _ = self._one(Unit.STORE, bursts)
            rtl.watchdog = limit + MARGIN
            rtl.load(launch)
            rtl.write_register(Csr.WATCHDOG, limit)
            rtl.set_stall(255, ["b"])
            rtl.start()
            seen = self._barked(rtl)
            found = found or _wanted(f"fault, {bursts} responses owed", "watchdog", FAULTS[seen.fault])
            ends.append(seen.cycles)
        rtl.write_register(Csr.WATCHDOG, WATCHDOG_CYCLES)
        found = found or ("" if ends == sorted(set(ends)) else f"the ends, by responses owed: {ends}")
        return found or self.recovered(rtl)

    def _one(self, unit: Unit, bursts: int) -> tuple[Launch, int]:
        """A launch of one move of whole bursts, and the cycle of its issue."""
        move = Command.make(unit, bytes=bursts * self.config.burst_bytes, row=0, block_stride=1, rows=1)
        size = 1 << 14
        launch = Launch(f"{unit.label} of {bursts} bursts", 0, encode_program([move]), size // 2,
                        np.zeros(size, dtype=np.uint8), np.zeros(NUM_BASES, dtype=np.int64),
                        np.full(NUM_BASES, size, dtype=np.int64), np.zeros(NUM_LENGTHS, dtype=np.int64))
        model = Simulator(self.config, dram_bytes=size)
        model.load(launch)
        return launch, int(model.run(timing_only=True).issue[0])

    @staticmethod
    def _barked(rtl: RtlDevice) -> Result:
        """What the device says when the watchdog has ended the launch; the device is reset."""
        seen = rtl.finish()
        rtl.set_stall(0)
        rtl.write_register(Csr.CONTROL, Control.RESET)
        rtl.reset()
        return seen

    def patience(self, rtl: RtlDevice) -> str:
        """Without a watchdog a silent memory is waited for."""
        program = self.program
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
        return _wanted("fault", program.expected.fault, seen.fault) or program.bytes(rtl)

    def reset(self, cycles: int) -> Check:
        """A reset in the middle of a program, of device and bus."""

        def run(rtl: RtlDevice) -> str:
            rtl.load(self.program.launch)
            rtl.start()
            rtl.wait(cycles)
            rtl.write_register(Csr.CONTROL, Control.RESET)
            found = _wanted("status after a reset", 0, rtl.read_register(Csr.STATUS)) or _wanted(
                "cycles after a reset", 0, rtl.read_register(Csr.CYCLES))
            rtl.reset()
            return found or self.recovered(rtl)

        return Check(f"reset after {cycles} cycles", run)


def directed(config: Config, seed: int, commands: int = 60) -> Iterator[Check]:
    """Stalls, errors, a silent memory, resets, the interrupt and the registers; in this order or any other."""
    checks = _Directed.make(config, seed, commands)
    end = checks.program.expected.cycles
    found = [
        Check("registers", checks.registers), Check("pauses", checks.pauses),
        Check("interrupt", checks.interrupt), Check("restart", checks.restart),
        *(checks.stalls(chance) for chance in (30, 200)),
        *(checks.error(where, last) for where in ("fetch", "load", "store") for last in (False, True)),
        Check("watchdog", checks.watchdog), Check("owed", checks.owed), Check("patience", checks.patience),
        *(checks.silence(end * part // 8, 600) for part in (2, 6)),
        *(checks.reset(end * part // 8) for part in (1, 3, 6)),
    ]
    for check in found:
        yield checks.fresh(check)
