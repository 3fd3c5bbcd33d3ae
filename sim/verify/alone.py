"""What one command breaks by itself: a place written twice, or written and read as another element."""

from __future__ import annotations

from gemmule.operands import CLASSES, Memory
from gemmule.sim.compiled import borrowing
from gemmule.sim.verify.blocks import (
    COUNTS,
    IN_PLACE,
    MEMORY,
    MOST,
    PLANES,
    STRIDES,
    WRITE,
    block_of,
    class_of,
    disjoint,
    hull,
)
from gemmule.sim.verify.state import FINE, OVERLAP, TWICE

__all__ = ["check_alone"]

_DRAM, _PREDICATE = int(Memory.DRAM), int(Memory.PREDICATE)


@borrowing
def _mark(s, base, block):  # type: ignore[no-untyped-def]
    """Mark the places of a block, which forgets other marks; whether it names some place twice."""
    first, run, count, stride, planes, plane_stride = block
    s.pending[2] += 1
    twice = False
    for i in range(count):
        for j in range(planes):
            at = base + first + i * stride + j * plane_stride
            for place in range(at, at + run):
                twice = twice or s.mark[place] == s.pending[2]
                s.mark[place] = s.pending[2]
    return twice


@borrowing
def _marked(s, base, block):  # type: ignore[no-untyped-def]
    """Whether some place of a block is marked."""
    first, run, count, stride, planes, plane_stride = block
    for i in range(count):
        for j in range(planes):
            at = base + first + i * stride + j * plane_stride
            for place in range(at, at + run):
                if s.mark[place] == s.pending[2]:
                    return True
    return False


@borrowing
def _one_group(c, i, terms):  # type: ignore[no-untyped-def]
    """Whether an operand is one column group, so that its stride means nothing.

    Its block does not tell: there, groups that touch are one run.
    """
    return terms[CLASSES[c, i, COUNTS]] == 1 and terms[CLASSES[c, i, PLANES]] == 1


@borrowing
def check_alone(s, out, terms):  # type: ignore[no-untyped-def]
    """FINE, TWICE or OVERLAP for one command by itself."""
    c = class_of(out)
    for w in range(MOST):
        memory = CLASSES[c, w, MEMORY]
        if memory < 0 or memory > _PREDICATE or not CLASSES[c, w, WRITE]:
            continue
        written = block_of(c, w, terms)
        apart = disjoint(written[1], written[2], written[3], written[4], written[5])
        if not apart and (memory == _DRAM or _mark(s, s.offset[memory], written)):
            return TWICE
        low, high = hull(written)
        for r in range(MOST):
            if CLASSES[c, r, MEMORY] != memory or CLASSES[c, r, WRITE] or memory == _DRAM:
                continue
            read = block_of(c, r, terms)
            same = read[0] == written[0] and (
                terms[CLASSES[c, r, STRIDES]] == terms[CLASSES[c, w, STRIDES]]
                or _one_group(c, r, terms) and _one_group(c, w, terms))
            first, end = hull(read)
            if (CLASSES[c, r, IN_PLACE] and same) or first >= high or low >= end:
                continue
            _mark(s, s.offset[memory], written)
            if _marked(s, s.offset[memory], read):
                return OVERLAP
    return FINE
