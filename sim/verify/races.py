"""Which earlier commands a command races with: places that both touch, one of them writing, without an order."""

from __future__ import annotations

from gemmule.isa import TABLE_FIELDS, Unit
from gemmule.operands import CLASSES, Memory
from gemmule.sim.compiled import borrowing
from gemmule.sim.verify.blocks import MEMORY, MOST, WRITE, block_of, class_of, meets
from gemmule.sim.verify.state import (
    COUNT,
    FIRST,
    GROUP,
    HIGH,
    LOW,
    NUMBER,
    READ,
    RUN,
    SAME_ROW,
    SAME_SINCE,
    SAME_STRIDE,
    STRIDE,
    WROTE,
    latest,
)
from gemmule.terms import OUT

__all__ = ["find_races"]

_UNITS = len(Unit)
_LOAD, _STORE, _MATRIX = int(Unit.LOAD), int(Unit.STORE), int(Unit.MATRIX)
_ACC, _DRAM, _PREDICATE = int(Memory.ACC), int(Memory.DRAM), int(Memory.PREDICATE)
_ZERO, _UNIT, _ROW2 = OUT["zero"], OUT["unit"], OUT["row2"]
_F_PREDICATE, _F_C_STRIDE = TABLE_FIELDS.index("predicate"), TABLE_FIELDS.index("c_stride")


@borrowing
def _races_rows(s, unit, write, memory, block, out, row, clock, needed):  # type: ignore[no-untyped-def]
    """Raise ``needed`` to the latest commands beyond ``clock`` that the rows of an operand race with."""
    first, run, count, stride, planes, plane_stride = block
    for i in range(count):
        for j in range(planes):
            low = s.offset[memory] + first + i * stride + j * plane_stride
            high = low + run
            for u in range(_UNITS):
                if s.last[WROTE, u, memory] <= clock[u] and (not write or s.last[READ, u, memory] <= clock[u]):
                    continue  # all that it did to this memory has finished
                if u == unit:  # in order by itself; a load that adds sees what the one before has written
                    if u == _MATRIX and memory == _ACC:
                        _races_block(s, low, high, out, row, clock, needed)
                    continue
                needed[u] = max(needed[u], latest(s, WROTE, u, low, high, clock[u]))
                if write:
                    needed[u] = max(needed[u], latest(s, READ, u, low, high, clock[u]))


@borrowing
def _races_block(s, low, high, out, row, clock, needed):  # type: ignore[no-untyped-def]
    """Products that write the same C block are in order by themselves: visits of a row are a slot apart or more."""
    base, same = s.offset[_ACC], s.mode[SAME_ROW] == out[_ROW2] and s.mode[SAME_STRIDE] == row[_F_C_STRIDE]
    if same and clock[_MATRIX] >= s.mode[SAME_SINCE] - 1:  # most products go on with the block of the one before
        return
    if not latest(s, WROTE, _MATRIX, low, high, clock[_MATRIX]):
        return
    for place in range(low, high):
        number = max(s.places[WROTE, _MATRIX, place], s.whole[WROTE, _MATRIX, place >> GROUP])
        if number > clock[_MATRIX]:
            stride = s.block[1, place - base]
            if s.block[0, place - base] != out[_ROW2] or (stride >= 0 and stride != row[_F_C_STRIDE]):
                needed[_MATRIX] = max(needed[_MATRIX], number)


@borrowing
def _races_dram(s, unit, block, clock, needed):  # type: ignore[no-untyped-def]
    """Loads that meet stores, stores that meet loads; each kind is in order by itself."""
    first, run, count, stride, _, _ = block
    last = first + (count - 1) * stride + run
    other = _STORE if unit == _LOAD else _LOAD
    for i in range(s.pending[other]):
        burst = s.bursts[other, i]
        number = burst[NUMBER]
        if number <= clock[other] or number <= needed[other] or burst[LOW] >= last or burst[HIGH] <= first:
            continue
        hit = False
        if count <= burst[COUNT]:
            for j in range(count):
                at = first + j * stride
                if meets(burst[FIRST], burst[RUN], burst[COUNT], burst[STRIDE], at, at + run):
                    hit = True
                    break
        else:
            for j in range(burst[COUNT]):
                at = burst[FIRST] + j * burst[STRIDE]
                if meets(first, run, count, stride, at, at + burst[RUN]):
                    hit = True
                    break
        if hit:
            needed[other] = number


@borrowing
def find_races(s, row, out, terms, clock, needed):  # type: ignore[no-untyped-def]
    """By unit the latest command that this one races with, 0 where there is none; True when there is any."""
    needed[:] = 0
    if out[_ZERO]:
        return False
    unit = out[_UNIT]
    c = class_of(out)
    for i in range(MOST):
        memory = CLASSES[c, i, MEMORY]
        if memory < 0:
            break
        if memory == _DRAM:
            _races_dram(s, unit, block_of(c, i, terms), clock, needed)
        elif memory <= _PREDICATE:
            block, write = block_of(c, i, terms), CLASSES[c, i, WRITE] != 0
            _races_rows(s, unit, write, memory, block, out, row, clock, needed)
    if row[_F_PREDICATE]:
        _races_rows(s, unit, False, _PREDICATE, (row[_F_PREDICATE], 1, 1, 0, 1, 0), out, row, clock, needed)
    found = False
    for u in range(_UNITS):
        if needed[u] <= clock[u]:
            needed[u] = 0
        found = found or needed[u] > 0
    return found
