"""Standard cells without their tools: gates, macros, scripts, areas and paths; the kept library's numbers."""

import itertools
import re
import sys
from pathlib import Path

import pytest

from gemmule.hw.flow.standard import slack
from gemmule.hw.flow.standard.cells import CELLS, FLIP_FLOPS, PREFIX, TIE, Gate
from gemmule.hw.flow.standard.library import LIBRARIES, MacroModel
from gemmule.hw.flow.standard.macros import Macro, liberty_of, macros_of
from gemmule.hw.flow.standard.mapped import areas_of, cell_area, collect_script, map_script
from gemmule.hw.flow.standard.slack import paths_of
from gemmule.hw.flow.tools import SynthError
from gemmule.sw.cli import main

SKY130 = LIBRARIES["sky130"]
GATES = {gate.name: gate for gate in CELLS}
MODEL = MacroModel(1000.0, 2.0, 2.5, 0.5, "a data sheet")

# A memory of 64 words with two clocked read ports, as Yosys' `memory -nomap` leaves it, shortened; one that is read
# without a clock.
MEMORY = """module \\unit
  cell $mem_v2 \\rows
    parameter \\MEMID "\\\\rows"
    parameter \\WIDTH 32
    parameter \\OFFSET 0
    parameter \\SIZE 64
    parameter \\ABITS 6
    parameter \\RD_PORTS {reads}
    parameter \\RD_CLK_ENABLE 2'{clocked}
    parameter \\WR_PORTS {writes}
    connect \\RD_ADDR {{ \\a \\b }}
    connect \\RD_DATA {{ \\c \\d }}
    connect \\WR_EN {enables}
  end
end
"""
ONE = "{ " + " ".join(["\\en"] * 32) + " }"


def delays(cell: str, pin: str, table: str) -> list[list[float]]:
    """A table of the kept library, by transition time and load."""
    text = SKY130.there().read_text()
    body = text.partition(f"  cell ({PREFIX}{cell}) {{")[2].partition("\n  cell (")[0]
    arc = body.partition(f'timing () {{ related_pin : "{pin}"; timing_')[2]
    if table in ("rise_constraint", "fall_constraint"):
        arc = body.partition("setup_rising")[2]
    rows = re.search(rf"{table} \(\w+\) {{.*?values \((.*?)\);", arc)
    assert rows is not None
    return [[float(value) for value in row.split(",")] for row in re.findall(r'"([^"]*)"', rows[1])]


@pytest.mark.parametrize("gate", CELLS, ids=lambda gate: gate.name)
def test_every_input_decides_some_output(gate: Gate) -> None:
    for pin in gate.inputs:
        cases = gate.sensitive(pin)
        assert cases
        for case in cases:
            low, high = (gate.value({**case.others, pin: bit}) for bit in (0, 1))
            assert (low, high) == ((1, 0) if case.inverting else (0, 1))


def test_functions_of_gates() -> None:
    for a, b, c in itertools.product((0, 1), repeat=3):
        assert GATES["nand2_1"].value({"A": a, "B": b}) == 1 - (a & b)
        assert GATES["xnor2_1"].value({"A": a, "B": b}) == int(a == b)
        assert GATES["a21oi_1"].value({"A1": a, "A2": b, "B1": c}) == 1 - ((a & b) | c)
        assert GATES["mux2_1"].value({"A0": a, "A1": b, "S": c}) == (b if c else a)
        assert GATES["maj3_1"].value({"A": a, "B": b, "C": c}) == int(a + b + c > 1)
        assert GATES["nand2b_1"].value({"A_N": a, "B": b}) == 1 - ((1 - a) & b)


def test_the_kept_library_has_every_cell() -> None:
    text = SKY130.there().read_text()
    names = [*(gate.name for gate in CELLS), *FLIP_FLOPS, TIE]
    assert re.findall(rf"^  cell \({PREFIX}(\w+)\)", text, re.MULTILINE) == names
    assert cell_area(text, SKY130.nand2) == 3.7536


