"""Rows that a command may touch, whatever its registers hold within bounds: the table of operands at its largest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.isa import LENGTHS, NUM_BASES, NUM_LENGTHS, Command, Dyn, table_row
from gemmule.operands import DYNAMIC, Memory, Operand, operands_of
from gemmule.resolve import OUT, TERMS, config_vector, resolve_row
from gemmule.terms import OUT_FIELDS, Term

__all__ = ["Bounds", "Footprint", "footprints"]

Bounds = Mapping[int, tuple[int, int]]
"""Lowest and highest value of each length register in use."""
_NO_BASES = np.zeros(NUM_BASES, dtype=np.int64)


@dataclass(frozen=True)
class Footprint:
    """Rows ``start + i * stride .. + size`` for i < count, of a memory that units share."""

    memory: Memory
    write: bool
    start: int
    size: int
    stride: int = 0
    count: int = 1

    def slices(self) -> list[slice]:
        return [slice(at, at + self.size) for at in (self.start + i * self.stride for i in range(self.count))]


def _registers(command: Command, bounds: Bounds) -> np.ndarray:
    """Length registers at their highest, of those that the command names."""
    lengths = np.zeros(NUM_LENGTHS, dtype=np.int64)
    named = {command.fields.get(f"{name}_reg", 0) for name in LENGTHS[command.unit]}
    if command.dyn[0] is not Dyn.NONE:
        named.add(command.dyn[1])
    for register in named - {0}:
        lengths[register] = bounds[register][1]
    return lengths


def _extent(operand: Operand, terms: np.ndarray, moved: int) -> Iterator[Footprint]:
    """One operand, ``moved`` rows further down at the lowest value of the register that moves it."""
    first, run, count, stride, planes, plane_stride = (int(terms[term]) for term in (
        operand.first, operand.run, operand.count, operand.stride, operand.planes, operand.plane_stride))
    size = run * operand.times
    if planes > count:
        count, stride, planes, plane_stride = planes, plane_stride, count, stride
    if count > 1 and stride == size:
        size, count = size * count, 1
    for plane in range(planes):
        start = first - moved + plane * plane_stride
        yield Footprint(operand.memory, operand.write, start, size + moved, stride, count)


def footprints(command: Command, config: Config, bounds: Bounds) -> list[Footprint]:
    """Every row that the command may read or write within ``bounds``; empty when it never does.

    Only of memories that several units share, and not of DRAM.
    """
    out, terms = np.zeros(len(OUT_FIELDS), dtype=np.int64), np.zeros(TERMS, dtype=np.int64)
    row = table_row(command)
    # Rows beyond a memory at the largest of everything are for the caller to refuse.
    resolve_row(row, _NO_BASES, _NO_BASES, _registers(command, bounds), config_vector(config), out, terms)
    if out[OUT["zero"]]:
        return []
    which, register, stride = command.dyn
    low, high = (0, 0) if which is Dyn.NONE else bounds[register]
    found: list[Footprint] = []
    for operand in operands_of(command.unit, command.op, sum(1 << flag for flag in command.flags)):
        if operand.memory.private or operand.memory is Memory.DRAM:
            continue
        moved = (high - low) * stride if operand.first in DYNAMIC[command.unit].get(which, ()) else 0
        if operand.first is Term.SCALES_ROW and command.fields.get("k_reg", 0):
            moved += int(terms[Term.SCALES_ROW] - terms[Term.ROW1])  # fewer rows of weights before them
        found += _extent(operand, terms, moved)
    if command.predicate:
        found.append(Footprint(Memory.PREDICATE, False, command.predicate, 1))
    return found
