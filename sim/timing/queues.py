"""The units' queues: of each command dispatched and not yet finished, what issue looks at.

Few commands are there at a time, so that all of it stays in the processor's first cache, however long the stream.
"""

from __future__ import annotations

import numpy as np

from gemmule.isa import TABLE_FIELDS, MatrixFlag
from gemmule.operations import EXCLUSIVE_LOADS
from gemmule.resolve import OUT
from gemmule.sim.compiled import borrowing
from gemmule.sim.timing.program import LOAD, MATRIX, UNITS

__all__ = ["CLAIMS", "MOST_FLYING", "MOST_QUEUED", "QUEUES", "SLOT", "enqueue"]

MOST_QUEUED, MOST_FLYING = 16, 16
"""Commands of a unit that wait in its queue, and that are in flight; no device has more (checked where it is built)."""
PLACES = MOST_QUEUED + MOST_FLYING
"""A power of two."""
SLOT = PLACES - 1
"""Mask: the number of a unit's command in its order of dispatch, to its place here."""
CLAIMS = 3
QUEUES = (
    # per unit, as numbers of its commands in order: next to dispatch, to issue, to finish visibly
    *((name, np.int64, UNITS) for name in ("pushed", "issued", "finished")),
    # by unit and place: number in the stream; issues only when nothing of its unit is in flight; of length zero
    *((name, np.int64, (UNITS, PLACES)) for name in ("command", "alone", "empty")),
    ("claim", np.int64, (UNITS, PLACES, CLAIMS)),
    ("target", np.int64, (UNITS, PLACES, UNITS)),  # what each unit must have finished up to before
    ("finish", np.int64, (UNITS, PLACES)),  # cycle, once issued; FOREVER while it is not known
    # of the last load dispatched: it fills or broadcasts; of the last matrix command: its dataflow and its predicate
    ("after_long", np.int64), ("dataflow", np.int64), ("after_predicate", np.int64),
)
"""Fields of the engine's record."""
_WAIT0, _PREDICATE = TABLE_FIELDS.index("wait_load"), TABLE_FIELDS.index("predicate")
_UNIT, _FLAGS, _EMPTY, _CLAIM = (OUT[name] for name in ("unit", "flags", "zero", "claim0"))
_STATIONARY = int(MatrixFlag.OUTPUT_STATIONARY)


@borrowing
def enqueue(k, c, row, out, skipped):  # type: ignore[no-untyped-def]
    """Command ``c`` leaves resolve for its unit's queue; a skipped one is one of length zero without claims.

    ``row`` is decoded, ``out`` resolved.
    """
    unit, flags = out[_UNIT], out[_FLAGS]
    at = k.pushed[unit] & SLOT
    nothing = 1 if out[_EMPTY] or skipped else 0
    alone = nothing
    if unit == LOAD:
        long = 1 if flags & EXCLUSIVE_LOADS and not nothing else 0
        if long or k.after_long:
            alone = 1
        k.after_long = long
    elif unit == MATRIX:
        # dispatch, which knows no predicates, follows the dataflow
        stationary = k.dataflow if out[_EMPTY] else flags >> _STATIONARY & 1
        if stationary != k.dataflow or k.after_predicate:
            alone = 1
        k.dataflow, k.after_predicate = stationary, row[_PREDICATE]
    k.command[unit, at], k.alone[unit, at], k.empty[unit, at] = c, alone, nothing
    for i in range(CLAIMS):
        k.claim[unit, at, i] = 0 if nothing else out[_CLAIM + i]
    for u in range(UNITS):
        distance = row[_WAIT0 + u]
        k.target[unit, at, u] = k.pushed[u] - distance + 1 if distance else 0
    k.pushed[unit] += 1
