"""What ``gemmule mutate --again`` takes over, and that it takes nothing over from other mutants."""

import json

import pytest

from gemmule.hw.flow.mutate import Mutant
from gemmule.sw.commands.earlier import Earlier, read_earlier, survivor
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
