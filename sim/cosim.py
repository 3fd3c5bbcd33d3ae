"""The same program on the model and on the RTL: equal bytes, equal cycles of every command, equal counters.

This is the one module of ``sim`` that asks ``hw`` for anything: its Verilog.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import gemmule
from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, Unit, decode, decode_table, disassemble
from gemmule.resolve import OUT, resolve
from gemmule.sim.access import DRAM, accesses
from gemmule.sim.build import build_root, exclusive, fingerprint
from gemmule.sim.fuzz import FuzzCase, generate
from gemmule.sim.fuzz_coverage import Coverage
from gemmule.sim.result import Result
from gemmule.sim.rtl import RtlDevice, RtlError
from gemmule.sim.run import Model
from gemmule.sim.verify import verify
from gemmule.timing import Timing

__all__ = ["FuzzSummary", "Report", "cosim", "fuzz", "record_waveform", "verilog_path"]

CONTRACTS = Path(gemmule.__file__).resolve().parent


def verilog_path(config: Config, timing: Timing | None = None) -> Path:
    """The device's Verilog, generated when the RTL's sources or the configuration have changed."""
    timing = timing or Timing.of(config)
    sources = sorted(
        path for folder in (CONTRACTS / "hw", CONTRACTS, CONTRACTS / "numerics") for path in folder.glob("*.py"))
    key = fingerprint([*(path.read_bytes() for path in sources),
                       repr((config.model_dump(), vars(timing), version("amaranth"))).encode()])
    folder = build_root() / f"{config.name}-verilog-{key}"
    with exclusive(folder.with_suffix(".lock")):
        found = list(folder.glob("*.sv"))
        if found:
            return found[0]
        from gemmule.hw.verilog import generate as generate_verilog

        return generate_verilog(config, folder, timing)


@dataclass(frozen=True)
class Report:
    """Outcome of one comparison; ``text`` is empty when model and RTL agree."""

    text: str
    expected: Result
    seen: Result
    byte_differences: int = 0
    cycle_differences: int = 0
    """Issue and finish cycles that differ, and the launch's total."""
    counter_differences: int = 0

    @property
    def ok(self) -> bool:
        return not self.text


def _listing(image: bytes, index: int) -> str:
    at = index * COMMAND_BYTES
    try:
        return disassemble(decode(int.from_bytes(image[at:at + COMMAND_BYTES], "little")))
    except ValueError as error:
        return str(error)


def _last_writer(case: FuzzCase, config: Config, address: int) -> int | None:
    """The last store that covers a DRAM byte."""
    table = decode_table(case.image)
    out = resolve(table, case.bases, case.limits, case.lengths, config)
    for i in range(len(table) - 1, -1, -1):
        if out[i, OUT["unit"]] != Unit.STORE or out[i, OUT["fault"]]:
            continue
        for access in accesses(table[i], out[i], config):
            inside = (access.spans[:, 0] <= address) & (address < access.spans[:, 1])
            if access.space == DRAM and inside.any():
                return i
    return None


def _prepare(device: Model | RtlDevice, case: FuzzCase) -> None:
    device.write_dram(0, case.dram.tobytes())
    device.bases[:], device.limits[:], device.lengths[:] = case.bases, case.limits, case.lengths
    device.load_program(case.image, case.program)


def cosim(case: FuzzCase, model: Model, rtl: RtlDevice) -> Report:
    """Run a case on both devices and compare all DRAM bytes, every issue and finish, and every counter."""
    _prepare(model, case)
    _prepare(rtl, case)
    expected, seen = model.run(), rtl.run()
    lines = []
    difference = expected.first_difference(seen)
    if difference:
        lines.append(str(difference))
        if difference.command >= 0:
            lines.append(f"  {_listing(case.image, difference.command)}")
            lines += _around(case, expected, seen, difference.command)
    ours = np.frombuffer(model.read_dram(0, len(case.dram)), dtype=np.uint8)
    theirs = np.frombuffer(rtl.read_dram(0, len(case.dram)), dtype=np.uint8)
    wrong = np.flatnonzero(ours != theirs)
    if len(wrong):
        at = int(wrong[0])
        lines.append(f"{len(wrong)} DRAM bytes differ; first at {at}: expected {ours[at]}, seen {theirs[at]}")
        writer = _last_writer(case, model.config, at)
        if writer is not None:
            lines.append(f"  written by command {writer}: {_listing(case.image, writer)}")
    if lines:
        lines.insert(0, f"{case.name}: model and RTL differ ({model.config.name}, seed {case.seed})")
    cycles = sum(int(np.count_nonzero(a != b)) for a, b in (
        (expected.issue, seen.issue), (expected.finish, seen.finish))) + (expected.cycles != seen.cycles)
    ours_counted, theirs_counted = expected.registers, seen.registers
    counters = sum(theirs_counted[name] != value for name, value in ours_counted.items())
    return Report("\n".join(lines), expected, seen, len(wrong), cycles, counters)


