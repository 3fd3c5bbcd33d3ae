"""Compiled code is kept in the cache folder; compiling is said; damaged or unwritable files cost time only."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gemmule.io.locks import acquire
from gemmule.sim.compiled import kept


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function of a new module, as a new process would have it."""
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    path = tmp_path / "source" / "twice.py"
    path.parent.mkdir()
    path.write_text("def twice(x):\n    return 2 * x\n")

    def again() -> Any:
        spec = importlib.util.spec_from_file_location("twice", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "twice", module)  # what was compiled may name it
        spec.loader.exec_module(module)
        return kept("the doubling")(module.twice)

    return again


def test_compiled_once_and_said(load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load()(21) == 42
    folder = tmp_path / "cache/compiled"
    assert capsys.readouterr().err == f"compiling the doubling (10 to 30 s, once; kept in {folder}) ...\n"
    assert load()(21) == 42
    assert capsys.readouterr().err == ""
    assert {path.suffix for path in (tmp_path / "cache/compiled").glob("*/*")} == {".nbi", ".nbc", ".lock"}
    assert [path.name for path in (tmp_path / "source").iterdir() if path.name != "__pycache__"] == ["twice.py"]


def test_what_another_process_compiles_is_waited_for(load: Any, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    assert load()(21) == 42
    (path,) = (tmp_path / "cache/compiled").glob("*/*.lock")
    kept_code = {code: code.read_bytes() for code in path.parent.iterdir() if code != path}
    for code in kept_code:
        code.unlink()
    lock, found = acquire(path), []
    assert lock
    waiting = Thread(target=lambda: found.append(load()(21)))
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    for code, data in kept_code.items():
        code.write_bytes(data)
    lock.close()
    waiting.join(30)
    assert found == [42]
    assert capsys.readouterr().err.count("compiling") == 1


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("size", [0, 100])
def test_damaged_code_is_compiled_again(suffix: str, size: int, load: Any, tmp_path: Path,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    assert load()(21) == 42
    (path,) = (tmp_path / "cache/compiled").glob(f"*/*{suffix}")
    path.write_bytes(path.read_bytes()[:size])
    capsys.readouterr()
    assert load()(21) == 42
    assert capsys.readouterr().err.count("is damaged") == 1
    assert load()(21) == 42
    assert capsys.readouterr().err == ""


def test_a_full_folder_is_said_and_no_more(load: Any, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    function = load()
    monkeypatch.setattr("os.replace", full)
    assert function(21) == 42
    assert "compiled code cannot be kept in" in capsys.readouterr().err


def test_the_users_own_folder_wins(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "own"))
    assert load()(21) == 42
    assert list((tmp_path / "own").glob("*/*.nbc"))
    assert not (tmp_path / "cache").exists()


def test_nothing_is_written_beside_the_sources(tmp_path: Path) -> None:
    """Where the cache cannot be made, code is compiled and not kept: numba would take ``__pycache__``."""
    (tmp_path / "file").write_text("")
    (tmp_path / "module.py").write_text(
        "from gemmule.sim.compiled import kept\n@kept('it')\ndef double(x):\n    return 2 * x\nprint(double(21))\n")
    environment = os.environ | {"GEMMULE_CACHE": str(tmp_path / "file" / "cache"), "HOME": str(tmp_path / "home")}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "module.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "42\n", done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "module.py"]
