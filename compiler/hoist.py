"""Loads moved up to where their rows are free: an order that keeps the DRAM bus busy, and its waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gemmule.compiler.footprints import footprints
from gemmule.compiler.schedule import place_waits
from gemmule.config import Config
from gemmule.isa import MAX_WAIT, Command, Unit
from gemmule.operands import Memory

__all__ = ["hoist_loads"]


def hoist_loads(commands: Sequence[Command], config: Config,
                spilled: Mapping[int, int] | None = None) -> list[Command]:
    """Move every load up to where its rows are free, in order, and place all waits.

    ``commands`` are in an order that is right when they run one after another. ``spilled``: base register
    of loads to that of the stores into the same DRAM region; such a load stays behind, and waits for,
    the last store that overlaps it.
    """
    spilled = spilled or {}
    touched = {Memory.SPM: np.full(config.spm_rows, -1), Memory.ACC: np.full(config.acc_rows, -1)}
    keys, latest, stores = [], -1, []
    for i, command in enumerate(commands):
        spans = [(touched[part.memory], rows) for part in footprints(command, config, {}) for rows in part.slices()]
        if command.unit is not Unit.LOAD:
            for memory, rows in spans:
                memory[rows] = i
            stores += [(i, command)] if command.unit is Unit.STORE else []
            keys.append((i, 0, i))
            continue
        latest = max(latest, *(int(memory[rows].max()) for memory, rows in spans))
        latest = max(latest, _last_store(command, stores, spilled))
        keys.append((latest, 1, i))
    ordered = [commands[key[2]] for key in sorted(keys)]
    return _wait_for_stores(place_waits(ordered, config, {}), spilled)


def _span(command: Command) -> tuple[int, int]:
    f = command.fields
    return f.get("offset", 0), f.get("offset", 0) + (f["rows_cap"] - 1) * f.get("stride", 0) + f["bytes"]


def _last_store(load: Command, stores: Sequence[tuple[int, Command]], spilled: Mapping[int, int]) -> int:
    """Number of the last store into what the load reads, -1 when there is none."""
    base, (low, high) = spilled.get(load.fields.get("base", 0)), _span(load)
    if base is None:
        return -1
    return next((i for i, store in reversed(stores) if store.fields.get("base", 0) == base
                 and _span(store)[0] < high and _span(store)[1] > low), -1)


def _wait_for_stores(commands: Sequence[Command], spilled: Mapping[int, int]) -> list[Command]:
    found: list[Command] = []
    stores: list[tuple[int, Command]] = []
    for command in commands:
        if command.unit is Unit.STORE:
            stores.append((len(stores), command))
        number = _last_store(command, stores, spilled) if command.unit is Unit.LOAD else -1
        if number >= 0:
            distance = min(len(stores) - number, MAX_WAIT, command.waits.get(Unit.STORE, MAX_WAIT))
            command = replace(command, waits={**command.waits, Unit.STORE: distance})
        found.append(command)
    return found
