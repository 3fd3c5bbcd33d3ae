"""Two devices over some cycles, with a mutation and without it, as one module of gates.

Registers and RAMs are cut: both devices start in the same state, whatever it is, and get the same inputs; the first of
the cycles has the mutation. Gates behind the mutation are doubled, all others are there once. Without a mutant there is
one device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmule.hw.flow.cells import MEMORY, REGISTERS, Bit, Cell, Netlist, unescaped
from gemmule.hw.flow.gates import Gates
from gemmule.hw.flow.mutate import Mutant

__all__ = ["Devices"]


class Devices(Gates):
    """Both devices: cells are made when their outputs are asked for.

    Parameters
    ----------
    before: cycles without the mutation before the first one.
    zeros: registers' bits that are 0 in the state in which the first cycle begins, and in which the devices must agree.
    """

    def __init__(self, netlist: Netlist, mutant: Mutant | None, before: int, zeros: Sequence[Bit] = ()) -> None:
        super().__init__()
        self.netlist, self.mutant, self.before, self.zeros = netlist, mutant, before, frozenset(zeros)
        self.place, also = "", list(zeros)
        if mutant:
            self.place = netlist.find(mutant) or ""
            assert self.place, mutant
            if mutant.by is not None:  # the mutation may show the bit that it looks at
                also.append(netlist.cells[self.place].nets[unescaped(mutant.port)][mutant.by])
        self.also = tuple(also)
        """Bits that count as seen."""
        self.made: dict[tuple[str, int, bool], dict[Bit, Bit]] = {}
        self.reached: dict[int, tuple[frozenset[str], frozenset[str], bool]] = {}

    def touched(self, cycle: int) -> tuple[frozenset[str], frozenset[str], bool]:
        """Cells whose outputs may differ between the devices in a cycle; among them registers and RAMs by their state;
        whether an output of the device may."""
        if cycle not in self.reached:
            self.reached[cycle] = self._touched(cycle)
        return self.reached[cycle]

    def _touched(self, cycle: int) -> tuple[frozenset[str], frozenset[str], bool]:
        begin = {self.place} if cycle == 0 and self.mutant else set()
        state = {name for name in self.touched(cycle - 1)[0] if self.holds(name)} if cycle > 0 else self.begin()
        found, open_, outputs = set(state), [*begin, *state], set(self.netlist.outputs)
        seen, out = set(begin), False
        while open_:
            name = open_.pop()
            found.add(name)
            cell = self.netlist.cells[name]
            shown = name in state or name in begin and self.at(cell.directions) == "output"
            if cell.kind in REGISTERS and not shown:
                continue  # it differs from the next cycle on
            for bit in cell.outputs():
                out = out or bit in outputs
                for user in self.netlist.users.get(bit, ()):
                    if user not in seen:
                        seen.add(user)
                        open_.append(user)
        return frozenset(found), frozenset(state), out

    def begin(self) -> set[str]:
        """Cells of the state in which the devices may differ from the first cycle on."""
        return set()

    def first(self, name: str, bit: Bit, right: Bit, wrong: bool) -> Bit:
        """A bit of a cell's state in the first state of all, which is ``right`` in the device without the mutation."""
        return right

    def holds(self, name: str) -> bool:
        return self.netlist.cells[name].kind in (*REGISTERS, MEMORY)

    def bit(self, bit: Bit, cycle: int, wrong: bool) -> Bit:
        """A net of the right or the wrong device in a cycle."""
        if isinstance(bit, str):
            return "0" if bit in "xz" else bit
        name = self.netlist.driver.get(bit)
        if name is None:
            return self.given("input", bit, cycle)
        if bit in self.zeros and cycle == 0 and not (wrong and name == self.place):
            return "0"
        return self.outputs_of(name, cycle, wrong)[bit]

    def bits(self, bits: list[Bit], cycle: int, wrong: bool) -> list[Bit]:
        return [self.bit(bit, cycle, wrong) for bit in bits]

    def mutated(self, name: str, port: str, cycle: int, wrong: bool) -> bool:
        """Whether the mutation is at this port then."""
        return bool(wrong and cycle == 0 and name == self.place and self.mutant
                    and port == unescaped(self.mutant.port))

    def at(self, ports: Mapping[str, Any]) -> Any:
        """What belongs to the port of the mutation."""
        return ports[unescaped(self.mutant.port)] if self.mutant else None

    def port(self, name: str, port: str, cycle: int, wrong: bool) -> list[Bit]:
        """What a cell's input sees."""
        found = self.bits(list(self.netlist.cells[name].nets[port]), cycle, wrong)
        if self.mutant and self.mutated(name, port, cycle, wrong):
            found[self.mutant.bit] = self.change(found)
        return found

    def change(self, bits: list[Bit]) -> Bit:
        mutant = self.mutant
        assert mutant
        bit = bits[mutant.bit]
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
        if self.mutant and self.mutated(name, port, cycle, wrong):
            return [self.change(bits) if i == self.mutant.bit else bit for i, bit in enumerate(bits)]
        return bits

    def state(self, name: str, cycle: int, wrong: bool) -> list[Bit]:
        """What a register holds in a cycle."""
        cell = self.netlist.cells[name]
        if cycle == -self.before:
            return [self.first(name, bit, self.given("state", name, i), wrong) for i, bit in enumerate(cell.nets["Q"])]
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
            return [self.first(name, bit, self.given("held", name, port, i), wrong)
                    for i, bit in enumerate(cell.nets["RD_DATA"][data])]
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
