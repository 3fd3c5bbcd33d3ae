"""Programs with what the model makes of them, as checks of a device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.sim.fuzz.wipe import wipe
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

__all__ = ["MARGIN", "Check", "Program", "programs"]

MARGIN = 3000
"""Cycles beyond the model's after which a launch counts as hung."""
MOST = 1 << 24
"""Bytes of the model's DRAM: more than any program has."""
SLOW = 40
"""The same as a factor, on a memory that stalls."""


@dataclass(frozen=True)
class Check:
    """A check and its name."""

    name: str
    run: Callable[[RtlDevice], str]


@dataclass(frozen=True, eq=False)
class Program:
    """A launch with what the model makes of it: bytes, cycles of every command, counters, fault."""

    launch: Launch
    expected: Result
    dram: bytes

    @staticmethod
    def record(launch: Launch, model: Simulator) -> Program:
        model.load(launch)
        expected = model.run()
        return Program(launch, expected, model.read_dram(0, len(launch.dram)))

    @property
    def check(self) -> Check:
        """Everything that the model says."""
        return Check(self.launch.name, self.exact)

    @property
    def digest(self) -> bytes:
        """Of program, data and results."""
        parts = self.launch.image, self.launch.dram.tobytes(), self.dram, repr(self.expected.summary()).encode()
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()

    def exact(self, rtl: RtlDevice) -> str:
        """Everything equals the model's."""
        rtl.watchdog = self.expected.cycles + MARGIN
        rtl.load(self.launch)
        difference = self.expected.first_difference(rtl.run())
        return str(difference) if difference else self.bytes(rtl)

    def bytes(self, rtl: RtlDevice) -> str:
        """The bytes of DRAM equal the model's."""
        seen = rtl.read_dram(0, len(self.dram))
        if seen == self.dram:
            return ""
        wrong = np.flatnonzero(np.frombuffer(seen, np.uint8) != np.frombuffer(self.dram, np.uint8))
        return f"{len(wrong)} DRAM bytes, first at {wrong[0]}"

    def moved(self, rtl: RtlDevice, stall: int) -> str:
        """On a memory that stalls: bytes and traffic equal the model's."""
        rtl.watchdog = SLOW * self.expected.cycles + MARGIN
        rtl.load(self.launch)
        rtl.set_stall(stall)
        seen = rtl.run()
        rtl.set_stall(0)
        for what in ("fault", "fault_index", "dram_bytes", "dram_bursts"):
            if getattr(seen, what) != getattr(self.expected, what):
                return f"{what} with stalls: expected {getattr(self.expected, what)}, seen {getattr(seen, what)}"
        finished = np.count_nonzero(seen.finish >= 0), np.count_nonzero(self.expected.finish >= 0)
        return self.bytes(rtl) or (f"commands finished: {finished}" if finished[0] != finished[1] else "")


def programs(config: Config, launches: Iterable[Launch]) -> Iterator[Program]:
    """Programs in this order; before them the one that wipes what other checks have left."""
    model = None
    for launch in launches:
        if model is None:
            model = Simulator(config, dram_bytes=min(MOST, 1 << config.address_bits))
            yield Program.record(wipe(config, len(launch.dram)), model)
        yield Program.record(launch, model)
