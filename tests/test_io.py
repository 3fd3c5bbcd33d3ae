"""Files appear whole, with ordinary rights; the cache folder can be named; long work speaks once."""

import os
import stat
from pathlib import Path

import pytest

from gemmule.io.cache import cache_root
from gemmule.io.files import write_atomically
from gemmule.io.progress import working


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
