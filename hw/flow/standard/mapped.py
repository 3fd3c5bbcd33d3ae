"""Mapping of a unit or the device to standard cells with Yosys and ABC: its netlist and its area by unit.

Units keep their hierarchy, as on an FPGA. Memories of two kilobits and more are macros (:mod:`.macros`), whose area and
delay come from an outside model; the others are flip-flops. Multipliers become Booth trees; adders are carry-lookahead
(Brent-Kung), Yosys' own choice. ABC buffers nets of more than twelve readers and sizes gates towards the library's
aim. Registers lose their initial values: the device is reset before it runs (``make fourstate``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth.back import rtlil

from gemmule.config import Config
from gemmule.hw.flow.standard.library import Library
from gemmule.hw.flow.standard.macros import LEAST_BITS, Macro, liberty_of, macros_of
from gemmule.hw.flow.standard.rows import LARGEST, buffered, rows_script
from gemmule.hw.flow.synth import GLUE, WHEELS, stat_of, unit_of
from gemmule.hw.flow.tools import Progress, Tools
from gemmule.hw.flow.verilog import TOP, UNITS, without_collection
from gemmule.timing import Timing

__all__ = ["CLOCK", "CellArea", "Mapped", "areas_of", "map_cells"]

CLOCK = "clk"
FANOUT = 12
ABC = ("strash", "ifraig", "scorr", "dch -f", "map -B 0.9 -D {aim}", "topo", f"buffer -c -p -N {FANOUT}",
       "upsize -D {aim}", "dnsize -D {aim}")
"""ABC's script; ``aim`` in ps. Without dc2, which is usual before dch: it saves 6 % of the area and makes ripples of
carry-lookahead adders (the vector unit of ``tiny`` takes 9.9 ns with it, 6.5 without)."""


@dataclass(frozen=True)
class CellArea:
    """What a unit takes of a library."""

    um2: float = 0.0
    """Of standard cells."""
    registers_um2: float = 0.0
    """Of these, flip-flops."""
    cells: int = 0
    macros_um2: float = 0.0
    macro_bits: int = 0

    def __add__(self, other: CellArea) -> CellArea:
        return CellArea(self.um2 + other.um2, self.registers_um2 + other.registers_um2, self.cells + other.cells,
                        self.macros_um2 + other.macros_um2, self.macro_bits + other.macro_bits)


@dataclass(frozen=True)
class Mapped:
    """A unit in standard cells: ``folder`` holds ``netlist.v``, ``macros.lib`` and ``stat.json``."""

    unit: str
    library: Library
    parts: Mapping[str, CellArea]
    folder: Path
    nand2_um2: float
    """Area of one gate equivalent."""
    total: CellArea = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum(self.parts.values(), CellArea()))


def collect_script(text: str, unit: str, dim: int) -> str:
    """The Yosys script up to collected memories."""
    modules = re.findall(r"^module \\(\S+)", text, re.MULTILINE)
    kept = [module for module in modules if module == unit or unit_of(module)]
    rows = [line for module in modules if module.endswith(".mesh") and dim > LARGEST
            for line in rows_script(module, dim)]
    return "\n".join([
        "read_rtlil design.il", f"hierarchy -top {unit}", f"setattr -mod -set keep_hierarchy 1 {' '.join(kept)}",
        "setattr -unset init w:*", "proc", "opt", "wreduce", "peepopt", "opt_clean", *rows, "booth", "alumacc", "share",
        "opt", "memory -nomap", "opt_clean", "write_rtlil collected.il"]) + "\n"


def map_script(unit: str, library: Library) -> str:
    """The Yosys script from there to the netlist."""
    lib, aim = library.there(), round(library.target_ns * 1000)
    ties = [] if library.ties is None else [
        f"hilomap -hicell {' '.join(library.ties[0])} -locell {' '.join(library.ties[1])}"]
    return "\n".join([
        "read_rtlil macros.il", f"hierarchy -top {unit}", "memory_map", "opt -full", "techmap", "opt", "flatten",
        "opt -full", "setattr -unset init w:*", "dfflegalize -cell $_DFF_P_ x", "techmap", "opt -fast",
        f"dfflibmap -liberty {lib}", "opt",
        f"abc -liberty {lib} -constr constraints -D {aim} -script abc.script", *ties,
        "opt_clean -purge", f"tee -q -o stat.json stat -json -liberty {lib}",
        # OpenSTA reads no assignments to parts of nets, and ports of modules have such: it gets one flat module.
        "setattr -mod -unset keep_hierarchy *", "flatten", "splitnets", "opt_clean -purge",
        "write_verilog -noattr -noexpr netlist.v"]) + "\n"


def areas_of(stat: Mapping[str, Any], unit: str, macros: Mapping[str, Macro], library: Library) -> dict[str, CellArea]:
    """Area by unit from ``stat -json -liberty``; what belongs to no unit of its own counts for ``unit`` (``glue``)."""
    parts: dict[str, CellArea] = {}
    rest = GLUE if unit == TOP else unit
    modules = {module.removeprefix("\\"): counts for module, counts in stat["modules"].items()}
    for name, counts in modules.items():
        if name in macros:
            continue
        part = rest if name == unit else unit_of(name) or rest
        cells = {kind.removeprefix("\\"): count for kind, count in counts["num_cells_by_type"].items()}
        own = [(macros[kind], count) for kind, count in cells.items() if kind in macros]
        within = [(modules[kind], count) for kind, count in cells.items() if kind in modules and kind not in macros]

        def less(field: str, counts: Mapping[str, Any] = counts,
                 within: list[tuple[Mapping[str, Any], int]] = within) -> float:
            """Of this module alone: Yosys counts what it contains, too."""
            inner: float = sum(count * module.get(field, 0.0) for module, count in within)
            return float(counts.get(field, 0.0)) - inner

        area = CellArea(
            less("area"), less("sequential_area"),
            sum(count for kind, count in cells.items() if kind not in modules and kind not in macros),
            sum(count * library.macros.area(macro.bits, macro.copies) for macro, count in own),
            sum(count * macro.bits for macro, count in own))
        parts[part] = parts.get(part, CellArea()) + area
    return parts


def map_cells(unit: str, config: Config, library: Library, root: Path, *, least_bits: int = LEAST_BITS,
              tools: Tools = WHEELS, progress: Progress = lambda step: None) -> Mapped:
    """Map one entry of ``UNITS`` (``gemmule``: the whole device) to ``library``.

    Raises:
        SynthError: Yosys or the library is missing, or Yosys failed.
    """
    tools.check("yosys")
    liberty = library.there()
    component = UNITS[unit](config, Timing.of(config))
    with without_collection():
        text = rtlil.convert(component, name=unit, emit_src=False)
    first, second = collect_script(text, unit, config.dim), map_script(unit, library)
    abc = "\n".join(ABC).format(aim=round(library.target_ns * 1000)) + "\n"
    constraints = f"set_driving_cell {library.driver}\nset_load {library.load_pf} [all_outputs]\n"
    version = str(tools.version("yosys"))
    key = hashlib.sha256("\n".join(
        [version, first, second, abc, constraints, str(least_bits), repr(library.macros), liberty.read_text(), text,
         *(Path(__file__).with_name(name).read_text() for name in ("macros.py", "rows.py"))]
    ).encode()).hexdigest()
    folder = root / config.name / f"{unit}-{liberty.stem}"
    stamp, stat, shapes = folder / "key", folder / "stat.json", folder / "macros.json"
    if not (stat.is_file() and shapes.is_file() and stamp.is_file() and stamp.read_text() == key):
        folder.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        (folder / "design.il").write_text(text)
        (folder / "collect.ys").write_text(first)
        (folder / "map.ys").write_text(second)
        (folder / "abc.script").write_text(abc)
        (folder / "constraints").write_text(constraints)
        tools.run("yosys", ["-q", "-l", "collect.log", "collect.ys"], folder, "collect.log", progress)
        changed, macros = macros_of((folder / "collected.il").read_text(), least_bits)
        (folder / "macros.il").write_text(changed)
        (folder / "macros.lib").write_text(liberty_of(macros, library.macros))
        shapes.write_text(json.dumps([vars(macro) for macro in dict.fromkeys(macros)]))
        tools.run("yosys", ["-q", "-l", "map.log", "map.ys"], folder, "map.log", progress)
        if config.dim > LARGEST:
            netlist, buffers = buffered((folder / "netlist.v").read_text(), liberty.read_text(), library.driver, FANOUT,
                                        CLOCK)
            (folder / "netlist.v").write_text(netlist)
            progress(f"{buffers} buffers between rows")
        stamp.write_text(key)
    known = {macro.name: macro for macro in (Macro(**shape) for shape in json.loads(shapes.read_text()))}
    return Mapped(unit, library, areas_of(stat_of(stat.read_text()), unit, known, library), folder,
                  cell_area(liberty.read_text(), library.nand2))


def cell_area(text: str, cell: str) -> float:
    """A cell's area in a Liberty file, in um2."""
    found = re.search(rf'cell\s*\("?{re.escape(cell)}"?\)\s*{{.*?\barea\s*:\s*([\d.]+)', text, re.DOTALL)
    if found is None:
        raise ValueError(f"{cell} has no area")
    return float(found[1])
