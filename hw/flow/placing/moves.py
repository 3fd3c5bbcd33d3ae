"""Moves of a placement between two timing analyses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gemmule.hw.flow.placing.arrivals import Arrivals, wire_ps
from gemmule.hw.flow.placing.placement import Placement, Unit

__all__ = ["Round"]

AROUND, TRIES = range(-6, 7), 150
"""Tiles around the best place among which a site is sought; those of them that are tried."""
TOGETHER, MEMBERS, SEATS = 3, 6, 40
"""Tiles between neighbours of a group, units of one at most, and places that are tried for it."""
REACH, SWAPS = 30, 24
"""Tiles up to which runs are exchanged; exchanges that are tried for one."""
SEAT = sorted(((i, j) for i in range(-2, 3) for j in range(-2, 3)), key=lambda at: abs(at[0]) + abs(at[1]))
"""Tiles around its place in a group where a unit may stand."""
SHARE = 0.25
"""Of the slowest path: wires that are faster than it by more are not looked at."""
SOFT = 400.0
"""ps by which a wire must come closer to the slowest path to cost e times as much."""
LENGTH = 2e-5
"""Weight of a ps of a net, shared by its wires."""
EVEN = 1e-5
"""Weight of the square of a slow wire's length, in tiles: where its path is as short anyway, cells stand evenly."""
GAIN = 0.995
"""Of the cost, what a move must leave at most."""


