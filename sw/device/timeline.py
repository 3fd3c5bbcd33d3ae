"""What ran when: launches, steps and runs, as a trace tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gemmule.config import Config
from gemmule.isa import Command
from gemmule.sim.result import Result

__all__ = ["Earlier", "LaunchRecord", "RunRecord", "StepRecord", "Timeline", "runs_behind", "timeline_of"]


@dataclass(frozen=True)
class Earlier:
    """What a launch did for another model before the one that it is counted as."""

    model: str
    cycles: int
    """From the launch's begin."""
    passes: int


@dataclass(frozen=True, eq=False)
class LaunchRecord:
    """A launch: ``start`` is the cycle of the whole run at which the host's work for it begins."""

    start: int
    model: str
    result: Result
    commands: Sequence[Command]
    """Of the program, in which the result's places are."""
    earlier: Earlier | None = None
    answers: bool = True
    """The program gives some, where a launch wants them."""


@dataclass(frozen=True)
class StepRecord:
    """The host's work behind a decoding step."""

    start: int


@dataclass(frozen=True)
class RunRecord:
    """A whole run, of several in one trace: its launches and steps stand behind it."""

    start: int
    cycles: int
    name: str


Timeline = list[LaunchRecord | StepRecord | RunRecord]


def timeline_of(name: str, results: Sequence[Result], commands: Sequence[Command], config: Config) -> Timeline:
    """Launches of one program, one behind the other, each with the host's work for it."""
    found: Timeline = []
    start = 0
    for result in results:
        found.append(LaunchRecord(start, name, result, commands))
        start += config.host.launch_cycles + int(result.cycles)
    return found


def runs_behind(parts: Iterable[tuple[str, int, Timeline]]) -> Timeline:
    """Runs of (name, cycles, own timeline), one behind the other."""
    found: Timeline = []
    start = 0
    for name, cycles, timeline in parts:
        found += [RunRecord(start, cycles, name), *(replace(record, start=start + record.start) for record in timeline)]
        start += cycles
    return found
