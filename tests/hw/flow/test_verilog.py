"""Exported Verilog: the same text every time, written once, clean under lint that still catches faults."""

import hashlib
import json
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.hw.flow.lint import WAIVERS, LintError, lint
from gemmule.hw.flow.verilog import TOP, UNITS, generate, generate_unit

TINY = load_config("tiny")
FAULTS = {
    "latch": "always_comb if (a[0]) q = a;",
    "truncation": "assign q = {a, a};",
    "two drivers": "assign q = a; assign q = ~a;",
    "loop": "logic [3:0] w; assign w = a & ~w; assign q = w;",
}


@pytest.mark.parametrize("name", sorted(set(UNITS) - {TOP}))
def test_unit_alone_is_clean(name: str, tmp_path: Path) -> None:
    path = generate_unit(name, TINY, tmp_path)
    assert f"module {name}(" in path.read_text()
    lint(path, name)


@pytest.mark.parametrize("name", ["dispatch", "issue_logic", "counters"])
def test_same_text_every_time(name: str, tmp_path: Path) -> None:
    first, second = (generate_unit(name, TINY, tmp_path / place) for place in "ab")
    assert first.read_text() == second.read_text()


def test_manifest_and_rewrite_only_on_change(tmp_path: Path) -> None:
    path = generate_unit("control", TINY, tmp_path)
    manifest = json.loads((tmp_path / "control.manifest.json").read_text())
    assert manifest["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert manifest["config"]["dim"] == 4
    assert manifest["ports"]["cycles"] == {"direction": "output", "width": 64}
    assert manifest["ports"]["clk"] == {"direction": "input", "width": 1}
    before = path.stat().st_mtime_ns, path.stat().st_ino
    generate_unit("control", TINY, tmp_path)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    path.write_text("changed")
    generate_unit("control", TINY, tmp_path)
    assert path.read_text() != "changed"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["control.manifest.json", "control_tiny.sv"]


def test_unknown_unit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not 'mesh9'"):
        generate_unit("mesh9", TINY, tmp_path)
    assert "gemmule" in UNITS


def test_whole_device_is_clean(tmp_path: Path) -> None:
    path = generate(TINY, tmp_path)
    assert path.name == "gemmule_tiny.sv"
    text = path.read_text()
    assert "always @*" not in text
    lint(path)
    ports = json.loads((tmp_path / "manifest.json").read_text())["ports"]
    for name, width in (("m_axi_awaddr", 32), ("m_axi_wdata", 32), ("s_axil_awaddr", 12), ("trace_issue", 5)):
        assert ports[name]["width"] == width


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
