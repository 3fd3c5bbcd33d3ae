"""Every hostile input: exit code 2, one line that names the file, time and memory bounded, nothing left behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from . import checkpoint_cases, command_cases, model_cases, yaml_cases
from .runner import Case, Outcome, Runner

CASES = [*yaml_cases.cases(), *model_cases.cases(), *checkpoint_cases.cases(), *command_cases.cases()]
MOST_SIGNS = 400
"""Characters of a message: a long path and the names of all fields."""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """One process for all cases."""
    runner = Runner(tmp_path_factory.mktemp("hostile"))
    yield runner
    runner.close()


def problems(case: Case, outcome: Outcome) -> list[str]:
    """What is wrong with how a case ended."""
    lines = outcome.err.splitlines()
    return [text for text, wrong in (
        (f"exit code {outcome.code}", outcome.code != 2),
        (f"standard output {outcome.out[:200]!r}", outcome.out != ""),
        (f"{len(lines)} lines, the last {lines[-1:]}", len(lines) != 1),
        ("no error: before it", not outcome.err.startswith("error: ")),
        (f"{len(outcome.err)} characters", len(outcome.err) > MOST_SIGNS),
        ("control characters", not outcome.err.rstrip("\n").isprintable()),
        (f"names no {case.names}", case.names not in outcome.err),
        (f"says {outcome.err!r}, not {case.says!r}", case.says not in outcome.err),
        (f"leaves {outcome.left}", bool(outcome.left)),
    ) if wrong]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_refused_in_one_line(runner: Runner, case: Case) -> None:
    assert not problems(case, runner.run(case))


def test_there_are_many_and_each_is_one() -> None:
    assert len(CASES) >= 60
    assert len({case.label for case in CASES}) == len(CASES)


def test_the_check_sees_what_is_wrong(runner: Runner) -> None:
    """Commands that are not refused, and one that takes too much: every part of the check can fail."""
    fine = Case(label="fine", arguments=("gemmule", "disasm", "a.bin", "--config", "tiny", "--json", "x.json"), says="",
                make=command_cases.touch("a.bin", bytes(32)))
    found = " ".join(problems(fine, runner.run(fine)))
    for part in ("exit code 0", "standard output", "0 lines", "no error", "leaves"):
        assert part in found, part
    assert "x.json" in found
    other = Case(label="other", arguments=("gemmule", "genrate"), says="PROGRAM", names="my.yaml")
    assert problems(other, runner.run(other))[0].startswith("names no my.yaml")


def test_memory_and_time_are_bounded(runner: Runner) -> None:
    """What takes more memory than allowed fails, what waits or works too long is killed; none would pass."""
    assert "MemoryError" in runner.run(Case(label="", arguments=("allocate",), says="")).err
    assert runner.run(Case(label="", arguments=("wait",), says=""), seconds=1).code == -signal.SIGALRM
    assert runner.run(Case(label="", arguments=("work",), says=""), seconds=1).code == -signal.SIGXCPU
