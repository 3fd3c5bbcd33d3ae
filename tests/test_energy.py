"""Energies from gates: the simulator and its energies on netlists of a few cells, the fit, and the table that ships."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.energy.fit import FITTED, fit, memory_pj
from benchmarks.energy.gates import Gates
from benchmarks.energy.liberty import cells_of
from benchmarks.energy.measure import Measured
from benchmarks.energy.netlist import Netlist, read_netlist
from benchmarks.energy_page import PAGE, PARTS
from gemmule.config import PRESETS, load_config
from gemmule.hw.flow.standard.library import LIBRARIES
from gemmule.sim.energy.table import ATTO, DEFAULT, load_energy

RECORD = Path(__file__).resolve().parents[1] / "docs" / "results" / "energy.json"
CELLS = cells_of(LIBRARIES["sky130"].there())
PREFIX = "sky130_fd_sc_hd__"
PORTS = """\
module unit(clk, a, y);
  input clk;
  wire clk;
  input a;
  wire a;
  output y;
  wire y;
"""


def netlist(tmp_path: Path, *cells: str) -> Netlist:
    """``inv_1 name A=a Y=n1`` a cell."""
    body = ""
    for cell in cells:
        kind, name, *pins = cell.split()
        wired = ",\n".join(f"    .{pin.replace('=', '(')})" for pin in pins)
        body += f"  {kind if kind.startswith('macro') else PREFIX + kind} {name} (\n{wired}\n  );\n"
    path = tmp_path / "netlist.v"
    path.write_text(f"{PORTS}{body}endmodule\n")
    return read_netlist(path, CELLS)


def changes(device: Gates, net: int) -> tuple[int, int]:
    falls, rises = device.changes[net].tolist()
    return int(falls), int(rises)


@pytest.mark.parametrize(("inverters", "glitches"), [(9, 1), (1, 0)])
def test_glitches_are_counted_where_they_last_longer_than_the_gate(tmp_path, inverters, glitches) -> None:
    """``a`` against itself, late: a pulse at every edge if the way is long, none through a slow gate if it is short."""
    chain = [f"inv_1 i{i} A={'a' if i == 0 else f'n{i}'} Y=n{i + 1}" for i in range(inverters)]
    device = Gates(netlist(tmp_path, *chain, f"xnor2_1 x A=a B=n{inverters} Y=y"))
    y = int(device.netlist.ports["y"][0])
    for edge in range(6):
        device.step({"a": (edge + 1) % 2})
        assert device.read("y") == 0, "an odd number of inverters"
    assert changes(device, y) == (6 * glitches, 6 * glitches)


def test_a_flip_flop_takes_what_stood_before_the_edge(tmp_path) -> None:
    """Two in a row: a shift register; and energy is that of the cells' own numbers."""
    device = Gates(netlist(tmp_path, "dfxtp_1 f CLK=clk D=a Q=q", "dfxtp_1 g CLK=clk D=q Q=y"))
    seen = []
    for value in (1, 0, 0, 1, 1, 0):
        device.step({"a": value})
        seen.append(device.read("y"))
    assert seen == [0, 0, 1, 0, 0, 1]
    n, cell = device.netlist, CELLS[f"{PREFIX}dfxtp_1"]
    assert n.clock_pj == pytest.approx(2 * (cell.clock + cell.capacitances["CLK"] * 1.8**2))
    q = int(n.flip_flops[0, 1])
    own = float(np.interp(cell.capacitances["D"], cell.loads, cell.rise))
    assert n.rise[q] == pytest.approx(own + cell.data[0])
    assert changes(device, q) == (1, 2)


def test_a_memory_reads_what_stood_there_and_counts_accesses(tmp_path) -> None:
    """A read counts when its address, or what is there, is another."""
    ports = ["RD_ADDR={a,n1}", "RD_ARST=1'h0", "RD_CLK=clk", "RD_DATA={d1,y}", "RD_EN=1'h1", "RD_SRST=1'h0",
             "WR_ADDR={1'h0,a}", "WR_CLK=clk", "WR_DATA={n1,a}", "WR_EN={1'h1,a}"]
    device = Gates(netlist(tmp_path, "inv_1 i A=a Y=n1", "macro_4x2_1r1w_2 m " + " ".join(ports)))
    for value in (1, 1, 1, 0):
        device.step({"a": value})
    # a = 0: reads 1, writes the upper bit of 0. a = 1: reads 2, writes both bits of 1. At last a = 1 still: as before.
    assert device.used.tolist() == [[2, 4]]
    device.step({"a": 1})
    device.step({"a": 1})
    assert device.read("y") == 0


