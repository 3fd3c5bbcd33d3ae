"""Refinement of placements: paths get shorter, and whatever moves obeys the rules of its sites."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from gemmule.hw.flow.floorplan import Site
from gemmule.hw.flow.paths import Delays
from gemmule.hw.flow.placing.arrivals import Arrivals, wire_ps
from gemmule.hw.flow.placing.moves import Round
from gemmule.hw.flow.placing.placement import Placement
from gemmule.hw.flow.placing.refine import refine

SITES = {"DP16KD": tuple(Site(x, 20, f"X{x}/Y20/EBR0") for x in (2, 8, 14, 20))}
OUTPUTS = {"K": "F", "FF": "Q", "EBR": "DOA0", "RAMW": "WDO0"}
COLUMNS, ROWS = 20, 10


class Design:
    """A netlist in nextpnr's form, cell by cell, and its delays."""

    def __init__(self, seed: int = 0) -> None:
        print("seed", seed)
        self.random = random.Random(seed)
        self.cells: dict[str, Any] = {}
        self.nets = 0

    def add(self, bel: str, mode: str | None = None, **inputs: int) -> int:
        """A cell; returns the net of its output."""
        self.nets += 1
        kind = next(kind for kind in ("RAMW", "FF", "EBR", "K") if kind in bel.rpartition("/")[2])
        parameters = {"MODE": mode} if mode else {}
        if kind == "FF":
            parameters |= {"CEMUX": "CE" if "CE" in inputs else "1 ", "LSRMUX": "LSR", "SRMODE": "LSR_OVER_CE"}
        self.cells[f"c{len(self.cells)}"] = {
            "type": {"EBR": "DP16KD", "FF": "TRELLIS_FF", "K": "TRELLIS_COMB", "RAMW": "TRELLIS_RAMW"}[kind],
            "parameters": parameters, "attributes": {"NEXTPNR_BEL": bel},
            "connections": {**{port: [net] for port, net in inputs.items()}, OUTPUTS[kind]: [self.nets]},
            "port_directions": {**dict.fromkeys(inputs, "input"), OUTPUTS[kind]: "output"}}
        return self.nets

    def delays(self) -> Delays:
        """Wires by their estimate, 200 ps through a look-up table, 500 to a register's output, 100 before it."""
        found, drivers = Delays(), {}
        for name, cell in self.cells.items():
            for port, (net,) in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    drivers[net] = f"{name}/{port}"
        for name, cell in self.cells.items():
            for port, (net,) in cell["connections"].items():
                pin = f"{name}/{port}"
                if cell["port_directions"][port] == "output":
                    if cell["type"] != "TRELLIS_COMB":
                        found.launches[pin] = 500
                elif net in drivers:
                    one, other = (place(self.cells[end.rpartition("/")[0]]["attributes"]["NEXTPNR_BEL"])
                                  for end in (drivers[net], pin))
                    near = port in ("DI", "F1", "FCI", "WD")
                    found.wires[drivers[net]].append((pin, 0.0 if near else float(wire_ps(
                        abs(one[0] - other[0]), abs(one[1] - other[1])))))
                    if cell["type"] == "TRELLIS_COMB":
                        found.arcs[pin].append((f"{name}/F", 200.0))
                    else:
                        found.setups[pin] = 100.0
        return found


def place(bel: str) -> tuple[int, int]:
    found = re.match(r"X(\d+)/Y(\d+)/", bel)
    assert found
    return int(found[1]), int(found[2])


def refined(design: Design) -> tuple[float, float, int]:
    """Before, after, moved cells; the design has the new sites."""
    found = refine(design.cells, design.delays(), SITES)
    for name, bel in found.bels.items():
        design.cells[name]["attributes"]["NEXTPNR_BEL"] = bel
    return found.before, found.after, found.moved


