"""Checks of the sums in resolve: of the last row of every operand, part by part, each a single bit beyond all rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemmule.config import Config
from gemmule.isa import BODY, NUM_LENGTHS, Dyn, MatrixFlag, ProductFlag, SOp, Unit, VOp, field_bits, legal_flags
from gemmule.operations import OPERATIONS
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.setup import Setup
from gemmule.sim.mutants.singles import NONE, Singles, bare, moved

__all__ = ["sum_checks"]

STRIDE_BITS = 16
HIGHEST = 36
"""Bits of the longest product of a length and a stride."""
DYNAMIC = 25
"""Bits of a dynamic offset."""
ROPE_ROWS = 9
"""Bits of the rows of a rotary embedding."""
_MATRIX, _PRODUCT = (Unit.MATRIX, 0, 0), (Unit.VECTOR, VOp.PRODUCT, 0)
_WORDS = (Unit.VECTOR, VOp.PRODUCT, 1 << ProductFlag.WIDE)
PRODUCTS: tuple[tuple[tuple[Unit, int, int], str, str], ...] = (
    ((Unit.LOAD, 0, 0), "bytes", "block_stride"), ((Unit.STORE, 0, 0), "bytes", "block_stride"),
    ((Unit.LOAD, 0, 0), "rows_cap", "row_stride"), ((Unit.STORE, 0, 0), "rows_cap", "row_stride"),
    (_MATRIX, "k_cap", "a_stride"), (_MATRIX, "n_cap", "b_stride"), (_MATRIX, "n_cap", "c_stride"),
    ((Unit.MATRIX, 0, 1 << MatrixFlag.A_TRANSPOSED), "m_cap", "a_stride"),
    ((Unit.MATRIX, 0, 1 << MatrixFlag.B_TRANSPOSED), "k_cap", "b_stride"),
    (_PRODUCT, "n_cap", "src0_stride"), (_PRODUCT, "n_cap", "aux"), (_PRODUCT, "n_cap", "dst_stride"),
    (_WORDS, "n_cap", "src0_stride"), (_WORDS, "n_cap", "aux"), (_WORDS, "n_cap", "dst_stride"),
    ((Unit.SELECT, SOp.COMPARE, 0), "n_cap", "src0_stride"), ((Unit.SELECT, SOp.ARGMAX, 0), "n_cap", "src0_stride"),
)
"""An operation, with a length and the stride that it is multiplied by."""
ROWS = "rows_cap"
"""The one of these lengths that is not counted in groups of DIM."""


def products(config: Config) -> Iterator[int]:
    """Commands of which one part of one sum is a power of two, by a long stride or by a long length."""
    for (unit, op, flags), length, stride in PRODUCTS:
        for bit in range(HIGHEST):
            for by_stride in {min(bit, STRIDE_BITS - 1), max(0, bit - STRIDE_BITS)}:
                count = 1 << bit - by_stride
                value = count + 1 if length == ROWS else count * config.dim + 1
                if by_stride < STRIDE_BITS and value >> field_bits(unit, length) == 0:
                    yield bare(unit, op, flags, number=1, **{length: value, stride: 1 << by_stride})


def offsets() -> Iterator[int]:
    """Commands of which a first row or entry is a power of two: length register r, which holds 2^r, times a stride."""
    for unit, op in OPERATIONS:
        for which in list(Dyn)[1:]:
            for bit in range(1, DYNAMIC):
                register = max(1, bit - 9)
                yield moved(bare(unit, op, number=1), which, register, 1 << bit - register)


def inners() -> Iterator[int]:
    """Commands whose operands are one block of very many rows: every length alone, all strides 0."""
    for unit, op in OPERATIONS:
        for flags in sorted({0, *(1 << flag for flag in range(8) if legal_flags(unit, op, 1 << flag))}):
            for name, bits in BODY[Unit(unit)]:
                if name.endswith("_cap"):
                    yield from (bare(unit, op, flags, number=1, **{name: (1 << bit) + 1}) for bit in range(bits))


def angles() -> Iterator[int]:
    """Rotary embeddings of few rows whose angles' rows are one bit of a number and all below it."""
    for period in range(1 << field_bits(Unit.VECTOR, "period")):
        for bit in range(ROPE_ROWS):
            yield bare(Unit.VECTOR, VOp.ROPE, m_cap=(1 << bit) + 1, period=period)


def sum_checks(setup: Setup) -> list[Check]:
    lengths = np.array([1 << i for i in range(NUM_LENGTHS)])
    words = [*products(setup.config), *offsets(), *angles(), *inners()]
    return [Check("sums of resolve", Singles.of(setup.config, words, (NONE, NONE, lengths)).run)]
