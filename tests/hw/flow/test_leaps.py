"""Leaps without Yosys: what becomes of the counts' inputs, and of the module around the netlist."""

import json

import pytest

from gemmule.csr import COUNTERS
from gemmule.hw.flow.leaps import leaping, wrapped
from gemmule.hw.flow.tools import SynthError
from gemmule.hw.interfaces import COUNT_BITS
from gemmule.hw.tb import LEAP_CYCLES, LEAP_CYCLES_AT, LEAP_TOTAL_AT, LEAP_UNIT_AT
from gemmule.isa import Unit


def design(*left_out):
    """Registers of two bits, in two cells where that is so in the device, and a memory."""
    counts = {"core.control.cycles": [10, 11], "core.watchdog$249.silent": [12, 13], "core.dispatch.total": [14, 15]}
    cells = {"core.counters.upper": {"type": "$mem_v2", "connections": {
        "WR_ADDR": [20, 21, 22, 23, 24], "WR_DATA": list(range(30, 73))}}}
    for name, (low, high) in counts.items():
        for which, bit in (("low", low), ("high", high)):
            cells[f"{name} {which}"] = {
                "type": "$sdffe", "parameters": {"EN_POLARITY": "1" if "total" not in name else "0"},
                "connections": {"D": [bit + 100], "Q": [bit], "EN": [bit + 200]}}
    # Of every unit those dispatched in a register, those finished in a part of one.
    every = list(range(1000, 1000 + COUNT_BITS * len(Unit)))
    cells["finished"] = {"type": "$sdff", "parameters": {}, "connections": {
        "D": [bit + 1000 for bit in every], "Q": every}}
    counts["core.issue$3.finished"] = every
    for u in Unit:
        bits = counts[f"core.control.dispatched[{u}]"] = list(range(400 + 30 * u, 400 + 30 * u + COUNT_BITS))
        cells[f"dispatched {u}"] = {"type": "$sdffe", "parameters": {"EN_POLARITY": "1"}, "connections": {
            "D": [bit + 5000 for bit in bits], "Q": bits, "EN": [600 + u]}}
    nets = {name: {"bits": bits} for name, bits in counts.items() if name not in left_out} | {"high": {"bits": [9000]}}
    return json.dumps({"modules": {"gemmule": {"ports": {}, "netnames": nets, "cells": cells}}})


def test_a_count_takes_up_the_leap_beside_what_it_takes_up_else():
    module = json.loads(leaping(design()))["modules"]["gemmule"]
    cells = module["cells"]
    driver = {bit: cell for cell in cells.values() for bit in cell["connections"].get("Y", ())}
    for name, port, gate in (
        ("core.control.cycles", "leap_cycles", "$or"), ("core.dispatch.total", "leap_total", "$and"),
        ("core.watchdog$249.silent", "leap_cycles", "$or"),
    ):
        low, high = (cells[f"{name} {which}"]["connections"] for which in ("low", "high"))
        add = driver[low["D"][0]]
        assert add == driver[high["D"][0]], "one sum, with a carry from cell to cell"
        assert add["type"] == "$add"
        # What it takes up else: what it would, or what it holds if it would take up nothing.
        for nets, bit in zip((low, high), add["connections"]["A"], strict=True):
            other = driver[bit]["connections"]
            stays, goes = (other["A"], other["B"])[::-1 if gate == "$and" else 1]
            assert (stays, goes, other["S"]) == (nets["Q"], [nets["Q"][0] + 100], [nets["Q"][0] + 200])
        assert add["connections"]["Y"] == [low["D"][0], high["D"][0]]
        by = driver[add["connections"]["B"][0]]["connections"]
        assert by["A"] == module["ports"]["leap_by"]["bits"][:2]
        assert by["B"] == module["ports"][port]["bits"] * 2
        assert driver[low["EN"][0]]["type"] == gate
        assert low["Q"][0] + 200 in driver[low["EN"][0]]["connections"]["A"]
    written = cells["core.counters.upper"]["connections"]["WR_DATA"]
    assert driver[written[0]]["connections"]["A"] == list(range(30, 73))
    empty = [cell["connections"]["B"] for cell in cells.values() if cell["type"] == "$eq"]
    assert [COUNTERS[sum(int(bit) << i for i, bit in enumerate(bits))] for bits in empty] == [
        f"{unit}_empty" for unit in ("load", "store", "matrix", "vector", "select")]
    every = [bit for cell in cells.values() for bit in cell["connections"].get("Y", ())]
    assert len(set(every)) == len(every)
    assert min(every) > 9000


def test_the_commands_of_a_unit_are_dispatched_and_finished():
    module = json.loads(leaping(design()))["modules"]["gemmule"]
    cells = module["cells"]
    driver = {bit: cell for cell in cells.values() for bit in cell["connections"].get("Y", ())}
    for u in Unit:
        part = slice(COUNT_BITS * u, COUNT_BITS * (u + 1))
        for new, old in ((cells[f"dispatched {u}"]["connections"]["D"], None),
                         (cells["finished"]["connections"]["D"][part], list(range(2000, 9000))[part])):
            add = driver[new[0]]["connections"]
            assert add["Y"] == new
            by = driver[add["B"][0]]["connections"]
            assert by["B"] == [module["ports"]["leap_unit"]["bits"][u]] * COUNT_BITS
            assert by["A"] == module["ports"]["leap_by"]["bits"][:COUNT_BITS]
            assert old is None or add["A"] == old
        enable = driver[cells[f"dispatched {u}"]["connections"]["EN"][0]]
        assert (enable["type"], enable["connections"]["A"]) == ("$or", [600 + u])


def test_a_netlist_without_such_counts_is_named():
    with pytest.raises(SynthError, match=r"leaps: .*core.dispatch.total"):
        leaping(design("core.dispatch.total"))


def test_the_shortest_leap_ends_where_scan_and_lower_parts_were():
    assert LEAP_CYCLES % len(COUNTERS) == LEAP_CYCLES % (1 << 5) == 0


def test_the_wrapper_leaps_by_writes_where_no_register_is():
    text = wrapped("module gemmule (\n  clk\n);\n  gemmule_netlist netlist (\n    .clk(clk)  );\nendmodule\n",
                   "gemmule_netlist")
    assert ".leap_by(leap_by),\n    .clk(clk)" in text
    for place in (LEAP_CYCLES_AT, LEAP_TOTAL_AT, LEAP_UNIT_AT):
        assert f"s_axil_awaddr == {place}" in text
    assert "!(&s_axil_wdata)" in text, "the check of all offsets writes ones"