def test_a_cell_between_two_registers_goes_there() -> None:
    design = Design()
    first = design.add("X2/Y2/SLICEA.FF0")
    middle = design.add("X20/Y9/SLICEB.K1", A=first)
    design.add("X4/Y2/SLICEA.FF0", M=middle)
    design.add("X3/Y2/SLICED.K0", A=0)  # a tile that is known
    before, after, _ = refined(design)
    assert before == 500 + 2 * 200 - 200 + float(wire_ps(18, 7)) + float(wire_ps(16, 7)) + 100
    assert after < 0.6 * before
    places = [place(design.cells[f"c{i}"]["attributes"]["NEXTPNR_BEL"]) for i in range(3)]
    assert all(abs(one[0] - other[0]) < 18 for one in places for other in places), places


def test_a_group_goes_where_none_of_it_would_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables beside each other, far from the memory at both ends: a step of one of them makes the path longer."""
    def refined_alone_or_not(groups: bool) -> tuple[float, float]:
        if not groups:
            monkeypatch.setattr(Round, "_group", lambda self, unit: False)
        design = Design()
        net = design.add("X2/Y20/EBR0", DIA0=0)
        for x, y in ((20, 9), (21, 9), (21, 8)):
            net = design.add(f"X{x}/Y{y}/SLICEA.K0", A=net)
        design.cells["c0"]["connections"]["DIA0"] = [net]
        for x in range(2, 8):  # tiles that are known
            design.add(f"X{x}/Y18/SLICED.K0", A=0)
        found = refine(design.cells, design.delays(), {"DP16KD": SITES["DP16KD"][:1]})
        return found.before, found.after

    (before, together), (_, alone) = refined_alone_or_not(True), refined_alone_or_not(False)
    assert together < 0.6 * before
    assert alone > 0.9 * before


def test_blocks_exchange_their_sites() -> None:
    """Two memories, each near the registers of the other one."""
    design = Design()
    for x, site in ((2, 20), (20, 2)):
        for part in "ABCD":
            data = design.add(f"X{x}/Y19/SLICE{part}.FF1")
            if part == "A":
                memory = design.add(f"X{site}/Y20/EBR0", DIA0=data)
            design.add(f"X{x}/Y18/SLICE{part}.FF1", M=memory)
    before, after, moved = refined(design)
    assert moved >= 2
    assert after < 0.5 * before


def scattered(seed: int) -> Design:
    """Cells of all kinds at random legal places, with wires to anywhere before them."""
    design = Design(seed)
    rng = design.random
    tiles = [(x, y) for x in range(2, 2 + COLUMNS) for y in range(2, 2 + ROWS)]
    rng.shuffle(tiles)
    outputs = [design.add(f"X{x}/Y{y}/SLICE{part}.FF{half}", LSR=9000 + (x + y) % 2, CE=9100 + part_of)
               for x, y in tiles[:20] for part_of, part in enumerate("AB") for half in "01"]

    def any_net() -> int:
        return rng.choice(outputs)

    for x, y in tiles[20:110]:
        for part in "ABCD":
            kind, at = rng.choice(["lut", "luts", "pair", "mux", "ff", "none", "none"]), f"X{x}/Y{y}/SLICE{part}."
            if kind in ("lut", "luts", "pair"):
                outputs.append(design.add(f"{at}K0", A=any_net(), B=any_net()))
                if kind == "luts":
                    outputs.append(design.add(f"{at}K1", C=any_net()))
                if kind == "pair":
                    outputs.append(design.add(f"{at}FF0", DI=outputs[-1], LSR=9000 + x % 2, CE=9100 + y % 3))
            elif kind == "mux":
                other = design.add(f"{at}K1", A=any_net(), B=any_net())
                outputs.append(design.add(f"{at}K0", A=any_net(), F1=other, M=any_net()))
            elif kind == "ff":
                outputs += [design.add(f"{at}FF{half}", M=any_net(), CE=9100 + y % 3) for half in "01"]
    for x, y in tiles[110:125]:  # distributed memory
        data = design.add(f"X{x}/Y{y}/SLICEC.RAMW", A0=any_net())
        for half in "01":
            design.add(f"X{x}/Y{y}/SLICEC.K{half}", "RAMW_BLOCK")
            outputs += [design.add(f"X{x}/Y{y}/SLICE{part}.K{half}", "DPRAM", A=any_net(), WD=data) for part in "AB"]
    free = set(tiles[125:])
    for x, y in sorted(free):  # carry chains over two tiles
        if {(x, y), (x + 1, y)} <= free:
            free -= {(x, y), (x + 1, y)}
            carry = None
            for column in (x, x + 1):
                for part in "ABCD":
                    for half in "01":
                        links = {} if carry is None else {"FCI": carry}
                        carry = design.add(f"X{column}/Y{y}/SLICE{part}.K{half}", "CCU2", A=any_net(), **links)
                        outputs.append(carry)
    for _ in range(6):
        outputs.append(design.add(SITES["DP16KD"][len(outputs) % 4].name, DIA0=any_net())
                       if not any(cell["type"] == "DP16KD" for cell in design.cells.values()) else any_net())
    return design


def check(design: Design) -> None:
    """The rules, site by site, apart from how :class:`Placement` has them."""
    tiles: dict[tuple[int, int], dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    drivers = {}
    for cell in design.cells.values():
        for port, (net,) in cell["connections"].items():
            if cell["port_directions"][port] == "output":
                drivers[net] = cell
    for cell in design.cells.values():
        at, _, spot = cell["attributes"]["NEXTPNR_BEL"].rpartition("/")
        if spot.startswith("SLICE"):
            part, _, name = spot.partition(".")
            assert name not in tiles[place(at + "/")][part], "two cells at a site"
            tiles[place(at + "/")][part][name] = cell
    for tile, parts in tiles.items():
        resets = set()
        for part, there in parts.items():
            modes = {cell["parameters"].get("MODE") for name, cell in there.items() if name[0] == "K"}
            assert len(modes) <= 1, (tile, part, modes)
            if "RAMW" in there:
                assert part == "SLICEC"
                assert modes == {"RAMW_BLOCK"}
            if "DPRAM" in modes:
                assert part in ("SLICEA", "SLICEB")
                assert "RAMW" in parts["SLICEC"]
            registers = [cell["connections"] for name, cell in there.items() if name[:2] == "FF"]
            assert len({(str(one.get("CE")), str(one.get("LSR"))) for one in registers}) <= 1, (tile, part)
            resets |= {one["LSR"][0] for one in registers if "LSR" in one}
            for name, cell in there.items():
                uses = cell["connections"]
                if "F1" in uses:
                    assert name == "K0"
                    assert there["K1"] is drivers[uses["F1"][0]]
                    assert not ("FF0" in there and "M" in there["FF0"]["connections"])
                if "DI" in uses:
                    assert there[f"K{name[2]}"] is drivers[uses["DI"][0]]
                if "FCI" in uses:
                    before = drivers[uses["FCI"][0]]["attributes"]["NEXTPNR_BEL"]
                    assert order(cell["attributes"]["NEXTPNR_BEL"]) == order(before) + 1
        assert len(resets) <= 1, (tile, resets)


def order(bel: str) -> int:
    """Of a look-up table in a row of tiles."""
    found = re.match(r"X(\d+)/Y(\d+)/SLICE([A-D])\.K([01])", bel)
    assert found
    return int(found[2]) * 10_000 + int(found[1]) * 8 + "ABCD".index(found[3]) * 2 + int(found[4])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_moves_obeys_the_rules(seed: int) -> None:
    design = scattered(seed)
    check(design)
    before, after, moved = refined(design)
    print(before, after, moved)
    check(design)
    assert moved > 50
    assert after < 0.85 * before


def test_the_estimate_is_that_of_a_fresh_reading() -> None:
    """What the refinement says of its result is what the analysis says of the placement that it wrote."""
    design = scattered(4)
    _, after, _ = refined(design)
    placement = Placement(design.cells, SITES)
    slowest, ps, slack = Arrivals(design.delays(), placement).analyse(placement)
    assert slowest == pytest.approx(after)
    assert slack.min() == pytest.approx(0, abs=1e-6)
    assert np.isfinite(ps).all()
