"""Large meshes in pieces: rows as modules, and buffers where many of them read one net."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from amaranth.back import rtlil

from gemmule.config import load_config
from gemmule.hw.flow.standard.library import LIBRARIES
from gemmule.hw.flow.standard.mapped import collect_script
from gemmule.hw.flow.standard.rows import buffered, rows_script
from gemmule.hw.flow.synth import stat_of
from gemmule.hw.flow.tools import Tools
from gemmule.hw.flow.verilog import UNITS
from gemmule.timing import Timing

SKY130 = LIBRARIES["sky130"]
BUFFER = re.compile(rf"  {SKY130.driver} \S+ \(\n    \.A\((.*)\),\n    \.X\((\S+)\)\n  \);")


def netlist(readers: int) -> str:
    cells = "".join(f"  sky130_fd_sc_hd__nand2_1 g{i} (\n    .A(\\wide[3] ),\n    .B(b),\n    .Y(y{i})\n  );\n"
                    f"  sky130_fd_sc_hd__dfxtp_1 r{i} (\n    .CLK(clk),\n    .D(y{i}),\n    .Q(q{i})\n  );\n"
                    for i in range(readers))
    return f"module top(clk);\n{cells}endmodule\n"


@pytest.mark.parametrize("readers", [12, 13, 144, 145, 300])
def test_wide_nets_get_trees(readers: int) -> None:
    text, added = buffered(netlist(readers), SKY130.there().read_text(), SKY130.driver, 12, "clk")
    nets = {out: into for into, out in BUFFER.findall(text)}
    assert len(nets) == added
    assert bool(added) == (readers > 12)
    pins = Counter(re.findall(r"\.[ABD]\((.*)\)", text))
    assert max(pins.values()) <= 12
    assert text.count(".CLK(clk)") == readers
    for port, net in (("A", "\\wide[3] "), ("B", "b")):
        for found in re.findall(rf"nand2_1 .*\n(?:    \.\w\(.*\),?\n)*?    \.{port}\((.*)\)", text):
            steps = 0
            while found != net:
                found, steps = nets[found], steps + 1
            assert bool(steps) == (readers > 12)
            assert steps <= (1 if readers <= 144 else 2)
    assert re.sub(r"_tree_\d+_", "t", text).count("endmodule") == 1


def test_each_row_of_pes_is_a_module(tmp_path: Path) -> None:
    config = load_config("tiny")
    (tmp_path / "design.il").write_text(rtlil.convert(UNITS["matrix"](config, Timing.of(config)), name="matrix",
                                                      emit_src=False))
    script = ["read_rtlil design.il", "proc", "opt", "opt_clean", *rows_script("matrix.mesh", config.dim),
              "tee -q -o stat.json stat -json"]
    (tmp_path / "script.ys").write_text("\n".join(script) + "\n")
    Tools().run("yosys", ["-q", "-l", "log", "script.ys"], tmp_path, "log", lambda step: None)
    modules = stat_of((tmp_path / "stat.json").read_text())["modules"]
    for row in range(config.dim):
        cells = modules[f"\\row_{row}.matrix"]["num_cells_by_type"]
        assert cells["$mul"] == config.dim, json.dumps(cells)
        assert sum(n for kind, n in cells.items() if kind in ("$dff", "$dffe", "$sdff", "$sdffe")) >= 6 * config.dim
    left = {kind.removeprefix("\\"): n for kind, n in modules["\\matrix.mesh"]["num_cells_by_type"].items()}
    assert "$mul" not in left
    assert [left[f"row_{row}.matrix"] for row in range(config.dim)] == [1] * config.dim


def test_small_meshes_stay_whole() -> None:
    text = "module \\matrix\nend\nmodule \\matrix.mesh\nend\n"
    assert "submod" not in collect_script(text, "matrix", 16)
    assert "submod -name row_31.matrix @row_31\n" in collect_script(text, "matrix", 32)
