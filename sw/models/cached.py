"""What lies in the cache folder, entry by entry, and its removal."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemmule.io.cache import cache_root
from gemmule.io.locks import acquire
from gemmule.sim.rtl.build import MANIFEST, sweep_builds
from gemmule.sim.rtl.process import sweep_runs
from gemmule.sw.datastore.kept import FOLDER as DATASTORES
from gemmule.sw.models.drafting.skipping import FOLDER as SKIPPING
from gemmule.sw.models.quantised import FOLDER as MODELS
from gemmule.sw.models.quantised import LOCK

__all__ = ["Entry", "entries", "remove"]


@dataclass(frozen=True)
class Entry:
    """One thing in the cache: a folder or a file."""

    path: Path
    kind: str
    config: str
    """Empty where it belongs to none."""
    size: int
    """Bytes."""
    used: float
    """Seconds of the epoch: last use of a simulator, time of writing of everything else."""
    busy: bool = False
    """A running process has it."""

    @property
    def age(self) -> float:
        """Days."""
        return max(0.0, time.time() - self.used) / 86400


KEPT = {"programs": "program", "mappings": "mapping", MODELS: "quantised model", DATASTORES: "datastore",
        SKIPPING: "layers to skip"}
"""Folders of files that are made as a whole, and what is in each."""


def _size(path: Path) -> int:
    return sum(p.lstat().st_size for p in (path.rglob("*") if path.is_dir() else [path]) if not p.is_dir())


def _simulator(path: Path) -> Entry:
    manifest = path / MANIFEST
    try:
        written = json.loads(manifest.read_bytes())
        config = str(written["name"])
        kind = "simulator" + ", with tracing" * bool(written["waves"]) + ", trained" * bool(written["trained"])
    except (OSError, ValueError, KeyError, TypeError):
        return Entry(path, "damaged simulator", path.name.rpartition("-")[0], _size(path), path.stat().st_mtime)
    lock = acquire(manifest, wait=False, create=False)
    busy = lock is None
    if lock:
        lock.close()
    return Entry(path, kind, config, _size(path), manifest.stat().st_mtime, busy)


def _model(path: Path) -> Entry | None:
    """What lies among the quantised models or datastores; the lock of a killed process is removed."""
    held = path if path.suffix == LOCK else path.with_name(path.name.removeprefix(".").rsplit(".", 2)[0] + LOCK)
    config, lock = path.name.removeprefix(".").rpartition("-")[0], acquire(held, wait=False, create=False)
    busy = lock is None and held.exists()
    if lock:
        held.unlink()
        lock.close()
    if path.suffix == LOCK:
        return Entry(path, "being made", config, 0, path.stat().st_mtime, True) if busy else None
    unfinished = path.name.startswith(".")
    kind = KEPT[path.parent.name]
    return Entry(path, "unfinished " + kind.split()[-1] if unfinished else kind, config, _size(path),
                 path.stat().st_mtime, busy and unfinished)


def _entry(path: Path) -> Entry | None:
    """What lies at a path of the cache; None for what has no name of ours."""
    key = re.fullmatch(r"(?:(.+?)-(verilog|sources)|(.+))-[0-9a-f]{16}(\.partial)?", path.name)
    if path.parent.name == "logs":
        return Entry(path, "log of a failure", "", _size(path), path.stat().st_mtime)
    if path.parent.name == "compiled":
        times = [p.stat().st_mtime for p in path.glob("*.nb*")]
        return Entry(path, "compiled code", "", _size(path), max(times, default=path.stat().st_mtime))
    if path.parent.name in (MODELS, DATASTORES):
        return _model(path)
    if path.parent.name in KEPT:
        return Entry(path, KEPT[path.parent.name], path.name.rpartition("-")[0], _size(path), path.stat().st_mtime)
    if not key:
        return None
    named, kind, built, partial = key.groups()
    if partial:
        return Entry(path, "being built", named or built, _size(path), path.stat().st_mtime, True)
    if kind:
        text = "Verilog" if kind == "verilog" else "index"
        return Entry(path, text, named, _size(path), path.stat().st_mtime)
    if built == "runtime":
        return Entry(path, "Verilator's library", "", _size(path), path.stat().st_mtime)
    return _simulator(path)


def entries() -> Iterator[Entry]:
    """All that is kept, without what dead processes left: that is removed."""
    sweep_builds()
    sweep_runs()
    for folder in ("rtl", "compiled", *KEPT, "logs"):
        for path in sorted((cache_root() / folder).glob("*")):
            try:
                found = _entry(path)
            except FileNotFoundError:  # another process has just removed it
                continue
            if found:
                yield found


def remove(entry: Entry) -> bool:
    """Remove an entry unless a running process has it."""
    if entry.busy:
        return False
    if not entry.path.is_dir():
        entry.path.unlink(missing_ok=True)
        return True
    building = acquire(entry.path.with_name(f"{entry.path.name}.lock"), wait=False)
    if building is None:
        return False
    using = acquire(entry.path / MANIFEST, wait=False, create=False)
    free = using is not None or not (entry.path / MANIFEST).exists()
    if free:
        shutil.rmtree(entry.path)
    entry.path.with_name(f"{entry.path.name}.lock").unlink()
    for lock in (using, building):
        if lock:
            lock.close()
    return free