def record_waveform(case: FuzzCase, config: Config, timing: Timing | None = None) -> Path:
    """Run a case on RTL built with tracing (the first time this takes a minute or more); path of the VCD file.

    It lies in ``waves`` beside the folder of builds. The device starts from reset, so what earlier launches
    left in its memories is not there.
    """
    with RtlDevice(config, timing, waves=True) as rtl:
        _prepare(rtl, case)
        with contextlib.suppress(RtlError):  # a hang or a broken AXI rule is what the waveform is to show
            rtl.run()
    folder = build_root().parent / "waves"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{config.name}-{case.name.replace(' ', '-')}-{case.seed}.vcd"
    shutil.move(rtl.folder / "dump.vcd", path)
    shutil.rmtree(rtl.folder, ignore_errors=True)
    return path


def _around(case: FuzzCase, expected: Result, seen: Result, index: int, span: int = 4) -> list[str]:
    """Cycles of the neighbouring commands: expected issue/finish, seen issue/finish."""
    rows = []
    for i in range(max(0, index - span), min(len(expected.issue), index + span + 1)):
        rows.append(
            f"  {'>' if i == index else ' '} {i:4} {expected.issue[i]:8}/{expected.finish[i]:<8} "
            f"{seen.issue[i]:8}/{seen.finish[i]:<8} {_listing(case.image, i)}")
    return rows


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


def fuzz(config: Config, *, programs: int, seed: int = 0, commands: int = 150,
         progress: Callable[[str], None] = print, stop_after: int = 3, enforce: bool = True) -> FuzzSummary:
    """Random legal programs on model and RTL, one simulator process for all.

    Program i uses seed ``seed + i``. The first failing one leaves a waveform. With ``enforce``, coverage
    below its minimum counts as failure.
    """
    summary = FuzzSummary(config.name, seed)
    coverage = Coverage(config)
    progress(f"fuzz {config.name}: {programs} programs of {commands} commands, seeds from {seed}")
    begin = time.monotonic()
    dram_bytes = len(generate(config, seed, commands).dram)
    model = Model(config, dram_bytes=dram_bytes)
    with RtlDevice(config, watchdog=5_000_000) as rtl:
        for i in range(programs):
            case = generate(config, seed + i, commands, faults=0.1)
            if not case.faulty:
                verify(case.image, config, case.bases, case.limits, case.lengths, case.program)
            report = cosim(case, model, rtl)
            summary.programs += 1
            summary.commands += len(case.image) // COMMAND_BYTES
            summary.cycles += report.seen.cycles
            summary.byte_differences += report.byte_differences
            summary.cycle_differences += report.cycle_differences
            summary.counter_differences += report.counter_differences
            coverage.add(case, report.expected)
            if not report.ok:
                text = report.text
                if not summary.failures:
                    text += f"\nwaveform: {record_waveform(case, config)}"
                summary.failures.append(text)
                progress(text)
                if len(summary.failures) >= stop_after:
                    break
            if (i + 1) % max(1, programs // 10) == 0:
                rate = summary.cycles / (time.monotonic() - begin)
                progress(f"  {i + 1}/{programs} programs, {summary.commands} commands, {summary.cycles} "
                         f"cycles, {rate:.0f} cycles/s, {len(summary.failures)} differences")
    summary.seconds = round(time.monotonic() - begin, 1)
    summary.coverage = coverage.counts()
    summary.missing = coverage.missing() if enforce else []
    for what in summary.missing:
        progress(f"  coverage below its minimum: {what}")
    return summary

