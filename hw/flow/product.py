"""What must be the same in both devices: all that leaves them or enters a RAM, and the state that can be seen later."""

from __future__ import annotations

from functools import cached_property

from gemmule.hw.flow.cells import MEMORY, REGISTERS, Bit
from gemmule.hw.flow.devices import Devices
from gemmule.hw.flow.live import seen

__all__ = ["Product"]


class Product(Devices):
    """Both devices, with bits that are 1 where they differ."""

    @cached_property
    def seen(self) -> frozenset[Bit]:
        return seen(self.netlist, *self.also, zeros=self.zeros)

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
