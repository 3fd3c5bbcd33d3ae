"""Mutants one by one on the checks until the first fails; every verdict is kept, so that a long run can go on later."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from gemmule.config import Config
from gemmule.hw import tb
from gemmule.io.progress import counting
from gemmule.sim.errors import SimulationError
from gemmule.sim.fuzz.generate import generate, probe
from gemmule.sim.mutants.directed import directed
from gemmule.sim.mutants.kept import Kept
from gemmule.sim.mutants.recorded import Check, programs
from gemmule.sim.mutants.setup import DRAM_BYTES
from gemmule.sim.rtl import device
from gemmule.sim.rtl.device import RtlDevice, RtlError

__all__ = ["NONE", "Verdict", "campaign", "checks_of"]

NONE = 0
"""The device without a mutant."""
EARLY = 4
"""Programs before the directed checks: they kill nearly all."""
LONG = 10
"""Times the commands that the last program has: counts grow to more bits."""
FAULTY = 600
"""Probes: short programs at the brink of a fault, with one at their end."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    number: int
    killed_by: str | None = None
    """Name of the check that failed; None: it survived all."""
    how: str = ""
    """What the check found."""


def checks_of(config: Config, seed: int, count: int, commands: int, *,
              passed: int = 0) -> tuple[list[Check], list[list[Check]], int, str]:
    """Early checks, all others by groups, the bytes of DRAM that they need, and what tells them from others.

    Of ``count`` programs of ``gemmule fuzz`` a few are early; then comes what no program reaches, faults, and the rest
    of them. Without the first ``passed``, but for the last one, which is longer than all others.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
    early = (generate(config, seed + i, commands, faults=0.1) for i in range(passed, min(EARLY, count)))
    faulty = (probe(config, seed + i) for i in range(FAULTY))
    late = (generate(config, seed + i, commands * (LONG if i == count - 1 else 1), faults=0.1 * (i < count - 1))
            for i in range(max(EARLY, min(passed, count - 1)), count))
    dram_bytes, found = DRAM_BYTES, ([], [])  # type: tuple[int, tuple[list[Check], list[Check]]]
    with counting("programs recorded", count + FAULTY) as tell:
        for launches, group in zip((early, chain(faulty, late)), found):
            for program in programs(config, launches):
                group.append(program.check)
                digest.update(program.digest)
                dram_bytes = max(dram_bytes, len(program.dram))
                tell(min(sum(map(len, found)), count + FAULTY), "on the model")
    *groups, rest = directed(config, seed)
    return found[0], [*groups, [*rest, *found[1]]], 1 << (dram_bytes - 1).bit_length(), digest.hexdigest()


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


def campaign(config: Config, verilog: Path, numbers: Sequence[int], every: Sequence[Check], dram_bytes: int,
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
    verdicts = {number: Verdict(**result) for number, result in known.results.items()}

    def start(number: int) -> RtlDevice:
        return RtlDevice(config, verilog=verilog, dram_bytes=dram_bytes, arguments=[f"+mutant={number}"])

    for number in (NONE, *numbers):
        if number not in verdicts:
            verdicts[number] = judge(number, every, start)
            known.add(**asdict(verdicts[number]))
        verdict = verdicts[number]
        if number != NONE:
            yield verdict
        elif verdict.killed_by:
            kept.unlink()
            raise SimulationError(f"mutate: the device without a mutant fails {verdict.killed_by}: {verdict.how}")
