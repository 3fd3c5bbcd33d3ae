"""The caches of Verilog and simulators: any source may change the text, and only the text costs a new simulator."""

import shutil
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.hw import tb
from gemmule.sim.rtl import verilog
from gemmule.sim.rtl.build import build
from gemmule.sim.rtl.verilog import ROOT, rtl_sources, verilog_path

TINY = load_config("tiny")
HARDWARE = sorted(path.relative_to(ROOT.parent) for path in (ROOT.parent / "hw").rglob("*")
                  if path.is_dir() and path.name != "__pycache__")
FOLDERS = [Path("gemmule"), Path("gemmule/numerics"), Path("hw"), *HARDWARE]
"""Of the contracts and of ``hw``."""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, with its link, that the cache looks at; and an empty cache."""
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for source in (ROOT.parent / folder).glob("*.py"):
            shutil.copy(source, tmp_path / folder)
    (tmp_path / "gemmule/hw").symlink_to("../hw")
    monkeypatch.setattr(verilog, "rtl_sources", lambda: rtl_sources(tmp_path / "gemmule"))
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for the generator: one item for each call, which decides the text."""
    made: list[str] = []

    def generate(config, folder, timing):
        folder.mkdir(parents=True)
        path = folder / f"gemmule_{config.name}.sv"
        path.write_text("module gemmule; endmodule\n" if "same" in made else f"// {len(made)}\n")
        made.append("same" if "same" in made else "new")
        return path

    monkeypatch.setattr(verilog, "generate", generate)
    return made


def test_every_folder_is_here():
    """Those of the house, one file each at the least; the testbench's folder holds the SystemVerilog."""
    assert {path.name for path in HARDWARE} == {
        "command", "device", "flow", "formal", "matrix", "memory", "move", "placing", "select", "standard", "tb",
        "vector"}
    seen = {path.parent.relative_to(ROOT.parent) for path in rtl_sources()}
    assert seen == set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_changed_line_in_each_folder_generates_the_text_again(folder: Path, tree: Path, texts: list[str]):
    first = verilog_path(TINY)
    assert verilog_path(TINY) == first
    assert len(texts) == 1
    for count, source in enumerate(sorted((tree / folder).glob("*.py")), 1):
        source.write_text(source.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
        assert verilog_path(TINY) != first
        assert len(texts) == 1 + count, source
    assert len(texts) > 1


def test_a_new_file_generates_the_text_again(tree: Path, texts: list[str]):
    verilog_path(TINY)
    (tree / "hw/memory/extra.py").write_text("ROWS = 1\n")
    verilog_path(TINY)
    assert len(texts) == 2


def test_sources_that_leave_the_text_as_it_is_keep_the_simulator(tree: Path, texts: list[str],
                                                                 monkeypatch: pytest.MonkeyPatch):
    """The text is generated anew and found where it was; the folder of the build follows from the bytes."""
    texts.append("same")
    first = verilog_path(TINY)
    source = tree / "hw/queue.py"
    source.write_text(source.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    assert verilog_path(TINY) == first
    assert len(texts) == 3

    def compiled(sources, top, parameters, macros, flags, folder, log, *, waves, host, gated):
        (folder / top).touch(0o777)

    monkeypatch.setattr("gemmule.sim.rtl.build.verilate", compiled)
    seen = []
    for text in ("a", "a", "b"):
        first.write_text(text)
        seen.append(build([*tb.SOURCES, first], tb.TOP, {}).folder)
    assert seen[0] == seen[1] != seen[2]
