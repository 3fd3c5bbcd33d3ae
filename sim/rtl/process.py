"""One simulator process: its folder, the pipe to it, its end.

The folder lies among the temporary files and is locked while this process or the simulator lives. So the next run can
tell which folders nobody needs any more, however their owners died.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from gemmule.hw import tb
from gemmule.io.cache import keep_log
from gemmule.io.locks import Lock, acquire
from gemmule.sim.rtl.build import Build

__all__ = ["SimulatorDeathError", "SimulatorProcess", "simulator_environment", "sweep_runs"]

PREFIX = "gemmule-run-"
KEPT = "kept"
"""A file in folders that stay although nobody has them: those with a waveform."""
FOREIGN = (127, -signal.SIGILL, -signal.SIGBUS, -signal.SIGSEGV)
"""Ends of a program that was made for another machine: the loader's exit status, and signals."""


class SimulatorDeathError(Exception):
    """The simulator ended before it answered; the message says how."""


def simulator_environment(folder: Path) -> dict[str, str]:
    """What cocotb's runner would set, for a process that we keep."""
    import cocotb_tools.config
    import find_libpython

    libraries = (str(cocotb_tools.config.libs_dir), os.environ.get("LD_LIBRARY_PATH"))
    return os.environ | {
        "GPI_USERS": f"{find_libpython.find_libpython()};{cocotb_tools.config.pygpi_entry_point()}",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        "PYGPI_PYTHON_BIN": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "COCOTB_TEST_MODULES": "gemmule.sim.rtl.server",
        "COCOTB_TOPLEVEL": tb.TOP,
        "TOPLEVEL_LANG": "verilog",
        "COCOTB_TRUST_INERTIAL_WRITES": "1",
        "COCOTB_RESULTS_FILE": str(folder / "results.xml"),
        "COCOTB_ANSI_OUTPUT": "0",
        "PYTHONWARNINGS": "default",
    }


def sweep_runs() -> None:
    """Remove the folders of runs of which every process is dead."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            mine = path.lstat().st_uid == os.geteuid()
            if mine and not (path / KEPT).exists() and (lock := acquire(path, wait=False, create=False)):
                shutil.rmtree(path, ignore_errors=True)
                lock.close()


def _locked_folder() -> tuple[Path, Lock | None]:
    """A new temporary folder; no lock where the file system has none."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            lock = acquire(path, create=False)
        except OSError:
            return path, None
        if lock:  # not swept by another process in between
            return path, lock


def _end(process: subprocess.Popen[bytes] | None, folder: Path, lock: Lock | None, waves: bool) -> None:
    """Nothing is left of a run but its waveform."""
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()
    if waves:
        with contextlib.suppress(OSError):
            (folder / KEPT).touch()
    else:
        shutil.rmtree(folder, ignore_errors=True)
    if lock:
        lock.close()


class SimulatorProcess:
    """A running simulator that serves requests (``sim/rtl/server.py``).

    Parameters
    ----------
    build:
        What to run; it cannot be cleared from the cache meanwhile.
    arguments:
        Of the executable.

    Raises:
        OSError: there is no temporary folder that can be written.
    """

    def __init__(self, build: Build, arguments: Sequence[str] = ()) -> None:
        sweep_runs()
        self.folder, lock = _locked_folder()
        self.log = self.folder / "simulator.log"
        self.build, self.closed = build, False
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        self._busy = False
        try:
            self._connection, theirs = Pipe()
            with theirs, self.log.open("wb") as log:
                handles = (theirs.fileno(), *([lock.handle] if lock else []))
                environment = simulator_environment(self.folder) | {"GEMMULE_RTL_SOCKET": str(theirs.fileno())}
                try:  # in a process group of its own: an interrupt is for this process, which ends the other one
                    self._process = subprocess.Popen(
                        [str(build.executable), "+dir=.", *arguments], cwd=self.folder, env=environment,
                        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, pass_fds=handles,
                        process_group=0)
                except OSError as error:
                    self._error = error
        finally:
            self._end = weakref.finalize(self, _end, self._process, self.folder, lock, build.waves)

    @property
    def foreign(self) -> bool:
        """The dead process looks as if its executable had been made for another machine."""
        return self._process is None or self._process.poll() in FOREIGN

    def _death(self) -> SimulatorDeathError:
        """How the process ended."""
        if self._process is None:
            return SimulatorDeathError(str(self._error and self._error.strerror))
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return SimulatorDeathError("it closed its connection")
        return SimulatorDeathError(f"exit status {status}" if status >= 0 else f"by {signal.Signals(-status).name}")

    def send(self, message: object) -> None:
        try:
            self._busy = True
            self._connection.send(message)
        except OSError:
            raise self._death() from None

    def receive(self, seconds: float | None = None) -> Any:
        """The next answer; a dead process is noticed at once, a silent one after ``seconds``.

        Raises:
            SimulatorDeathError: there will be none.
        """
        try:
            if not self._connection.poll(seconds):
                raise SimulatorDeathError(f"no answer in {seconds} s")
            answer = self._connection.recv()
        except (EOFError, OSError):
            raise self._death() from None
        self._busy = False
        return answer

    def abandon(self, name: str) -> str:
        """End the process and keep its log: where that is and, if the process was dead, the log's last line."""
        dead = self._process is None or self._process.poll() is not None
        if self._process is not None:
            if self.build.waves:  # what is to be looked at is complete only if it ends by itself
                self._quit(60)
            self._process.kill()
            self._process.wait()
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        kept = keep_log(self.log, name) if last else None
        self._finish()
        if not last:
            return "its log is empty"
        return f"last line of its log: {last[:200]}; log: {kept}" if dead else f"log: {kept}"

    def close(self) -> None:
        """Let the simulator finish; kill it if it is at work. Again has no effect."""
        if self.closed:
            return
        self._quit(600 if self.build.waves else 20)
        self._finish()

    def _quit(self, seconds: float) -> None:
        """Ask it to end, unless it is at work, and give it this long."""
        if self._process is not None and not self._busy:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._connection.send({"kind": "quit"})
                self._process.wait(timeout=seconds)

    def _finish(self) -> None:
        self.closed = True
        self._connection.close()
        self._end()
