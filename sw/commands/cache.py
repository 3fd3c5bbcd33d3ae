"""``gemmule cache``: what is kept to save building it again, and removing it."""

from __future__ import annotations

import json as formats
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gemmule.io.cache import cache_root, writing
from gemmule.io.locks import acquire
from gemmule.sim.rtl.build import MANIFEST, sweep_builds
from gemmule.sim.rtl.process import sweep_runs
from gemmule.sw.commands.common import JsonOption, console, write_json
from gemmule.sw.errors import InputError

__all__ = ["cache"]

cache = typer.Typer(help="Show or clear what is kept: Verilog, simulators, compiled code, logs of failures.",
                        no_args_is_help=True)


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


def _size(path: Path) -> int:
    return sum(p.lstat().st_size for p in (path.rglob("*") if path.is_dir() else [path]) if not p.is_dir())


def _simulator(path: Path) -> Entry:
    manifest = path / MANIFEST
    try:
        written = formats.loads(manifest.read_bytes())
        config = str(written["name"])
        kind = "simulator" + ", with tracing" * bool(written["waves"]) + ", trained" * bool(written["trained"])
    except (OSError, ValueError, KeyError, TypeError):
        return Entry(path, "damaged simulator", path.name.rpartition("-")[0], _size(path), path.stat().st_mtime)
    lock = acquire(manifest, wait=False, create=False)
    busy = lock is None
    if lock:
        lock.close()
    return Entry(path, kind, config, _size(path), manifest.stat().st_mtime, busy)


def _entry(path: Path) -> Entry | None:
    """What lies at a path of the cache; None for what has no name of ours."""
    key = re.fullmatch(r"(?:(.+?)-(verilog|sources)|(.+))-[0-9a-f]{16}(\.partial)?", path.name)
    if path.parent.name == "logs":
        return Entry(path, "log of a failure", "", _size(path), path.stat().st_mtime)
    if path.parent.name == "compiled":
        times = [p.stat().st_mtime for p in path.glob("*.nb*")]
        return Entry(path, "compiled code", "", _size(path), max(times, default=path.stat().st_mtime))
    if not key:
        return None
    named, kind, built, partial = key.groups()
    if partial:
        return Entry(path, "being built", named or built, _size(path), path.stat().st_mtime, True)
    if kind:
        text = "Verilog" if kind == "verilog" else "index"
        return Entry(path, text, named, _size(path), path.stat().st_mtime)
    return _simulator(path)


def entries() -> Iterator[Entry]:
    """All that is kept, without what dead processes left: that is removed."""
    sweep_builds()
    sweep_runs()
    for folder in ("rtl", "compiled", "logs"):
        for path in sorted((cache_root() / folder).glob("*")):
            try:
                found = _entry(path)
            except FileNotFoundError:  # another process has just removed it
                continue
            if found:
                yield found


def _remove(entry: Entry) -> bool:
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


def _bytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 10**5 else f"{size / 1e3:,.1f} kB"


def _age(days: float) -> str:
    return f"{days:.0f} days" if days >= 2 else f"{days * 24:.0f} h" if days >= 1 / 12 else f"{days * 1440:.0f} min"


def _record(entry: Entry) -> dict[str, object]:
    return {"path": str(entry.path), "kind": entry.kind, "config": entry.config, "bytes": entry.size,
            "age_days": round(entry.age, 4), "in_use": entry.busy}


@cache.command()
def show(json: JsonOption = None) -> None:
    """List what is kept: size, and how long ago it was used (simulators) or made.

    Example: gemmule cache show
    """
    found = list(entries())
    total = sum(entry.size for entry in found)
    write_json(json, {"folder": str(cache_root()), "bytes": total, "entries": [_record(entry) for entry in found]})
    table = Table("what", "of", "size", "age", "name", box=None, pad_edge=False)
    for entry in found:
        table.add_row(entry.kind + " (in use)" * entry.busy, entry.config, _bytes(entry.size), _age(entry.age),
                      entry.path.name)
    console.print(f"{cache_root()}: {len(found)} entries, {_bytes(total)}", markup=False, soft_wrap=True)
    if found:
        console.print(table, soft_wrap=True)


@cache.command()
def clear(
    config: Annotated[str, typer.Argument(
        help="Only what belongs to the configuration of this name.")] = "",
    older_than: Annotated[float | None, typer.Option(
        "--older-than", help="Only what was not used or made for this many days.")] = None,
    json: JsonOption = None,
) -> None:
    """Remove all that is kept, or a part of it. What a running process uses stays.

    Example: gemmule cache clear tiny --older-than 30
    """
    if older_than is not None and not 0 <= older_than < 1e6:
        raise InputError(f"--older-than must be from 0 to 1000000 days, not {older_than:g}")
    found = list(entries())
    names = sorted({entry.config for entry in found} - {""})
    chosen = [entry for entry in found
              if (not config or entry.config == config) and (older_than is None or entry.age >= older_than)]
    if config and config not in names:
        raise InputError(f"CONFIG must be one of {', '.join(names) or 'none: nothing is kept'}, not {config!r}")
    with writing():
        removed = [entry for entry in chosen if _remove(entry)]
    freed, held = sum(entry.size for entry in removed), len(chosen) - len(removed)
    write_json(json, {"folder": str(cache_root()), "bytes_freed": freed, "in_use": held,
                      "removed": [_record(entry) for entry in removed]})
    console.print(f"{cache_root()}: {len(removed)} of {len(found)} entries removed, {_bytes(freed)} freed"
                  + (f"; {held} in use, kept" if held else ""), markup=False, soft_wrap=True)
