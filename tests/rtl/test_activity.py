"""A simulator whose statements run when something that they read has changed does what Verilator's own does."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.hw.flow import verilator
from gemmule.hw.flow.verilog import folded
from gemmule.sim.rtl.activity import emit, order
from gemmule.sim.rtl.activity.order import arrange
from gemmule.sim.rtl.activity.parse import UnknownCodeError, parse
from gemmule.sim.rtl.activity.rewrite import HEADER, rewrite
from gemmule.sim.rtl.build import build, build_root
from gemmule.sim.rtl.testbench import build_testbench
from gemmule.sim.rtl.verilog import verilog_path

from .test_build import with_library

DESIGN = """
module unit #(parameter int KIND = 0) (input logic clk, input logic rst, input logic go, input logic [7:0] x,
                                       output logic [31:0] y, output logic busy);
  logic [3:0] left;
  logic signed [8:0] held;
  assign busy = left != 0;
  always_ff @(posedge clk) begin
    if (go) begin left <= 4'd9; held <= {x[7], x}; end
    else if (busy) left <= left - 1;
    if (busy) y <= y + 32'(held * 9'sd3) + KIND;
    if (rst) begin left <= 0; y <= 0; held <= 0; end
  end
endmodule

module little (input logic clk, input logic rst, input logic [1:0] go, input logic [7:0] x,
              output logic [31:0] y0, output logic [31:0] y1, output logic [99:0] wide, output logic [7:0] read);
  logic [1:0] busy;
  logic [7:0] memory[16];
  logic [3:0] place;
  logic [2:0] chain, next;
  unit #(.KIND(1)) a (.clk, .rst, .go(go[0]), .x, .y(y0), .busy(busy[0]));
  unit #(.KIND(7)) b (.clk, .rst, .go(go[1] && !busy[0]), .x(y0[7:0] ^ x), .y(y1), .busy(busy[1]));
  always_comb begin
    next = chain;
    if (busy[1]) next = {chain[1:0], ^y1};
  end
  always_ff @(posedge clk) begin
    if (go[0]) memory[place] <= x;
    if (busy[1] && !busy[0]) place <= place + 1;
    read <= memory[y1[3:0]];
    if (busy != 0) wide <= {wide[67:0], y0 ^ y1} ^ 100'(memory[place]);
    chain <= next;
    if (rst) begin place <= 0; wide <= 0; read <= 0; chain <= 0; end
  end
endmodule
"""
HOST = """
#include <cstdio>
#include "Vtop.h"
#include "verilated.h"
int main() {
    Vtop top;
    unsigned random = 12345;
    for (int cycle = 0; cycle < 4000; ++cycle) {
        random = random * 1664525 + 1013904223;
        const bool quiet = cycle / 100 % 3 == 1;
        top.rst = cycle < 2 || cycle % 1500 == 700;
        top.go = quiet ? 0 : (random >> 24 & 7) == 0 ? random >> 20 & 3 : 0;
        if (!quiet) top.x = random >> 8;
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
        std::printf("%u %u %u %u %u %u %u\\n", top.y0, top.y1, top.wide[0], top.wide[1], top.wide[2], top.wide[3],
                    top.read);
    }
}
"""
TWO_CLOCKS = """
module little (input logic clk, input logic other, input logic x, output logic y, output logic z);
  always_ff @(posedge clk) y <= x;
  always_ff @(posedge other) z <= y;
