"""Proofs that a mutant changes nothing: every step of the device with the mutation against the step without it.

Registers and RAMs are cut: both devices start a step in the same state, whatever it is, and get the same inputs. If
for all of them what leaves the device and enters a RAM is the same in the next ``steps`` cycles, of which only the
first has the mutation, and the state is the same after them, then it is so with the mutation in every cycle: take the
last cycle with it, put the right one in its place, nothing that can be seen changes; then the one before. With one
step the state before may also be taken as what ``before`` cycles without the mutation lead to.

The proof is of what differs alone: gates behind the mutation are doubled, all others are there once; bits of the state
that nothing outside ever depends on do not count. Yosys' ``sat`` finds it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gemmule.hw.flow.cells import MEMORY, REGISTERS, Bit, Cell, Netlist, tagged, unescaped
from gemmule.hw.flow.live import seen
from gemmule.hw.flow.mutate import Mutant
from gemmule.hw.flow.synth import WHEELS
from gemmule.hw.flow.tools import Progress, SynthError, Tools

__all__ = ["ATTEMPTS", "ignored", "miter", "prove", "prover"]

ATTEMPTS = ((1, 0), (1, 1), (1, 3), (2, 0), (3, 0), (4, 0))
"""(steps, before) in the order in which they are tried."""
MOST = 40_000
"""Cells beyond which an attempt is left out."""
SECONDS = 15
"""For one attempt."""
IGNORED = "not looked at"
"""Proof of a mutant at the port of a block."""


class TooLargeError(Exception):
    """A proof has more than :data:`MOST` cells."""


@dataclass(eq=False)
class _Product:
    """Both devices over some cycles: cells are made when their outputs are asked for."""

    netlist: Netlist
    mutant: Mutant
    before: int
    cells: dict[str, Any] = field(default_factory=dict)
    inputs: list[Bit] = field(default_factory=list)
    last: int = 1

    def __post_init__(self) -> None:
        place = self.netlist.find(self.mutant)
        assert place, self.mutant
        self.place = place
        # The mutation may show the bit that it looks at.
        nets, by = self.netlist.cells[self.place].nets[unescaped(self.mutant.port)], self.mutant.by
        self.seen = seen(self.netlist, *([] if by is None else [nets[by]]))
        self.made: dict[tuple[str, int, bool], dict[Bit, Bit]] = {}
        self.free: dict[tuple[Any, ...], Bit] = {}
        self.reached: dict[int, tuple[frozenset[str], frozenset[str], bool]] = {}

    # Bits -------------------------------------------------------------------------------------

    def new(self) -> int:
        self.last += 1
        return self.last

    def given(self, *name: Any) -> Bit:
        """A bit that may be anything, the same for the same name."""
        if name not in self.free:
            self.free[name] = self.new()
            self.inputs.append(self.free[name])
        return self.free[name]

    def add(self, kind: str, parameters: Mapping[str, Any], directions: Mapping[str, str],
            nets: Mapping[str, list[Bit]]) -> None:
        if len(self.cells) >= MOST:
            raise TooLargeError
        self.cells[f"c{len(self.cells)}"] = {
            "type": kind, "parameters": dict(parameters), "attributes": {}, "port_directions": dict(directions),
            "connections": nets}

    def cell(self, kind: str, parameters: Mapping[str, Any], **nets: list[Bit]) -> None:
        self.add(kind, parameters, {port: "output" if port == "Y" else "input" for port in nets}, nets)

    def gate(self, kind: str, *inputs: Bit) -> Bit:
        """One bit of $not, $and, $or, $xor, $xnor."""
        made, names = self.new(), ("A", "B")[:len(inputs)]
        parameters: dict[str, Any] = {f"{name}_SIGNED": 0 for name in names}
        parameters |= {f"{name}_WIDTH": 1 for name in names} | {"Y_WIDTH": 1}
        self.cell(kind, parameters, **{name: [bit] for name, bit in zip(names, inputs)}, Y=[made])
        return made

    def choose(self, no: Bit, yes: Bit, select: Bit) -> Bit:
        if no == yes:
            return no
        made = self.new()
        self.cell("$mux", {"WIDTH": 1}, A=[no], B=[yes], S=[select], Y=[made])
        return made

    def any(self, bits: list[Bit]) -> Bit:
        bits = [bit for bit in dict.fromkeys(bits) if bit != "0"]
        if len(bits) < 2:
            return bits[0] if bits else "0"
        made = self.new()
        self.cell("$reduce_or", {"A_SIGNED": 0, "A_WIDTH": len(bits), "Y_WIDTH": 1}, A=bits, Y=[made])
        return made

    def differ(self, first: list[Bit], second: list[Bit]) -> Bit:
        return self.any([self.gate("$xor", a, b) for a, b in zip(first, second, strict=True) if a != b])

    # The devices --------------------------------------------------------------------------------

    def touched(self, cycle: int) -> tuple[frozenset[str], frozenset[str], bool]:
        """Cells whose outputs may differ between the devices in a cycle; among them registers and RAMs by their state;
        whether an output of the device may."""
        if cycle not in self.reached:
            self.reached[cycle] = self._touched(cycle)
        return self.reached[cycle]

    def _touched(self, cycle: int) -> tuple[frozenset[str], frozenset[str], bool]:
        begin = {self.place} if cycle == 0 else set()
        state = {name for name in self.touched(cycle - 1)[0] if self.holds(name)} if cycle > 0 else set()
        found, open_, outputs = set(state), [*begin, *state], set(self.netlist.outputs)
        seen, out = set(begin), False
        while open_:
            name = open_.pop()
            found.add(name)
            cell = self.netlist.cells[name]
            shown = name in state or name in begin and cell.directions[unescaped(self.mutant.port)] == "output"
            if cell.kind in REGISTERS and not shown:
                continue  # it differs from the next cycle on
            for bit in cell.outputs():
                out = out or bit in outputs
                for user in self.netlist.users.get(bit, ()):
                    if user not in seen:
                        seen.add(user)
                        open_.append(user)
        return frozenset(found), frozenset(state), out

    def holds(self, name: str) -> bool:
        return self.netlist.cells[name].kind in (*REGISTERS, MEMORY)

    def bit(self, bit: Bit, cycle: int, wrong: bool) -> Bit:
        """A net of the right or the wrong device in a cycle."""
        if isinstance(bit, str):
            return "0" if bit in "xz" else bit
        name = self.netlist.driver.get(bit)
        if name is None:
            return self.given("input", bit, cycle)
        return self.outputs_of(name, cycle, wrong)[bit]

    def bits(self, bits: list[Bit], cycle: int, wrong: bool) -> list[Bit]:
        return [self.bit(bit, cycle, wrong) for bit in bits]

    def mutated(self, name: str, cycle: int, wrong: bool) -> bool:
        return wrong and cycle == 0 and name == self.place

    def port(self, name: str, port: str, cycle: int, wrong: bool) -> list[Bit]:
        """What a cell's input sees."""
        found = self.bits(list(self.netlist.cells[name].nets[port]), cycle, wrong)
        if self.mutated(name, cycle, wrong) and port == unescaped(self.mutant.port):
            found[self.mutant.bit] = self.change(found)
        return found

    def change(self, bits: list[Bit]) -> Bit:
        mutant, bit = self.mutant, bits[self.mutant.bit]
        if mutant.mode in ("const0", "const1"):
            return mutant.mode[-1]
        if mutant.mode == "inv":
            return self.gate("$not", bit)
        assert mutant.by is not None
        return self.gate({"cnot0": "$xnor", "cnot1": "$xor"}[mutant.mode], bit, bits[mutant.by])

    def outputs_of(self, name: str, cycle: int, wrong: bool) -> dict[Bit, Bit]:
        """A cell's nets in a cycle."""
        touched, state, _ = self.touched(cycle) if cycle >= 0 else (frozenset(), frozenset(), False)
        cell = self.netlist.cells[name]
        if cell.kind in REGISTERS:  # a register's output differs by its state, or as the place of the mutation
            wrong = wrong and (name in state or name == self.place and cycle == 0)
        else:
            wrong = wrong and name in touched
        key = name, cycle, wrong
        if key not in self.made:
            self.made[key] = self._outputs_of(name, cell, cycle, wrong)
        return self.made[key]

    def _outputs_of(self, name: str, cell: Cell, cycle: int, wrong: bool) -> dict[Bit, Bit]:
        found: dict[Bit, Bit] = {}
        if cell.kind in REGISTERS:
            kept = self.state(name, cycle, wrong)
            found = dict(zip(cell.nets["Q"], self._out(name, "Q", kept, cycle, wrong), strict=True))
        elif cell.kind == MEMORY:
            read = self.read(name, cycle, wrong)
            found = dict(zip(cell.nets["RD_DATA"], self._out(name, "RD_DATA", read, cycle, wrong), strict=True))
        else:
            nets: dict[str, list[Bit]] = {}
            for port, bits in cell.nets.items():
                if cell.directions[port] == "output":
                    nets[port] = [self.new() for _ in bits]
                    found |= dict(zip(bits, self._out(name, port, nets[port], cycle, wrong), strict=True))
                else:
                    nets[port] = self.port(name, port, cycle, wrong)
            self.add(cell.kind, cell.parameters, cell.directions, nets)
        return found

    def _out(self, name: str, port: str, bits: list[Bit], cycle: int, wrong: bool) -> list[Bit]:
        """A cell's output, with the mutation if it is there."""
        if self.mutated(name, cycle, wrong) and port == unescaped(self.mutant.port):
            return [self.change(bits) if i == self.mutant.bit else bit for i, bit in enumerate(bits)]
        return bits

    def state(self, name: str, cycle: int, wrong: bool) -> list[Bit]:
        """What a register holds in a cycle."""
        cell = self.netlist.cells[name]
        if cycle == -self.before:
            return [self.given("state", name, i) for i in range(len(cell.nets["Q"]))]
        if wrong and not self.has_state(name, cycle):
            wrong = False
        key = f"next {name}", cycle, wrong
        if key not in self.made:
            self.made[key] = dict(enumerate(self.following(name, cycle - 1, wrong)))
        return list(self.made[key].values())

    def has_state(self, name: str, cycle: int) -> bool:
        """Whether the devices may differ in what a cell holds at the beginning of a cycle."""
        return cycle > 0 and name in self.touched(cycle - 1)[0]

    def following(self, name: str, cycle: int, wrong: bool) -> list[Bit]:
        """What a register takes over at the end of a cycle."""
        cell = self.netlist.cells[name]
        value = self.port(name, "D", cycle, wrong)

        def active(port: str) -> Bit:
            bit = self.port(name, port, cycle, wrong)[0]
            return bit if cell.number(f"{port}_POLARITY") else self.gate("$not", bit)

        def enabled(value: list[Bit]) -> list[Bit]:
            select, old = active("EN"), self.state(name, cycle, wrong)
            return [self.choose(a, b, select) for a, b in zip(old, value, strict=True)]

        def cleared(value: list[Bit]) -> list[Bit]:
            select, text = active("SRST"), str(cell.parameters["SRST_VALUE"])[::-1]
            return [self.choose(a, b if b in "01" else "0", select) for a, b in zip(value, text, strict=True)]

        if cell.kind == "$sdffce":
            return enabled(cleared(value))
        if cell.kind in ("$dffe", "$sdffe"):
            value = enabled(value)
        return cleared(value) if cell.kind in ("$sdff", "$sdffe") else value

    def read_port(self, cell: Cell, port: int) -> tuple[slice, slice, bool]:
        """Slices of address and data, and whether a port is clocked."""
        bits, width = cell.number("ABITS"), cell.number("WIDTH")
        return (slice(bits * port, bits * (port + 1)), slice(width * port, width * (port + 1)),
                bool(cell.number("RD_CLK_ENABLE") >> port & 1))

    def read(self, name: str, cycle: int, wrong: bool) -> list[Bit]:
        """What the read ports of a RAM show: anything, the same where the same row was read."""
        cell, found = self.netlist.cells[name], []
        for port in range(cell.number("RD_PORTS")):
            address, data, clocked = self.read_port(cell, port)
            count = data.stop - data.start
            if clocked:
                found += self.latched(name, port, cycle, wrong)
            else:
                right = [self.given("read", name, port, cycle, i) for i in range(count)]
                if wrong:
                    same = self.differ(self.port(name, "RD_ADDR", cycle, False)[address],
                                       self.port(name, "RD_ADDR", cycle, True)[address])
                    right = [self.choose(bit, self.given("other", name, port, cycle, i), same)
                             for i, bit in enumerate(right)]
                found += right
        return found

    def latched(self, name: str, port: int, cycle: int, wrong: bool) -> list[Bit]:
        """What a clocked read port holds in a cycle."""
        cell = self.netlist.cells[name]
        address, data, _ = self.read_port(cell, port)
        count = data.stop - data.start
        if cycle == -self.before:
            return [self.given("held", name, port, i) for i in range(count)]
        if wrong and not self.has_state(name, cycle):
            wrong = False
        key = f"held {name} {port}", cycle, wrong
        if key not in self.made:
            enable = self.port(name, "RD_EN", cycle - 1, False)[port]
            fetched = [self.given("fetched", name, port, cycle, i) for i in range(count)]
            held = self.latched(name, port, cycle - 1, wrong)
            if wrong:
                mine = self.port(name, "RD_EN", cycle - 1, True)[port]
                other = self.any([
                    self.differ([enable], [mine]),
                    self.differ(self.port(name, "RD_ADDR", cycle - 1, False)[address],
                                self.port(name, "RD_ADDR", cycle - 1, True)[address])])
                fetched = [self.choose(bit, self.given("odd", name, port, cycle, i), other)
                           for i, bit in enumerate(fetched)]
                enable = mine
            self.made[key] = dict(enumerate(self.choose(a, b, enable) for a, b in zip(held, fetched, strict=True)))
        return list(self.made[key].values())

    # What must be the same ------------------------------------------------------------------------

    def written(self, name: str, cycle: int, wrong: bool) -> list[Bit]:
        """What the write ports of a RAM do: enables, and address and data where enabled; of bits that are seen."""
        cell, found = self.netlist.cells[name], []
        bits, width = cell.number("ABITS"), cell.number("WIDTH")
        read = [any(bit in self.seen for bit in cell.nets["RD_DATA"][i::width]) for i in range(width)]
        enable, address, data = (self.port(name, port, cycle, wrong) for port in ("WR_EN", "WR_ADDR", "WR_DATA"))
        for port in range(cell.number("WR_PORTS")):
            own, new = ([bit for bit, used in zip(nets[width * port:width * (port + 1)], read, strict=True) if used]
                        for nets in (enable, data))
            some = self.any(own)
            found += own
            found += [self.gate("$and", bit, some) for bit in address[bits * port:bits * (port + 1)]]
            found += [self.gate("$and", bit, on) for bit, on in zip(new, own, strict=True)]
        return found

    def shown(self, cycle: int) -> Bit:
        """Whether what leaves the device or enters a RAM in a cycle differs."""
        touched, _, out = self.touched(cycle)
        found: list[Bit] = []
        if out:
            found.append(self.differ(*(self.bits(self.netlist.outputs, cycle, wrong) for wrong in (False, True))))
        for name in sorted(touched):
            if self.netlist.cells[name].kind == MEMORY:
                found.append(self.differ(*(self.written(name, cycle, wrong) for wrong in (False, True))))
        return self.any(found)

    def kept(self, cycle: int) -> list[Bit]:
        """Whether what the state holds at the end of a cycle differs, of bits that are seen."""
        found: list[Bit] = []
        for name in sorted(self.touched(cycle)[0]):
            cell = self.netlist.cells[name]
            if cell.kind in REGISTERS:
                read = [bit in self.seen for bit in cell.nets["Q"]]
                found.append(self.differ(*(
                    [bit for bit, used in zip(self.state(name, cycle + 1, wrong), read, strict=True) if used]
                    for wrong in (False, True))))
            elif cell.kind == MEMORY:
                for port in range(cell.number("RD_PORTS")):
                    _, data, clocked = self.read_port(cell, port)
                    read = [bit in self.seen for bit in cell.nets["RD_DATA"][data]]
                    if clocked:
                        found.append(self.differ(*(
                            [bit for bit, used in zip(self.latched(name, port, cycle + 1, wrong), read) if used]
                            for wrong in (False, True))))
        return found

    def wrong(self, steps: int) -> Bit:
        """Whether anything that counts differs."""
        return self.any([*(self.shown(cycle) for cycle in range(steps)), *self.kept(steps - 1)])

    def module(self, **outputs: list[Bit]) -> str:
        """All cells, with these outputs, in Yosys' JSON."""
        ports = {name: {"direction": "output", "bits": bits} for name, bits in outputs.items()}
        ports["given"] = {"direction": "input", "bits": self.inputs or [self.new()]}
        return json.dumps({"modules": {"miter": {
            "attributes": {"top": 1}, "ports": ports, "cells": self.cells, "netnames": {}}}})


