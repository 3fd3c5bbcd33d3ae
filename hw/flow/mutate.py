"""Mutants of the RTL: one netlist of the device, flat, in which a number chooses what is wrong.

Yosys optimises the netlist, draws the mutations (its ``mutate``: a bit of a cell's port inverted, stuck, or inverted
where another bit of the port has a value) and builds all of them in. The result is a file with module ``gemmule``, as
any simulator of the device takes; it reads ``+mutant=N`` when it starts, 0 being the device as it is.

Blocks that the testbench looks into (``hw/tb/claims_check.sv``) keep their module. Registers power up as the
complement of their reset values, so that a register that is not reset is noticed. No clock is mutated: a simulator
would order what hangs on it as it likes.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from amaranth.back import rtlil

from gemmule.config import Config
from gemmule.hw.flow.names import plain
from gemmule.hw.flow.synth import WHEELS, unit_of
from gemmule.hw.flow.tools import Progress, SynthError, Tools
from gemmule.hw.flow.verilog import TOP, UNITS, Ports, ports_of, without_collection, without_folders
from gemmule.hw.tb import CHECKED
from gemmule.io.files import write_atomically
from gemmule.timing import Timing

__all__ = ["NETLIST", "POWERED", "Mutant", "Mutants", "build_in", "build_mutants", "chosen", "complemented", "parse",
           "units_of"]

NETLIST = f"{TOP}_netlist"
CONTROL = "mutant"
"""Input of the netlist."""
GLUE = "glue"
"""What connects the units."""
POWERED = "read_rtlil powered.il"
"""Reads the netlist whose registers power up complemented."""
SPARE = 3
"""Mutations to draw for each that is wanted: some are left out."""
NO_FAULT = ("CLK", "RD_CLK", "WR_CLK", "RD_ARST")
"""Ports without mutations: clocks, and a memory's asynchronous reset, which no device has and no Verilog tells."""


@dataclass(frozen=True)
class Mutant:
    """A mutation: ``mode`` at bit ``bit`` of a cell's port, for ``cnot0`` and ``cnot1`` where bit ``by`` is 0 or 1."""

    number: int
    unit: str
    mode: str
    module: str
    cell: str
    port: str
    bit: int
    by: int | None = None
    wire: str | None = None
    """A named signal that the bit belongs to."""
    source: tuple[str, ...] = ()
    """Lines of Python that the cell comes from, innermost first where that is known."""

    @property
    def place(self) -> str:
        """Cell and port, as Yosys names them."""
        return f"{self.cell} {self.port}[{self.bit}]" + (f" by [{self.by}]" if self.by is not None else "")


@dataclass(frozen=True)
class Mutants:
    """A netlist with its mutants."""

    verilog: Path
    netlist: Path
    """RTLIL without mutations."""
    mutants: tuple[Mutant, ...]
    cells: Mapping[str, int]
    """By unit."""


def units_of() -> tuple[str, ...]:
    """Every unit that is mutated."""
    return (*(name for name in UNITS if name != TOP), GLUE)


def _unit(module: str) -> str:
    """The unit that a module belongs to: the innermost around it."""
    parts = module.split(".")
    while parts:
        if name := unit_of(".".join(parts)):
            return name if name != TOP else GLUE
        parts.pop()
    return GLUE


def complemented(text: str) -> str:
    """RTLIL in which every register begins with the complement of its value."""
    return re.sub(r"^(\s*attribute \\init \d+')([01]+)$",
                  lambda found: found[1] + found[2].translate(str.maketrans("01", "10")), text, flags=re.MULTILINE)


def _place(text: str) -> str:
    """A line of Python as the repository names it."""
    return text.removeprefix("gemmule/")


def parse(line: str, unit: str, number: int) -> Mutant:
    """A mutation as ``mutate -list`` writes it."""
    words = shlex.split(line.replace("\\", "\\\\"))
    options: dict[str, list[str]] = {}
    for name, value in zip(words[1::2], words[2::2], strict=True):
        options.setdefault(name, []).append(value)

    def one(name: str) -> str | None:
        return options[name][0] if name in options else None

    by = one("-ctrlbit")
    containers = ("device/top.py", "device/core.py", "device/units.py")
    source = [_place(place) for text in options.get("-src", []) for place in text.split("|")]
    inner = [place for place in source if not place.rpartition(":")[0].endswith(containers)]
    return Mutant(number, unit, options["-mode"][0], options["-module"][0], options["-cell"][0], options["-port"][0],
                  int(options["-portbit"][0]), None if by is None else int(by), one("-wire"),
                  tuple(inner if unit != GLUE else source))


def chosen(lists: Mapping[str, Sequence[str]], each: int) -> tuple[Mutant, ...]:
    """The first ``each`` mutations of every unit, numbered from 1, but for those of :data:`NO_FAULT`."""
    found: list[Mutant] = []
    for unit, lines in lists.items():
        of_unit = (parse(line, unit, 0) for line in lines if line.startswith("mutate "))
        kept = [mutant for mutant in of_unit if mutant.port.removeprefix("\\") not in NO_FAULT]
        found += kept[:each]
    return tuple(Mutant(**asdict(mutant) | {"number": number}) for number, mutant in enumerate(found, 1))


def _modules(text: str) -> list[str]:
    return re.findall(r"^module \\(\S+)", text, re.MULTILINE)


def _path(module: str) -> str:
    """A module's name without numbers."""
    return re.sub(r"\$\d+(?=\.|$)", "", module)


