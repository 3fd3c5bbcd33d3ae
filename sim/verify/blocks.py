"""Where an operand of one command lies, as numbers: a block of runs, its hull, what it meets."""

from __future__ import annotations

from gemmule.operands import CLASS_OF, CLASSES, Class, Memory
from gemmule.sim.compiled import borrowing
from gemmule.terms import OUT

__all__ = ["IN_PLACE", "MEMORY", "MOST", "PLANES", "STRIDES", "WRITE", "block_of", "class_of", "disjoint", "hull",
           "into_program", "meets"]

MEMORY, WRITE, IN_PLACE, STRIDES, COUNTS, PLANES = (
    int(column) for column in (
        Class.MEMORY, Class.WRITE, Class.IN_PLACE, Class.STRIDE, Class.COUNT, Class.PLANES))
"""Columns of ``CLASSES`` that others look at."""
MOST = CLASSES.shape[1]
"""Most operands of a command."""
_FIRST, _RUN, _TIMES, _PLANE_STRIDE = (
    int(column) for column in (Class.FIRST, Class.RUN, Class.TIMES, Class.PLANE_STRIDE))
_DRAM = int(Memory.DRAM)
_UNIT, _OP, _FLAGS = OUT["unit"], OUT["op"], OUT["flags"]


@borrowing
def class_of(out):  # type: ignore[no-untyped-def]
    """Row of ``CLASSES`` of a resolved command that is legal."""
    return CLASS_OF[out[_UNIT], out[_OP], out[_FLAGS]]


@borrowing
def block_of(c, i, terms):  # type: ignore[no-untyped-def]
    """(first, run, count, stride, planes, plane stride) of operand i of class c, runs that touch made one."""
    run = terms[CLASSES[c, i, _RUN]] * CLASSES[c, i, _TIMES]
    count, stride = terms[CLASSES[c, i, COUNTS]], terms[CLASSES[c, i, STRIDES]]
    planes, plane_stride = terms[CLASSES[c, i, PLANES]], terms[CLASSES[c, i, _PLANE_STRIDE]]
    if planes > 1 and plane_stride == run:
        run, planes = run * planes, 1
    if count > 1 and stride == run:
        run, count = run * count, 1
    return terms[CLASSES[c, i, _FIRST]], run, count, stride, planes, plane_stride


@borrowing
def disjoint(run, count, stride, planes, plane_stride):  # type: ignore[no-untyped-def]
    """Whether the runs of a block surely do not overlap."""
    if count == 1:
        return planes == 1 or plane_stride >= run
    if planes == 1:
        return stride >= run
    return ((stride >= run and plane_stride >= (count - 1) * stride + run)
            or (plane_stride >= run and stride >= (planes - 1) * plane_stride + run))


@borrowing
def hull(block):  # type: ignore[no-untyped-def]
    """First row of a block, and the one behind its last."""
    first, run, count, stride, planes, plane_stride = block
    return first, first + (count - 1) * stride + (planes - 1) * plane_stride + run


@borrowing
def meets(first, run, count, stride, low, high):  # type: ignore[no-untyped-def]
    """Whether some run of a block overlaps [low, high)."""
    if stride == 0 or count == 1:
        return first < high and first + run > low
    i = max(0, (low - run - first) // stride + 1)  # the first run that ends after low
    return i < count and first + i * stride < high


@borrowing
def into_program(out, terms, low, high):  # type: ignore[no-untyped-def]
    """Whether a store reaches DRAM bytes low .. high - 1."""
    c = class_of(out)
    for i in range(MOST):
        if CLASSES[c, i, MEMORY] == _DRAM and CLASSES[c, i, WRITE]:
            first, run, count, stride, _, _ = block_of(c, i, terms)
            if meets(first, run, count, stride, low, high):
                return True
    return False
