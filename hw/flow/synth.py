"""Synthesis for a real FPGA: area of every unit and of the whole device.

Units go to Yosys as RTLIL (its ``synth_ecp5`` fails on Amaranth's Verilog) and keep their hierarchy,
so that the units of a device add up to it. Every result is a function of the RTL and of the tools'
versions; what has not changed is taken from the work folder. How a family's cells are mapped stands in
:data:`MAPPINGS`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from gemmule.config import Config
from gemmule.hw.flow.mapping import MAPPINGS
from gemmule.hw.flow.rtlil import allow_collisions, split_ports
from gemmule.hw.flow.target import ECP5, Target
from gemmule.hw.flow.tools import Progress, Tools
from gemmule.hw.flow.verilog import TOP, UNITS, without_collection
from gemmule.timing import Timing

__all__ = ["FREQUENCY", "HARNESS", "WHEELS", "Area", "Synthesis", "area_of", "owner_of", "stat_of", "synthesize",
           "unit_of"]

MEMORY_UNITS = ("scratchpad", "accumulator")
ALIASES = {"issue": "issue_logic", "arbiter": "read_arbiter", "asked": "read_arbiter"}
"""Units whose submodule in the device has another name than their entry in ``UNITS``."""
GLUE = "glue"
HARNESS = "harness"
FREQUENCY = 50
"""MHz that mapping and placement aim at; Fmax may come out above or below. Logic is mapped for size, not depth, where
its delay leaves room: a design mapped for depth alone has a tenth more LUTs and needs longer wires."""
WHEELS = Tools()


@dataclass(frozen=True)
class Area:
    """Cells of a mapped netlist, see the target's ``cells``."""

    comb: int = 0
    """LUT4 sites, of LUTs, carry cells and memories, as nextpnr counts them."""
    lut4: int = 0
    carry: int = 0
    """Carry cells: of the ECP5 for two bits, of the Gowin part for one."""
    lutram: int = 0
    """16 x 4 bit memories, four LUT4 sites each."""
    ff: int = 0
    dsp: int = 0
    """Multipliers: 18 x 18 bits of the ECP5; 12 x 12 of the Gowin part, of which 27 x 18 bits count as two."""
    bram: int = 0
    """Block RAM, 18 Kibit each."""

    def __add__(self, other: Area) -> Area:
        return Area(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


@dataclass(frozen=True)
class Synthesis:
    """A synthesised unit: its area in all and, for the whole device, by unit."""

    total: Area
    parts: Mapping[str, Area]
    folder: Path
    unit: str = TOP


class Harness(Component):
    """All ports of a unit behind five pins, a register at each, so that a part's pins suffice.

    Inputs come from one shift register; outputs are registered, then shifted out.
    """

    def __init__(self, device: Component) -> None:
        self.device = device
        super().__init__({"shift_in": In(1), "load": In(1), "shift_out": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.device = self.device
        inputs, captured = [], []  # named as the ports, so that a path's ends are readable
        for path, member, value in self.device.signature.flatten(self.device):
            port = value.as_value() if hasattr(value, "as_value") else value
            register = Signal(len(port), name="__".join(["port", *map(str, path)]))
            if member.flow == In:
                m.d.comb += port.eq(register)
                inputs.append(register)
            else:
                m.d.sync += register.eq(port)
                captured.append(register)
        stimulus, chain = Cat(*inputs), Signal(sum(map(len, captured)))
        m.d.comb += self.shift_out.eq(chain[-1])
        m.d.sync += [
            stimulus.eq(Cat(self.shift_in, stimulus)),
            chain.eq(Mux(self.load, Cat(*captured), chain << 1)),
        ]
        return m


def unit_of(module: str) -> str | None:
    """Entry of ``UNITS`` that a module of the device is an instance of, by the end of its path."""
    name = re.sub(r"\$\d+$", "", module).split(".")[-1]
    name = ALIASES.get(name, name)
    return name if name in UNITS else None


def owner_of(cell: str, unit: str) -> str:
    """Unit that a cell of ``unit`` in its harness belongs to, by its path; as in :func:`area_of`."""
    device, *folders = cell.split(".")[:-1] or [""]
    if device != "device":
        return HARNESS
    rest = GLUE if unit == TOP else unit
    return next((name for folder in reversed(folders) if (name := unit_of(folder))), rest)


def area_of(stat: Mapping[str, Any], unit: str, target: Target = ECP5) -> tuple[dict[str, Area], Area]:
    """Areas by unit from the answer of Yosys' ``stat -json``, and their sum without the harness.

    What belongs to no unit of its own counts for ``unit``, or is "glue" in the whole device.
    """
    parts: dict[str, Area] = {}
    rest = GLUE if unit == TOP else unit
    for module, counts in stat["modules"].items():
        name = module.removeprefix("\\")
        top = name in (TOP, unit, HARNESS, f"{HARNESS}.device")
        part = HARNESS if name == HARNESS else rest if top else unit_of(name) or rest
        taken: Counter[str] = Counter()
        for kind, count in counts["num_cells_by_type"].items():
            taken.update({what: n * count for what, n in target.cells.get(kind, {}).items()})
        parts[part] = parts.get(part, Area()) + Area(**taken)
    return parts, sum((area for part, area in parts.items() if part != HARNESS), Area())


def stat_of(text: str) -> dict[str, Any]:
    """The modules of what ``stat -json`` wrote: Yosys 0.23 writes a tree of instances behind them that is no JSON."""
    head = '"modules":'
    start = text.index(head) + len(head)
    return {"modules": json.JSONDecoder().raw_decode(text, len(text) - len(text[start:].lstrip()))[0]}


def _script(text: str, top: str, black_box: bool, target: Target = ECP5) -> str:
    """The Yosys script for RTLIL ``text``."""
    modules = re.findall(r"^module \\(\S+)", text, re.MULTILINE)
    kept = [m for m in modules if m in (top, f"{HARNESS}.device") or unit_of(m)]
    mapping, routed = MAPPINGS[target.family], top == HARNESS
    lines = ["read_rtlil design.il", f"hierarchy -top {top}", f"setattr -mod -set keep_hierarchy 1 {' '.join(kept)}",
             *mapping.coarse(top)]
    if black_box:
        for module in kept:
            if unit_of(module) in MEMORY_UNITS:
                lines += [f"submod -name {module}.memories {module}/t:$mem_v2", f"blackbox {module}.memories"]
    lines += [*mapping.fine(top), f"scratchpad -set abc9.D {1_000_000 // FREQUENCY}",  # ps
              # Without it ABC9 stops when the names of two vectors' bits are equal (Yosys issue 4349).
              "splitnets", *mapping.last(top, routed)]
    if routed:
        lines.append("write_json netlist.json")
    lines.append("tee -q -o stat.json stat -json")
    return "\n".join(lines) + "\n"


def synthesize(unit: str, config: Config, root: Path, *, target: Target = ECP5, black_box: bool = False,
               harness: bool = False, tools: Tools = WHEELS, progress: Progress = lambda step: None) -> Synthesis:
    """Map one entry of ``UNITS`` (``gemmule``: the whole device) to an FPGA's cells.

    Parameters
    ----------
    root: folder under which the unit gets its own.
    black_box: leave the memories of scratchpad and accumulator out.
    harness: put the ports behind registers, as :func:`gemmule.hw.flow.route.route` needs.
    tools: where Yosys comes from.
    progress: called about once a second with the present step.

    Raises:
        SynthError: Yosys is missing or failed.
    """
    tools.check("yosys")
    component = UNITS[unit](config, Timing.of(config))
    top = HARNESS if harness else unit
    with without_collection():
        text = rtlil.convert(Harness(component) if harness else component, name=top, emit_src=False)
    text = split_ports(allow_collisions(text))
    script, files = _script(text, top, black_box, target), MAPPINGS[target.family].files
    key = hashlib.sha256(f"{tools.version('yosys')}\n{script}\n{text}{''.join(files.values())}".encode()).hexdigest()
    folder = root / config.name / (unit + f"-{HARNESS}" * harness + "-blackbox" * black_box
                                   + f"-{target.name}" * (target is not ECP5))
    stamp, stat = folder / "key", folder / "stat.json"
    if not (stat.is_file() and stamp.is_file() and stamp.read_text() == key):
        folder.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        for name, what in {"design.il": text, "script.ys": script, **files}.items():
            (folder / name).write_text(what)
        tools.run("yosys", ["-q", "-l", "yosys.log", "script.ys"], folder, "yosys.log", progress)
        stamp.write_text(key)
    parts, total = area_of(stat_of(stat.read_text()), unit, target)
    return Synthesis(total, parts, folder, unit)
