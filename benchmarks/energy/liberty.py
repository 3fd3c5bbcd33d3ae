"""What cells of a Liberty file take: delays, energies and capacitances at a load."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gemmule.hw.flow.standard.cells import CELLS, FLIP_FLOPS, PREFIX, Gate
from gemmule.hw.flow.standard.spice import VOLTS

__all__ = ["GATES", "SLEW_NS", "Cell", "cells_of"]

SLEW_NS = 0.122
"""Transition time at which every table is read: the middle of its axis."""
GATES: dict[str, Gate] = {PREFIX + gate.name: gate for gate in CELLS}


@dataclass(frozen=True)
class Cell:
    """A gate, or a flip-flop (no ``tables`` of delays by arc; ``clock`` and ``data`` in pJ by edge)."""

    capacitances: dict[str, float]
    """pF by input."""
    loads: np.ndarray
    delay: np.ndarray
    """ns by load, the mean over arcs and edges."""
    rise: np.ndarray
    """pJ from the supply while the output rises, by load, its charge included."""
    fall: np.ndarray
    clock: float = 0.0
    """pJ of a clock period in which nothing changes."""
    data: tuple[float, float] = (0.0, 0.0)
    leakage_nw: float = 0.0


def _numbers(text: str) -> np.ndarray:
    return np.array([float(value) for value in re.findall(r"-?[\d.]+(?:e-?\d+)?", text)])


def _table(text: str, name: str) -> np.ndarray | None:
    """By load at :data:`SLEW_NS`, the mean over all arcs."""
    found = []
    for body in re.findall(rf"{name} \(\w+\) {{ index_1 (.*?) }}", text):
        slews, loads, values = (_numbers(part) for part in re.split(r"index_2|values", body))
        grid = values.reshape(len(slews), len(loads))
        found.append([np.interp(SLEW_NS, slews, grid[:, j]) for j in range(len(loads))])
    return np.mean(found, axis=0) if found else None


def cells_of(path: Path) -> dict[str, Cell]:
    """The cells of a file as :mod:`gemmule.hw.flow.standard.characterize` writes it."""
    parts = re.split(r"(?m)^  cell \((\S+)\) {\n", path.read_text())
    found = {}
    for name, text in zip(parts[1::2], parts[2::2]):
        flip_flop = name.removeprefix(PREFIX) in FLIP_FLOPS
        if name not in GATES and not flip_flop:
            continue
        rise, fall = _table(text, "cell_rise"), _table(text, "cell_fall")
        assert rise is not None, name
        assert fall is not None, name
        axis = re.search(r"cell_rise \(\w+\) {.*?index_2 \((.*?)\)", text)
        assert axis is not None, name
        loads = _numbers(axis[1])
        half = loads * VOLTS ** 2 / 2
        if flip_flop:
            clock, data, output = (tuple(map(float, pair)) for pair in re.findall(
                r'rise_power \(scalar\) { values \("(\S+)"\); } fall_power \(scalar\) { values \("(\S+)"\)', text))
            energies = [output[0] + 2 * half, output[1] + 0 * half]
        else:
            clock, data = (0.0, 0.0), (0.0, 0.0)
            tables = [_table(text, f"{kind}_power") for kind in ("rise", "fall")]
            energies = [table + half for table in tables if table is not None]
        leaks = re.search(r"cell_leakage_power : ([\d.e-]+)", text)
        found[name] = Cell(
            {pin: float(value) for pin, value in re.findall(
                r"pin \((\w+)\) { direction : input;.*?capacitance : ([\d.]+)", text)},
            loads, (rise + fall) / 2, energies[0], energies[1], sum(clock), (data[0], data[1]),
            float(leaks[1]) if leaks else 0.0)
    return found
