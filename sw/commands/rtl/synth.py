"""``gemmule synth``: area of every unit and of the device, on an FPGA with Fmax after routing or in standard cells."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.rtl.standard_cells import synthesize_cells
from gemmule.sw.commands.shared.common import ConfigOption, JsonOption, Output, choice, read_config
from gemmule.sw.errors import InputError
from gemmule.sw.limits import FIRST_SEED, SEEDS, TARGETS

if TYPE_CHECKING:
    from gemmule.config import Config
    from gemmule.hw.flow.route import Route
    from gemmule.hw.flow.synth import Area, Synthesis
    from gemmule.hw.flow.target import Target
    from gemmule.hw.flow.tools import Tools

__all__ = ["synth"]

ROOT = Path("build/synth")
COLUMNS = {"comb": "LUT sites", "lut4": "LUT4", "carry": "carry", "lutram": "LUT RAM", "ff": "FF", "dsp": "DSP",
           "bram": "block RAM"}
"""Titles of areas; a target has its own for some."""


def synth(
    config: ConfigOption = "edge",
    unit: Annotated[str, typer.Option(
        "--unit", metavar="UNIT",
        help="One unit alone, 'whole' for the device by unit, or 'all' for every unit alone and the "
             "whole device.")] = "whole",
    target: Annotated[str, choice("--target", TARGETS, "An FPGA, or a library of standard cells.")] = "ecp5-85k",
    place: Annotated[bool, typer.Option(
        "--route", help="Also place and route whatever is synthesised, and report Fmax.")] = False,
    seeds: Annotated[int, typer.Option(
        "--seeds", metavar="N", help=f"Place and route this many times, {SEEDS}, with different seeds of the placer, "
                                     "and report the median.",
        callback=lambda n: SEEDS.check("--seeds", n))] = 1,
    first: Annotated[int, typer.Option(
        "--first-seed", metavar="N", help=f"The first of these seeds, {FIRST_SEED}. Each route is kept: several can be "
                                          "made side by side, in folders of their own.",
        callback=lambda n: FIRST_SEED.check("--first-seed", n))] = 1,
    black_box_memories: Annotated[bool | None, typer.Option(
        "--black-box-memories/--map-memories",
        help="Leave out the memories of scratchpad and accumulator (default for base), or map them to block RAM "
             "(default otherwise).", show_default=False)] = None,
    native: Annotated[bool, typer.Option(
        "--native", help="Run yosys and nextpnr-ecp5 from PATH instead of the wheels: faster.")] = False,
    json: JsonOption = None,
) -> None:
    """Synthesise the RTL with Yosys and, with --route, place and route it with nextpnr.

    Needs the optional dependencies named synth, or native tools (docs/synthesis.md); standard cells need OpenSTA. Work
    files are under build/synth.

    \b
    Examples:
      gemmule synth --config tiny --unit control
      gemmule synth --config edge --route --json build/synth_edge.json
      gemmule synth --config tiny --unit matrix --target sky130
    """
    out = Output(json)
    device = read_config(config)

    from gemmule.hw.flow import target as parts
    from gemmule.hw.flow.standard.library import LIBRARIES
    from gemmule.hw.flow.tools import SynthError, Tools
    from gemmule.hw.flow.verilog import TOP, UNITS

    names = [name for name in UNITS if name != TOP]
    if unit not in (*names, "all", "whole"):
        raise InputError(f"--unit must be all, whole or one of {', '.join(sorted(names))}, not {unit!r}")
    if target in LIBRARIES:
        if place or seeds > 1 or first > 1 or black_box_memories is not None:
            raise InputError(f"--target {target} is before layout and has macros for memories: leave out --route, "
                             "--seeds, --first-seed, --black-box-memories and --map-memories")
        units = [*names, TOP] if unit == "all" else [TOP if unit == "whole" else unit]
        try:
            cells = synthesize_cells(out, device, units, LIBRARIES[target], Tools(native), ROOT)
        except SynthError as error:
            raise InputError(str(error)) from None
        out.write("synth-cells", device, {"configuration": device.model_dump(), "target": target} | cells)
        return
    part = parts.TARGETS[target]
    black_box = part is parts.ECP5 and device.name == "base" if black_box_memories is None else black_box_memories
    if place and black_box:
        raise InputError("--route needs the memories; add --map-memories")
    if (seeds > 1 or first > 1) and not place:
        raise InputError("--seeds and --first-seed need --route")
    tools = Tools(native)
    flow = _Flow(out, device, part, black_box, range(first, first + seeds if place else first), tools)
    try:
        tools.check("yosys", *([part.nextpnr] if place else []))
        record: dict[str, Any] = {
            "configuration": device.model_dump(), "target": flow.target.part,
            "tools": tools.versions("yosys", part.nextpnr),
            "memories": "black boxes" if black_box else "block RAM", "caveats": list(part.caveats)}
        if unit != "whole":
            record["alone"] = flow.alone(names if unit == "all" else [unit])
        if unit in ("whole", "all"):
            record["whole"] = flow.whole()
        for caveat in part.caveats:
            out.print(f"note: {caveat}")
    except SynthError as error:
        raise InputError(str(error)) from None
    out.write("synth", device, record)


def _fmax(routed: Route) -> str:
    """With more than one seed the median, and the range."""
    found = routed.by_seed.values()
    return f"{routed.fmax_mhz}" + (f" ({min(found)} to {max(found)})" if found else "")


def _fields(area: Area) -> dict[str, Any]:
    return {name: getattr(area, name) for name in COLUMNS}


class _Flow:
    """Synthesis, and routing if wanted, with progress and tables on the console."""

    def __init__(self, out: Output, config: Config, target: Target, black_box: bool, seeds: range,
                 tools: Tools) -> None:
        self.out, self.config, self.target = out, config, target
        self.black_box, self.seeds, self.tools = black_box, seeds, tools

    def run(self, name: str) -> tuple[Synthesis, Route | None]:
        from gemmule.hw.flow.route import route
        from gemmule.hw.flow.synth import synthesize
        from gemmule.hw.flow.verilog import TOP
        from gemmule.io.progress import say, stderr

        title = f"{self.config.name}: {'the whole device' if name == TOP else name}"
        begin = time.monotonic()
        with stderr.status(title) as status:

            def progress(step: str) -> None:
                status.update(f"{title}, {time.monotonic() - begin:.0f} s: {step}")

            result = synthesize(name, self.config, ROOT, target=self.target, black_box=self.black_box,
                                harness=bool(self.seeds), tools=self.tools, progress=progress)
            routed = route(result, self.target, seeds=self.seeds, tools=self.tools,
                           progress=progress) if self.seeds else None
        say(f"{title}: {time.monotonic() - begin:.0f} s")
        return result, routed

    def alone(self, names: list[str]) -> dict[str, Any]:
        done = {name: self.run(name) for name in names}
        fmax = {name: _fmax(routed) for name, (_, routed) in done.items() if routed}
        self.show("units alone, each with what it contains", {n: s.total for n, (s, _) in done.items()}, None, fmax)
        return {name: _fields(synthesis.total) | ({"route": asdict(routed)} if routed else {})
                for name, (synthesis, routed) in done.items()}

    def whole(self) -> dict[str, Any]:
        from gemmule.hw.flow.verilog import TOP

        synthesis, routed = self.run(TOP)
        self.show("the whole device by unit", synthesis.parts, synthesis.total, {})
        record: dict[str, Any] = {
            "total": _fields(synthesis.total),
            "parts": {name: _fields(area) for name, area in sorted(synthesis.parts.items())}}
        if routed:
            used = ", ".join(f"{name} {n:,} of {of:,}" for name, (n, of) in routed.used.items())
            self.out.print(f"Fmax {_fmax(routed)} MHz; placed with its harness: {used}")
            self.out.print("slowest path: {start} to {end}, {cells} cells, {logic_ns} ns in cells, {routing_ns} ns "
                           "in wires".format(**routed.path))
            self.pairs(routed)
            record["route"] = asdict(routed)
        return record

    def pairs(self, routed: Route) -> None:
        """The slowest pairs of units."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for name in ("slowest path from", "to"):
            table.add_column(name)
        for name in ("ns", "MHz", "cells", "in wires"):
            table.add_column(name, justify="right")
        for pair in routed.pairs:
            table.add_row(pair.start_unit, pair.end_unit, f"{pair.ns:.1f}", f"{pair.mhz:.1f}", f"{pair.cells}",
                          f"{pair.routing_ns / pair.ns:.0%}")
        self.out.console.print(table)

    def show(self, title: str, areas: Mapping[str, Area], total: Area | None, fmax: Mapping[str, str]) -> None:
        from rich.table import Table

        memories = "black boxes" if self.black_box else "in block RAM"
        self.out.print(f"{self.config.name}: {title}; {self.target.part}; scratchpad and accumulator memories "
                       f"{memories}")
        table = Table(box=None, pad_edge=False)
        table.add_column("unit")
        for name in (*{**COLUMNS, **self.target.titles}.values(), *(["Fmax MHz"] if fmax else [])):
            table.add_column(name, justify="right")
        for name, area in sorted(areas.items(), key=lambda item: -item[1].comb):
            table.add_row(name, *(f"{value:,}" for value in _fields(area).values()), fmax.get(name, ""))
        if total is not None:
            table.add_row("sum" + " without harness" * ("harness" in areas),
                          *(f"{value:,}" for value in _fields(total).values()))
            there = {"comb": self.target.comb, "ff": self.target.ff, "dsp": self.target.dsp, "bram": self.target.bram}
            table.add_row("share of the part", *(
                f"{getattr(total, name) / there[name]:.0%}" if name in there else "" for name in COLUMNS))
        self.out.console.print(table)
