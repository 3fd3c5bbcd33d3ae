"""Mutants one by one on the checks until the first fails; every verdict is kept, so that a long run can go on later."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gemmule.config import Config
from gemmule.hw import tb
from gemmule.sim.errors import SimulationError
from gemmule.sim.mutants.kept import Kept
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.rtl import device
from gemmule.sim.rtl.device import RtlDevice, RtlError

__all__ = ["NONE", "Verdict", "verdicts"]

NONE = 0
"""The device without a mutant."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    number: int
    killed_by: str | None = None
    """Name of the check that failed; None: it survived all."""
    how: str = ""
    """What the check found."""


def judge(number: int, every: Iterable[Check], start: Callable[[int], RtlDevice]) -> Verdict:
    """The first check that one mutant fails, on a device that was just powered up."""
    name = "start"
    try:
        with start(number) as rtl:
            for check in every:
                name = check.name
                if found := check.run(rtl):
                    return Verdict(number, name, found[:200])
    except RtlError as error:
        return Verdict(number, name, _why(str(error)))
    return Verdict(number)


def _why(message: str) -> str:
    """What an error says of the device, without where the log is."""
    return message.partition("; last line")[0].partition("; log:")[0].partition("; its log")[0].partition(": ")[2][:200]


def verdicts(config: Config, verilog: Path, numbers: Sequence[int], every: Sequence[Check], dram_bytes: int,
             kept: Path, key: str) -> Iterator[Verdict]:
    """The verdict on every mutant of ``verilog``, in order; those that ``kept`` has from an earlier run at once.

    Parameters
    ----------
    every: the checks, in order; a mutant is dead with the first that fails.
    kept: file of the verdicts, used again where Verilog, testbench and ``key`` (of the checks) are the same.

    Raises:
        SimulationError: the device without a mutant fails a check, or the simulator cannot be built.
    """
    digest, host = hashlib.sha256(), Path(device.__file__).with_name("server.py")
    for text in (verilog.read_bytes(), *(path.read_bytes() for path in (*tb.SOURCES, host)), key.encode()):
        digest.update(len(text).to_bytes(8, "little") + text)
    known = Kept(kept, digest.hexdigest())
    found = {number: Verdict(**result) for number, result in known.results.items()}

    def start(number: int) -> RtlDevice:
        return RtlDevice(config, verilog=verilog, dram_bytes=dram_bytes, arguments=[f"+mutant={number}"])

    for number in (NONE, *numbers):
        if number not in found:
            found[number] = judge(number, every, start)
            known.add(**asdict(found[number]))
        verdict = found[number]
        if number != NONE:
            yield verdict
        elif verdict.killed_by:
            kept.unlink()
            raise SimulationError(f"mutate: the device without a mutant fails {verdict.killed_by}: {verdict.how}")