endmodule
"""


def verilated(folder: Path, source: str) -> Path:
    """What Verilator writes for a design."""
    folder.mkdir()
    (folder / "little.sv").write_text(source)
    (folder / "verilator").symlink_to(verilator.root())
    subprocess.run([*verilator.command("verilator"), "-cc", "-Mdir", ".", "--prefix", "Vtop", "--top-module", "little",
                    "-O3", "-Wno-lint", "little.sv"], cwd=folder, check=True, capture_output=True,
                   env=os.environ | {"VERILATOR_ROOT": "verilator"})
    return folder


def printed(tmp_path: Path, gated: bool) -> str:
    source = tmp_path / "little.sv"
    source.write_text(DESIGN)
    found = build([source], "little", {}, name="little", host=[(Path("main.cpp"), HOST.encode())], gated=gated)
    log = (found.folder / "build.log").read_text()
    assert bool(re.search(r"^activity: \d+ groups$", log, re.MULTILINE)) == gated
    return subprocess.run([found.executable], capture_output=True, text=True, check=True).stdout


@pytest.mark.rtl
@pytest.mark.long  # every comparison of the device with the model runs on such a simulator
def test_what_rests_changes_nothing_and_a_forgotten_register_shows(tmp_path, monkeypatch):
    """Many groups for a small design; then registers of which those that have run already hear nothing."""
    with_library(tmp_path / "cache")
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(order, "SIZE", 1)
    expected = printed(tmp_path, gated=False)
    assert len(set(expected.splitlines())) > 300
    assert printed(tmp_path, gated=True) == expected
    readers = emit._readers
    monkeypatch.setattr(emit, "_readers", lambda group, name, own, table: {
        each for each in readers(group, name, own, table) if each > own})
    for made in build_root().glob("little-*"):
        shutil.rmtree(made)
    assert printed(tmp_path, gated=True) != expected


@pytest.mark.rtl
def test_the_device_is_in_groups():
    """Code that is not understood is compiled as it is, and slower: of the device, nothing else would tell."""
    config = load_config("tiny")
    log = (build_testbench(config, verilog_path(config), dram_bytes=1).folder / "build.log").read_text()
    found = re.search(r"^activity: (\d+) groups$", log, re.MULTILINE)
    assert found, re.findall("^activity: .*$", log, re.MULTILINE)
    assert int(found[1]) > 100


def test_order_keeps_what_depends_on_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(order, "SIZE", 1)
    model = parse(verilated(tmp_path / "made", DESIGN))
    groups = arrange(model.statements)
    place = {id(each): at for at, each in enumerate(each for group in groups for each in group.statements)}
    assert len(groups) >= 10
    assert len(place) == len(model.statements)
    for one, other in itertools.combinations(model.statements, 2):
        if one.writes & (other.keeps | other.writes) or one.keeps & other.writes:
            assert place[id(one)] < place[id(other)]
    written = [name for group in groups for name in set().union(*(each.writes for each in group.statements))]
    assert len(written) == len(set(written))  # each variable changes in one group


def test_same_text_every_time(tmp_path):
    """Of strings and their order in sets nothing is to be seen: a profile belongs to a text."""
    texts = []
    for seed in "12":
        made = verilated(tmp_path / seed, DESIGN)
        subprocess.run([sys.executable, "-c", "import sys; from pathlib import Path\n"
                        "from gemmule.sim.rtl.activity.rewrite import rewrite; rewrite(Path(sys.argv[1]))", made],
                       check=True, env=os.environ | {"PYTHONHASHSEED": seed})
        texts.append([path.read_text() for path in sorted(made.glob("Vtop___024root*.cpp"))])
    assert texts[0] == texts[1]


def test_two_clocks_are_left_as_they_are(tmp_path):
    made = verilated(tmp_path / "made", TWO_CLOCKS)
    before = {path: path.read_bytes() for path in made.glob("*.cpp")}
    with pytest.raises(UnknownCodeError):
        rewrite(made)
    assert before == {path: path.read_bytes() for path in made.glob("*.cpp")}
    assert not (made / HEADER).exists()


@pytest.mark.parametrize(("before", "after"), [
    ("{ a[3], a[3], a[3], a }", "{ {3{a[3]}}, a }"),
    ("{ a[3], a[3], a }", "{ a[3], a[3], a }"),
    ("{ \\$x [3], \\$x [3], \\$x [3], \\$x  }", "{ {3{\\$x [3]}}, \\$x  }"),
    ("{ ready, ready, ready, ready }", "{ {4{ready}} }"),
    ("{ a, a, ab, b.a, a }", "{ a, a, ab, b.a, a }"),
])
def test_repeated_bits_become_a_replication(before, after):
    assert folded(before) == after
