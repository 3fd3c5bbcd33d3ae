"""What a turn of a greedy loop tells the next one, behind its layers: the row stands one position further."""

from __future__ import annotations

from gemmule.compiler.kernels.attention.shared import NEW
from gemmule.compiler.kernels.virtual import Builder, LengthReg, SetDisplacement
from gemmule.control import set_length
from gemmule.isa import Source

__all__ = ["TURN_REGION", "next_turn"]

TURN_REGION = " of the turn"
"""Behind a region's name: a base register that only holds the displacement with which a turn begins."""


def next_turn(b: Builder, row: int, *, totals: bool) -> None:
    """Registers and displacements of the next turn; ``row``: bytes of a position of the cache.

    ``totals``: attention has registers that tell the cached rows and all of them. Layers leave the
    displacement of the new rows at 0, so another register keeps it.
    """
    counted = (LengthReg.CONTEXT, LengthReg.TOTAL, LengthReg.ROW) if totals else (LengthReg.CONTEXT,)
    b.control(*(set_length(register, Source.LENGTH, register, amount=1, note="one row more") for register in counted))
    b.control(SetDisplacement(NEW + TURN_REGION, row, further=True),
              SetDisplacement(NEW, 0, origin=NEW + TURN_REGION),
              *(SetDisplacement(region, size, further=True) for region, size in b.moved.items()))
