"""Builds are cached by content, complete or absent, and fail with one clear line."""

import shutil
import signal
from pathlib import Path

import pytest

import gemmule.sim.rtl.build as building
from gemmule.config import load_config
from gemmule.hw.flow import verilator
from gemmule.sim.rtl import verilog
from gemmule.sim.rtl.build import BuildError, build, build_root, fingerprint
from gemmule.sim.rtl.device import RtlDevice

from ..test_processor import work

STUB = Path(__file__).with_name("stub.sv")
SOURCE = """
module tiny (input logic clk /*verilator public_flat_rw*/, output logic [7:0] count /*verilator public_flat_rw*/);
  always @(posedge clk) count <= count + 1;
endmodule
"""


def test_missing_tool_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "g++" else f"/usr/bin/{tool}")
    with pytest.raises(BuildError, match=r"^build: g\+\+ is not on PATH; .* apt install g\+\+ make"):
        build([tmp_path / "none.sv"], "none", {})


def test_fingerprint_depends_on_every_part_and_its_borders():
    prints = {fingerprint(parts) for parts in ([b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"ab", b"d"])}
    assert len(prints) == 4


@pytest.mark.timeout(1)
@pytest.mark.parametrize("module", [building, verilog])
def test_building_does_not_count_against_the_time_limit(module, tmp_path):
    with module.exclusive(tmp_path / "lock"):
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
        work(1.5)
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0


def with_library(cache):
    """A new cache that has Verilator's library already, if the other one has it."""
    for kept in build_root().glob("runtime-*"):
        shutil.copytree(kept, cache / "rtl" / kept.name)


@pytest.mark.rtl
def test_build_is_cached_and_a_broken_source_leaves_no_folder_whatever_the_path(tmp_path, monkeypatch):
    cache = tmp_path / "it's a #1 $HOME: (cöst) 50%"
    with_library(cache)
    monkeypatch.setenv("GEMMULE_CACHE", str(cache))
    tool = tmp_path / "a place" / "verilator"
    tool.parent.mkdir()
    tool.symlink_to(verilator.root())
    monkeypatch.setattr(verilator, "root", lambda: tool)
    source = tmp_path / "a place" / "tiny.sv"
    source.write_text(SOURCE)
    first = build([source], "tiny", {})
    stamp = first.executable.stat().st_mtime_ns
    assert build([source], "tiny", {}).executable.stat().st_mtime_ns == stamp
    with pytest.raises(ZeroDivisionError):
        build([source], "tiny", {}, train=lambda found: 1 / 0)
    source.write_text(SOURCE.replace("count + 1", "count + nothing"))
    with pytest.raises(BuildError, match=r"cannot be built: %Error: /.*/tiny\.sv:3:.*nothing.*; the log is .*\.log"):
        build([source], "tiny", {})
    assert [path for path in (cache / "rtl").iterdir() if not path.name.startswith("runtime-")] == [first.folder]
    assert len(list((cache / "logs").iterdir())) == 1


@pytest.mark.rtl
@pytest.mark.long
@pytest.mark.parametrize("empty", [False, True])
def test_the_library_is_compiled_once_and_again_when_damaged(empty, tmp_path, monkeypatch):
    """In an empty cache; or with the library of the session's, if there is one, which takes half as long."""
    if not empty:
        with_library(tmp_path / "cache")
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "tiny.sv"

    def compiled(text: str) -> bool:
        """Whether a build of another text compiles the library."""
        source.write_text(SOURCE + text)
        return "verilated.cpp" in (build([source], "tiny", {}).folder / "build.log").read_text()

    first = compiled("// first\n")
    assert first or not empty
    assert not compiled("// second\n")
    for kept in (tmp_path / "cache" / "rtl").glob("runtime-*/verilated.o"):  # one for each set of settings
        data = kept.read_bytes()
        kept.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    assert compiled("// third\n")
    assert not compiled("// fourth\n")


@pytest.mark.rtl
@pytest.mark.long
def test_a_trained_simulator_is_another_build_of_the_same_device(tmp_path, monkeypatch):
    with_library(tmp_path / "cache")
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    config, seen = load_config("tiny"), []

    def train(device):
        seen.append(device.build.folder)
        device.write_dram(0, b"first")
        device.bases[1] = 5

    with RtlDevice(config, verilog=STUB, dram_bytes=1 << 16, train=train) as device:
        assert device.bases[1] == 0
        assert device.read_dram(0, 5) == bytes(5)
        trained = device.build.folder
        assert not list(trained.glob("*.gcda"))
        assert "-Wmissing-profile" not in (trained / "build.log").read_text()
    with RtlDevice(config, verilog=STUB, dram_bytes=1 << 16, train=train):
        assert len(seen) == 1
        assert seen[0] != trained