# From SkyWater's own sky130_fd_sc_hd, tt, 25 C, 1.8 V: ns by transition times 0.0531329 and 0.122474 (rows) and loads
# of about 3.5 and 9.1 fF (columns).
PUBLISHED = {
    ("inv_1", "A", "cell_rise"): [[0.0566, 0.0903], [0.0847, 0.1211]],
    ("inv_1", "A", "cell_fall"): [[0.0411, 0.0616], [0.0580, 0.0873]],
    ("nand2_1", "A", "cell_rise"): [[0.0612, 0.0971], [0.0914, 0.1280]],
    ("nand2_1", "A", "cell_fall"): [[0.0505, 0.0798], [0.0698, 0.1039]],
    ("dfxtp_1", "CLK", "cell_rise"): [[0.3070, 0.3438], [0.3331, 0.3697]],
    ("dfxtp_1", "CLK", "cell_fall"): [[0.2972, 0.3198], [0.3229, 0.3455]],
}


@pytest.mark.parametrize(("cell", "pin", "table"), PUBLISHED)
def test_delays_within_a_fifth_of_the_publishers(cell: str, pin: str, table: str) -> None:
    ours = delays(cell, pin, table)
    for row, expected in zip(ours[1:3], PUBLISHED[cell, pin, table], strict=True):
        assert row[1:3] == pytest.approx(expected, rel=0.2)


def test_setup_near_the_publishers() -> None:
    assert delays("dfxtp_1", "CLK", "rise_constraint")[0][0] == pytest.approx(0.0508, rel=0.2)
    assert delays("dfxtp_1", "CLK", "fall_constraint")[0][0] == pytest.approx(0.1033, rel=0.2)


@pytest.mark.parametrize(("reads", "clocked", "writes", "macro"), [
    (2, "11", 1, True), (2, "01", 1, False), (2, "11", 0, False)])
def test_macros_are_clocked_and_written(reads: int, clocked: str, writes: int, macro: bool) -> None:
    text, found = macros_of(MEMORY.format(reads=reads, clocked=clocked, writes=writes, enables=ONE), least_bits=2048)
    assert bool(found) == macro == ("$mem_v2" not in text)
    if macro:
        assert found == [Macro(64, 32, 6, 2, 1)]
        assert "cell \\macro_64x32_2r1w \\rows\n    connect \\RD_ADDR" in text
        assert "wire width 64 output 6 \\RD_DATA" in text
        assert text.count("module \\macro_64x32_2r1w") == 1


@pytest.mark.parametrize(("bits", "kept"), [
    (["\\en"] * 32, ["\\en"]),
    (["\\en [1]"] * 16 + ["\\en [0]"] * 16, ["\\en [1]", "\\en [0]"]),
    (["$a [1]"] * 8 + ["\\b"] * 8 + ["$a [1]"] * 16, ["$a [1]", "\\b", "$a [1]", "$a [1]"]),
    (["\\e [2]"] * 15 + ["\\e [2:1]"] + ["\\e [1]"] * 15, ["\\e [2]", "\\e [1]"]),
    (["\\en"] * 31 + ["1'0"], ["\\en"] * 31 + ["1'0"]),
    (["\\en [31:0]"], [f"\\en [{bit}]" for bit in range(31, -1, -1)]), (["\\en"], None)])
def test_enables_for_what_is_written_as_a_whole(bits: list[str], kept: list[str] | None) -> None:
    memory = MEMORY.format(reads=2, clocked="11", writes=1, enables=f"{{ {' '.join(bits)} }}")
    text, (macro,) = macros_of(memory, least_bits=2048)
    assert macro.widths()["WR_EN"] == macro.enables == (32 if kept is None else len(kept))
    assert f"connect \\WR_EN {{ {' '.join(kept or bits)} }}" in text


def test_small_memories_stay() -> None:
    text = MEMORY.format(reads=2, clocked="11", writes=1, enables=ONE)
    assert macros_of(text, least_bits=2049) == (text, [])


