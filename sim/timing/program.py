"""A decoded program as the engine runs it: the stream of its commands, resolved."""

from __future__ import annotations

from numba import njit

from gemmule.control import MAX_COMMANDS, Loop, Sequence, begin, execute, take
from gemmule.isa import CONTROL, TABLE_FIELDS, COp, Unit, control_columns
from gemmule.resolve import CONFIG, FAULTS, OUT, resolve_row
from gemmule.sim.compiled import borrowing, compiled

__all__ = [
    "BACK", "BODY", "CONTROL_UNIT", "FREES", "LOAD", "MATRIX", "PLACE", "REPEAT", "SELECT", "STORE", "STREAM", "TIMES",
    "UNITS", "VECTOR", "begin_stream", "count_stream", "resolve_stream",
]

LOAD, STORE, MATRIX, VECTOR, SELECT = map(int, Unit)
UNITS = len(Unit)
STREAM = PLACE, BACK, FREES, TIMES = range(4)
"""Columns of a stream: place in the image; commands that the take goes back behind it, within what fetch keeps; the
end of what it keeps; of a REPEAT how often its body comes."""
BODY = control_columns(COp.REPEAT)["body"]
_F_UNIT, _F_OP = TABLE_FIELDS.index("unit"), TABLE_FIELDS.index("op")
_FAULT, _UNIT = OUT["fault"], OUT["unit"]
CONTROL_UNIT, REPEAT = int(CONTROL), int(COp.REPEAT)
_NEXT, _LEFT, _DEPTH, _TURNS = int(Sequence.PLACE), int(Sequence.LEFT), int(Sequence.DEPTH), int(Loop.TURNS)
_ILLEGAL = FAULTS.index("illegal")
_MOST, _FETCH_QUEUE = MAX_COMMANDS, CONFIG["fetch_queue"]
_resolve_row, _take, _execute = map(compiled, (resolve_row, take, execute))
begin_stream = njit(begin)


@borrowing
def count_stream(table, cfg, behind, local):  # type: ignore[no-untyped-def]
    """Commands of a launch, up to a control command that faults, or ``behind`` one more than a launch may have."""
    count = 0
    while local.sequence[_LEFT] > 0 and count <= _MOST + behind:
        row = table[local.sequence[_NEXT]]
        _take(local)
        count += 1
        if row[_F_UNIT] == CONTROL_UNIT and _execute(row, local, cfg):
            break
    return count


@borrowing
def resolve_stream(table, cfg, behind, local, stream, resolved, terms):  # type: ignore[no-untyped-def]
    """Fill ``stream`` and ``resolved`` in order: (good commands before a fault, entries of ``stream``).

    Resolve takes up to ``behind`` commands more behind one that faults: these have an entry and no more. ``terms`` is
    scratch.
    """
    sequence, count = local.sequence, len(stream)
    good, anchor, end = count, 0, count  # anchor: depth of the outermost body that fetch keeps whole
    i = 0
    while i < end:
        place = sequence[_NEXT]
        row, out = table[place], resolved[i]
        stream[i, PLACE], stream[i, BACK], stream[i, FREES], stream[i, TIMES] = place, 0, 0, -1
        _take(local)
        if anchor:
            if sequence[_DEPTH] < anchor:
                stream[i, FREES], anchor = 1, 0
            elif sequence[_NEXT] <= place:
                stream[i, BACK] = place + 1 - sequence[_NEXT]
        fault = 0
        if row[_F_UNIT] == CONTROL_UNIT:
            body = row[BODY] if row[_F_OP] == REPEAT else 0
            depth = sequence[_DEPTH]
            fault = _execute(row, local, cfg)
            if body and fault == 0:
                if sequence[_DEPTH] > depth:
                    stream[i, TIMES] = local.loops[depth, _TURNS]
                    if anchor == 0 and body <= cfg[_FETCH_QUEUE]:
                        anchor = depth + 1
                else:
                    stream[i, TIMES] = 0
            if i < good:
                out[:] = 0
                out[_UNIT] = CONTROL_UNIT
            if fault:
                end = i + 1  # nothing is taken behind it
        elif i < good:
            _resolve_row(row, local.bases, local.limits, local.lengths, cfg, out, terms)
            fault = out[_FAULT]
        if i == _MOST:  # whatever else it is
            fault = _ILLEGAL
        if fault and i < good:
            out[_FAULT] = fault
            good, end = i, min(end, i + 1 + behind)
        i += 1
    return good, end
