"""Simulators in the cache: built once per input, checked before each use, built again when damaged."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from gemmule.hw.tb import FST_HEADERS, LOOP
from gemmule.io.cache import CacheError, cache_folder, cache_root, keep_log, writing
from gemmule.io.locks import Lock, acquire, exclusive
from gemmule.io.progress import say, working
from gemmule.sim.rtl import activity
from gemmule.sim.rtl.verilate import (
    ARGUMENTS,
    C_FLAGS,
    COUNTED,
    COUNTING,
    FLAGS,
    WAVE_ARGUMENTS,
    WAVE_FLAGS,
    BuildError,
    check_tools,
    verilate,
)

__all__ = ["MANIFEST", "Build", "BuildError", "build", "build_root", "discard", "fingerprint", "sweep_builds"]

MANIFEST = "build.json"
"""In the folder of each finished simulator: what it is, the executable's hash. Its users hold it locked (shared)."""
LOG = "build.log"
ACTIVITY = Path(activity.__file__).parent


@dataclass(frozen=True)
class Build:
    """A finished simulator: its folder and executable. While this exists, ``gemmule cache clear`` leaves it alone."""

    folder: Path
    executable: Path
    waves: bool
    hold: Lock | None = dataclasses.field(default=None, repr=False, compare=False)


def build_root() -> Path:
    """Folder of all Verilog and all simulators that are kept; not made here."""
    return cache_root() / "rtl"


