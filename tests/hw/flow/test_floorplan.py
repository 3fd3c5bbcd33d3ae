"""Assignment of multipliers and memories to sites, on placements whose best answer is known."""

from __future__ import annotations

import copy
import random
import re
from itertools import permutations
from typing import Any

import pytest

from gemmule.hw.flow.floorplan import Site, assigned, fix
from gemmule.hw.flow.target import TARGETS

ROW = [Site(x, 10, f"X{x}/Y10/MULT18_{x % 9}") for x in (4, 13, 22, 31)]
SITES = {"MULT18X18D": ROW, "DP16KD": [Site(8, 22, "X8/Y22/EBR2")]}


def cell(kind: str, place: str, *nets: int) -> dict[str, Any]:
    return {"type": kind, "attributes": {"NEXTPNR_BEL": place},
            "connections": {f"P{i}": [net, "0"] for i, net in enumerate(nets)}}


def placed(cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"modules": {"box": {"attributes": {"blackbox": "1"}, "cells": {}},
                        "top": {"attributes": {"top": "0001"}, "cells": cells}}}


def wire_length(netlist: dict[str, Any]) -> int:
    """Half perimeters of all nets."""
    ends: dict[int, list[tuple[int, int]]] = {}
    for part in netlist["modules"]["top"]["cells"].values():
        if at := re.match(r"X(\d+)/Y(\d+)", part["attributes"].get("NEXTPNR_BEL", "")):
            for net, _ in part["connections"].values():
                ends.setdefault(net, []).append((int(at[1]), int(at[2])))
    return sum(max(axis) - min(axis) for places in ends.values() for axis in zip(*places))


def test_multipliers_go_to_their_logic() -> None:
    """Two that stand crosswise, and a third one that has no wires to speak of; an unplaced cell does not matter."""
    netlist = placed({
        "left": cell("MULT18X18D", ROW[3].name, 1, 2), "right": cell("MULT18X18D", ROW[0].name, 3),
        "idle": cell("MULT18X18D", ROW[1].name, 9), "memory": cell("DP16KD", "X8/Y22/EBR2", 1),
        "a": cell("TRELLIS_COMB", "X5/Y12/SLICEA.COMB0", 1), "b": cell("TRELLIS_FF", "X3/Y8/SLICEA.FF0", 2),
        "c": cell("TRELLIS_COMB", "X30/Y12/SLICEB.COMB1", 3),
        "off": {"type": "TRELLIS_COMB", "attributes": {}, "connections": {"A": [3]}},
    })
    assert wire_length(netlist) == (31 - 5 + 12 + 28 + 2) + (26 + 2)
    names = assigned(netlist, SITES)
    assert (names["left"], names["right"], names["memory"]) == (ROW[0].name, ROW[3].name, "X8/Y22/EBR2")
    assert names["idle"] in (ROW[1].name, ROW[2].name)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_better(seed: int) -> None:
    """Four multipliers with no net in common: as short as the best of all 24 ways."""
    draw = random.Random(seed)
    print("seed", seed)
    cells = {f"m{i}": cell("MULT18X18D", ROW[i].name, *range(8 * i, 8 * i + 8)) for i in range(4)}
    cells |= {f"l{n}": cell("TRELLIS_COMB", f"X{draw.randrange(40)}/Y{draw.randrange(40)}/SLICEA.COMB0", n)
              for n in range(32)}

    def length(order: tuple[Site, ...]) -> int:
        moved = copy.deepcopy(cells)
        for i, site in enumerate(order):
            moved[f"m{i}"]["attributes"]["NEXTPNR_BEL"] = site.name
        return wire_length(placed(moved))

    names = assigned(placed(cells), {"MULT18X18D": ROW})
    found = tuple(next(site for site in ROW if site.name == names[f"m{i}"]) for i in range(4))
    assert length(found) == min(map(length, permutations(ROW)))


def test_cells_are_fixed_by_their_path() -> None:
    def leaf(kind: str) -> dict[str, Any]:
        return {"type": kind, "attributes": {}}

    netlist = {"modules": {
        "top": {"cells": {"device": leaf("inner"), "m": leaf("MULT18X18D")}},
        "inner": {"cells": {"mesh.m": leaf("MULT18X18D"), "n": leaf("MULT18X18D")}},
        "MULT18X18D": {"cells": {}},
    }}
    fix(netlist, "top", {"device.mesh.m": "X4/Y10/MULT18_0", "m": "X5/Y10/MULT18_1"})
    top, inner = netlist["modules"]["top"], netlist["modules"]["inner"]
    assert inner["cells"]["mesh.m"]["attributes"] == {"BEL": "X4/Y10/MULT18_0"}
    assert inner["cells"]["n"]["attributes"] == {}
    assert top["cells"]["m"]["attributes"] == {"BEL": "X5/Y10/MULT18_1"}
    with pytest.raises(KeyError, match="device.gone"):
        fix(netlist, "top", {"device.gone": "X4/Y10/MULT18_0"})


def test_sites_of_the_part() -> None:
    target = TARGETS["ecp5-85k"]
    assert (target.dsp, target.bram) == (156, 208)
    names = {site.name for sites in target.sites.values() for site in sites}
    assert len(names) == 156 + 208
    assert {"X119/Y58/MULT18_5", "X49/Y22/EBR0", "X120/Y82/EBR3"} <= names
