"""A decoded program as the engine runs it: resolved, split by unit, with wait targets."""

from __future__ import annotations

import numpy as np
from numba import njit

from gemmule.isa import TABLE_FIELDS, MatrixFlag, Unit
from gemmule.operations import EXCLUSIVE_LOADS
from gemmule.resolve import OUT, TERMS, resolve_row
from gemmule.sim.compiled import compiled

__all__ = ["LOAD", "MATRIX", "SELECT", "STORE", "UNITS", "VECTOR", "prepare", "resolve_good"]

LOAD, STORE, MATRIX, VECTOR, SELECT = map(int, Unit)
UNITS = len(Unit)
_WAIT0, _PREDICATE = TABLE_FIELDS.index("wait_load"), TABLE_FIELDS.index("predicate")
_FAULT, _UNIT, _FLAGS, _EMPTY, _CLAIM = (OUT[name] for name in ("fault", "unit", "flags", "zero", "claim0"))
_STATIONARY = int(MatrixFlag.OUTPUT_STATIONARY)
_resolve_row = compiled(resolve_row)


@njit
def resolve_good(table, bases, limits, lengths, cfg, resolved):  # type: ignore[no-untyped-def]
    """Resolve in program order up to a fault; the number of good commands before it."""
    terms = np.zeros(TERMS, dtype=np.int64)
    for i in range(len(table)):
        _resolve_row(table[i], bases, limits, lengths, cfg, resolved[i], terms)
        if resolved[i, _FAULT]:
            return i
    return len(table)


@njit
def prepare(table, good, skipped, resolved, order, first, target, alone):  # type: ignore[no-untyped-def]
    """Split the good commands by unit; a skipped one is from here on one of length zero without claims.

    ``order[first[u] + i]`` is unit u's i-th command, ``first`` has an entry more than there are units.
    ``target[c, u]`` is the position in ``order`` that unit u must have finished up to before command c.
    ``alone[c]``: c issues only when nothing of its unit is in flight.
    """
    dispatched = np.zeros(UNITS, dtype=np.int64)
    for i in range(good):
        dispatched[resolved[i, _UNIT]] += 1
    for u in range(UNITS):
        first[u + 1] = first[u] + dispatched[u]
        dispatched[u] = first[u]
    dataflow = after_long = after_predicate = 0
    for i in range(good):
        unit, flags, empty = resolved[i, _UNIT], resolved[i, _FLAGS], resolved[i, _EMPTY]
        nothing = 1 if empty or skipped[i] else 0
        alone[i] = nothing
        if unit == LOAD:
            long = 1 if flags & EXCLUSIVE_LOADS and not nothing else 0
            if long or after_long:
                alone[i] = 1
            after_long = long
        elif unit == MATRIX:
            # dispatch, which knows no predicates, follows the dataflow
            stationary = dataflow if empty else flags >> _STATIONARY & 1
            if stationary != dataflow or after_predicate:
                alone[i] = 1
            dataflow, after_predicate = stationary, table[i, _PREDICATE]
        for u in range(UNITS):
            distance = table[i, _WAIT0 + u]
            target[i, u] = dispatched[u] - distance + 1 if distance else 0
        order[dispatched[unit]] = i
        dispatched[unit] += 1
        if skipped[i]:
            resolved[i, _EMPTY] = 1
            resolved[i, _CLAIM:_CLAIM + 3] = 0
