"""The checks of a campaign: in which order they come, and what tells them from others."""

import pytest

from gemmule.config import load_config
from gemmule.sim.mutants import checks
from gemmule.sim.mutants.recorded import Check

TINY = load_config("tiny")


def test_checks_are_told_apart_by_what_they_run(monkeypatch):
    monkeypatch.setattr(checks, "FAULTY", 2)
    monkeypatch.setattr(checks, "EARLY", 1)
    monkeypatch.setattr(checks, "directed", lambda config, seed: [
        [Check("leaps", lambda device: "")], [Check("registers", lambda device: "")]])
    found = checks.checks_of(TINY, 1, 2, 40)
    early, late, dram_bytes = found.early, found.late, found.dram_bytes
    assert [check.name for check in early] == ["wipe", "fuzz-1"]
    assert [check.name for check in late[0]] == ["leaps"]
    names = [check.name for check in (*early, *late[1])]
    assert [name for name in names if name.startswith(("fuzz", "probe"))] == ["fuzz-1", "probe-1", "probe-2", "fuzz-2"]
    assert [names.index("registers"), names.count("wipe")] == [2, 2]
    assert dram_bytes & (dram_bytes - 1) == 0
    assert checks.checks_of(TINY, 1, 2, 40).key == found.key != checks.checks_of(TINY, 2, 2, 40).key


@pytest.mark.parametrize(("passed", "left"), [(0, [1, 2, 3]), (1, [2, 3]), (2, [3]), (9, [3])])
def test_programs_that_were_passed_are_left_out_but_the_long_one(monkeypatch, passed, left):
    monkeypatch.setattr(checks, "FAULTY", 0)
    monkeypatch.setattr(checks, "EARLY", 2)
    monkeypatch.setattr(checks, "LONG", 2)
    monkeypatch.setattr(checks, "directed", lambda config, seed: [[], []])
    found = checks.checks_of(TINY, 1, 3, 10, passed=passed)
    names = [check.name for check in (*found.early, *found.late[-1])]
    assert [name for name in names if name != "wipe"] == [f"fuzz-{seed}" for seed in left]
