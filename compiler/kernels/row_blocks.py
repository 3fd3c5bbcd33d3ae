"""Rows of a sequence block by block: a loop over blocks, and moves of a block's rows between DRAM and the scratchpad.

Values that stand in DRAM between operators are [row][column group][dim], int16 ones [row][group][low, high][dim]. How
many rows there are, a register says; a block beyond them touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gemmule.compiler.kernels.virtual import At, Builder, Registers, SetDisplacement
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Length, Source, Unit

__all__ = ["RowBlock", "load_rows", "row_blocks", "store_rows", "stored"]


@dataclass(frozen=True)
class RowBlock:
    """``rows`` rows at most, from row ``first`` of a turn on."""

    first: int
    rows: int

    @property
    def following(self) -> RowBlock:
        """The block behind it, perhaps of the next turn."""
        return RowBlock(self.first + self.rows, self.rows)

    def part(self, first: int, most: int) -> Length:
        """Those of the rows ``first`` .. ``first + most - 1`` that there are."""
        return Length(min(most, self.rows - first), Registers.LEFT, self.first + first)


def stored(region: str) -> str:
    """The region as stores see it: loads and stores have base registers of their own."""
    return f"{region} stored"


@contextmanager
def row_blocks(b: Builder, sequence: int, rows: int, together: int, moved: Mapping[str, int],
               note: str, begin: Callable[[RowBlock], None] | None = None) -> Iterator[list[RowBlock]]:
    """What is appended inside is for each turn of ``together`` blocks of ``rows`` rows, of up to ``sequence`` in all.

    ``moved``: regions that the turns go through, with the bytes of a row. ``begin`` writes, of the first block, what comes
    before the first turn. The builder's rows become those of a block.
    """
    turn, b.rows = rows * together, rows
    blocks = [RowBlock(i * rows, rows) for i in range(together)]
    b.control(set_length(Registers.LEFT, Source.LENGTH, Registers.ROWS, note="rows that are left"),
              *(SetDisplacement(region, 0) for region in moved))
    if begin:
        begin(blocks[0])
    if turn >= sequence:
        yield blocks
    else:
        with b.loop(Length(MAX_LENGTH, Registers.LEFT), turn.bit_length() - 1, note, local=True):
            yield blocks
            b.control(set_length(Registers.LEFT, Source.LENGTH, Registers.LEFT, amount=-turn),
                      *(SetDisplacement(region, turn * size, further=True) for region, size in moved.items()))
    b.block, b.loaded = None, Length(1)


def _move(b: Builder, unit: Unit, note: str, region: str, size: int, at: At, block: RowBlock, stride: int, first: int,
          rows: int) -> None:
    b.add(unit, note, region=region if unit is Unit.LOAD else stored(region), offset=(block.first + first) * size,
          stride=size, bytes=size, row=at, row_stride=1, block_stride=stride, rows=block.part(first, rows))


def load_rows(b: Builder, note: str, region: str, size: int, to: At, block: RowBlock) -> None:
    """A block's rows of ``size`` bytes; groups (int16: planes) stand ``b.rows`` apart."""
    _move(b, Unit.LOAD, note, region, size, to, block, b.rows, 0, block.rows)


def store_rows(b: Builder, note: str, region: str, size: int, at: At, block: RowBlock, stride: int, first: int,
               rows: int) -> None:
    """Rows ``first`` .. ``first + rows - 1`` of a block from where they stand, groups or planes ``stride`` apart."""
    _move(b, Unit.STORE, note, region, size, at, block, stride, first, rows)
