"""Exported files: header, split, source attributes, manifest, and what is left when writing fails."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gemmule
from gemmule.config import Config, load_config
from gemmule.hw.flow import export as module
from gemmule.hw.flow import verilator
from gemmule.hw.flow.export import blocks, export
from gemmule.hw.flow.lint import WAIVERS, LintError, lint
from gemmule.hw.flow.names import instances, module_texts
from gemmule.hw.flow.verilog import TOP, UNITS, folded, generate
from gemmule.sim.rtl.waveform import GROUPS
from gemmule.sw.cli import main

from .conftest import Device

ROOT = Path(__file__).resolve().parents[3]
TINY = load_config("tiny")
PAGE = (ROOT / "docs" / "verilog.md").read_text()
BLOCKS = {"gemmule", "gemmule_csr", "gemmule_core", "gemmule_core_units"} | {
    f"gemmule_core_{name}" for name in ("arbiter", "asked", "control", "counters", "dispatch", "fetch", "issue",
                                        "watchdog")} | {
    f"gemmule_core_units_{name}" for name in ("load", "store", "matrix", "vector", "select", "scratchpad",
                                              "accumulator")}


@pytest.fixture(autouse=True)
def made_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of tiny is not generated again for each test."""
    right = module.verilog_of

    def verilog_of(component, name, *, sources=False):  # type: ignore[no-untyped-def]
        if isinstance(component, Config) and component == TINY:
            return device.sources if sources else device.plain
        return right(component, name, sources=sources)

    monkeypatch.setattr(module, "UNITS", {**UNITS, TOP: lambda config, timing: config})
    monkeypatch.setattr(module, "verilog_of", verilog_of)


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit code of ``gemmule verilog --config tiny``."""
    monkeypatch.setattr(sys, "argv", ["gemmule", "verilog", "--config", "tiny", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def said(text: str) -> tuple[str, str]:
    """Header and body."""
    header, _, body = text.partition("\n\n")
    return header, body


def test_header_says_what_a_file_is(device: Device, tmp_path: Path) -> None:
    path, = export(TINY, tmp_path).files
    header, body = said(path.read_text())
    assert path.name == "gemmule_tiny.sv"
    assert all(line.startswith("//") for line in header.splitlines())
    for words in ("SPDX-License-Identifier: Apache-2.0", f"Gemmule {gemmule.__version__}, module gemmule, "
                  "configuration tiny", "4 x 4 mesh", "scratchpad 4 KiB in 4 banks", TINY.sha256,
                  "Made by: gemmule verilog --config tiny\n", "Amaranth ", f"Yosys {device.plain.yosys}"):
        assert words in f"{header}\n", words
    assert "/" not in header.replace("//", "")  # no folder
    assert not re.search(r"20[2-9]\d-", header)  # no date
    assert body == device.plain.text


def test_simulators_get_the_same_text_without_a_header(tmp_path: Path) -> None:
    """But for long concatenations. A new version or a setting of the host alone must not cost a new simulator."""
    small = TINY.model_copy(update={"host": TINY.host.model_copy(update={"clock_mhz": 7})})
    simulated = generate(small, tmp_path / "simulator").read_text()
    assert simulated == folded(said(export(TINY, tmp_path).files[0].read_text())[1])
    assert TINY.sha256 != small.sha256


def test_command_names_what_was_asked_for(tmp_path: Path) -> None:
    path, = export(TINY, tmp_path, unit="control", sources=True, source="mine.yaml").files
    assert "Made by: gemmule verilog --config mine.yaml --unit control --source-attributes\n" in path.read_text()


def test_split_is_the_same_modules(device: Device, tmp_path: Path) -> None:
    made = export(TINY, tmp_path, split=True)
    assert {path.stem for path in made.files} == BLOCKS
    assert made.filelist is not None
    assert [tmp_path / line for line in made.filelist.read_text().split()] == list(made.files)
    whole, parts = module_texts(device.plain.text), {}
    for path in made.files:
        header, body = said(path.read_text())
        assert f"module {path.stem}, configuration tiny" in header
        inside = module_texts(body)
        assert re.sub(r"\n{2,}(?=module|\(\*)", "\n", body) == "".join(inside.values())  # and nothing else
        assert list(inside)[-1] == path.stem
        for text in inside.values():  # what it uses stands before it
            used = set(re.findall(r"^  (\w+) \w+ \($", text, re.MULTILINE)) & whole.keys()
            assert used <= parts.keys() | inside.keys()
        assert not parts.keys() & inside.keys()
        parts |= inside
    assert parts == whole


@pytest.mark.long
def test_split_is_clean(tmp_path: Path) -> None:
    lint(export(TINY, tmp_path / "out", split=True).files)


@pytest.mark.long
def test_split_is_clean_as_a_list(tmp_path: Path) -> None:
    """With the committed waivers, as another tool would take the list, from another folder."""
    made = export(TINY, tmp_path / "out", split=True)
    root = str(verilator.root())
    (tmp_path / "else").mkdir()
    done = subprocess.run(
        [*verilator.command(root), "--lint-only", "-Wall", "--top-module", TOP, str(WAIVERS), "-F",
         str(made.filelist)], cwd=tmp_path / "else", capture_output=True, text=True, check=False,
        env=os.environ | {"VERILATOR_ROOT": root})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_block_is_noticed(tmp_path: Path) -> None:
    made = export(TINY, tmp_path, split=True)
    with pytest.raises(LintError, match="gemmule_core_fetch"):
        lint([path for path in made.files if path.stem != "gemmule_core_fetch"])


def test_only_the_device_is_split(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="not for 'matrix'"):
        export(TINY, tmp_path, unit="matrix", split=True)
    assert command(monkeypatch, "--unit", "matrix", "--split", "--out", str(tmp_path)) == 2
    assert "--split is for the whole device, not for --unit matrix" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_source_attributes_name_lines_of_the_repository(device: Device) -> None:
    text = device.sources.text
    bare = re.sub(r"^ *\(\* src = .*?\*\)\n", "", text, flags=re.MULTILINE)
    assert re.sub(r"\(\* src = .*?\*\) ", "", bare) == device.plain.text
    places = {place for said in re.findall(r'src = "([^"]*)"', text) for place in said.split("|")}
    assert len(places) > 1000
    for place in places:
        path, line = place.split(":")
        assert path.startswith(("gemmule/hw/", "amaranth/")), place
        if path.startswith("gemmule/"):
            assert int(line.partition(".")[0]) <= len((ROOT / path).read_text().splitlines()), place


def test_a_manifest_says_what_the_files_are(device: Device, tmp_path: Path) -> None:
    for flags in ({}, {"split": True}):
        made = export(TINY, tmp_path, **flags)
        manifest = json.loads(made.manifest.read_text())
        assert made.manifest.name == "gemmule_tiny.manifest.json"
        assert manifest["version"] == gemmule.__version__
        assert Config.model_validate(manifest["config"]) == TINY
        assert manifest["config_sha256"] == TINY.sha256
        assert manifest["command"] == "gemmule verilog --config tiny" + " --split" * bool(flags)
        assert manifest["filelist"] == ("gemmule_tiny.f" if flags else None)
        assert [tmp_path / file["path"] for file in manifest["files"]] == list(made.files)
        for file, path in zip(manifest["files"], made.files, strict=True):
            assert file["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
            assert file["bytes"] == path.stat().st_size
    ports = manifest["ports"]
    for name, width in (("clk", 1), ("s_axil_awaddr", 12), ("m_axi_rdata", 32)):
        assert ports[name] == {"direction": "input", "width": width}
    for name, width in (("m_axi_awaddr", 32), ("m_axi_wdata", 32), ("trace_issue", 5)):
        assert ports[name] == {"direction": "output", "width": width}


def test_configurations_share_a_folder(tmp_path: Path) -> None:
    other = TINY.model_copy(update={"name": "other", "unit_queue": 4})
    made = [export(config, tmp_path, unit="control") for config in (TINY, other)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        name for config in ("tiny", "other") for name in (f"control_{config}.sv", f"control_{config}.manifest.json"))
    assert [json.loads(one.manifest.read_text())["config"]["name"] for one in made] == ["tiny", "other"]


def test_what_is_the_same_is_left_alone(tmp_path: Path) -> None:
    made = export(TINY, tmp_path, unit="control")
    files = [*made.files, made.manifest]
    before = [(path.stat().st_mtime_ns, path.stat().st_ino) for path in files]
    export(TINY, tmp_path, unit="control")
    assert [(path.stat().st_mtime_ns, path.stat().st_ino) for path in files] == before
    for path in files:
        path.write_text("changed")
        export(TINY, tmp_path, unit="control")
        assert path.read_text() != "changed"


def test_one_file_leaves_no_list_of_many(tmp_path: Path) -> None:
    (tmp_path / "control_tiny.f").write_text("control_tiny/control.sv\n")
    export(TINY, tmp_path, unit="control")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".sv"]


def test_the_command_can_be_pasted(tmp_path: Path) -> None:
    made = export(TINY, tmp_path, unit="control", source="my device.yaml")
    assert "// Made by: gemmule verilog --config 'my device.yaml' --unit control\n" in made.files[0].read_text()


@pytest.mark.parametrize("at", [0, 1, 17, 18, 19])
def test_a_full_disk_leaves_whole_files_and_no_manifest(
        at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """18 blocks, the list, the manifest: writing stops at one of them, over an export of before."""
    export(TINY, tmp_path, split=True, source="before.yaml")
    right, count = module.write_atomically, iter(range(100))

    def full(path: Path, text: str) -> None:
        if next(count) == at:
            raise OSError(28, "No space left on device", str(path))
        right(path, text)

    monkeypatch.setattr(module, "write_atomically", full)
    (tmp_path / "gemmule_tiny.f").write_text("old")  # the list differs, too
    assert command(monkeypatch, "--split", "--out", str(tmp_path)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"error: --out must be a writable folder, not {str(tmp_path)!r}: No space left on device"
    assert not list(tmp_path.glob("*.manifest.json"))
    whole = {"before.yaml", "tiny"}
    for path in tmp_path.rglob("*.sv"):
        made_by = re.search(r"--config (\S+) --split$", path.read_text(), re.MULTILINE)
        assert made_by, path
        assert made_by[1] in whole
        assert path.read_text().endswith("endmodule\n")
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".part"]


# The page -----------------------------------------------------------------------------------------


def test_wrapper_of_the_page_is_clean(tmp_path: Path) -> None:
    wrapper = tmp_path / "soc.sv"
    wrapper.write_text(re.search(r"```verilog\n(.*?)```", PAGE, re.DOTALL)[1])
    lint([*export(TINY, tmp_path).files, wrapper], "soc")


@pytest.mark.long
def test_a_port_that_the_wrapper_leaves_open_is_noticed(tmp_path: Path) -> None:
    wrapper = tmp_path / "soc.sv"
    wrapper.write_text(re.search(r"```verilog\n(.*?)```", PAGE, re.DOTALL)[1].replace(".rst, .irq", ".rst"))
    with pytest.raises(LintError, match="irq"):
        lint([*export(TINY, tmp_path).files, wrapper], "soc")


def test_page_names_every_port_and_waiver(device: Device) -> None:
    named = re.findall(r"`((?:m_axi|s_axil|trace)_\w*\*?|clk|rst|irq)`", PAGE[PAGE.index("## Ports"):])
    for port in device.plain.ports:
        assert any(re.fullmatch(name.replace("*", ".*"), port) for name in named), port
    waived = set(re.findall(r"^lint_off -rule (\w+)", WAIVERS.read_text(), re.MULTILINE))
    table = PAGE[PAGE.index("| rule |"):]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == waived


def test_blocks_of_the_layout_are_in_the_device(device: Device) -> None:
    """Every signal that a waveform's layout shows is declared in the module that its path leads to."""
    texts = module_texts(device.plain.text)
    modules = {"": TOP, **dict(instances(device.plain.text, TOP))}
    names = [name for group in GROUPS.values() for name in group if name.startswith("device.")]
    assert len(names) > 100
    for name in names:
        path, _, signal = name.removeprefix("device.").rpartition(".")
        declared = re.findall(r"^  (?:input|output|wire|reg) (?:\[\d+:0\] )?\\?(\S+?) ?(?: = .*)?;$",
                              texts[modules[path]], re.MULTILINE)
        assert signal in declared, name


def test_blocks_cover_a_text_once(device: Device) -> None:
    made = blocks(device.plain)
    assert set(made) == BLOCKS
    assert sum(text.count("\nendmodule\n") for text in made.values()) == device.plain.text.count("\nendmodule\n")