def _prepare(text: str, seed: int, each: int) -> str:
    """The script that flattens and optimises, and draws the mutations."""
    modules = _modules(text)
    lines = ["read_rtlil design.il", f"hierarchy -top {TOP}", "proc", "memory_collect"]
    lines += [f'setattr -set unit "{_unit(module)}" {module}/c:*' for module in modules]
    checked = {name: next((module for module in modules if _path(module).split(".")[-1] == name), None)
               for name in CHECKED}
    kept = [module for module in modules for root in checked.values()
            if root and (module == root or module.startswith(f"{root}."))]
    lines += [f"setattr -mod -set keep_hierarchy 1 {module}" for module in kept]
    # What the streams hold is for the testbench alone where they hold more than one claim.
    lines += [f"setattr -set keep 1 {module}/w:held" for module in kept if module.rpartition(".")[0] in kept]
    lines += ["flatten", "opt", "wreduce", "opt -full", "opt_clean -purge"]
    lines += [f"cd {TOP}", *(f"rename {root.removeprefix(TOP + '.')} {name}" for name, root in checked.items() if root),
              "cd ..", "write_rtlil netlist.il"]
    for unit in units_of():
        lines += [f"select -set chosen a:unit={unit}", f"tee -q -o count_{unit}.txt select -count @chosen",
                  f"mutate -list {SPARE * each} -seed {seed} -o list_{unit}.txt @chosen"]
    return "\n".join(lines) + "\n"


def _mutate(mutants: Sequence[Mutant], width: int, read: str) -> str:
    """The script that builds the mutants in, with numbers of ``width`` bits; ``read`` brings the netlist."""
    lines = [read]
    for mutant in mutants:
        by = "" if mutant.by is None else f" -ctrlbit {mutant.by}"
        lines.append(f"mutate -mode {mutant.mode} -ctrl {CONTROL} {width} {mutant.number} -module {mutant.module} "
                     f"-cell {mutant.cell} -port {mutant.port} -portbit {mutant.bit}{by}")
    return "\n".join([*lines, f"rename {TOP} {NETLIST}", "write_verilog -noattr netlist.v"]) + "\n"


def _wrapper(ports: Ports, width: int) -> str:
    """The device's module around the netlist, which takes the number of the mutant from the command line."""
    named = [f"  {port['direction']} wire [{int(port['width']) - 1}:0] {name}" for name, port in ports.items()]
    return "\n".join([
        f"module {TOP} (", ",\n".join(named), ");",
        f"  reg [{width - 1}:0] {CONTROL} = 0;",
        f'  initial if (!$value$plusargs("{CONTROL}=%d", {CONTROL})) {CONTROL} = 0;',
        f"  {NETLIST} netlist (", ",\n".join(f"    .{name}({name})" for name in (*ports, CONTROL)), "  );",
        "endmodule", ""])


def build_in(mutants: Sequence[Mutant], width: int, wrapper: str, verilog: Path, tools: Tools,
             progress: Progress, read: str = POWERED) -> None:
    """The file with these mutants, from what ``read`` reads in its folder."""
    root = verilog.parent
    (root / "mutate.ys").write_text(_mutate(mutants, width, read))
    tools.run("yosys", ["-q", "-l", "yosys.log", "mutate.ys"], root, "yosys.log", progress)
    netlist, _ = plain((root / "netlist.v").read_text())
    write_atomically(verilog, netlist + wrapper)


def build_mutants(config: Config, each: int, seed: int, root: Path, *, tools: Tools = WHEELS,
                  progress: Progress = lambda step: None) -> Mutants:
    """The netlist of a device with ``each`` mutants in every unit; drawn by ``seed``.

    Parameters
    ----------
    root: folder of work files; what has not changed is taken from there.
    tools: where Yosys comes from.
    progress: called about once a second with the present step.

    Raises:
        SynthError: Yosys is missing or failed.
    """
    tools.check("yosys")
    component = UNITS[TOP](config, Timing.of(config))
    with without_collection():
        text = without_folders(rtlil.convert(component, name=TOP, emit_src=True))
    script = _prepare(text, seed, each)
    key = hashlib.sha256(f"{tools.version('yosys')}\n{script}\n{text}\n{Path(__file__).read_text()}".encode())
    stamp, verilog, listed = root / "key", root / "mutants.sv", root / "mutants.json"
    if not (stamp.is_file() and stamp.read_text() == key.hexdigest()):
        root.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        (root / "design.il").write_text(text)
        (root / "prepare.ys").write_text(script)
        tools.run("yosys", ["-q", "-l", "yosys.log", "prepare.ys"], root, "yosys.log", progress)
        lists = {unit: (root / f"list_{unit}.txt").read_text().splitlines() for unit in units_of()}
        mutants = chosen(lists, each)
        if not mutants:
            raise SynthError(f"mutate: yosys drew no mutation; log: {root / 'yosys.log'}")
        (root / "powered.il").write_text(complemented((root / "netlist.il").read_text()))
        width = len(mutants).bit_length()
        build_in(mutants, width, _wrapper(ports_of(component), width), verilog, tools, progress)
        counts = {unit: int(re.findall(r"\d+", (root / f"count_{unit}.txt").read_text())[-1]) for unit in units_of()}
        write_atomically(listed, json.dumps({"cells": counts, "mutants": [asdict(m) for m in mutants]}, indent=1))
        stamp.write_text(key.hexdigest())
    known = json.loads(listed.read_text())
    mutants = tuple(Mutant(**mutant | {"source": tuple(mutant["source"])}) for mutant in known["mutants"])
    return Mutants(verilog, root / "netlist.il", mutants, known["cells"])
