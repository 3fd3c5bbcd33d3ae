"""Verilog of every unit: the same text every time, clean under lint that still catches faults."""

from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.hw.flow.export import export
from gemmule.hw.flow.lint import WAIVERS, LintError, lint
from gemmule.hw.flow.verilog import TOP, UNITS, generate

from ...thinned import some

TINY = load_config("tiny")
FAULTS = {
    "latch": "always_comb if (a[0]) q = a;",
    "truncation": "assign q = {a, a};",
    "two drivers": "assign q = a; assign q = ~a;",
    "loop": "logic [3:0] w; assign w = a & ~w; assign q = w;",
}


@pytest.mark.parametrize("name", sorted(set(UNITS) - {TOP}))
def test_unit_alone_is_clean(name: str, tmp_path: Path) -> None:
    path, = export(TINY, tmp_path, unit=name).files
    assert path.name == f"{name}_tiny.sv"
    assert f"\nmodule {name}(" in path.read_text()
    lint(path, name)


@pytest.mark.parametrize("name", some(["counters", "dispatch", "issue_logic"]))
def test_same_text_every_time(name: str, tmp_path: Path) -> None:
    first, second = (export(TINY, tmp_path / place, unit=name) for place in "ab")
    assert first.files[0].read_bytes() == second.files[0].read_bytes()
    assert first.manifest.read_bytes() == second.manifest.read_bytes()


def test_unknown_unit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not 'mesh9'"):
        export(TINY, tmp_path, unit="mesh9")
    assert "gemmule" in UNITS


@pytest.mark.long  # within a wrapper test_export.py looks at the same text
def test_whole_device_is_clean(tmp_path: Path) -> None:
    path = generate(TINY, tmp_path)
    assert path.name == "gemmule_tiny.sv"
    assert "always @*" not in path.read_text()
    lint(path)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_caught(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "bad_tiny.sv"
    path.write_text(
        f"module bad(input logic [3:0] a, output logic [3:0] q);\n  {FAULTS[fault]}\nendmodule\n")
    with pytest.raises(LintError):
        lint(path, "bad")


def test_waivers_name_no_forbidden_class() -> None:
    for line in WAIVERS.read_text().splitlines():
        if line.startswith("lint_off"):
            assert not any(word in line for word in ("LATCH", "UNOPTFLAT", "MULTIDRIVEN", "COMBDLY"))
            assert "WIDTHTRUNC" not in line or "-match" in line
