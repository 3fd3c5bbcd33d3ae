"""The checks that a mutant is put to: programs, and what programs do not reach, in the order in which they are run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from gemmule.config import Config
from gemmule.io.progress import counting
from gemmule.sim.fuzz.generate import generate, probe
from gemmule.sim.mutants.directed import directed
from gemmule.sim.mutants.recorded import Check, programs
from gemmule.sim.mutants.setup import DRAM_BYTES

__all__ = ["Checks", "checks_of"]

EARLY = 4
"""Programs before the directed checks: they kill nearly all."""
LONG = 10
"""Times the commands that the last program has: counts grow to more bits."""
FAULTY = 600
"""Probes: short programs at the brink of a fault, with one at their end."""


@dataclass(frozen=True)
class Checks:
    """Those of a few programs, then all others by groups."""

    early: Sequence[Check]
    late: Sequence[Sequence[Check]]
    dram_bytes: int
    """What a device needs for them."""
    key: str
    """Tells them from others."""


def checks_of(config: Config, seed: int, count: int, commands: int, *, passed: int = 0) -> Checks:
    """The checks of a campaign.

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
    return Checks(early=found[0], late=[*groups, [*rest, *found[1]]],
                  dram_bytes=1 << (dram_bytes - 1).bit_length(), key=digest.hexdigest())
