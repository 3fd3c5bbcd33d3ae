"""A campaign without simulator and prover: in which order mutants are judged and proved, and what stays open."""

import pytest

from gemmule.config import load_config
from gemmule.sim.mutants import campaign as running
from gemmule.sim.mutants.campaign import Campaign
from gemmule.sim.mutants.checks import Checks
from gemmule.sim.mutants.verdicts import Verdict

TINY = load_config("tiny")
KILLED_BY = {1: "early", 2: "late_1", 3: "late_2"}
PROVED_BY = {4: 0, 5: 2}
"""Of each mutant the check that notices it, or the attempt that proves that none can; nothing is known of others."""


class Bench:
    """Writes down what it is asked for."""

    attempts = 3

    def __init__(self):
        self.asked = []

    def build(self, numbers, *, leaps):
        self.asked.append(("build", *numbers, leaps))
        return "leaps.sv" if leaps else "early.sv"

    def prove(self, number, first, last):
        self.asked.append(("prove", number, first, last))
        return f"attempt {PROVED_BY[number]}" if first <= PROVED_BY.get(number, 9) < last else None


@pytest.fixture
def run(monkeypatch, tmp_path):
    def judge(config, verilog, numbers, checks, dram_bytes, kept, key):
        bench.asked.append((kept.stem, *numbers))
        assert (verilog, dram_bytes, key) == ("early.sv" if kept.stem == "early" else "leaps.sv", 64, "key")
        return (Verdict(number, kept.stem if KILLED_BY.get(number) == kept.stem else None) for number in numbers)

    monkeypatch.setattr(running, "verdicts", judge)
    bench, checks = Bench(), Checks(["early"], [["late"], ["last"]], 64, "key")

    def go(numbers, over=lambda: False, key="netlist"):
        bench.asked.clear()
        campaign = Campaign(TINY, checks, bench, tmp_path, key, equal={9: "known"}, over=over)
        return campaign.run(numbers), campaign, bench.asked

    return go


def test_what_costs_least_comes_first(run):
    left, campaign, asked = run([1, 2, 3, 4, 5, 6])
    assert left == [6]
    assert campaign.equal == {4: "attempt 0", 5: "attempt 2", 9: "known"}
    assert {number: each.killed_by for number, each in campaign.verdicts.items() if each.killed_by} == KILLED_BY
    assert asked == [
        ("build", 1, 2, 3, 4, 5, 6, False), ("early", 1, 2, 3, 4, 5, 6),
        *(("prove", number, 0, 1) for number in (2, 3, 4, 5, 6)),
        ("build", 2, 3, 5, 6, True), ("late_1", 2, 3, 5, 6), ("late_2", 3, 5, 6),
        ("prove", 5, 1, 3), ("prove", 6, 1, 3)]


def test_proofs_are_kept_and_attempts_that_failed_too(run):
    run([4, 6])
    left, campaign, asked = run([4, 6])
    assert (left, campaign.equal) == ([6], {4: "attempt 0", 9: "known"})
    assert not [what for what in asked if what[0] == "prove"]
    assert ("prove", 4, 0, 1) in run([4], key="another netlist")[2]


def test_nothing_is_built_for_nobody(run):
    assert [what for what in run([1])[2] if what[0] == "build"] == [("build", 1, False)]
    assert run([])[::2] == ([], [])


def test_what_time_is_over_for_stays_open(run):
    assert run([1, 4], over=lambda: True)[0] == [1, 4]
    times = iter([False, False, True])  # behind the first verdict
    left, campaign, _ = run([6, 1, 4], over=lambda: next(times, True))
    assert left == [6, 4]
    assert [number for number, each in campaign.verdicts.items() if each.killed_by] == [1]
