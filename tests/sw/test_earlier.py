"""What ``gemmule mutate --again`` takes over, and that it takes nothing over from other mutants."""

import importlib
import json
from types import SimpleNamespace

import pytest

from gemmule.config import load_config
from gemmule.hw.flow import equal, few, mutate
from gemmule.hw.flow.mutate import Mutant, Mutants
from gemmule.sim.mutants import campaign, checks
from gemmule.sim.mutants.checks import Checks
from gemmule.sim.mutants.verdicts import Verdict
from gemmule.sw.cli import main
from gemmule.sw.commands.shared.earlier import Earlier, read_earlier
from gemmule.sw.commands.shared.mutants import survivor
from gemmule.sw.errors import InputError

MUTANTS = {i: Mutant(i, "load", "inv", "gemmule", f"$c{i}", "A", i, None, "x", ("hw/move/load.py:7",))
           for i in range(1, 6)}
NOW = {"config_sha256": "c", "seed": 1, "netlist": "n", "units": {"load": {"cells": 9, "mutants": 5}}}


def result():
    return NOW | {
        "units": {"load": {"cells": 9, "mutants": 5, "killed": 2, "equal": 1, "open": 2, "rate": 0.5}},
        "killed_by": {"program": 2}, "programs": 30, "commands": 300,
        "survivors": [survivor(MUTANTS[2], None), survivor(MUTANTS[4], "1 step"), survivor(MUTANTS[5], None)]}


def read(tmp_path, found):
    path = tmp_path / "earlier.json"
    path.write_text(json.dumps(found))
    return read_earlier(path, NOW, MUTANTS)


def test_verdicts_are_taken_over(tmp_path):
    assert read(tmp_path, result()) == Earlier({"program": 2}, {4: "1 step"}, frozenset({2, 5}), 30, 300)


def test_what_an_older_result_does_not_say_is_not_compared(tmp_path):
    found = result()
    del found["netlist"]
    assert read(tmp_path, found).open == {2, 5}


@pytest.mark.parametrize(("what", "change"), [
    ("netlist", lambda found: found.update(netlist="other")),
    ("config_sha256", lambda found: found.update(config_sha256="other")),
    ("seed", lambda found: found.update(seed=2)),
    ("units", lambda found: found["units"]["load"].update(cells=10)),
    ("units", lambda found: found["units"].update(store=found["units"]["load"])),
    ("survivors", lambda found: found["survivors"][0].update(place="$c2 A[3]")),
    ("survivors", lambda found: found["survivors"][1].update(source=[])),
    ("survivors", lambda found: found["survivors"][1].update(number=9)),
])
def test_other_mutants_are_refused(tmp_path, what, change):
    found = result()
    change(found)
    with pytest.raises(InputError, match=f"on the same mutants, not .*: its {what} are not those of now"):
        read(tmp_path, found)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"survivors": 3, "units": {}, "killed_by": {}}'])
def test_what_is_no_result_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match="--again must name a result of gemmule mutate"):
        read_earlier(path, NOW, MUTANTS)
    with pytest.raises(InputError, match="--again must name a result of gemmule mutate"):
        read_earlier(tmp_path / "none.json", NOW, MUTANTS)


@pytest.fixture
def again(tmp_path, monkeypatch, capsys):
    """Runs the command on the result above; 5 would be noticed and 2 proved. The result, numbers judged and passed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "every.sv").write_text("module")
    built = Mutants(tmp_path / "every.sv", tmp_path / "netlist.il", tuple(MUTANTS.values()), {"load": 9})
    judged, passed = [], []

    def some_of(mutants, numbers, leaps, tools):
        assert leaps, "the late checks need them"
        judged.extend(numbers)
        return tmp_path / "some.sv"

    def checks_of(config, seed, programs, commands, **more):
        passed.append(more["passed"])
        return Checks([], [["a check"], ["others"]], 1, "key")

    monkeypatch.setattr(mutate, "build_mutants", lambda *_, **__: built)
    monkeypatch.setattr(few, "some_of", some_of)
    monkeypatch.setattr(checks, "checks_of", checks_of)
    monkeypatch.setattr(campaign, "verdicts", lambda config, verilog, numbers, *_: (
        Verdict(number, "offsets" if number == 5 else None) for number in numbers))
    monkeypatch.setattr(equal, "prove", lambda mutant, *_, **__: "2 steps" if mutant.number == 2 else None)
    found = result()
    del found["netlist"]
    found["config_sha256"] = load_config("tiny").sha256
    (tmp_path / "earlier.json").write_text(json.dumps(found))

    def run(*options):
        monkeypatch.setattr("sys.argv", [
            "gemmule", "mutate", "--again", "earlier.json", "--json", "now.json", *options])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code in (0, None), capsys.readouterr().err
        return json.loads((tmp_path / "now.json").read_text()), judged, passed

    return run


def test_only_what_was_open_is_judged(again):
    """Of mutants 2 and 5, which were open, 5 is now noticed; 2 is proved equal."""
    now, judged, passed = again()
    assert judged == [5]
    assert passed == [30]
    assert now["killed_by"] == {"program": 2, "offsets": 1}
    assert [(each["number"], each["equal"]) for each in now["survivors"]] == [(2, "2 steps"), (4, "1 step")]
    assert now["total"] == {"cells": 9, "mutants": 5, "killed": 3, "equal": 2, "open": 0, "rate": 1.0}
    assert len(now["netlist"]) == 64


def test_what_is_not_judged_in_time_stays_open(again, monkeypatch):
    clock = iter([0.0])
    command = importlib.import_module("gemmule.sw.commands.rtl.mutate")
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: next(clock, 61.0)))
    now, _, _ = again("--minutes", "1")
    assert now["killed_by"] == {"program": 2}
    assert [(each["number"], each["equal"]) for each in now["survivors"]] == [(2, None), (4, "1 step"), (5, None)]
    assert [now["total"][what] for what in ("killed", "equal", "open")] == [2, 1, 2]