@pytest.mark.parametrize(("name", "enables", "written"), [
    ("macro_4x4_1r1w", "a", 15), ("macro_4x4_1r1w_2", "{a,1'h0}", 12), ("macro_4x4_1r1w_2", "{1'h0,a}", 3),
    ("macro_4x4_1r1w_4", "{a,1'h0,1'h0,a}", 9)])
def test_an_enable_of_a_memory_goes_as_far_as_what_it_writes(tmp_path, name: str, enables: str, written: int) -> None:
    """A memory has one enable for each unit that is written as a whole, the lowest first."""
    ports = ["RD_ADDR=2'h0", "RD_ARST=1'h0", "RD_CLK=clk", "RD_DATA={d3,d2,d1,d0}", "RD_EN=1'h1", "RD_SRST=1'h0",
             "WR_ADDR=2'h0", "WR_CLK=clk", "WR_DATA=4'hf", f"WR_EN={enables}"]
    device = Gates(netlist(tmp_path, f"{name} m " + " ".join(ports)))
    for _ in range(3):
        device.step({"a": 1})
    read, = device.netlist.memories[0].ports["RD_DATA"]
    assert (device.values[read] << np.arange(4)).sum() == written


def test_gates_of_the_library_compute_their_function() -> None:
    """Of every gate all inputs, by the table that the simulator uses."""
    from benchmarks.energy.liberty import GATES
    from benchmarks.energy.netlist import _lookup

    for name, gate in GATES.items():
        pins, table = _lookup(name)
        for state in gate.states():
            index = sum(state[pin] << i for i, pin in enumerate(pins))
            assert table >> index & 1 == gate.value(state), name
    assert len(GATES) > 40
    assert all(CELLS[name].rise.min() > 0 for name in GATES)


def test_the_fit_finds_prices_again() -> None:
    """Programs whose energy is by known prices, a few per cent off: what was planted comes back."""
    random = np.random.default_rng(1)
    planted = {event: float(random.uniform(1, 100)) for event in FITTED}
    programs, events = [], {}
    for i in range(120):
        counts = {event: int(random.integers(0, 1000)) for event in FITTED}
        logic = sum(planted[event] * count for event, count in counts.items())
        programs.append(Measured(f"p{i}", False, counts["cycle"], (0, 0), 0.0, logic - 2 * memory_pj(8), {},
                                 [("table", 8, 1, 1)], 1.0))
        events[f"p{i}"] = counts
    assert fit(programs, events) == pytest.approx(planted, rel=1e-6)


def test_the_table_that_ships_is_that_of_the_record() -> None:
    record, table = json.loads(RECORD.read_text()), load_energy()
    for event, price in record["prices_pj"].items():
        leakage = record["leakage_nw"] / record["leakage_clock_mhz"] * 1e-3 if event == "cycle" else 0.0
        assert table.prices[event].fixed / ATTO == pytest.approx(price + leakage, abs=2e-6)
    clock = record["clock_pj_per_cycle"] / record["flip_flops"]
    assert table.prices["cycle"].by_size / ATTO == pytest.approx(clock, rel=1e-3)
    rule = record["flip_flops_rule"]
    assert table.flip_flops == rule | record["flip_flops_by_preset"]
    for name in PRESETS:
        device = load_config(name)
        assert table.flip_flops_of(device) == record["flip_flops_by_preset"][name]
        other = device.model_copy(update={"name": "mine"})
        assert table.flip_flops_of(other) == rule["fixed"] + rule["per_dim"] * device.dim + rule[
            "per_pe"] * device.dim**2
    sources = Counter(re.findall(r'source: "(\w+)', DEFAULT.read_text()))
    assert sources["fitted"] == len(FITTED) - 1


def test_programs_that_no_fit_saw_are_within_five_per_cent() -> None:
    record = json.loads(RECORD.read_text())
    assert len(record["held_out"]) >= 10
    assert not {row["program"] for row in record["held_out"]} & {row["program"] for row in record["fitted"]}
    assert max(abs(row["error"]) for row in record["held_out"]) <= 0.05


def test_the_page_is_of_the_record() -> None:
    text = PAGE.read_text()
    for name, part in PARTS.items():
        assert f"<!-- {name} -->\n{part()}\n<!-- end -->" in text