def miter(netlist: Netlist, mutant: Mutant, steps: int, before: int) -> str:
    """A module, in Yosys' JSON, whose output ``wrong`` rises when the mutant shows.

    Raises:
        TooLargeError: it would have too many cells.
    """
    product = _Product(netlist, mutant, before)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 100_000))
    return product.module(wrong=[product.wrong(steps)])


@cache
def _netlist(folder: Path, netlist: Path, tools: Tools) -> Netlist:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tagged.il").write_text(tagged(netlist.read_text()))
    (folder / "flat.ys").write_text(
        "read_rtlil tagged.il\nwrite_json blocks.json\nsetattr -mod -unset keep_hierarchy *\nflatten\n"
        "write_json flat.json\n")
    tools.run("yosys", ["-q", "-l", "flat.log", "flat.ys"], folder, "flat.log", lambda step: None)
    return Netlist((folder / "flat.json").read_text())


def ignored(blocks: str, mutant: Mutant) -> bool:
    """Whether the mutant is of an input bit that a block which kept its module does not look at.

    Parameters
    ----------
    blocks: Yosys' JSON of the netlist with these modules.
    """
    modules = json.loads(blocks)["modules"]
    block = modules[modules[unescaped(mutant.module)]["cells"][unescaped(mutant.cell)]["type"]]
    port = block["ports"][unescaped(mutant.port)]
    bit = port["bits"][mutant.bit]
    inside = [*(cell["connections"].values() for cell in block["cells"].values()),
              (other["bits"] for other in block["ports"].values() if other["direction"] == "output")]
    return port["direction"] == "input" and not any(bit in bits for nets in inside for bits in nets)


