"""Files appear whole, with ordinary rights; the cache folder can be named; long work speaks once."""

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from gemmule.io.cache import CacheError, cache_folder, cache_root, keep_log
from gemmule.io.files import write_atomically
from gemmule.io.locks import acquire
from gemmule.io.memory import peak_memory
from gemmule.io.progress import counting, estimating, working


def test_a_file_appears_whole_with_ordinary_rights(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_atomically(path, "größe")
    assert path.read_bytes() == "größe".encode()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_nothing_is_left_of_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="space"):
        write_atomically(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "old"


def test_links_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    write_atomically(Path("/dev/null"), b"new")
    assert not Path("/dev/null").is_file()


def test_the_cache_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "kept"))
    assert cache_root() == tmp_path / "kept"
    monkeypatch.delenv("GEMMULE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "gemmule"


def test_long_work_speaks_once_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with working("building"), working("inner"):
        pass
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "building ...\ninner ...\n")


def test_counting_speaks_ten_times(capsys: pytest.CaptureFixture[str]) -> None:
    for total in (7, 10, 95):
        with counting("programs", total) as tell:
            for i in range(total):
                tell(i + 1, f"{i} before")
        seen = capsys.readouterr()
        lines = seen.err.splitlines()
        assert (seen.out, len(lines)) == ("", min(total, 10))
        assert lines[-1] == f"  {total}/{total} programs, {total - 1} before"


def test_estimates_come_ten_times(capsys: pytest.CaptureFixture[str]) -> None:
    """However work is cut up; more work than was told of is no mistake."""
    with estimating("cups", 40.0) as tell:
        for number in range(41):
            tell(f"cup {number}", 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "  10 % of cups, cup 3, about 0 s left"
    assert lines[-1] == "  100 % of cups, cup 39"


def test_peak_memory_grows_with_what_is_held() -> None:
    before = peak_memory()
    held = bytearray(os.urandom(1 << 20) * 256)
    after = peak_memory()
    assert before is not None
    assert after is not None
    assert after >= max(before, len(held))


def test_what_a_check_refuses_does_not_appear(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        assert path.read_text() == "new"
        raise ValueError("no")

    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(ValueError, match="no"):
        write_atomically(target, "new", refuse)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_is_one_processs_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    first = acquire(path)
    assert first is not None
    assert acquire(path, wait=False) is None
    assert acquire(path, wait=False, shared=True) is None
    first.close()
    readers = [acquire(path, shared=True, wait=False), acquire(path, shared=True, wait=False)]
    assert all(readers)
    assert acquire(path, wait=False) is None
    del readers
    assert acquire(path, wait=False)
    assert acquire(tmp_path / "none", create=False) is None
    assert acquire(tmp_path, create=False)  # a folder


def test_who_waited_for_a_removed_lock_file_takes_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    first, found = acquire(path), []
    waiting = threading.Thread(target=lambda: found.append(acquire(path)))
    waiting.start()
    time.sleep(0.2)
    assert first is not None
    path.unlink()
    first.close()
    waiting.join()
    assert path.exists()
    assert acquire(path, wait=False) is None
    assert found[0]


def test_logs_of_failures_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "log").write_text("text")
    kept = [keep_log(tmp_path / "log", "rtl-tiny") for _ in range(30)]
    assert len(list((tmp_path / "cache/logs").iterdir())) == 20
    assert kept[-1]
    assert kept[-1].read_text() == "text"
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "file"))
    assert keep_log(tmp_path / "log", "rtl-tiny") is None
    with pytest.raises(CacheError, match=r"must be a folder .*Not a directory"):
        cache_folder("rtl")
