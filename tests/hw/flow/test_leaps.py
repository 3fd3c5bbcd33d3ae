"""Leaps without Yosys: what becomes of the counts' inputs, and of the module around the netlist."""

import json

import pytest

from gemmule.csr import COUNTERS
from gemmule.hw.flow.leaps import leaping, wrapped
from gemmule.hw.flow.tools import SynthError
from gemmule.hw.tb import LEAP_CYCLES, LEAP_CYCLES_AT, LEAP_TOTAL_AT


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
    nets = {name: {"bits": bits} for name, bits in counts.items() if name not in left_out} | {"high": {"bits": [300]}}
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
        assert add["connections"]["A"] == [low["Q"][0] + 100, high["Q"][0] + 100]
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
    assert min(every) > 300


def test_a_netlist_without_such_counts_is_named():
    with pytest.raises(SynthError, match=r"leaps: .*core.dispatch.total"):
        leaping(design("core.dispatch.total"))


def test_the_shortest_leap_ends_where_scan_and_lower_parts_were():
    assert LEAP_CYCLES % len(COUNTERS) == LEAP_CYCLES % (1 << 5) == 0


def test_the_wrapper_leaps_by_writes_where_no_register_is():
    text = wrapped("module gemmule (\n  clk\n);\n  gemmule_netlist netlist (\n    .clk(clk)  );\nendmodule\n",
                   "gemmule_netlist")
    assert ".leap_by(leap_by),\n    .clk(clk)" in text
    for place in (LEAP_CYCLES_AT, LEAP_TOTAL_AT):
        assert f"s_axil_awaddr == {place}" in text
    assert "!(&s_axil_wdata)" in text, "the check of all offsets writes ones"
