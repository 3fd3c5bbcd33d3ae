"""Verilator's own library, compiled once for all simulators: it costs more than a small design does."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from gemmule.io.cache import cache_root

__all__ = ["keep_runtime", "take_runtime"]

_KEPT = "runtime"


@cache
def _compiler() -> str:
    return subprocess.run(["c++", "--version"], capture_output=True, text=True, check=False).stdout


def _settings(folder: Path) -> Mapping[str, str]:
    """Variables of the generated makefile by which the library is compiled, and its files."""
    text = (folder / "Vtop_classes.mk").read_text(encoding="utf-8")
    settings = dict(re.findall(r"^(VM_\w+) = (\d+)$", text, re.MULTILINE))
    for name in ("VM_GLOBAL_FAST", "VM_GLOBAL_SLOW"):
        found = re.search(rf"^{name} \+= \\\n((?:  \w+ \\\n)*)", text, re.MULTILINE)
        settings[name] = " ".join(re.findall(r"\w+", found[1])) if found else ""
    return settings


def _place(folder: Path, flags: Sequence[str]) -> tuple[Path, list[str]]:
    """Where the library that this makefile wants is kept, and its objects."""
    settings = _settings(folder)
    key = repr((sorted(settings.items()), [flag for flag in flags if flag.startswith("OPT_GLOBAL")],
                version("verilator"), _compiler(), os.uname().machine))
    objects = [f"{name}.o" for kind in ("VM_GLOBAL_FAST", "VM_GLOBAL_SLOW") for name in settings[kind].split()]
    return cache_root() / "rtl" / f"{_KEPT}-{hashlib.sha256(key.encode()).hexdigest()[:16]}", objects


def _sound(place: Path, name: str) -> bytes | None:
    """A kept object; None where it is missing or not what was kept."""
    with contextlib.suppress(OSError):
        data = (place / name).read_bytes()
        if (place / f"{name}.sha256").read_bytes() == hashlib.sha256(data).hexdigest().encode():
            return data
    return None


def take_runtime(folder: Path, flags: Sequence[str]) -> None:
    """Put the kept objects where make would compile them; it takes what is newer than its source.

    An object whose hash is not the kept one is left out, so that make compiles it again.
    """
    place, objects = _place(folder, flags)
    for name in objects:
        if (data := _sound(place, name)) is not None:
            (folder / name).write_bytes(data)


def keep_runtime(folder: Path, flags: Sequence[str]) -> None:
    """Keep the objects that make has compiled, all or none; a cache that cannot take them costs time only."""
    place, objects = _place(folder, flags)
    if all(_sound(place, name) is not None for name in objects):
        return
    with contextlib.suppress(OSError):
        part = Path(tempfile.mkdtemp(dir=place.parent, prefix=f"{place.name}.", suffix=".partial"))
        try:
            for name in objects:
                data = (folder / name).read_bytes()
                (part / name).write_bytes(data)
                (part / f"{name}.sha256").write_text(hashlib.sha256(data).hexdigest())
            shutil.rmtree(place, ignore_errors=True)
            part.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
