"""A flat netlist: its cells, who drives a net and who reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gemmule.hw.flow.mutate import Mutant
from gemmule.hw.flow.verilog import TOP

__all__ = ["MEMORY", "REGISTERS", "Bit", "Cell", "Netlist", "tagged", "unescaped"]

Bit = int | str
"""A net's number, or a constant."""
REGISTERS = ("$dff", "$dffe", "$sdff", "$sdffe", "$sdffce")
MEMORY = "$mem_v2"


def unescaped(name: str) -> str:
    return name.removeprefix("\\")


def tagged(text: str) -> str:
    """RTLIL in which every cell says which it was before hierarchy is flattened."""
    module, lines = "", []
    for line in text.splitlines():
        if line.startswith("module "):
            module = unescaped(line.split()[1])
        elif line.startswith("  cell "):
            tag = f"{module} {unescaped(line.split()[2])}".replace("\\", "\\\\")
            lines.append(f'  attribute \\was "{tag}"')
        lines.append(line)
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Cell:
    """A cell with its nets."""

    kind: str
    parameters: Mapping[str, Any]
    directions: Mapping[str, str]
    nets: Mapping[str, list[Bit]]

    def number(self, name: str) -> int:
        value = self.parameters[name]
        return value if isinstance(value, int) else int(re.sub("[^01]", "0", value) or "0", 2)

    def outputs(self) -> Iterator[Bit]:
        for port, bits in self.nets.items():
            if self.directions[port] == "output":
                yield from bits

    def inputs(self) -> Iterator[Bit]:
        for port, bits in self.nets.items():
            if self.directions[port] == "input":
                yield from bits


class Netlist:
    """A flat netlist as Yosys' ``write_json`` says it.

    Members
    -------
    cells, was: cells by name; names by what they were before hierarchy was flattened.
    names: bits of nets by name, without the numbers that tell equal names apart; of those the first.
    driver, users: cell that drives a bit; cells that read it.
    ports, outputs: bits that leave the device, by port and all.
    """

    def __init__(self, text: str) -> None:
        module = json.loads(text)["modules"][TOP]
        self.cells: dict[str, Cell] = {}
        self.was: dict[str, str] = {}
        for name, cell in module["cells"].items():
            if cell["type"] in ("$scopeinfo",):
                continue
            self.cells[name] = Cell(cell["type"], cell["parameters"], cell["port_directions"], cell["connections"])
            if tag := cell["attributes"].get("was"):
                self.was[tag] = name
        self.names: dict[str, list[Bit]] = {}
        for name, net in module.get("netnames", {}).items():
            self.names.setdefault(re.sub(r"\$\d+(?=\.|$)", "", name), net["bits"])
        self.driver = {bit: name for name, cell in self.cells.items() for bit in cell.outputs()}
        self.ports: dict[str, list[Bit]] = {name: port["bits"] for name, port in module["ports"].items()
                                            if port["direction"] == "output"}
        self.outputs = [bit for bits in self.ports.values() for bit in bits]
        self.users: dict[Bit, set[str]] = {}
        for name, cell in self.cells.items():
            for bit in cell.inputs():
                self.users.setdefault(bit, set()).add(name)

    def find(self, mutant: Mutant) -> str | None:
        """The mutant's cell; None: it is a block that kept its module, of which only cells are left here."""
        return self.was.get(f"{unescaped(mutant.module)} {unescaped(mutant.cell)}")
