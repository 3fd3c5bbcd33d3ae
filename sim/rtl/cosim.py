"""The same program on the model and on the RTL: equal bytes, equal cycles of every command, equal counters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, Unit, decode, disassemble
from gemmule.operands import Memory
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sim.stream import stream_of
from gemmule.sim.verify.access import accesses

__all__ = ["Report", "cosim"]


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


def _listing(image: bytes, places: np.ndarray, index: int) -> str:
    """Command ``index`` of those that ran."""
    place = int(places[index])
    where = f"(at {place}) " if place != index else ""
    try:
        return where + disassemble(decode(int.from_bytes(image[place * COMMAND_BYTES:][:COMMAND_BYTES], "little")))
    except ValueError as error:
        return f"{where}{error}"


def _last_writer(case: Launch, config: Config, address: int) -> int | None:
    """The last store that covers a DRAM byte, by its number among the commands as they ran."""
    stream = stream_of(case.image, config, case.bases, case.limits, case.lengths)
    for i in range(stream.good - 1, -1, -1):
        if stream.units[i] != Unit.STORE:
            continue
        for access in accesses(stream.table[stream.places[i]], stream.resolved[i], config):
            inside = (access.spans[:, 0] <= address) & (address < access.spans[:, 1])
            if access.memory == Memory.DRAM and inside.any():
                return i
    return None


def cosim(case: Launch, model: Simulator, rtl: RtlDevice) -> Report:
    """Run a case on both devices and compare all DRAM bytes, every issue and finish, and every counter."""
    model.load(case)
    rtl.load(case)
    expected, seen = model.run(), rtl.run()
    lines = []
    difference = expected.first_difference(seen)
    if difference:
        lines.append(str(difference))
        if difference.command >= 0:
            lines.append(f"  {_listing(case.image, expected.places, difference.command)}")
            lines += _around(case, expected, seen, difference.command)
    ours = np.frombuffer(model.read_dram(0, len(case.dram)), dtype=np.uint8)
    theirs = np.frombuffer(rtl.read_dram(0, len(case.dram)), dtype=np.uint8)
    wrong = np.flatnonzero(ours != theirs)
    if len(wrong):
        at = int(wrong[0])
        lines.append(f"{len(wrong)} DRAM bytes differ; first at {at}: expected {ours[at]}, seen {theirs[at]}")
        writer = _last_writer(case, model.config, at)
        if writer is not None:
            lines.append(f"  written by command {writer}: {_listing(case.image, expected.places, writer)}")
    if lines:
        lines.insert(0, f"{case.name}: model and RTL differ ({model.config.name}, seed {case.seed})")
    cycles = sum(int(np.count_nonzero(a != b)) for a, b in (
        (expected.issue, seen.issue), (expected.finish, seen.finish))) + (expected.cycles != seen.cycles)
    ours_counted, theirs_counted = expected.registers, seen.registers
    counters = sum(theirs_counted[name] != value for name, value in ours_counted.items())
    return Report("\n".join(lines), expected, seen, len(wrong), cycles, counters)


def _around(case: Launch, expected: Result, seen: Result, index: int, span: int = 4) -> list[str]:
    """Cycles of the neighbouring commands: expected issue/finish, seen issue/finish."""
    rows = []
    for i in range(max(0, index - span), min(len(expected.issue), index + span + 1)):
        rows.append(
            f"  {'>' if i == index else ' '} {i:4} {expected.issue[i]:8}/{expected.finish[i]:<8} "
            f"{seen.issue[i]:8}/{seen.finish[i]:<8} {_listing(case.image, expected.places, i)}")
    return rows
