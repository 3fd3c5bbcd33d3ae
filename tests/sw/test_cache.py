"""``gemmule cache``: what it shows, what it removes, what it leaves to running processes."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gemmule.io.locks import exclusive
from gemmule.sim.rtl.build import MANIFEST, Build, build
from gemmule.sw.cli import main

STUB = Path(__file__).parents[1] / "rtl" / "stub.sv"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def verilate(sources, top, parameters, macros, flags, folder, log, *, waves, host=(), gated=False):  # type: ignore[no-untyped-def]
        (folder / top).write_bytes(b"#!/bin/sh\n".ljust(1000))
        (folder / top).chmod(0o755)
        log.write_text("")

    monkeypatch.setattr("gemmule.sim.rtl.build.verilate", verilate)
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "cache"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gemmule", "cache", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def answer(monkeypatch: pytest.MonkeyPatch, cache: Path, *arguments: str) -> dict[str, Any]:
    path = cache.parent / "answer.json"
    assert run(monkeypatch, *arguments, "--json", str(path)) == 0
    return dict(json.loads(path.read_text()))


def fill(name: str, used_days_ago: float = 0.0) -> Build:
    found = build([STUB], "top", {}, name=name)
    when = time.time() - used_days_ago * 86400
    os.utime(found.folder / MANIFEST, (when, when))
    return found


def test_show(monkeypatch, capsys, cache: Path) -> None:
    assert run(monkeypatch, "show") == 0
    assert capsys.readouterr().out == f"{cache}: 0 entries, 0.0 kB\n"
    held = fill("tiny", 3)
    del held
    used = fill("base")
    (cache / "logs").mkdir()
    (cache / "logs" / "rtl-tiny-1.log").write_text("x" * 10)
    verilog = cache / "rtl" / "tiny-verilog-0123456789abcdef"
    verilog.mkdir()
    (verilog / "gemmule_tiny.sv").write_text("x" * 20)
    (cache / "rtl" / "runtime-0123456789abcdef").mkdir()
    record = answer(monkeypatch, cache, "show")
    found = {(entry["kind"], entry["config"]): entry for entry in record["entries"]}
    assert set(found) == {("simulator", "tiny"), ("simulator", "base"), ("Verilog", "tiny"), ("log of a failure", ""),
                          ("Verilator's library", "")}
    assert found["simulator", "base"]["in_use"]
    assert not found["simulator", "tiny"]["in_use"]
    assert 2.9 < found["simulator", "tiny"]["age_days"] < 3.1
    assert found["simulator", "base"]["bytes"] > 1000
    assert found["Verilog", "tiny"]["bytes"] == 20
    assert record["bytes"] == sum(entry["bytes"] for entry in record["entries"])
    assert "simulator (in use)" in capsys.readouterr().out
    assert used.executable.exists()


def test_clear_leaves_what_runs(monkeypatch, capsys, cache: Path) -> None:
    used, old = fill("base"), fill("tiny").folder
    with exclusive(cache / "rtl" / "edge-0123456789abcdef.lock"):
        (cache / "rtl" / "edge-0123456789abcdef.partial").mkdir()
        record = answer(monkeypatch, cache, "clear")
        assert (record["in_use"], [entry["config"] for entry in record["removed"]]) == (2, ["tiny"])
        assert record["bytes_freed"] > 1000
        assert "1 of 3 entries removed" in capsys.readouterr().out
    assert used.executable.exists()
    assert not old.exists()
    folder = used.folder
    del used
    assert answer(monkeypatch, cache, "clear")["in_use"] == 0
    assert not folder.exists()
    assert not list((cache / "rtl").iterdir())


def test_clear_by_age_and_by_name(monkeypatch, cache: Path) -> None:
    folders = {name: fill(name, days).folder for name, days in (("tiny", 40), ("base", 2), ("tiny-2", 50))}
    assert [entry["config"] for entry in answer(monkeypatch, cache, "clear", "tiny")["removed"]] == ["tiny"]
    assert [entry["config"] for entry in answer(monkeypatch, cache, "clear", "--older-than", "30")["removed"]] == [
        "tiny-2"]
    assert [name for name, folder in folders.items() if folder.exists()] == ["base"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["clear", "huge"], "CONFIG must be one of none: nothing is kept, not 'huge'"),
    (["clear", "--older-than", "-1"], "--older-than must be from 0 to 1000000 days, not -1"),
    (["clear", "--older-than", "nan"], "--older-than must be from 0 to 1000000 days, not nan"),
])
def test_errors_are_one_line(monkeypatch, capsys, cache: Path, arguments: list[str], message: str) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_a_cache_that_cannot_be_written_is_one_line(monkeypatch, capsys, cache: Path) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.touch()
    monkeypatch.setattr(sys, "argv", ["gemmule", "cosim", "gemm", "--config", "tiny", "--shape", "4x4x4"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == (f"error: cache: '{cache}' must be a folder with free space that can be written (Not a directory); "
                     "name another one in GEMMULE_CACHE")
