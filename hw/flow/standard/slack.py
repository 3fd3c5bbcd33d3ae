"""Slowest paths of a netlist of standard cells, by OpenSTA: no wires, an ideal clock."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from gemmule.hw.flow.standard.mapped import CLOCK, Mapped
from gemmule.hw.flow.synth import GLUE, unit_of
from gemmule.hw.flow.tools import SynthError
from gemmule.hw.flow.verilog import TOP

__all__ = ["CellPath", "Slack", "paths_of", "slack_of", "version"]

PERIOD_NS = 10.0
PAIRS = 10
PATHS = 4000
"""Ends of paths that are asked for: the slowest of each, from which pairs of units are made."""


@dataclass(frozen=True)
class CellPath:
    """A path from a register, macro or input to a register, macro or output."""

    start: str
    end: str
    start_unit: str
    end_unit: str
    ns: float
    """With clock to output and setup: the period that it needs."""

    @property
    def mhz(self) -> float:
        return round(1000 / self.ns, 1)

    @property
    def ends(self) -> tuple[str, str]:
        """What it begins and ends in: "register", "macro" or "port"."""
        return _kind(self.start), _kind(self.end)


@dataclass(frozen=True)
class Slack:
    """What OpenSTA found."""

    path: CellPath
    """The slowest of all."""
    registers: CellPath | None
    """The slowest that begins and ends in flip-flops: none goes through a macro's outside model."""
    pairs: Sequence[CellPath]
    """The slowest path of each of the ten slowest pairs of units."""


def version() -> str | None:
    """OpenSTA's version, None if it is not there."""
    if shutil.which("sta") is None:
        return None
    shown = subprocess.run(("sta", "-version"), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return f"OpenSTA {shown.stdout.strip() or 'of unknown version'}"


def _script(mapped: Mapped) -> str:
    library = mapped.library
    return f"""read_liberty {library.there()}
read_liberty macros.lib
read_verilog netlist.v
link_design {mapped.unit}
create_clock -name clock -period {PERIOD_NS} [get_ports {CLOCK}]
set inputs [all_inputs]
set_input_delay 0 -clock clock $inputs
set_output_delay 0 -clock clock [all_outputs]
set_driving_cell -lib_cell {library.driver} $inputs
set_load {library.load_pf} [all_outputs]
report_checks -path_delay max -format full -digits 4 > slowest.txt
report_checks -path_delay max -format summary -digits 4 -group_count {PATHS} > paths.txt
exit
"""


def _kind(pin: str) -> str:
    # By the name of the pin: this version of OpenSTA tells the type of the end's cell for both.
    return "port" if "/" not in pin else "macro" if re.search(r"/(RD|WR)_[A-Z]+(\[\d+\])?$", pin) else "register"


def _unit(pin: str, whole: str) -> str:
    """The unit of ``UNITS`` that an instance lies in, by its path."""
    folders = [part for step in pin.split("/")[:-1] for part in step.replace("\\", "").split(".")]
    rest = GLUE if whole == TOP else whole
    return next((name for folder in reversed(folders) if (name := unit_of(folder))), rest)


def paths_of(text: str, unit: str) -> list[CellPath]:
    """Paths from ``report_checks -format summary``: start, end and slack a line."""
    found = []
    for line in text.splitlines():
        cells = re.fullmatch(r"(\S+) \([^)]*\)\s+(\S+) \([^)]*\)\s+(-?[\d.]+)", line.strip())
        if cells:
            found.append(CellPath(cells[1], cells[2], _unit(cells[1], unit), _unit(cells[2], unit),
                                  round(PERIOD_NS - float(cells[3]), 4)))
    return found


def slack_of(mapped: Mapped) -> Slack:
    """Raises:
        SynthError: OpenSTA is missing, failed or found no path.
    """
    if shutil.which("sta") is None:
        raise SynthError("synth: sta (OpenSTA) is not on PATH; on Debian: apt-get install opensta")
    (mapped.folder / "sta.tcl").write_text(_script(mapped))
    run = subprocess.run(("sta", "-exit", "sta.tcl"), cwd=mapped.folder, capture_output=True, text=True, check=False,
                         stdin=subprocess.DEVNULL)
    wrong = [line for line in (run.stdout + run.stderr).splitlines() if line.startswith("Error")]
    summary = mapped.folder / "paths.txt"
    if run.returncode or wrong or not summary.is_file():
        raise SynthError(f"synth: sta failed: {wrong[0] if wrong else f'exit {run.returncode}'}")
    paths = sorted(paths_of(summary.read_text(), mapped.unit), key=lambda path: -path.ns)
    if not paths:
        raise SynthError(f"synth: sta found no path in {mapped.unit}")
    pairs: dict[tuple[str, ...], CellPath] = {}
    for path in paths:
        pairs.setdefault((path.start_unit, path.end_unit, *path.ends), path)
    registers = [path for path in paths if path.ends == ("register", "register")]
    return Slack(paths[0], registers[0] if registers else None, tuple(pairs.values())[:PAIRS])
