"""Which bits of a netlist can ever be seen: those that the outputs, over any number of cycles, depend on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache

from gemmule.hw.flow.cells import MEMORY, REGISTERS, Bit, Cell, Netlist

__all__ = ["constants", "seen"]

BITWISE = ("$and", "$or", "$xor", "$xnor", "$not")
CARRIES = ("$add", "$sub", "$neg", "$mul")
"""A bit of the result depends on no higher one."""
CLOCKS = ("CLK", "RD_CLK", "WR_CLK")


def _constant(cell: Cell, i: int, known: Mapping[Bit, str]) -> str | None:
    """What bit ``i`` of a gate's output always is, with inputs that are known; None: anything."""
    inputs = {port: [known.get(bit, bit) for bit in bits] for port, bits in cell.nets.items()
              if cell.directions[port] == "input"}
    every = [bit for bits in inputs.values() for bit in bits]
    match cell.kind:
        case "$and":
            return "0" if any(bits[i] == "0" for bits in inputs.values() if i < len(bits)) else None
        case "$reduce_and":
            return "0" if "0" in every else None
        case "$logic_and":
            return "0" if any(set(bits) == {"0"} for bits in inputs.values()) else None
        case "$or":
            return "1" if any(bits[i] == "1" for bits in inputs.values() if i < len(bits)) else None
        case "$reduce_or" | "$reduce_bool" | "$logic_or":
            return "0" if set(every) == {"0"} else "1" if "1" in every else None
        case "$not":
            return {"0": "1", "1": "0"}.get(str(inputs["A"][i])) if i < len(inputs["A"]) else None
        case "$logic_not":
            return "1" if set(every) == {"0"} else "0" if "1" in every else None
        case "$eq" | "$ne":
            apart = any({a, b} == {"0", "1"} for a, b in zip(inputs["A"], inputs["B"]))
            return ("0" if cell.kind == "$eq" else "1") if apart and i == 0 else None
    return None


def constants(netlist: Netlist, zeros: Collection[Bit]) -> dict[Bit, str]:
    """Bits that are always 0 or 1 because ``zeros`` are 0."""
    known: dict[Bit, str] = dict.fromkeys(zeros, "0")
    left = list(zeros)
    while left:
        for name in netlist.users.get(left.pop(), ()):
            cell = netlist.cells[name]
            for i, bit in enumerate(cell.nets.get("Y", ())):
                if bit not in known and not isinstance(bit, str) and (value := _constant(cell, i, known)):
                    known[bit] = value
                    left.append(bit)
    return known


def _inputs(cell: Cell, port: str, i: int, known: Mapping[Bit, str]) -> Iterator[Bit]:
    """What bit ``i`` of an output depends on, in the same cycle or in the one before."""
    nets = cell.nets
    if cell.kind == "$mux" and nets["S"][0] in known:
        yield nets["B" if known[nets["S"][0]] == "1" else "A"][i]
    elif cell.kind in BITWISE:
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
def seen(netlist: Netlist, *also: Bit, zeros: frozenset[Bit] = frozenset()) -> frozenset[Bit]:
    """All of these bits; ``also`` are taken as seen, ``zeros`` as 0."""
    known = constants(netlist, zeros)
    place = {bit: (cell, port, i) for cell in netlist.cells.values() for port, bits in cell.nets.items()
             if cell.directions[port] == "output" for i, bit in enumerate(bits)}
    found = {*netlist.outputs, *also}
    left = list(found)
    while left:
        bit = left.pop()
        if bit in place and (bit in zeros or bit not in known):
            new = {one for one in _inputs(*place[bit], known) if not isinstance(one, str)} - found
            found |= new
            left += new
    return frozenset(found)
