"""The campaign without a simulator: what kills, what is kept, and that the device itself must pass."""

import json

import pytest

from gemmule.config import load_config
from gemmule.sim.errors import SimulationError
from gemmule.sim.mutants import campaign as running
from gemmule.sim.mutants.campaign import Verdict, campaign, checks_of
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.rtl.device import RtlError

TINY = load_config("tiny")


class Device:
    """A device whose number says what is wrong with it."""

    started: list[int] = []

    def __init__(self, config, *, verilog, dram_bytes, arguments):
        self.number = int(arguments[0].removeprefix("+mutant="))
        self.started.append(self.number)
        if self.number == 5:
            raise RtlError("rtl tiny: the simulator died (by SIGSEGV); its log is empty")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def second(device):
    if device.number == 3:
        raise RtlError("rtl tiny: no interrupt after 9 cycles; 1 of 2 commands done; log: /x")
    return "1 DRAM bytes" if device.number == 2 else ""


CHECKS = [Check("one", lambda device: "cycles" if device.number == 1 else ""), Check("two", second)]


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setattr(running, "RtlDevice", Device)
    monkeypatch.setattr(Device, "started", [])
    verilog, kept = tmp_path / "x.sv", tmp_path / "kept.jsonl"
    verilog.write_text("module")

    def go(numbers, checks=CHECKS, key="key"):
        return list(campaign(TINY, verilog, numbers, checks, 4096, kept, key))

    go.kept, go.verilog = kept, verilog
    return go


def test_the_first_check_that_fails_kills(run):
    assert run([1, 2, 3, 4, 5]) == [
        Verdict(1, "one", "cycles"), Verdict(2, "two", "1 DRAM bytes"),
        Verdict(3, "two", "no interrupt after 9 cycles; 1 of 2 commands done"), Verdict(4),
        Verdict(5, "start", "the simulator died (by SIGSEGV)")]
    assert Device.started == [0, 1, 2, 3, 4, 5]  # the right one first


def test_a_run_goes_on_where_it_was(run):
    before = run([1, 2])
    Device.started.clear()
    assert run([1, 2, 4]) == [*before, Verdict(4)]
    assert Device.started == [4]


@pytest.mark.parametrize("change", ["key", "verilog", "damage"])
def test_verdicts_on_other_things_are_not_used(run, change):
    run([1])
    if change == "verilog":
        run.verilog.write_text("other")
    if change == "damage":
        run.kept.write_text(run.kept.read_text().partition("\n")[2])
    Device.started.clear()
    run([1], key="other" if change == "key" else "key")
    assert Device.started == [0, 1]


def test_the_device_itself_must_pass(run):
    checks = [*CHECKS, Check("three", lambda device: "nothing is right")]
    for _ in range(2):
        with pytest.raises(SimulationError, match="the device without a mutant fails three: nothing is right"):
            run([1], checks)
    assert json.loads(run.kept.read_text() or "null") is None if run.kept.exists() else True


def test_checks_are_told_apart_by_what_they_run(monkeypatch):
    monkeypatch.setattr(running, "FAULTY", 2)
    monkeypatch.setattr(running, "EARLY", 1)
    monkeypatch.setattr(running, "directed", lambda config, seed: [
        [Check("leaps", lambda device: "")], [Check("registers", lambda device: "")]])
    early, late, dram_bytes, key = checks_of(TINY, 1, 2, 40)
    assert [check.name for check in early] == ["wipe", "fuzz-1"]
    assert [check.name for check in late[0]] == ["leaps"]
    names = [check.name for check in (*early, *late[1])]
    assert [name for name in names if name.startswith(("fuzz", "probe"))] == ["fuzz-1", "probe-1", "probe-2", "fuzz-2"]
    assert [names.index("registers"), names.count("wipe")] == [2, 2]
    assert dram_bytes & (dram_bytes - 1) == 0
    assert checks_of(TINY, 1, 2, 40)[-1] == key != checks_of(TINY, 2, 2, 40)[-1]


@pytest.mark.parametrize(("passed", "left"), [(0, [1, 2, 3]), (1, [2, 3]), (2, [3]), (9, [3])])
def test_programs_that_were_passed_are_left_out_but_the_long_one(monkeypatch, passed, left):
    monkeypatch.setattr(running, "FAULTY", 0)
    monkeypatch.setattr(running, "EARLY", 2)
    monkeypatch.setattr(running, "LONG", 2)
    monkeypatch.setattr(running, "directed", lambda config, seed: [[], []])
    early, late, *_ = checks_of(TINY, 1, 3, 10, passed=passed)
    names = [check.name for check in (*early, *late[-1])]
    assert [name for name in names if name != "wipe"] == [f"fuzz-{seed}" for seed in left]
