"""Leaps: a netlist whose counts can be set to what they are after very many more cycles, or commands.

While the memory is silent from the start of a launch on, one cycle is like the other but for the cycles counted. So the
state after 31 * 2^16 of them, in which counters of 5 bits and the scan of 31 counters are where they were, is the same
but for the counts: cycles of the launch, silent ones, and those of every unit that is empty. Nor does anything but the
number of all commands tell a device that has repeated a body of control commands from one that has done so more often;
nor anything but their numbers one whose units have finished more commands before, of a body in its last turn.

A device with leaps is the same but for writes to three offsets where there is no register (all ones mean nothing
there): one leaps over ``value * LEAP_CYCLES`` cycles of a silent memory, one over ``value`` control commands, one over
commands of one unit, which it finishes: ``value`` is their number above the unit's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from gemmule.csr import COUNTERS
from gemmule.hw.flow.cells import MEMORY, REGISTERS
from gemmule.hw.flow.tools import SynthError
from gemmule.hw.flow.verilog import TOP
from gemmule.hw.interfaces import COUNT_BITS
from gemmule.hw.tb import LEAP_CYCLES, LEAP_CYCLES_AT, LEAP_TOTAL_AT, LEAP_UNIT_AT, LEAP_UNIT_BITS
from gemmule.isa import Unit

__all__ = ["leaping", "wrapped"]

LOW_BITS = 5
"""Bits of a counter that are not in the memory of upper parts."""
BY_BITS = 64
PORTS = {"leap_cycles": 1, "leap_scan": 1, "leap_total": 1, "leap_unit": len(Unit), "leap_by": BY_BITS}
"""Inputs of the netlist: in this cycle; in these cycles, one for each counter; commands; of a unit; how far."""


class _Edit:
    """A module in Yosys' JSON to which cells are added."""

    def __init__(self, module: dict[str, Any]) -> None:
        self.module = module
        bits = (bit for net in module["netnames"].values() for bit in net["bits"] if isinstance(bit, int))
        self.last = max(bits, default=1)

    def named(self, kind: str, path: str) -> Any:
        """The net or cell with this name, numbers left out."""
        for name, found in self.module[kind].items():
            if re.sub(r"\$\d+(?=\.|$)", "", name) == path:
                return found
        raise SynthError(f"leaps: there must be one of {kind} with the name {path}")

    def new(self, width: int) -> list[Any]:
        self.last += width
        return list(range(self.last - width + 1, self.last + 1))

    def cell(self, kind: str, width: int, **inputs: Sequence[Any]) -> list[Any]:
        """The output of a cell."""
        made = self.new(width)
        parameters = {f"{port}_WIDTH": len(bits) for port, bits in inputs.items()} | {"Y_WIDTH": width}
        parameters |= {f"{port}_SIGNED": 0 for port in inputs}
        if kind == "$mux":
            parameters = {"WIDTH": width}
        self.module["cells"][f"leap_{made[0]}"] = {
            "hide_name": 0, "type": kind, "parameters": parameters, "attributes": {},
            "port_directions": dict.fromkeys(inputs, "input") | {"Y": "output"},
            "connections": {port: list(bits) for port, bits in inputs.items()} | {"Y": made}}
        return made

    def gated(self, by: Sequence[Any], when: Any) -> list[Any]:
        return self.cell("$and", len(by), A=by, B=[when] * len(by))

    def next(self, nets: dict[str, Any], parameters: dict[str, Any], i: int) -> Any:
        """What bit ``i`` of a register takes up, or keeps."""
        if not (enable := nets.get("EN")):
            return nets["D"][i]
        low = int(str(parameters["EN_POLARITY"]), 2) == 0
        stays, goes = [nets["Q"][i]], [nets["D"][i]]
        return self.cell("$mux", 1, A=goes if low else stays, B=stays if low else goes, S=enable)[0]

    def counts(self, path: str, by: Sequence[Any], when: Any, part: slice = slice(None)) -> None:
        """The register, or a part of it, takes up ``by`` beside what it takes up else."""
        place: dict[Any, tuple[dict[str, Any], int]] = {}
        for cell in self.module["cells"].values():
            if cell["type"] in REGISTERS:
                place |= {bit: (cell, i) for i, bit in enumerate(cell["connections"]["Q"])}
        at = [place[bit] for bit in self.named("netnames", path)["bits"][part] if bit in place]
        old = [self.next(cell["connections"], cell["parameters"], i) for cell, i in at]
        new = self.cell("$add", len(old), A=old, B=self.gated(by[:len(old)], when))
        for (cell, i), bit in zip(at, new, strict=True):
            cell["connections"]["D"][i] = bit
        for cell in {id(cell): cell for cell, _ in at}.values():
            if enable := cell["connections"].get("EN"):
                low = int(str(cell["parameters"]["EN_POLARITY"]), 2) == 0
                cell["connections"]["EN"] = (
                    self.cell("$and", 1, A=enable, B=self.cell("$not", 1, A=[when])) if low
                    else self.cell("$or", 1, A=enable, B=[when]))