class Round:
    """Moves between two analyses. Of two units that are connected on a slow path, one moves."""

    def __init__(self, placement: Placement, timing: Arrivals, of_cell: Mapping[int, Sequence[int]], slowest: float,
                 ps: np.ndarray, slack: np.ndarray) -> None:
        self.placement, self.timing, self.of_cell, self.slack = placement, timing, of_cell, slack
        self.limit, self.near = ps + slack, slack < SHARE * slowest
        self.locked: set[int] = set()
        """Cells."""

    def improve(self) -> int:
        """Move what stands on slow paths, the slowest first; returns how many did."""
        timing, placement, moved, seen = self.timing, self.placement, 0, set()
        moving = np.flatnonzero(self.near & np.isnan(timing.constant))
        for i in moving[np.argsort(self.slack[moving])].tolist():
            for cell in (int(timing.driver[i]), int(timing.driven[i])):
                unit = placement.units.get(cell)
                cells = unit.cells if unit else [cell]
                if cells[0] in seen or self.locked.intersection(cells):
                    continue
                seen.add(cells[0])
                if unit is not None:
                    moved += (not unit.whole and self._unit(unit) or self._run(unit)
                              or not unit.whole and self._group(unit))
                elif cell in placement.block:
                    moved += self._block(cell)
        return moved

    def _wires(self, cells: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Wires of a unit that its place decides, and the cells at their other ends."""
        wires = np.array(sorted({i for cell in cells for i in self.of_cell.get(cell, ())}), dtype=np.int64)
        wires = wires[np.isnan(self.timing.constant[wires])] if len(wires) else wires
        driver, driven = self.timing.driver[wires], self.timing.driven[wires]
        return wires, np.where(np.isin(driver, cells), driven, driver)

    def _cost(self, wires: np.ndarray, others: np.ndarray, columns: Any, rows: Any) -> Any:
        """Of places: how near wires bring their paths to the slowest one; a little for length, less for corners."""
        return self._between(wires, np.asarray(columns)[..., None], np.asarray(rows)[..., None],
                             self.placement.x[others], self.placement.y[others])

    def _lock(self, cells: Sequence[int], wires: np.ndarray, others: np.ndarray) -> None:
        self.locked.update(cells)
        for other in others[self.near[wires]].tolist():
            unit = self.placement.units.get(other)
            self.locked.update(unit.cells if unit else [other])

    def _unit(self, unit: Unit) -> bool:
        """Move a unit to the best free slice near where its wires are shortest."""
        placement = self.placement
        wires, others = self._wires(unit.cells)
        if not len(wires):
            return False
        here = placement.spots[unit.cells[0]][:2]
        now = float(self._cost(wires, others, *here))
        urgent = np.exp(-np.minimum(self.slack[wires] / SOFT, 40)) + 1e-9
        x, y = placement.x[others], placement.y[others]
        middle = [(_median(part, urgent), int(round(float((part * urgent).sum() / urgent.sum())))) for part in (x, y)]
        centres = {(middle[0][0], middle[1][0]), (middle[0][1], middle[1][1]), here}
        places = sorted({(a + i, b + j) for a, b in centres for i in AROUND for j in AROUND} & placement.tiles)
        if not places:
            return False
        columns, rows = np.array(places).T
        costs = self._cost(wires, others, columns, rows)
        for at in np.argsort(costs)[:TRIES].tolist():
            if costs[at] >= GAIN * now:
                break
            found = next(((spot, swap) for part in range(4) for spot in [(int(columns[at]), int(rows[at]), part)]
                          for swap in (False, True) if placement.fits(unit, spot, swap)), None)
            if found:
                placement.move(unit, *found)
                self._lock(unit.cells, wires, others)
                return True
        return False

    def _run(self, unit: Unit) -> bool:
        """Exchange the tiles of a unit with others nearer to where its wires are shortest, if both together gain."""
        placement, timing = self.placement, self.timing
        run = placement.run_of(unit)
        if run is None:
            return False
        left, row, length = run
        mine = placement.closed(*run)
        if mine is None or self.locked.intersection(mine):
            return False
        wires, others = self._wires(unit.cells)
        if not len(wires):
            return False
        own = np.where(np.isin(timing.driver[wires], unit.cells), timing.driver[wires], timing.driven[wires])
        shifts = [(a, b) for a in range(-REACH, REACH + 1) for b in range(-REACH, REACH + 1)
                  if (left + a, row + b) in placement.tiles and (b or abs(a) >= length)]
        if not shifts:
            return False
        dx, dy = np.array(shifts).T
        costs = self._between(wires, placement.x[own] + dx[:, None], placement.y[own] + dy[:, None],
                              placement.x[others], placement.y[others])
        now = float(self._between(wires, placement.x[own], placement.y[own], placement.x[others], placement.y[others]))
        tried = 0
        for at in np.argsort(costs).tolist():
            if costs[at] >= GAIN * now or tried == SWAPS:
                break
            theirs = placement.closed(left + int(dx[at]), row + int(dy[at]), length)
            if theirs is None or self.locked.intersection(theirs):
                continue
            tried += 1
            if self._swapped(mine, theirs, int(dx[at]), int(dy[at]), now):
                placement.swap(mine, theirs, int(dx[at]), int(dy[at]))
                self._lock(mine, *self._wires(mine))
                self._lock(theirs, *self._wires(theirs))
                return True
        return False

    def _group(self, unit: Unit) -> bool:
        """Move a unit and its neighbours on slow paths: each alone would only lengthen the wires between them."""
        placement, timing = self.placement, self.timing
        units, cells = [unit], list(unit.cells)
        for each in units:
            wires, others = self._wires(each.cells)
            if not len(wires):
                return False
            x, y = (float(axis[each.cells[0]]) for axis in (placement.x, placement.y))
            close = np.abs(placement.x[others] - x) + np.abs(placement.y[others] - y) <= TOGETHER
            for other in others[close & (self.slack[wires] < SOFT)].tolist():
                mate = placement.units.get(other)
                if (mate is not None and not mate.whole and mate not in units and len(units) < MEMBERS
                        and not self.locked.intersection(mate.cells)):
                    units.append(mate)
                    cells += mate.cells
        if len(units) < 2:
            return False
        wires, _ = self._wires(cells)
        driver, driven = timing.driver[wires], timing.driven[wires]
        from_, to = np.isin(driver, cells), np.isin(driven, cells)
        out = from_ != to
        if not out.any():
            return False
        urgent = np.exp(-np.minimum(self.slack[wires][out] / SOFT, 40)) + 1e-9
        away = [np.where(from_, axis[driven] - axis[driver], axis[driver] - axis[driven])[out]
                for axis in (placement.x, placement.y)]
        median, mean = ([take(part) for part in away] for take in (
            lambda part: _median(part, urgent), lambda part: round(float((part * urgent).sum() / urgent.sum()))))
        shifts = sorted({(a + i, b + j) for a, b in (median, mean) for i in AROUND for j in AROUND} - {(0, 0)})
        dx, dy = np.array(shifts).T[:, :, None]
        costs = self._between(wires, placement.x[driver] + dx * from_, placement.y[driver] + dy * from_,
                              placement.x[driven] + dx * to, placement.y[driven] + dy * to)
        now = self._here(wires)
        for at in np.argsort(costs)[:SEATS].tolist():
            if costs[at] >= GAIN * now:
                break
            if self._seated(units, shifts[at], wires, GAIN * now):
                self._lock(cells, wires, np.where(from_, driven, driver))
                return True
        return False

    def _seated(self, units: Sequence[Unit], shift: tuple[int, int], wires: np.ndarray, most: float) -> bool:
        """Move units by about a shift, if there is room and the cost is less than ``most`` then."""
        placement, done = self.placement, []
        for unit in units:
            column, row, _ = old = placement.spots[unit.cells[0]]
            found = next(((spot, swap) for i, j in SEAT for part in range(4)
                          for spot in [(column + shift[0] + i, row + shift[1] + j, part)]
                          for swap in (False, True) if placement.fits(unit, spot, swap)), None)
            if found is None:
                break
            placement.move(unit, *found)
            done.append((unit, old, found[1]))
        else:
            if self._here(wires) < most:
                return True
        for unit, old, swap in reversed(done):
            placement.move(unit, old, swap)
        return False

    def _here(self, wires: np.ndarray) -> float:
        """Cost of wires as their cells stand."""
        x, y = self.placement.x, self.placement.y
        driver, driven = self.timing.driver[wires], self.timing.driven[wires]
        return float(self._between(wires, x[driver], y[driver], x[driven], y[driven]))

    def _swapped(self, mine: Sequence[int], theirs: Sequence[int], dx: int, dy: int, now: float) -> bool:
        """Whether an exchange of cells gains enough, all their wires together."""
        x, y = self.placement.x, self.placement.y
        wires, _ = self._wires([*mine, *theirs])
        before = self._here(wires)
        for cells, way in ((mine, 1), (theirs, -1)):
            x[cells] += way * dx
            y[cells] += way * dy
        after = self._here(wires)
        for cells, way in ((mine, -1), (theirs, 1)):
            x[cells] += way * dx
            y[cells] += way * dy
        return bool(after < before - (1 - GAIN) * now)

    def _between(self, wires: np.ndarray, x0: Any, y0: Any, x1: Any, y1: Any) -> Any:
        """As :meth:`_cost`, of wires from place to place."""
        dx, dy = np.abs(x0 - x1), np.abs(y0 - y1)
        taken = wire_ps(dx, dy)
        urgent = np.exp(np.minimum((taken - self.limit[wires]) / SOFT, 40))
        pull = np.exp(-np.minimum(self.slack[wires] / SOFT, 40)) * (dx * dx + dy * dy)
        return (urgent + LENGTH / self.timing.fan[wires] * taken + EVEN * pull).sum(axis=-1)

    def _block(self, cell: int) -> bool:
        """Move a block to a better site; what is there takes its place, if both together gain."""
        placement = self.placement
        kind, mine = placement.block[cell]
        places = placement.sites[kind]
        columns, rows = (np.array([getattr(site, axis) for site in places]) for axis in "xy")
        wires, others = self._wires([cell])
        costs = self._cost(wires, others, columns, rows)
        for site in np.argsort(costs)[:TRIES].tolist():
            if costs[site] >= GAIN * costs[mine]:
                break
            other = placement.holds.get((kind, site))
            if other is None:
                lost = 0.0
            elif other in self.locked:
                continue
            else:
                theirs = self._cost(*self._wires([other]), columns[[site, mine]], rows[[site, mine]])
                lost = float(theirs[1] - theirs[0])
            if costs[site] + lost < GAIN * costs[mine]:
                placement.exchange(cell, site)
                self._lock([cell], wires, others)
                if other is not None:
                    self._lock([other], *self._wires([other]))
                return True
        return False


def _median(values: np.ndarray, weights: np.ndarray) -> int:
    """The weighted one."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return int(values[order][np.searchsorted(total, total[-1] / 2)])
