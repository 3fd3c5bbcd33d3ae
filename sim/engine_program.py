"""A decoded program as the engine runs it: resolved, split by unit, with wait targets."""

from __future__ import annotations

import numpy as np
from numba import njit

from gemmule.isa import TABLE_FIELDS, MatrixFlag, MoveFlag
from gemmule.resolve import OUT
from gemmule.sim.engine_units import resolve_row

__all__ = ["LOAD", "MATRIX", "STORE", "VECTOR", "prepare"]

LOAD, STORE, MATRIX, VECTOR = range(4)
_WAIT0 = TABLE_FIELDS.index("wait_load")
_FAULT, _UNIT, _FLAGS, _EMPTY = OUT["fault"], OUT["unit"], OUT["flags"], OUT["zero"]
_STATIONARY = int(MatrixFlag.OUTPUT_STATIONARY)
_LONG_LOADS = 1 << MoveFlag.ZERO | 1 << MoveFlag.BROADCAST


@njit
def prepare(  # type: ignore[no-untyped-def]
    table, bases, limits, lengths, cfg, resolved, order, first, target, alone,
):
    """Resolve in program order up to a fault; returns the number of good commands before it.

    ``order[first[u] + i]`` is unit u's i-th command, ``first`` has 5 entries. ``target[c, u]`` is the
    position in ``order`` that unit u must have finished up to before command c. ``alone[c]``: c issues
    only when nothing of its unit is in flight.
    """
    good = len(table)
    for i in range(len(table)):
        resolve_row(table[i], bases, limits, lengths, cfg, resolved[i])
        if resolved[i, _FAULT]:
            good = i
            break
    dispatched = np.zeros(4, dtype=np.int64)
    for i in range(good):
        dispatched[resolved[i, _UNIT]] += 1
    for u in range(4):
        first[u + 1] = first[u] + dispatched[u]
        dispatched[u] = first[u]
    dataflow = after_long = 0
    for i in range(good):
        unit, flags, empty = resolved[i, _UNIT], resolved[i, _FLAGS], resolved[i, _EMPTY]
        alone[i] = empty
        if unit == LOAD:
            long = 1 if flags & _LONG_LOADS and not empty else 0
            if long or after_long:
                alone[i] = 1
            after_long = long
        elif unit == MATRIX and not empty:
            stationary = flags >> _STATIONARY & 1
            if stationary != dataflow:
                alone[i] = 1
            dataflow = stationary
        for u in range(4):
            distance = table[i, _WAIT0 + u]
            target[i, u] = dispatched[u] - distance + 1 if distance else 0
        order[dispatched[unit]] = i
        dispatched[unit] += 1
    return good
