"""Output files that a user names: checked before any work, written completely or not at all. Light to import."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gemmule.sw.errors import InputError

__all__ = ["OPENED", "STDOUT", "check_writable", "write_file"]

STDOUT = Path("-")


def check_writable(option: str, path: Path | None) -> Path | None:
    """Refuse a path that cannot be written, before any work is done; creates nothing.

    Raises:
        InputError: the path is a folder, or its folder cannot be created or written.
    """
    if path is None or (path == STDOUT and option == "--json"):
        return path
    target = path.resolve()
    there = next(folder for folder in (target.parent, *target.parents) if folder.exists())
    device = target.exists() and not target.is_file()
    if target.is_dir() or not os.access(target if device else there, os.W_OK) or not there.is_dir():
        raise InputError(f"{option} must name a writable file, not {str(path)!r}")
    return path


OPENED = {"--html": "page with figures, for a browser:", "--trace": "trace, for https://ui.perfetto.dev:"}
"""Files that a user opens; the messages that announce them."""


def write_file(path: Path, content: bytes | str, option: str, check: Callable[[Path], None] | None = None) -> None:
    """Write a file completely or not at all, and announce pages and traces.

    Folders created for a file are removed again if writing it fails. ``check``: see
    :func:`gemmule.io.files.write_atomically`.

    Raises:
        InputError: the file cannot be written; the message names ``option``.
    """
    from gemmule.io.files import write_atomically
    from gemmule.io.progress import say

    made = [folder for folder in path.resolve().parents if not folder.exists()]
    try:
        write_atomically(path, content, check)
    except BaseException as error:
        for folder in made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        if isinstance(error, OSError):
            raise InputError(
                f"{option} must name a writable file, not {str(path)!r}: {error.strerror}") from None
        raise
    if option in OPENED:
        say(f"{OPENED[option]} {path}")
