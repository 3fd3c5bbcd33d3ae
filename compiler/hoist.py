"""Loads moved up to where their rows are free: an order that keeps the DRAM bus busy, and its waits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmule.compiler.footprints import footprints
from gemmule.compiler.schedule import place_waits
from gemmule.config import Config
from gemmule.isa import Command, Unit
from gemmule.operands import Memory

__all__ = ["hoist_loads"]


def hoist_loads(commands: Sequence[Command], config: Config) -> list[Command]:
    """Move every load up to where its rows are free, in order, and place all waits.

    ``commands`` are in an order that is right when they run one after another.
    """
    touched = {Memory.SPM: np.full(config.spm_rows, -1), Memory.ACC: np.full(config.acc_rows, -1)}
    keys, latest = [], -1
    for i, command in enumerate(commands):
        spans = [(touched[part.memory], rows) for part in footprints(command, config, {}) for rows in part.slices()]
        if command.unit is not Unit.LOAD:
            for memory, rows in spans:
                memory[rows] = i
            keys.append((i, 0, i))
            continue
        latest = max(latest, *(int(memory[rows].max()) for memory, rows in spans))
        keys.append((latest, 1, i))
    return place_waits([commands[key[2]] for key in sorted(keys)], config, {})
