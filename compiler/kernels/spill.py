"""Values through DRAM and back, where operators are not fused: as a compiler does that writes one kernel an operator.

A value goes to a place of its own and comes back to the rows where it stood, so that nothing else of a program changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import At, Bank, Builder
from gemmule.isa import Length, MoveFlag, Unit

__all__ = ["SPILLED", "spill"]

SPILLED = "spilled"
"""Region of values on their way; operators of equal layers have equal places."""
SUM_BYTES = 4


def spill(b: Builder, name: str, at: At, groups: int, stride: int, m: Length | None = None) -> None:
    """Rows of a value to DRAM and back, unless operators are fused.

    ``groups`` of them (of int16 values: planes) stand ``stride`` apart; those of the accumulator are int32.
    """
    if b.fused:
        return
    sums = at.buffer.bank is Bank.ACCUMULATOR
    size = groups * b.config.dim * (SUM_BYTES if sums else 1)
    flags: Iterable[int] = {MoveFlag.ACCUMULATOR} if sums else ()
    offset, b.spilled = b.spilled, b.spilled + b.rows * size
    b.reserve(SPILLED, b.spilled)
    for unit, region, way in ((Unit.STORE, stored(SPILLED), "to DRAM"), (Unit.LOAD, SPILLED, "from DRAM")):
        b.add(unit, f"{name}: {way}", flags=flags, region=region, offset=offset, stride=size, bytes=size, row=at,
              row_stride=1, block_stride=stride, rows=b.m if m is None else m)
