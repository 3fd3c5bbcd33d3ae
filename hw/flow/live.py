"""Which bits of a netlist can ever be seen: those that the outputs, over any number of cycles, depend on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from gemmule.hw.flow.cells import MEMORY, REGISTERS, Bit, Cell, Netlist

__all__ = ["seen"]

BITWISE = ("$and", "$or", "$xor", "$xnor", "$not")
CARRIES = ("$add", "$sub", "$neg", "$mul")
"""A bit of the result depends on no higher one."""
CLOCKS = ("CLK", "RD_CLK", "WR_CLK")


def _inputs(cell: Cell, port: str, i: int) -> Iterator[Bit]:
    """What bit ``i`` of an output depends on, in the same cycle or in the one before."""
    nets = cell.nets
    if cell.kind in BITWISE:
        for name in ("A", "B"):
            yield from nets.get(name, [])[i:i + 1] or nets.get(name, [])[-1:]  # beyond its end the sign
    elif cell.kind in CARRIES:
        for name in ("A", "B"):
            yield from nets.get(name, [])[:i + 1]
    elif cell.kind == "$shl":
        yield from (*nets["A"][:i + 1], *nets["B"])
    elif cell.kind in ("$mux", "$pmux"):
        yield from (*nets["A"][i:i + 1], *nets["B"][i::len(nets["A"])], *nets["S"])
    elif cell.kind in REGISTERS:
        yield from (nets["D"][i], *nets.get("EN", []), *nets.get("SRST", []))
    elif cell.kind == MEMORY and port == "RD_DATA":
        width, bits = cell.number("WIDTH"), cell.number("ABITS")
        number, bit = divmod(i, width)
        yield from (*nets["RD_ADDR"][bits * number:bits * (number + 1)], nets["RD_EN"][number], *nets["WR_ADDR"],
                    *nets["WR_DATA"][bit::width], *nets["WR_EN"])
    else:
        yield from (bit for name, bits in nets.items()
                    if cell.directions[name] == "input" and name not in CLOCKS for bit in bits)


@cache
def seen(netlist: Netlist, *also: Bit) -> frozenset[Bit]:
    """All of these bits; ``also`` are taken as seen."""
    place = {bit: (cell, port, i) for cell in netlist.cells.values() for port, bits in cell.nets.items()
             if cell.directions[port] == "output" for i, bit in enumerate(bits)}
    found = {*netlist.outputs, *also}
    left = list(found)
    while left:
        bit = left.pop()
        if bit in place:
            new = {one for one in _inputs(*place[bit]) if not isinstance(one, str)} - found
            found |= new
            left += new
    return frozenset(found)
