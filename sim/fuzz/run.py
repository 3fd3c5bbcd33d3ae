"""A fuzzing run: random programs on model and RTL until the number is reached or too many differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gemmule.config import Config
from gemmule.io.progress import counting
from gemmule.sim.fuzz.coverage import Coverage
from gemmule.sim.fuzz.frame import Frame
from gemmule.sim.fuzz.generate import generate, probe
from gemmule.sim.rtl.cosim import Report, cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.rtl.waveform import record_waveform
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import verify

__all__ = ["FuzzSummary", "fuzz"]

LONG_EVERY, LONG = 50, 20
"""Of so many programs one has so many times the commands."""


def rounded(number: float) -> str:
    """Two significant digits, with commas: ``12,000``."""
    digits = len(str(int(number))) - 2
    return f"{round(number, -digits):,.0f}" if number >= 100 else f"{number:.2g}"


@dataclass
class FuzzSummary:
    """Totals of a fuzzing run."""

    config: str
    seed: int
    programs: int = 0
    commands: int = 0
    cycles: int = 0
    seconds: float = 0.0
    byte_differences: int = 0
    cycle_differences: int = 0
    counter_differences: int = 0
    failures: list[str] = field(default_factory=list)
    coverage: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.failures and not self.missing

    def add(self, report: Report) -> None:
        """Count a launch, its commands as they ran."""
        self.commands += len(report.expected.places)
        self.cycles += report.seen.cycles
        self.byte_differences += report.byte_differences
        self.cycle_differences += report.cycle_differences
        self.counter_differences += report.counter_differences


def fuzz(config: Config, *, programs: int, seed: int = 0, commands: int = 150,
         progress: Callable[[str], None] = print, stop_after: int = 3, enforce: bool = True) -> FuzzSummary:
    """Random legal programs on model and RTL, one simulator process for all.

    Program i uses seed ``seed + i``; every 50th has 20 times the commands, where there is room. A probe goes before
    each. The first failing one leaves a waveform. With ``enforce``, coverage below its minimum counts as failure.
    """
    summary = FuzzSummary(config.name, seed)
    coverage = Coverage(config)
    progress(f"fuzz {config.name}: {programs} programs of {commands} commands, seeds from {seed}")
    long = min(commands * LONG, max(commands, Frame(config, commands).most))
    dram_bytes = Frame(config, long if programs >= LONG_EVERY else commands).end
    model = Simulator(config, dram_bytes=dram_bytes)
    with RtlDevice(config, watchdog=5_000_000) as rtl, counting("programs", programs) as tell:
        begin = time.monotonic()
        for i in range(programs):
            length = commands if (i + 1) % LONG_EVERY else long
            case = generate(config, seed + i, length, faults=0.1)
            if not case.faulty:
                verify(case.image, config, case.bases, case.limits, case.lengths, case.program)
            summary.programs += 1
            for launch in (probe(config, seed + i), case):
                report = cosim(launch, model, rtl)
                summary.add(report)
                if not report.ok:
                    first = f"\nwaveform: {record_waveform(launch, config).command}" if not summary.failures else ""
                    summary.failures.append(report.text + first)
                    progress(summary.failures[-1])
            coverage.add(case, report.expected)
            rate = summary.cycles / (time.monotonic() - begin)
            tell(i + 1, f"{summary.commands:,} commands, {rounded(rate)} cycles/s, {len(summary.failures)} differ")
            if len(summary.failures) >= stop_after:
                break
    summary.seconds = round(time.monotonic() - begin, 1)
    summary.coverage = coverage.counts()
    summary.missing = coverage.missing() if enforce else []
    for what in summary.missing:
        progress(f"  coverage below its minimum: {what}")
    return summary

