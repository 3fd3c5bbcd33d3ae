"""Proofs of the units: the quick ones pass, every planted fault is found, and a proof that is empty is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from amaranth.hdl import Signal

from gemmule.config import Config, load_config
from gemmule.hw.formal.bench import Bench, Kind
from gemmule.hw.formal.planted import Fault, FaultError, planted
from gemmule.hw.formal.prove import Proof, prove
from gemmule.hw.formal.queue import queue
from gemmule.hw.formal.target import Target
from gemmule.hw.formal.targets import TARGETS
from gemmule.hw.queue import Queue
from gemmule.sw.cli import _main
from gemmule.sw.limits import PROVED

QUICK = [name for name, target in TARGETS.items() if target.quick]
FAULT = Fault("count", "queue", "with m.If(self.push & ~self.pop)", "with m.If(self.push)", "a push beside a pop")


def target_of(build, *, faults: tuple[Fault, ...] = (), depth: int = 4, reach: int = 6) -> Target:
    return Target("test", "queue", "", build, depth, reach, faults)


@pytest.mark.parametrize("name", [
    name if name in ("queue", "claims", "watchdog") else pytest.param(name, marks=pytest.mark.long) for name in QUICK])
def test_quick_targets_pass(name: str, tmp_path: Path) -> None:
    result = prove(TARGETS[name], tmp_path)
    assert result.passed, result
    assert all(finding.proof == Proof.ALWAYS for finding in result.findings)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in TARGETS if name not in (*QUICK, "fetch")])
def test_targets_pass(name: str, tmp_path: Path) -> None:
    assert (result := prove(TARGETS[name], tmp_path)).passed, result


@pytest.mark.parametrize("name", TARGETS)
def test_every_property_has_a_fault_that_fits_the_sources(name: str) -> None:
    """The sources change: a fault that is not there any more is an error, not a fault that is found."""
    target = TARGETS[name]
    bench = target.bench()
    bench.rtlil()
    asserted = {each.name for each in bench.properties if each.kind == Kind.ASSERT and not each.lemma}
    assert {fault.property for fault in target.faults} == asserted
    for fault in target.faults:
        with planted(fault):
            pass


def test_a_planted_fault_is_gone_afterwards() -> None:
    import gemmule.hw.move.store as user

    with planted(FAULT):
        assert user.Queue is not Queue
    assert user.Queue is Queue


def test_a_fault_that_does_not_fit_is_refused() -> None:
    with pytest.raises(FaultError, match="a typo' needs 'with m.Iff' once in queue.py, not 0 times"), planted(
            Fault("count", "queue", "with m.Iff", "", "a typo")):
        pass


def test_faulty_hardware_does_not_pass(tmp_path: Path) -> None:
    """The bounded check names the property and keeps a trace."""
    with planted(FAULT):
        result = prove(target_of(lambda bench, config: queue(bench, 3)), tmp_path, faults=False)
    assert not result.passed
    assert any(failed.startswith("count, cycle 2, trace") for failed in result.failed)
    assert (tmp_path / "bounded" / "bounded.vcd").is_file()
    assert result.findings[0].proof == Proof.FAILS


def test_an_assumption_that_is_never_true_is_noticed(tmp_path: Path) -> None:
    def build(bench: Bench, config: Config) -> None:
        queue(bench, 3)
        bench.assume("nothing", "nothing is pushed", ~bench.register("write__en"))

    result = prove(target_of(build), tmp_path, faults=False)
    assert result.unreached
    assert not result.passed


def test_what_no_induction_proves_is_said_to_be_bounded(tmp_path: Path) -> None:
    """A counter that nobody resets passes 9 after more cycles than are looked at."""
    def build(bench: Bench, config: Config) -> None:
        q = bench.dut(Queue(shape=1, depth=2))
        bench.assume("room", "", ~(q.push & (q.level == 2)), ~(q.pop & ~q.valid))
        count = Signal(4)
        bench.m.d.sync += count.eq(count + 1)
        bench.always("small", "", count < 9, bounded=True)
        bench.always("level", "", q.level <= 2)
        bench.cover("full", "", q.level == 2)

    found = {finding.name: finding for finding in prove(target_of(build), tmp_path, faults=False).findings}
    assert (found["small"].proof, found["small"].depth, found["level"].proof) == (Proof.BOUNDED, 4, Proof.ALWAYS)
    result = prove(target_of(build, depth=12), tmp_path, faults=False)
    assert any(failed.startswith("small, cycle 9") for failed in result.failed)


def test_signals_inside_are_found_by_name() -> None:
    bench = Bench()
    bench.dut(Queue(shape=4, depth=3))
    assert len(bench.register("level")) == 2
    with pytest.raises(LookupError, match="lvl must be one signal of the component, not 0"):
        bench.register("lvl")
    bench.always("a", "", bench.register("level") < 4)
    with pytest.raises(ValueError, match="names of properties must differ, not a twice"):
        bench.always("a", "", bench.register("level") < 4)
    bench.rtlil()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert _main(["formal", "--target", "queue", "--json", "formal.json"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 properties: 2 proved for all time, 0 for some cycles, 0 fail; 2 planted faults found" in shown
    record = json.loads(Path("formal.json").read_text())
    assert record["passed"]
    assert [each["found_in"] for each in record["targets"]["queue"]["properties"]] == [3, 5]
    assert record["targets"]["queue"]["trusted"]["room"] == "nothing is pushed into a full queue"


def test_the_command_refuses_unknown_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["formal", "--target", "fifo"]) == 2
    assert "fifo" in capsys.readouterr().err


def test_names_of_targets() -> None:
    assert tuple(TARGETS) == PROVED
    assert load_config("tiny").name == "tiny"
