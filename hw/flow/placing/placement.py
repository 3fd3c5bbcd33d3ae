"""Cells of a placed ECP5 design, what must stay together, and the rules of its sites.

A *unit* are cells that belong together by wires that exist in one place only: a look-up table and the flip-flop behind
it, two of them and their multiplexer, a carry chain, the memory of a tile and its write port. What stands in one slice
may go to a free one where the slice's rules hold: one clock enable and one reset for its flip-flops, one reset for a
tile, no carry or memory beside look-up tables, one use of the input M. The rules are nextpnr's, or narrower. Anything
else moves with all that stands in its tiles.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.hw.flow.floorplan import Sites

__all__ = ["Placement", "Spot", "Unit"]

SLICES = "ABCD"
LONGEST = 10
"""Tiles of a run that moves as a whole."""
_BEL = re.compile(r"X(\d+)/Y(\d+)/SLICE([A-D])\.(K|FF|RAMW)([01]?)$")
_PLACE = re.compile(r"X(\d+)/Y(\d+)/")
Spot = tuple[int, int, int]
"""Column, row, slice of a site."""


@dataclass
class _Cell:
    """What the rules of a slice ask of a cell."""

    kind: str
    """K or FF."""
    half: int
    mux: bool = False
    """A look-up table whose multiplexer uses M."""
    takes_m: bool = False
    """A flip-flop that uses M."""
    mode: str | None = None
    enable: object = None
    reset: object = None


@dataclass(eq=False)
class Unit:
    """Cells that move together. ``whole``: only with the tiles that they stand in."""

    cells: list[int]
    whole: bool


class Placement:
    """Where cells are, and the rules of their sites."""

    def __init__(self, cells: Mapping[str, Any], sites: Sites) -> None:
        self.names = list(cells)
        self.number = {name.replace("\\", ""): i for i, name in enumerate(self.names)}
        self.x, self.y = (np.zeros(len(self.names), dtype=np.int64) for _ in "xy")
        self.facts: dict[int, _Cell] = {}
        self.units: dict[int, Unit] = {}
        """By cell."""
        self.at: dict[Spot, dict[tuple[str, int], int]] = defaultdict(dict)
        """Cells of a slice by kind and half."""
        self.tiles: set[tuple[int, int]] = set()
        self.sites = {kind: list(places) for kind, places in sites.items()}
        self.block: dict[int, tuple[str, int]] = {}
        """Kind and site of block memories and multipliers."""
        self.holds: dict[tuple[str, int], int] = {}
        self.spots: dict[int, Spot] = {}
        self.inside: dict[tuple[int, int], set[int]] = defaultdict(set)
        """Cells of a tile."""
        self._read(cells)

    def _read(self, cells: Mapping[str, Any]) -> None:
        drivers: dict[int, int] = {}
        for name, cell in cells.items():
            for port, bits in cell["connections"].items():
                if bits and cell["port_directions"][port] == "output":
                    drivers[bits[0]] = self.number[name.replace("\\", "")]
        parent = list(range(len(self.names)))

        def root(i: int) -> int:
            while parent[i] != i:
                parent[i] = i = parent[parent[i]]
            return i

        stays: set[int] = set()
        spots = self.spots
        for i, cell in enumerate(cells.values()):
            bel = cell["attributes"].get("NEXTPNR_BEL", "")
            if there := _PLACE.match(bel):
                self.x[i], self.y[i] = int(there[1]), int(there[2])
            found, uses = _BEL.match(bel), {port: bits[0] for port, bits in cell["connections"].items() if bits}
            parameters = cell["parameters"]
            if found is None:
                stays.add(i)
                if cell["type"] in self.sites and bel:
                    names = [site.name for site in self.sites[cell["type"]]]
                    self.block[i] = cell["type"], names.index(bel)
                    self.holds[self.block[i]] = i
                continue
            spots[i] = (int(found[1]), int(found[2]), SLICES.index(found[3]))
            self.tiles.add(spots[i][:2])
            fact = self.facts[i] = _Cell(found[4], int(found[5] or 0))
            self.inside[spots[i][:2]].add(i)
            self.at[spots[i]][fact.kind, fact.half] = i
            if fact.kind == "K":
                fact.mode, fact.mux = parameters.get("MODE"), "M" in uses
                if fact.mode or "FXA" in uses or "FXB" in uses:
                    stays.add(i)
            elif fact.kind == "FF":
                fact.takes_m = "M" in uses
                fact.enable = uses.get("CE"), parameters.get("CEMUX")
                if "LSR" in uses:
                    fact.reset = uses["LSR"], parameters.get("LSRMUX"), parameters.get("SRMODE")
            for port in ("DI", "F1", "FXA", "FXB", "FCI", "WD"):
                if port in uses and uses[port] in drivers:
                    other = drivers[uses[port]]
                    parent[root(i)] = root(other)
                    if port in ("FXA", "FXB", "FCI", "WD"):
                        stays |= {i, other}
        for i, spot in spots.items():
            if self.facts[i].mode == "RAMW_BLOCK":  # no wire says that it belongs to the port of its slice
                parent[root(i)] = root(self.at[spot]["RAMW", 0])
        members: dict[int, list[int]] = defaultdict(list)
        for i in spots:
            members[root(i)].append(i)
        for group in members.values():
            unit = Unit(group, any(i in stays for i in group) or len({spots[i] for i in group}) > 1)
            for i in group:
                self.units[i] = unit

    def fits(self, unit: Unit, spot: Spot, swap: bool) -> bool:
        """Whether a unit may stand in a slice; ``swap``: with its halves exchanged."""
        if spot[:2] not in self.tiles:
            return False
        there = self.at.get(spot, {})
        mine = {(self.facts[i].kind, self.facts[i].half ^ swap): self.facts[i] for i in unit.cells}
        others = {key: self.facts[i] for key, i in there.items() if i not in unit.cells}
        if mine.keys() & others.keys():
            return False
        every = {**others, **mine}
        if any(fact.mode for (kind, _), fact in every.items() if kind == "K"):
            return False
        if any(fact.mux and half for (kind, half), fact in every.items() if kind == "K"):
            return False
        if any(every[key].takes_m and (mux := every.get(("K", key[1]))) is not None and mux.mux
               for key in every if key[0] == "FF"):
            return False
        registers = [fact for (kind, _), fact in every.items() if kind == "FF"]
        if len({(fact.enable, fact.reset) for fact in registers}) > 1:
            return False
        resets = {fact.reset for fact in registers} - {None}
        for part in range(4) if any(kind == "FF" for kind, _ in mine) else ():
            if part != spot[2]:
                resets |= {self.facts[i].reset for (kind, _), i in self.at.get((*spot[:2], part), {}).items()
                           if kind == "FF" and i not in unit.cells} - {None}
        return len(resets) <= 1

    def move(self, unit: Unit, spot: Spot, swap: bool) -> None:
        """To a slice where it fits."""
        for i in unit.cells:
            self._take(i)
        for i in unit.cells:
            self.facts[i].half ^= swap
            self._put(i, spot)

    def _take(self, i: int) -> None:
        spot = self.spots[i]
        del self.at[spot][self.facts[i].kind, self.facts[i].half]
        self.inside[spot[:2]].discard(i)

    def _put(self, i: int, spot: Spot) -> None:
        self.at[spot][self.facts[i].kind, self.facts[i].half] = i
        self.inside[spot[:2]].add(i)
        self.spots[i] = spot
        self.x[i], self.y[i] = spot[:2]

    def run_of(self, unit: Unit) -> tuple[int, int, int] | None:
        """First column, row and length of the shortest run of tiles that cuts no unit and has this one; None: too long.
        """
        left, right = (int(end(self.x[unit.cells])) for end in (np.min, np.max))
        row = int(self.y[unit.cells[0]])
        while right - left < LONGEST:
            cells = [i for column in range(left, right + 1) for i in self.inside[column, row]]
            others = {cell for i in cells for cell in self.units[i].cells}
            columns = self.x[list(others)]
            if columns.min() >= left and columns.max() <= right:
                return left, row, right - left + 1
            left, right = min(left, int(columns.min())), max(right, int(columns.max()))
        return None

    def closed(self, column: int, row: int, length: int) -> list[int] | None:
        """Cells of a run of tiles; None: it cuts a unit, or has no logic somewhere."""
        tiles = [(column + k, row) for k in range(length)]
        if not self.tiles.issuperset(tiles):
            return None
        cells = [i for tile in tiles for i in self.inside[tile]]
        whole = set(cells)
        return cells if all(whole.issuperset(self.units[i].cells) for i in cells) else None

    def swap(self, mine: Sequence[int], theirs: Sequence[int], dx: int, dy: int) -> None:
        """Exchange the cells of two runs of tiles, so far apart."""
        goes = [(i, (self.spots[i][0] + way * dx, self.spots[i][1] + way * dy, self.spots[i][2]))
                for cells, way in ((mine, 1), (theirs, -1)) for i in cells]
        for i, _ in goes:
            self._take(i)
        for i, spot in goes:
            self._put(i, spot)

    def exchange(self, i: int, site: int) -> None:
        """A block goes to a site, and one that is there to its own."""
        kind, old = self.block[i]
        other = self.holds.pop((kind, site), None)
        del self.holds[kind, old]
        for cell, there in ((i, site), (other, old)):
            if cell is not None:
                self.block[cell] = kind, there
                self.holds[kind, there] = cell
                self.x[cell], self.y[cell] = self.sites[kind][there].x, self.sites[kind][there].y

    def bels(self) -> dict[int, str]:
        """Sites of all cells that may move."""
        return {i: self.bel(i) for i in (*self.units, *self.block)}

    def bel(self, i: int) -> str:
        """The site of a cell."""
        if i in self.block:
            kind, site = self.block[i]
            return self.sites[kind][site].name
        column, row, part = self.spots[i]
        fact = self.facts[i]
        return f"X{column}/Y{row}/SLICE{SLICES[part]}.{fact.kind}{'' if fact.kind == 'RAMW' else fact.half}"
