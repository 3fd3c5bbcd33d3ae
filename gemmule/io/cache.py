"""Where everything that can be built again is kept, for all working folders."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs

__all__ = ["CacheError", "cache_folder", "cache_root", "keep_log", "writing"]

LOGS = 20
"""Logs that are kept; the oldest go first."""


class CacheError(RuntimeError):
    """The cache cannot be written; the message names the folder, the rule and the fix."""


def cache_root() -> Path:
    """``$GEMMULE_CACHE``, else the user's cache folder (``~/.cache/gemmule`` on Linux); not made here."""
    named = os.environ.get("GEMMULE_CACHE")
    return Path(named).expanduser().absolute() if named else platformdirs.user_cache_path("gemmule")


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """What goes wrong with the files of the cache in this block becomes a :class:`CacheError`."""
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"cache: {str(cache_root())!r} must be a folder with free space that can be written "
            f"({error.strerror or error}); name another one in GEMMULE_CACHE") from None


def cache_folder(name: str) -> Path:
    """A folder of the cache that can be written, made if need be.

    Raises:
        CacheError: it cannot be made or written.
    """
    path = cache_root() / name
    with writing():
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    return path


def keep_log(source: Path, name: str) -> Path | None:
    """Copy the log of something that failed to ``logs``; None if that cannot be written.

    Of all logs the :data:`LOGS` newest stay.
    """
    folder = cache_root() / "logs"
    path = folder / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{time.monotonic_ns() % 10**6:06}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    ages = {}
    for log in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # another process removes old ones too
            ages[log] = log.stat().st_mtime
    for log in sorted(ages, key=ages.__getitem__)[:-LOGS]:
        log.unlink(missing_ok=True)
    return path
