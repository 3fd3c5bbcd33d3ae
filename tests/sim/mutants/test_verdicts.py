"""Verdicts without a simulator: what kills, what is kept, and that the device itself must pass."""

import json

import pytest

from gemmule.config import load_config
from gemmule.sim.errors import SimulationError
from gemmule.sim.mutants import verdicts as running
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.verdicts import Verdict, verdicts
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
        return list(verdicts(TINY, verilog, numbers, checks, 4096, kept, key))

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
