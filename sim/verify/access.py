"""Which rows and bytes one resolved command touches, exactly: the table of operands as intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.isa import TABLE_FIELDS
from gemmule.operands import Memory, Operand, operands_of
from gemmule.terms import OUT, Term, fill_terms

__all__ = ["Access", "accesses", "common"]

_PREDICATE = TABLE_FIELDS.index("predicate")
GUARD = Operand(name="predicate", memory=Memory.PREDICATE, in_place=True)
"""What a command with a predicate reads besides its operands."""


@dataclass(frozen=True, eq=False)
class Access:
    """One operand: merged, sorted half-open intervals ``spans[n, 2]`` of a memory."""

    operand: Operand
    spans: np.ndarray
    twice: bool = False
    """Some row is named more than once."""
    origin: tuple[int, int] = (0, 0)
    """First row and stride (0 where there is but one column group): equal origins mean an equal order of rows."""

    @property
    def memory(self) -> Memory:
        return self.operand.memory

    @property
    def write(self) -> bool:
        return self.operand.write


def _spans(starts: np.ndarray, size: int) -> tuple[np.ndarray, bool]:
    """Merge intervals ``[start, start + size)``; also whether any two of them overlap."""
    starts = np.sort(starts.ravel())
    gaps = np.diff(starts)
    cut = np.flatnonzero(gaps > size)
    low = starts[np.concatenate(([0], cut + 1))]
    high = starts[np.concatenate((cut, [len(starts) - 1]))] + size
    return np.stack((low, high), axis=1), bool((gaps < size).any())


def _access(operand: Operand, terms: np.ndarray) -> Access:
    first, run, count, stride, planes, plane_stride = (int(terms[term]) for term in (
        operand.first, operand.run, operand.count, operand.stride, operand.planes, operand.plane_stride))
    starts = first + stride * np.arange(count)[:, None] + plane_stride * np.arange(planes)[None, :]
    spans, twice = _spans(starts, run * operand.times)
    return Access(operand, spans, twice, (first, stride if count > 1 or planes > 1 else 0))


def accesses(row: np.ndarray, out: np.ndarray, config: Config) -> list[Access]:
    """What one command touches: its row of the decoded table and of :func:`gemmule.resolve.resolve`.

    A command with a predicate reads that; what it may touch counts as touched.
    """
    if out[OUT["zero"]]:
        return []
    terms = np.zeros(len(Term), dtype=np.int64)
    fill_terms(row, out, config.dim, terms)
    found = [_access(operand, terms) for operand in operands_of(
        int(out[OUT["unit"]]), int(out[OUT["op"]]), int(out[OUT["flags"]]))]
    predicate = int(row[_PREDICATE])
    if predicate:
        found.append(Access(GUARD, np.array([[predicate, predicate + 1]]), origin=(predicate, 0)))
    return found


def common(a: np.ndarray, b: np.ndarray) -> tuple[int, int] | None:
    """First common part of two sorted interval lists."""
    if len(a) == len(b) == 1:  # most are one run
        (low, high), (from_, to) = a[0].tolist(), b[0].tolist()
        return (max(low, from_), min(high, to)) if low < to and from_ < high else None
    at = np.searchsorted(b[:, 1], a[:, 0], side="right")  # first interval of b that ends after a starts
    inside = at < len(b)
    hit = np.flatnonzero(inside & (b[np.minimum(at, len(b) - 1), 0] < a[:, 1]))
    if not len(hit):
        return None
    i, j = hit[0], at[hit[0]]
    return int(max(a[i, 0], b[j, 0])), int(min(a[i, 1], b[j, 1]))