def leaping(text: str) -> str:
    """Yosys' JSON of the netlist, with leaps.

    Raises:
        SynthError: it has no such counts.
    """
    design = json.loads(text)
    module = design["modules"][TOP]
    edit = _Edit(module)
    ports = {}
    for name, width in PORTS.items():
        ports[name] = edit.new(width)
        module["ports"][name] = {"direction": "input", "bits": ports[name]}
        module["netnames"][name] = {"hide_name": 0, "bits": ports[name], "attributes": {}}
    (cycles,), (scan,), (total,), units, by = ports.values()
    edit.counts("core.control.cycles", by, cycles)
    edit.counts("core.watchdog.silent", by, cycles)
    edit.counts("core.dispatch.total", by, total)
    for u, when in enumerate(units):
        edit.counts(f"core.control.dispatched[{u}]", by, when)
        edit.counts("core.issue.finished", by, when, slice(COUNT_BITS * u, COUNT_BITS * (u + 1)))
    upper = edit.named("cells", "core.counters.upper")
    assert upper["type"] == MEMORY
    nets = upper["connections"]
    empty = [edit.cell("$eq", 1, A=nets["WR_ADDR"], B=[str(i >> bit & 1) for bit in range(len(nets["WR_ADDR"]))])[0]
             for i, name in enumerate(COUNTERS) if name.endswith("_empty")]
    width = len(nets["WR_DATA"])
    more = edit.gated(by[LOW_BITS:LOW_BITS + width], edit.cell(
        "$and", 1, A=[scan], B=edit.cell("$reduce_or", 1, A=empty))[0])
    nets["WR_DATA"] = edit.cell("$add", width, A=nets["WR_DATA"], B=more)
    return json.dumps(design)


def wrapped(wrapper: str, netlist: str) -> str:
    """The device's module around a netlist with leaps."""
    unit = f"s_axil_wdata[{LEAP_UNIT_BITS - 1}:0]"
    text = [f"  reg leap_cycles = 0, leap_total = 0; reg [5:0] leap_left = 0; reg [{BY_BITS - 1}:0] leap_by = 0;",
            f"  reg [{len(Unit) - 1}:0] leap_unit = 0;",
            "  wire leap_scan = leap_left != 0;",
            "  wire leap = s_axil_awvalid && s_axil_awready && !(&s_axil_wdata);",
            "  always @(posedge clk) begin",
            f"    leap_cycles <= leap && s_axil_awaddr == {LEAP_CYCLES_AT};",
            f"    leap_total <= leap && (s_axil_awaddr == {LEAP_TOTAL_AT} || s_axil_awaddr == {LEAP_UNIT_AT});",
            f"    leap_unit <= leap && s_axil_awaddr == {LEAP_UNIT_AT} ? 1 << {unit} : 0;",
            f"    if (leap && s_axil_awaddr == {LEAP_CYCLES_AT}) leap_by <= {BY_BITS}'d{LEAP_CYCLES} * s_axil_wdata;",
            f"    if (leap && s_axil_awaddr == {LEAP_TOTAL_AT}) leap_by <= s_axil_wdata;",
            f"    if (leap && s_axil_awaddr == {LEAP_UNIT_AT}) leap_by <= s_axil_wdata >> {LEAP_UNIT_BITS};",
            f"    if (leap && s_axil_awaddr == {LEAP_CYCLES_AT}) leap_left <= {len(COUNTERS)};",
            "    else if (leap_left != 0) leap_left <= leap_left - 1;",
            "  end"]
    head = f"  {netlist} netlist ("
    return wrapper.replace(head, "\n".join([*text, head, *(f"    .{name}({name})," for name in PORTS)]), 1)
