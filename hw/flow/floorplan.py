"""Sites for multipliers and block RAM: what to fix between two placements of a design.

nextpnr places logic well, but gives the few large cells of a nearly full part sites far from what they are wired to.
With everything else where it stands, the best sites of all cells of a type are a linear assignment problem; a second
placement with these cells fixed then has a quarter less wire in all (docs/synthesis.md).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Site", "Sites", "assigned", "fix"]

ROUNDS = 4
FEW, MANY = 2, 200
"""Nets of fewer cells have no length, nets of more are everywhere whatever the sites."""
Netlist = dict[str, Any]


@dataclass(frozen=True)
class Site:
    """A place on the part, in tiles, and nextpnr's name for it."""

    x: int
    y: int
    name: str


Sites = Mapping[str, Sequence[Site]]
"""All places of a part by cell type."""


class _Design:
    """Cells of nextpnr's flat netlist with their places and nets."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        self.place: dict[str, tuple[int, int]] = {}
        self.kind: dict[str, str] = {}
        self.nets: dict[str, set[int]] = {}
        ends: defaultdict[int, set[str]] = defaultdict(set)
        for name, cell in module["cells"].items():
            at = re.match(r"X(\d+)/Y(\d+)/", cell["attributes"].get("NEXTPNR_BEL", ""))
            if not at:
                continue
            self.place[name], self.kind[name] = (int(at[1]), int(at[2])), cell["type"]
            self.nets[name] = {bit for bits in cell["connections"].values() for bit in bits if isinstance(bit, int)}
            for net in self.nets[name]:
                ends[net].add(name)
        self.ends = {net: cells for net, cells in ends.items() if FEW <= len(cells) <= MANY}

    def box(self, net: int, without: str | None = None) -> tuple[int, int, int, int] | None:
        """Left, right, lower and upper end of a net, None if nothing is left of it."""
        places = [self.place[cell] for cell in self.ends[net] if cell != without]
        if not places:
            return None
        x, y = zip(*places)
        return min(x), max(x), min(y), max(y)

    def length(self, cells: Iterable[str]) -> int:
        """Half perimeters of all nets of some cells, in tiles."""
        nets = {net for cell in cells for net in self.nets[cell] if net in self.ends}
        boxes = [box for net in nets if (box := self.box(net))]
        return sum(right - left + upper - lower for left, right, lower, upper in boxes)

    def assign(self, cells: Sequence[str], sites: Sequence[Site]) -> dict[str, Site]:
        """Best sites with everything else where it stands; nets between two of the cells are taken one by one."""
        from scipy.optimize import linear_sum_assignment  # an extra: only routing needs it

        x, y = np.array([site.x for site in sites]), np.array([site.y for site in sites])
        cost = np.zeros((len(cells), len(sites)), np.int64)
        for row, cell in zip(cost, cells):
            for net in self.nets[cell] & self.ends.keys():
                if box := self.box(net, without=cell):
                    left, right, lower, upper = box
                    row += np.maximum(0, np.maximum(left - x, x - right)) + np.maximum(
                        0, np.maximum(lower - y, y - upper))
        return {cells[i]: sites[j] for i, j in zip(*linear_sum_assignment(cost))}


def _top(netlist: Netlist) -> dict[str, Any]:
    return next(module for module in netlist["modules"].values() if int(module["attributes"].get("top", "0"), 2))


def assigned(placed: Netlist, sites: Sites) -> dict[str, str]:
    """Site of every cell of the types in ``sites``, by the cell's path in the design.

    Parameters
    ----------
    placed: what nextpnr writes after placement.

    Each type in turn, until no wires get shorter: a linear assignment problem (Kuhn 1955, "The Hungarian method") with
    the half perimeter of the cell's nets as its cost.
    """
    design = _Design(_top(placed))
    names = {name: cell["attributes"]["NEXTPNR_BEL"] for name, cell in _top(placed)["cells"].items()
             if cell["type"] in sites}
    for _ in range(ROUNDS):
        better = False
        for kind, places in sites.items():
            cells = sorted(name for name in names if design.kind[name] == kind)
            before, old = design.length(cells), {cell: design.place[cell] for cell in cells}
            new = design.assign(cells, places)
            design.place.update({cell: (site.x, site.y) for cell, site in new.items()})
            if design.length(cells) < before:
                names.update({cell: site.name for cell, site in new.items()})
                better = True
            else:
                design.place.update(old)
        if not better:
            break
    return names


def fix(netlist: Netlist, top: str, names: Mapping[str, str]) -> None:
    """Fix cells of Yosys' netlist to sites, in place.

    Raises:
        KeyError: a cell of ``names`` is not there.
    """
    modules, left = netlist["modules"], dict(names)

    def walk(module: str, path: str) -> None:
        for name, cell in modules[module]["cells"].items():
            if (site := left.pop(path + name, None)) is not None:
                cell["attributes"]["BEL"] = site
            elif cell["type"] in modules:
                walk(cell["type"], f"{path}{name}.")

    walk(top, "")
    if left:
        raise KeyError(f"no cell {sorted(left)[0]}")
