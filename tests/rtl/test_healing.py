"""What is damaged in the cache is noticed, said in one line and built again once; what dies is noticed at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.io.cache import CacheError
from gemmule.io.locks import exclusive
from gemmule.sim.rtl import process, verilog
from gemmule.sim.rtl.build import MANIFEST, Build, BuildError, build, build_root, sweep_builds
from gemmule.sim.rtl.device import RtlDevice, RtlError
from gemmule.sim.rtl.verilog import verilog_path

STUB = Path(__file__).with_name("stub.sv")
TINY = load_config("tiny")
FAKE = f"""
import sys
from pathlib import Path
from gemmule.config import load_config
from gemmule.sim.rtl import build
from gemmule.sim.rtl.device import RtlDevice

def verilate(sources, top, parameters, macros, flags, folder, log, *, waves, host=(), gated=False):
    (folder / top).write_text("#!/bin/sh\\n" + sys.argv[1] + "\\n")
    (folder / top).chmod(0o755)
    log.write_text("")

build.verilate = verilate
RtlDevice(load_config("tiny"), verilog=Path({str(STUB)!r}))
"""
"""A process that waits for a simulator that is a shell script."""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "runs"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "runs"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for Verilator and the compiler: makes a shell script of the last item; one more for each build."""
    made = ["exit 0"]

    def verilate(sources, top, parameters, macros, flags, folder, log, *, waves, host=(), gated=False):  # type: ignore[no-untyped-def]
        (folder / top).write_text(f"#!/bin/sh\n{made[-1]}\n")
        (folder / top).chmod(0o755)
        log.write_text("")
        made.append(made[-1])

    monkeypatch.setattr("gemmule.sim.rtl.build.verilate", verilate)
    return made


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:9])


