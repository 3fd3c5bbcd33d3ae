"""What directed checks stand on: a program, what wipes its traces, and what must be exact afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.csr import Control, Csr
from gemmule.isa import COMMAND_BYTES, NUM_BASES, NUM_LENGTHS, Command, encode_program
from gemmule.sim.fuzz.draw import Straight
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.fuzz.wipe import wipe
from gemmule.sim.launch import Launch
from gemmule.sim.mutants.recorded import Check, Program
from gemmule.sim.result import Result
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

__all__ = ["DRAM_BYTES", "Setup", "barked", "first_of", "launch_of", "launch_on", "wanted"]

DRAM_BYTES = 1 << 25
"""Of the device's memory: the longest program is half of it."""


def wanted(what: str, expected: object, seen: object) -> str:
    return f"{what}: expected {expected}, seen {seen}" if expected != seen else ""


def first_of(*found: Callable[[], str]) -> str:
    """The first thing that is wrong."""
    return next(filter(None, (look() for look in found)), "")


def launch_of(name: str, commands: Sequence[Command], *, size: int = 1 << 14, program: int | None = None,
              bases: dict[int, int] | None = None, limit: int | None = None) -> Launch:
    """A launch of these commands, from the middle of ``size`` bytes on; every limit register is the end of them."""
    at = np.zeros(NUM_BASES, dtype=np.int64)
    for register, value in (bases or {}).items():
        at[register] = value
    return Launch(name, 0, encode_program(commands), size // 2 if program is None else program,
                  np.zeros(size, dtype=np.uint8), at,
                  np.full(NUM_BASES, size if limit is None else limit, dtype=np.int64),
                  np.zeros(NUM_LENGTHS, dtype=np.int64))


def launch_on(data: np.ndarray, name: str, commands: Sequence[Command], room: int) -> Launch:
    """A launch of these commands on ``data`` (uint8) at address 0; the program stands behind ``room`` bytes or more."""
    size = 1 << (2 * max(room, COMMAND_BYTES * len(commands)) - 1).bit_length()
    launch = launch_of(name, commands, size=size)
    launch.dram[:len(data)] = data
    return launch


def barked(rtl: RtlDevice) -> Result:
    """What the device says when the watchdog has ended the launch; the device is reset."""
    seen = rtl.finish()
    rtl.set_stall(0)
    rtl.write_register(Csr.CONTROL, Control.RESET)
    rtl.reset()
    return seen


@dataclass(frozen=True, eq=False)
class Setup:
    """The programs around the checks on one configuration."""

    config: Config
    program: Program
    clean: Program
    after: Program

    @staticmethod
    def make(config: Config, seed: int, commands: int) -> Setup:
        case, after = (generate(config, seed + i, commands, brief=True, taste=Straight) for i in range(2))
        model = Simulator(config, dram_bytes=len(case.dram))
        clean, program, _, then = (Program.record(launch, model) for launch in (
            wipe(config, len(case.dram)), case, wipe(config, len(case.dram)), after))
        return Setup(config, program, clean, then)

    def record(self, launch: Launch) -> Program:
        """A launch behind the program that wipes all traces."""
        model = Simulator(self.config, dram_bytes=max(
            len(launch.dram), len(self.clean.dram), launch.program + len(launch.image)))
        Program.record(self.clean.launch, model)
        return Program.record(launch, model)

    def fresh(self, check: Check) -> Check:
        """The check on a device whose memories hold nothing of earlier ones."""
        return Check(check.name, lambda rtl: self.clean.exact(rtl) or check.run(rtl))

    def recovered(self, rtl: RtlDevice) -> str:
        """The device is as new for the next programs."""
        return self.clean.exact(rtl) or self.after.exact(rtl)