def fingerprint(parts: Sequence[bytes]) -> str:
    """Sixteen hexadecimal digits of the sha256 over length-prefixed parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]


def sweep_builds() -> None:
    """Remove what builds of dead processes left: unfinished folders and lock files."""
    root = build_root()
    with contextlib.suppress(OSError):
        for path in [*root.glob("*.partial"), *root.glob("*.lock")]:
            lock_file = path.with_suffix(".lock")
            if lock := acquire(lock_file, wait=False):
                shutil.rmtree(lock_file.with_suffix(".partial"), ignore_errors=True)
                lock_file.unlink(missing_ok=True)
                lock.close()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _found(folder: Path, top: str, waves: bool) -> tuple[Build | None, str]:
    """The finished simulator in ``folder``, or what is wrong with it (empty: there is none)."""
    manifest, executable = folder / MANIFEST, folder / top
    try:
        hold = acquire(manifest, shared=True, create=False)
        if hold is None:
            return None, f"{MANIFEST} is missing" if folder.exists() else ""
        written = json.loads(manifest.read_bytes())
        if executable.stat().st_size != written["bytes"]:
            return None, f"{executable.stat().st_size} bytes instead of {written['bytes']}"
        if _digest(executable) != written["sha256"]:
            return None, "its checksum is wrong"
        if not os.access(executable, os.X_OK):
            return None, "it is not executable"
        with contextlib.suppress(OSError):  # a cache that can only be read serves too
            os.utime(manifest)  # the time of the last use
    except FileNotFoundError:
        return None, "its executable is missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"it cannot be read: {error}"
    return Build(folder, executable, waves, hold), ""


def discard(build: Build) -> None:
    """Remove a simulator that does not start, unless another process has already replaced it."""
    lock = build.folder.with_name(f"{build.folder.name}.lock")
    with writing(), exclusive(lock, f"the simulator in {build.folder}"), contextlib.suppress(FileNotFoundError):
        mine = build.hold and os.fstat(build.hold.handle)
        if not mine or os.path.samestat(mine, (build.folder / MANIFEST).stat()):
            shutil.rmtree(build.folder)


def _duration(size: int, twice: bool) -> str:
    """How long a build may take, from the bytes of Verilog; two cores."""
    text = "seconds" if size < 10**6 else "a minute" if size < 25 * 10**5 else "2 to 6 minutes"
    return f"{text}, twice" if twice else text


def build(sources: Sequence[Path], top: str, parameters: Mapping[str, int], *, name: str = "sim",
          waves: bool = False, train: Callable[[Build], None] | None = None,
          macros: Mapping[str, str] | None = None, host: Sequence[tuple[Path, bytes]] = (),
          gated: bool = False) -> Build:
    """Return the simulator of ``top`` with integer ``parameters`` and defined ``macros``, building it if need be.

    The folder is keyed by the sources' bytes, parameters, macros, flags, tool versions and machine. A build appears
    there only when it is complete, so an interrupted one leaves nothing behind. One that was damaged since is built
    again, once.

    ``train`` runs a first build on something typical; the second one is compiled for what that did
    (profile-guided optimisation). It behaves the same and has a folder of its own. Not with ``waves``.

    ``host``: files of a program in C and C++ that drives the simulator, as (name, text); by default cocotb does.
    ``gated``: what cannot change in a cycle does not run (:mod:`gemmule.sim.rtl.activity`); not with ``waves``.

    Raises:
        BuildError: a tool is missing or Verilator or the compiler failed.
        CacheError: the cache cannot be written or is full.
    """
    check_tools()
    defined, train, gated = dict(macros or {}), None if waves else train, gated and not waves
    flags = WAVE_FLAGS if waves else COUNTED if train else FLAGS
    texts = [(Path(source), Path(source).read_bytes()) for source in sources]
    key = fingerprint([
        *(text for _, text in texts), *(header.read_bytes() for header in FST_HEADERS if waves),
        *(part for path, text in host for part in (path.name.encode(), text)),
        *(path.read_bytes() for path in (LOOP, *sorted(ACTIVITY.glob("*.py"))) if gated),
        repr((top, sorted(parameters.items()), sorted(defined.items()), ARGUMENTS, WAVE_ARGUMENTS if waves else (),
              flags, version("verilator"), version("cocotb"), platform.machine(), platform.libc_ver(),
              *(C_FLAGS if host else ()))).encode(),
    ])
    final = build_root() / f"{name}-{key}"
    sweep_builds()
    found, _ = _found(final, top, waves)
    if found:
        return found

    def make(folder: Path, flags: Sequence[str]) -> None:
        try:
            verilate(texts, top, parameters, defined, flags, folder, folder / LOG, waves=waves, host=host,
                     gated=gated)
        except BuildError as error:
            kept = keep_log(folder / LOG, f"build-{name}")
            where = f"the log is {kept}" if kept else "the log could not be kept"
            raise BuildError(f"build: the simulator of {name} cannot be built: {error}; {where}") from None

    partial = final.with_name(f"{final.name}.partial")
    cache_folder("rtl")
    with writing(), exclusive(final.with_name(f"{final.name}.lock"), f"the simulator of {name}"):
        found, wrong = _found(final, top, waves)
        if found:
            return found
        if wrong:
            say(f"the simulator in {final} is damaged ({wrong}): building it again")
        seconds = time.monotonic()
        shutil.rmtree(final, ignore_errors=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        duration = _duration(sum(len(text) for _, text in texts), train is not None)
        try:
            what = f"the simulator of {name}{' with tracing' * waves}"
            with working(f"building {what} (Verilator and C++, {duration}; kept in {final.parent})"):
                if train:
                    make(partial, COUNTING)
                    train(Build(partial, partial / top, waves))
                    for path in [*partial.glob("*.[oa]"), *partial.glob("*.gch"), partial / top]:
                        path.unlink()
                make(partial, flags)
            for path in partial.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name not in (top, LOG):
                    path.unlink()
            executable = partial / top
            (partial / MANIFEST).write_text(json.dumps({
                "name": name, "top": top, "waves": waves, "trained": train is not None,
                "bytes": executable.stat().st_size, "sha256": _digest(executable),
                "seconds": round(time.monotonic() - seconds, 1)}, indent=1) + "\n")
            partial.rename(final)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        found, wrong = _found(final, top, waves)
    if found is None:
        raise CacheError(f"cache: what was just written to {final} reads differently ({wrong}); name another folder "
                         "in GEMMULE_CACHE")
    return found