def test_liberty_of_macros() -> None:
    text = liberty_of([Macro(64, 32, 6, 2, 1)] * 2, MODEL)
    assert text.count("cell (") == 1
    assert text.count("{") == text.count("}")
    # Two read ports: two copies of a fixed part and 2048 bits.
    assert f"area : {2 * (1000 + 2 * 2048):.0f};" in text
    assert "bus (RD_DATA) { bus_type : bus_64; direction : output; timing () { related_pin : \"RD_CLK[0]\"" in text
    assert 'pin (WR_CLK) { direction : input; capacitance : 0.01; clock : true; }' in text


def test_a_model_in_a_coarser_process() -> None:
    scaled = MODEL.scaled(2.0, "scaled")
    assert (scaled.fixed_um2, scaled.bit_um2, scaled.access_ns, scaled.setup_ns) == (4000.0, 8.0, 5.0, 1.0)


def test_areas_by_unit() -> None:
    macro = Macro(64, 32, 6, 1, 1)
    stat = {"modules": {
        "\\gemmule": {"area": 15.0, "sequential_area": 4.0,  # with what it contains
                        "num_cells_by_type": {"NAND2X1": 3, "gemmule.core.load": 1}},
        "\\gemmule.core.load": {"area": 5.0, "sequential_area": 0.0, "num_cells_by_type": {
            "NAND2X1": 1, f"\\{macro.name}": 2}},
        f"\\{macro.name}": {"num_cells_by_type": {}}}}
    parts = areas_of(stat, "gemmule", {macro.name: macro}, SKY130)
    assert set(parts) == {"glue", "load"}
    assert (parts["glue"].um2, parts["glue"].registers_um2, parts["glue"].cells) == (10.0, 4.0, 3)
    assert parts["load"].macro_bits == 2 * 2048
    assert parts["load"].macros_um2 == pytest.approx(2 * SKY130.macros.area(2048, 1))


def test_scripts_name_units_and_library() -> None:
    text = "module \\gemmule\nend\nmodule \\gemmule.core.load\nend\nmodule \\gemmule.core.load.bursts\nend\n"
    assert "keep_hierarchy 1 gemmule gemmule.core.load\n" in collect_script(text, "gemmule", 32)
    script = map_script("gemmule", SKY130)
    assert f"abc -liberty {SKY130.liberty} -constr constraints -D 4000" in script
    assert script.index("hilomap") < script.index("stat -json") < script.index("write_verilog")


PATHS = """Startpoint                           Endpoint                                 Slack
----------------------------------------------------------------------------------
core.load._7_/Q (DFFPOSX1)           core.units.matrix._9_/D (DFFPOSX1)       2.5000
core.store.rows/RD_DATA[3] (DFFPOSX1) core._9_/D (DFFPOSX1)               -1.0000
m_axi_rvalid (input) core.load._9_/D (DFFPOSX1)               9.0000
"""


def test_paths_by_unit() -> None:
    first, second, third = paths_of(PATHS, "gemmule")
    assert [path.ends for path in (first, second, third)] == [
        ("register", "register"), ("macro", "register"), ("port", "register")]
    assert (first.start_unit, first.end_unit, first.ns, first.mhz) == ("load", "matrix", 7.5, 133.3)
    assert (second.start_unit, second.end_unit, second.ns) == ("store", "glue", 11.0)


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    library = LIBRARIES["osu018"]
    missing = type(library)(**{**vars(library), "liberty": tmp_path / "no.lib"})
    with pytest.raises(SynthError, match=r"no\.lib is not there; on Debian: apt-get install qflow-tech-osu018"):
        missing.there()


def test_without_opensta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slack.shutil, "which", lambda program: None)
    with pytest.raises(SynthError, match="sta .OpenSTA. is not on PATH; on Debian: apt-get install opensta"):
        slack.slack_of(None)  # type: ignore[arg-type]  # refused before it is looked at


@pytest.mark.parametrize("option", [["--route"], ["--seeds", "2"], ["--map-memories"]])
def test_options_of_an_fpga_are_refused(option: list[str], monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gemmule", "synth", "--config", "tiny", "--target", "sky130", *option])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    shown = capsys.readouterr().err
    assert "--target sky130 is before layout and has macros for memories: leave out --route" in " ".join(shown.split())