DAMAGE: dict[str, tuple[Callable[[Build], object], str]] = {
    "truncated": (lambda b: _truncate(b.executable), "9 bytes instead of 17"),
    "empty": (lambda b: b.executable.write_bytes(b""), "0 bytes instead of 17"),
    "flipped": (lambda b: _flip(b.executable), "its checksum is wrong"),
    "not executable": (lambda b: b.executable.chmod(0o644), "it is not executable"),
    "missing": (lambda b: b.executable.unlink(), "its executable is missing"),
    "folder": (lambda b: (b.executable.unlink(), b.executable.mkdir()), ""),
    "no manifest": (lambda b: (b.folder / MANIFEST).unlink(), "build.json is missing"),
    "cut manifest": (lambda b: _truncate(b.folder / MANIFEST), "it cannot be read"),
    "other manifest": (lambda b: (b.folder / MANIFEST).write_text("[]"), "it cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_simulator_is_built_again_once(damage: str, script: list[str], capsys: pytest.CaptureFixture[str]):
    first = build([STUB], "top", {}, name="stub")
    assert build([STUB], "top", {}, name="stub") == first
    assert len(script) == 2
    capsys.readouterr()
    DAMAGE[damage][0](first)
    assert build([STUB], "top", {}, name="stub") == first
    error = capsys.readouterr().err
    assert error.count("is damaged") == 1
    assert DAMAGE[damage][1] in error
    assert len(script) == 3
    assert build([STUB], "top", {}, name="stub") == first
    assert capsys.readouterr().err == ""
    assert len(script) == 3


@pytest.mark.parametrize("damage", ["text cut", "text flipped", "text empty", "pointer cut", "pointer binary",
                                    "pointer elsewhere"])
def test_damaged_verilog_is_generated_again_once(damage: str, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]):
    made = []

    def generate(config, folder, timing):  # type: ignore[no-untyped-def]
        made.append(folder)
        folder.mkdir()
        path = folder / f"gemmule_{config.name}.sv"
        path.write_text("module gemmule; endmodule\n")
        return path

    monkeypatch.setattr(verilog, "generate", generate)
    first = verilog_path(TINY)
    text = first.read_bytes()
    pointer = next(build_root().glob("tiny-sources-*"))
    what, how = damage.split()
    path = first if what == "text" else pointer
    if how == "cut":
        _truncate(path)
    elif how == "flipped":
        _flip(path)
    else:
        path.write_bytes({"empty": b"", "binary": b"\xff\x00\xfe", "elsewhere": b"../../../etc/passwd"}[how])
    capsys.readouterr()
    assert verilog_path(TINY) == first
    assert first.read_bytes() == text
    assert capsys.readouterr().err.count("is damaged") == 1
    assert verilog_path(TINY) == first
    assert (capsys.readouterr().err, len(made)) == ("", 2)


@pytest.mark.parametrize(("text", "how", "builds"), [
    ("echo no such word >&2; exit 3", r"exit status 3\); last line of its log: no such word; log: .*\.log", 1),
    ("kill -TERM $$", r"by SIGTERM\); its log is empty", 1),
    ("exit 127", "exit status 127", 2),  # as the loader where a library is missing
    ("kill -SEGV $$", "by SIGSEGV", 2),
])
def test_a_simulator_that_dies_is_noticed_at_once(text: str, how: str, builds: int, script: list[str],
                                                  tmp_path: Path):
    script.append(text)
    begin = time.monotonic()
    with pytest.raises(RtlError, match=rf"rtl tiny: the simulator /.*/gemmule_tb did not start \({how}"):
        RtlDevice(TINY, verilog=STUB)
    assert time.monotonic() - begin < 60
    assert len(script) == 2 + builds
    assert not list((tmp_path / "runs").iterdir())
    assert len(list((tmp_path / "cache").glob("logs/*"))) == ("echo" in text)


def _wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_an_interrupted_run(number: signal.Signals, tmp_path: Path):
    """By itself where Python can; after a kill by the next run, once the simulator is dead too."""
    runs, mark = tmp_path / "runs", tmp_path / "pid"
    handler = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
    text = f"echo $$ > '{mark}.part'; mv '{mark}.part' '{mark}'; exec sleep 1000"
    child = subprocess.Popen([sys.executable, "-c", handler + FAKE, text], stderr=subprocess.DEVNULL)
    _wait_for(mark.exists)
    simulator = int(mark.read_text())
    (folder,) = runs.iterdir()
    process.sweep_runs()
    assert folder.exists()
    child.send_signal(number)
    assert child.wait(timeout=300) != 0
    if number == signal.SIGKILL:
        process.sweep_runs()
        assert folder.exists()  # the simulator lives
        os.kill(simulator, signal.SIGKILL)
        _wait_for(lambda: (process.sweep_runs(), not folder.exists())[1])
    assert not list(runs.iterdir())
    with pytest.raises(ProcessLookupError):
        _wait_for(lambda: os.kill(simulator, 0))


def test_unfinished_builds_of_the_dead_are_removed_and_those_of_the_living_stay(script: list[str]):
    root = build_root()
    for name in ("dead-0123456789abcdef", "live-0123456789abcdef"):
        (root / f"{name}.partial").mkdir(parents=True)
        (root / f"{name}.partial" / "part.o").touch()
    (root / "dead-0123456789abcdef.lock").touch()
    (root / "old-0123456789abcdef.lock").touch()
    with exclusive(root / "live-0123456789abcdef.lock"):
        sweep_builds()
        assert {path.name for path in root.iterdir()} == {
            "live-0123456789abcdef.partial", "live-0123456789abcdef.lock"}
    build([STUB], "top", {}, name="stub")
    (path,) = root.iterdir()
    assert path.name.startswith("stub-")


def test_who_waits_for_another_build_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.lock"
    code = ("import sys, time, pathlib\nfrom gemmule.io.locks import exclusive\n"
            "with exclusive(pathlib.Path(sys.argv[1])):\n    print('has', flush=True)\n    time.sleep(1)\n")
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"has\n"
        with exclusive(path, "the simulator of base"):
            assert other.wait(timeout=300) == 0
    assert capsys.readouterr().err == "waiting for another process, which builds the simulator of base ...\n"
    assert not path.exists()


def test_a_full_or_broken_cache_is_one_line(script: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gemmule.sim.rtl.build.verilate", full)
    with pytest.raises(CacheError, match=r"^cache: '.*cache' must be a folder with free space .*No space left on "
                                         r"device\); name another one in GEMMULE_CACHE$"):
        build([STUB], "top", {})
    assert not list(build_root().iterdir())
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing")):
        monkeypatch.setenv("GEMMULE_CACHE", str(wrong))
        with pytest.raises(CacheError, match=rf"^cache: '{wrong}' must be a folder"):
            build([STUB], "top", {})
        with pytest.raises(CacheError, match=rf"^cache: '{wrong}' must be a folder"):
            verilog_path(TINY)


def test_a_temporary_folder_that_cannot_be_written_is_one_line(script: list[str], tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(RtlError, match=r"rtl tiny: the temporary folder must have .*; name another in TMPDIR"):
        RtlDevice(TINY, verilog=STUB)


def test_a_failed_build_keeps_its_log_and_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def verilate(*arguments: object, **_: object) -> None:
        Path(str(arguments[6])).write_text("%Error: wrong\n")
        raise BuildError("%Error: wrong")

    monkeypatch.setattr("gemmule.sim.rtl.build.verilate", verilate)
    for _ in range(25):
        with pytest.raises(BuildError, match=r"of stub cannot be built: %Error: wrong; the log is .*\.log"):
            build([STUB], "top", {}, name="stub")
    assert len(list((tmp_path / "cache" / "logs").iterdir())) == 20
    assert not list(build_root().iterdir())
