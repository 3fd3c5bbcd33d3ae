"""Rows of a sequence block by block: a loop over blocks, and moves of a block's rows between DRAM and the scratchpad.

Values that stand in DRAM between operators are [row][column group][dim], int16 ones [row][group][low, high][dim]. How
many rows there are, a register says; a block beyond them touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from gemmule.compiler.kernels.virtual import At, Builder, LengthReg, SetDisplacement
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Dyn, Length, MoveFlag, Source, Unit
from gemmule.timing import ceil_div

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
        return Length(min(most, self.rows - first), LengthReg.LEFT, self.first + first)


def stored(region: str) -> str:
    """The region as stores see it: loads and stores have base registers of their own."""
    return f"{region} stored"


@contextmanager
def row_blocks(b: Builder, sequence: int, rows: int, together: int, moved: Mapping[str, int],
               note: str, begin: Callable[[RowBlock], list[Callable[[], None]]]) -> Iterator[list[RowBlock]]:
    """What is appended inside is for each turn of ``together`` blocks of ``rows`` rows, of up to ``sequence`` in all.

    ``moved``: regions that the turns go through, with the bytes of a row; 0: none, rows come by their numbers.
    ``begin``: what loads the first block, before the first turn. The builder's rows become those of a block.
    """
    turn, b.rows = rows * together, rows
    blocks = [RowBlock(i * rows, rows) for i in range(together)]
    b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.ROWS, note="rows that are left"),
              *([] if all(moved.values()) else [set_length(LengthReg.ROW, note="rows that are done")]),
              *(SetDisplacement(region, 0) for region in moved))
    for write in begin(blocks[0]):
        write()
    if turn >= sequence:
        yield blocks
    else:
        with b.loop(Length(MAX_LENGTH, LengthReg.LEFT), turn.bit_length() - 1, note, local=True):
            yield blocks
            b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-turn),
                      *([] if all(moved.values()) else [
                          set_length(LengthReg.ROW, Source.LENGTH, LengthReg.ROW, amount=turn)]),
                      *(SetDisplacement(region, turn * size, further=True) for region, size in moved.items() if size))
    b.block, b.loaded = None, Length(1)


def load_rows(b: Builder, note: str, region: str, size: int, to: At, block: RowBlock, pieces: int = 1,
              listed: int = 0) -> list[Callable[[], None]]:
    """What loads a block's rows of ``size`` bytes in so many pieces; groups (int16: planes) stand ``b.rows`` apart.

    ``listed``: they are those of the list memory's first entries, of so many in DRAM; 0: all in their order.
    """
    lines, step = size // b.config.dim, 2 * ceil_div(size // b.config.dim, 2 * pieces)
    by_list: dict[str, Any] = {"flags": {MoveFlag.INDEXED}, "dyn": (Dyn.SRC1, LengthReg.ROW, 1), "list": block.first,
                               "last_index": listed - 1} if listed else {}

    def load(first: int) -> None:
        b.add(Unit.LOAD, note, region=region, offset=(0 if listed else block.first * size) + first * b.config.dim,
              stride=size, bytes=min(step, lines - first) * b.config.dim, row=to + first * b.rows, row_stride=1,
              block_stride=b.rows, rows=block.part(0, block.rows), **by_list)

    return [partial(load, first) for first in range(0, lines, step)]


def store_rows(b: Builder, note: str, region: str, size: int, at: At, stride: int, first: int, rows: Length) -> None:
    """Store rows of ``size`` bytes from row ``first`` of the turn on; groups or planes stand ``stride`` apart."""
    b.add(Unit.STORE, note, region=stored(region), offset=first * size, stride=size, bytes=size, row=at, row_stride=1,
          block_stride=stride, rows=rows)
