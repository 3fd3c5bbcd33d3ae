"""Static timing analysis of a placed design: arrivals and slacks of all wires, at once for a level of cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gemmule.hw.flow.paths import Delays
from gemmule.hw.flow.placing.placement import Placement

__all__ = ["Arrivals", "wire_ps"]

WIRE_PS, BASE, NEAR = 53.0, 6, 5
"""nextpnr's estimate of a wire for speed 8: tiles up to ``NEAR`` count twice, ``BASE`` more for its ends."""
OFF_PS = 2.0
"""By which a wire differs from the estimate, where it is of another kind: carries, wires of a slice, clocks."""


def wire_ps(dx: Any, dy: Any) -> Any:
    """nextpnr's estimate of a wire over so many columns and rows, in ps (``Arch::predictDelay`` of ECP5)."""
    return WIRE_PS * (BASE + np.maximum(dx - NEAR, 0) + np.maximum(dy - NEAR, 0)
                      + 2 * (np.minimum(dx, NEAR) + np.minimum(dy, NEAR)))


class Arrivals:
    """Arrivals and slacks over the wires of a design, level by level."""

    def __init__(self, delays: Delays, placement: Placement) -> None:
        pins: dict[str, int] = {}

        def number(pin: str) -> int:
            return pins.setdefault(pin, len(pins))

        def cell(pin: str) -> int:
            return placement.number[pin.rpartition("/")[0]]

        wires = [(number(source), number(sink), cell(source), cell(sink), ps)
                 for source, sinks in delays.wires.items() for sink, ps in sinks]
        arcs = [(number(sink), number(output), ps) for sink, outputs in delays.arcs.items() for output, ps in outputs]
        self.source, self.sink, self.driver, self.driven = (
            np.array([wire[i] for wire in wires], dtype=np.int64) for i in range(4))
        told = np.array([wire[4] for wire in wires])
        groups = np.array([id(placement.units.get(i)) for i in range(len(placement.names))])
        together = (groups[self.driver] == groups[self.driven]) & (groups[self.driver] != id(None))
        distance = self._distance(placement)
        other = (distance > BASE * WIRE_PS) & (np.abs(told - distance) > OFF_PS)
        self.constant = np.where(together | other, told, np.nan)
        """Wires that the estimate is not of: within a unit, of clocks; NaN elsewhere."""
        self.arc_from, self.arc_to = (np.array([arc[i] for arc in arcs], dtype=np.int64) for i in range(2))
        self.arc_ps = np.array([arc[2] for arc in arcs])
        self.count = len(pins)
        self.launch = np.full(self.count, -np.inf)
        for pin, ps in delays.launches.items():
            self.launch[number(pin) if pin in pins else 0] = ps if pin in pins else self.launch[0]
        self.setup = np.full(self.count, np.nan)
        for pin, ps in delays.setups.items():
            if pin in pins:
                self.setup[pins[pin]] = ps
        self.fan = np.bincount(self.source, minlength=self.count)[self.source]
        """Wires of each one's net."""
        self.levels = list(self._levels())

    def _distance(self, placement: Placement) -> np.ndarray:
        return np.asarray(wire_ps(np.abs(placement.x[self.driver] - placement.x[self.driven]),
                                  np.abs(placement.y[self.driver] - placement.y[self.driven])))

    def _levels(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Wires, then arcs of cells, whose starts are known; again until there are none."""
        lacking = np.bincount(self.arc_to, minlength=self.count)
        driven = np.bincount(self.sink, minlength=self.count) > 0
        by_source, by_pin = _rows(self.source, self.count), _rows(self.arc_from, self.count)
        # Arcs from pins without a wire arrive never.
        np.subtract.at(lacking, self.arc_to[~driven[self.arc_from]], 1)
        front = np.flatnonzero((lacking <= 0) & (np.bincount(self.source, minlength=self.count) > 0))
        while len(front):
            wires = _all(by_source, front)
            arcs = _all(by_pin, self.sink[wires])
            yield wires, arcs
            outputs = self.arc_to[arcs]
            np.subtract.at(lacking, outputs, 1)
            outputs = np.unique(outputs)
            front = outputs[lacking[outputs] == 0]

    def analyse(self, placement: Placement) -> tuple[float, np.ndarray, np.ndarray]:
        """The slowest path, the delay of every wire and by how much it is faster than that, in ps."""
        ps = np.where(np.isnan(self.constant), self._distance(placement), self.constant)
        arrival = self.launch.copy()
        for wires, arcs in self.levels:
            np.maximum.at(arrival, self.sink[wires], arrival[self.source[wires]] + ps[wires])
            np.maximum.at(arrival, self.arc_to[arcs], arrival[self.arc_from[arcs]] + self.arc_ps[arcs])
        ends = ~np.isnan(self.setup) & (arrival > -np.inf)
        slowest = float((arrival[ends] + self.setup[ends]).max())
        required = np.full(self.count, np.inf)
        required[ends] = slowest - self.setup[ends]
        for wires, arcs in reversed(self.levels):
            np.minimum.at(required, self.arc_from[arcs], required[self.arc_to[arcs]] - self.arc_ps[arcs])
            np.minimum.at(required, self.source[wires], required[self.sink[wires]] - ps[wires])
        slack = required[self.sink] - arrival[self.source] - ps
        return slowest, ps, np.where(np.isfinite(slack), slack, np.inf)


def _rows(keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Places by key: those of key k are order[starts[k]:starts[k + 1]]."""
    return np.argsort(keys, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))])


def _all(rows: tuple[np.ndarray, np.ndarray], keys: np.ndarray) -> np.ndarray:
    """Places of all these keys."""
    order, starts = rows
    counts = starts[keys + 1] - starts[keys]
    if not counts.sum():
        return np.zeros(0, dtype=np.int64)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[np.repeat(starts[keys], counts) + within]
