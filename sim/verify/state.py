"""The verifier's state: what each unit did last to every place of the memories, and what is surely ordered.

For every place of a shared memory it holds, by unit, the last command that wrote it and the last one that read it, as
numbers from 1 in the unit's own order. The last writer is enough: earlier ones were ordered before it, or are exempt
together with it. DRAM has too many bytes for that: loads and stores that are not ordered yet wait in a list. So memory
depends on the device and on what is in flight, not on the program's length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gemmule.config import Config
from gemmule.isa import MAX_WAIT, NUM_PREDICATES, Unit
from gemmule.operands import Memory
from gemmule.sim.compiled import borrowing

__all__ = ["BURST", "FAULT", "FINE", "FULL", "GROUP", "MODES", "OVERLAP", "PROGRAM", "RACE", "READ", "RING", "TWICE",
           "WROTE", "UNSET", "State", "larger", "latest", "new_state", "note"]

FINE, FAULT, TWICE, OVERLAP, PROGRAM, RACE, UNSET, FULL = range(8)
"""How a command ends: fine; faults; writes a place twice; writes what it reads; stores into the program; races;
reads a parameter that the launch has not brought; the list of DRAM accesses is full."""
WROTE, READ = range(2)
RING = 64
"""Clocks kept by unit: a wait reaches that far back."""
assert RING > MAX_WAIT
GROUP = 5
"""Places are also looked at by groups of 32: most operands are long runs."""
MODES = DATAFLOW, GUARDED, SAME_ROW, SAME_STRIDE, SAME_SINCE = range(5)
"""Columns of ``mode``."""
BURST = NUMBER, FIRST, RUN, COUNT, STRIDE, LOW, HIGH = range(7)
"""Columns of ``bursts``: number, block, hull."""
_UNITS = len(Unit)
_SHARED = (Memory.SPM, Memory.ACC, Memory.LIST, Memory.PREDICATE)


class State(NamedTuple):
    """Arrays of one verification."""

    places: np.ndarray
    """int32[2, unit, place]: the unit's last command that wrote (0), that read (1) the place, over all shared memories.
    A command that touches a whole group is noted there instead."""
    whole: np.ndarray
    """int32[2, unit, place // 32]: the last command that wrote, that read every place of the group."""
    groups: np.ndarray
    """int32[2, unit, place // 32]: the highest number of the group's places."""
    last: np.ndarray
    """int64[2, unit, memory]: the unit's last command that wrote, that read anything of a memory."""
    block: np.ndarray
    """int64[2, accumulator row]: first row and stride of the C block in which the matrix unit wrote it last; a block
    of one column group has stride -1."""
    mark: np.ndarray
    """int32[place]: scratch of exact comparisons within a command, by its number."""
    offset: np.ndarray
    """int64[memory]: its first place."""
    known: np.ndarray
    """int64[unit, 64, unit]: clocks of the unit's last commands."""
    taken: np.ndarray
    """int64[unit]: commands so far."""
    mode: np.ndarray
    """int64[6]: the last load surely runs alone; dataflow of the last product; the last matrix command has a predicate;
    first row and stride of the C block of the last products, and the first of these."""
    bursts: np.ndarray
    """int64[2, capacity, 7]: loads and stores that may not be ordered yet: number, block, hull."""
    pending: np.ndarray
    """int64[3]: how many of them, and commands marked so far."""


def new_state(config: Config, capacity: int = 1024) -> State:
    """The state before the first command."""
    sizes = {Memory.SPM: config.spm_rows, Memory.ACC: config.acc_rows, Memory.LIST: config.list_entries,
             Memory.PREDICATE: NUM_PREDICATES}
    offset, places = np.zeros(len(Memory), dtype=np.int64), 0
    for memory in _SHARED:
        offset[memory] = places
        places += sizes[memory]
    groups = (places >> GROUP) + 1
    return State(
        np.zeros((2, _UNITS, places), np.int32), np.zeros((2, _UNITS, groups), np.int32),
        np.zeros((2, _UNITS, groups), np.int32),
        np.zeros((2, _UNITS, len(Memory)), np.int64),
        np.zeros((2, config.acc_rows), np.int64), np.zeros(places, np.int32), offset,
        np.zeros((_UNITS, RING, _UNITS), np.int64), np.zeros(_UNITS, np.int64),
        np.zeros(len(MODES), np.int64),
        np.zeros((2, capacity, len(BURST)), np.int64), np.zeros(3, np.int64))


def larger(state: State) -> State:
    """The same state with room for twice as many DRAM accesses."""
    return state._replace(bursts=np.concatenate((state.bursts, np.zeros_like(state.bursts)), axis=1))


@borrowing
def latest(s, kind, u, low, high, clock):  # type: ignore[no-untyped-def]
    """The unit's last command that wrote (0) or read (1) places low .. high - 1, if it is above ``clock``; else 0."""
    most = 0
    for group in range(low >> GROUP, ((high - 1) >> GROUP) + 1):
        if s.groups[kind, u, group] > clock:
            most = max(most, s.whole[kind, u, group])
            for place in range(max(low, group << GROUP), min(high, (group + 1) << GROUP)):
                most = max(most, s.places[kind, u, place])
    return most if most > clock else 0


@borrowing
def note(s, kind, u, low, high, number):  # type: ignore[no-untyped-def]
    """Places low .. high - 1 were written (0) or read (1) by the unit's command ``number``."""
    for group in range(low >> GROUP, ((high - 1) >> GROUP) + 1):
        first, end = group << GROUP, (group + 1) << GROUP
        s.groups[kind, u, group] = number
        if low <= first and end <= high:
            s.whole[kind, u, group] = number
        else:
            for place in range(max(low, first), min(high, end)):
                s.places[kind, u, place] = number