def _holds(folder: Path, text: str, tools: Tools, progress: Progress) -> bool:
    """Whether the module's output ``wrong`` never rises."""
    (folder / "miter.json").write_text(text)
    (folder / "sat.ys").write_text(
        f"read_json miter.json\nopt_expr\nopt_merge -share_all\nopt_clean\n"
        f"sat -timeout {SECONDS} -verify -prove wrong 0 miter\n")
    try:
        tools.run("yosys", ["-q", "-l", "sat.log", "sat.ys"], folder, "sat.log", progress)
    except SynthError:
        return False
    return True


def prover() -> str:
    """What tells this prover from another one: a digest of its sources."""
    return hashlib.sha256(b"".join(
        path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()


def prove(mutant: Mutant, netlist: Path, folder: Path, *, attempts: Sequence[tuple[int, int]] = ATTEMPTS,
          tools: Tools = WHEELS, progress: Progress = lambda step: None) -> str | None:
    """How a mutant of ``netlist`` is proved to change nothing; None: no proof was found.

    Raises:
        SynthError: Yosys is missing.
    """
    flat = _netlist(folder, netlist, tools)
    if flat.find(mutant) is None:
        return IGNORED if ignored((folder / "blocks.json").read_text(), mutant) else None
    for steps, before in attempts:
        try:
            text = miter(flat, mutant, steps, before)
        except TooLargeError:
            continue
        if _holds(folder, text, tools, progress):
            return f"{steps} step{'s' * (steps > 1)}" + f" behind {before}" * bool(before)
    return None
