"""The program that makes rows of 4 bits of a cache's rows, two in one, by lists of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmule.compiler.kernels.attention.halves.packing import (
    NIBBLES,
    PAIR_LISTS,
    TO_LOWER,
    TO_WHOLE,
    Halves,
    packed_rows,
    pair_half,
)
from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.moves import FROM, TO, list_count
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.layout import Region
from gemmule.compiler.passes.entry import Lowered, straight
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.program import Registers
from gemmule.compiler.programs.moves import MoveEntry, MoveProgram
from gemmule.config import Config
from gemmule.numerics import BYTE_TABLE_ENTRIES

__all__ = ["PACK", "PackEntry", "PackProgram"]

PACK = "pack"
"""Region of the program's image."""


@dataclass(frozen=True, kw_only=True)
class PackProgram(MoveProgram):
    """Pairs of rows of one cache to the first rows of another."""

    halves: Halves
    whole: int | None
    """Base register of the other one where keys or values of 8 bits are stored."""
    lower: int | None
    """The same of lower halves, which come behind the upper ones."""

    def between(self, source: Region, target: Region, rows: int) -> Registers:
        size = rows * self.layout.row
        beside = ({} if self.whole is None else {self.whole: target}) | (
            {} if self.lower is None else {self.lower: (target[0] + size, target[1] - size)})
        return self.place(windows={self.source: source, self.target: target} | beside,
                          lengths={LengthReg.ROWS: rows})

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        window = self.window(0, 0)
        return [self.between(window, window, pairs) for pairs in sorted({1, 33, self.max_positions // 2})
                if pairs <= self.max_positions // 2]


class PackEntry(MoveEntry[PackProgram]):
    """What compiles to a :class:`PackProgram`."""

    name = image = PACK

    def __init__(self, config: Config, layout: KvLayout, context: int, halves: Halves) -> None:
        super().__init__(config, layout, 1, context)
        self.halves = halves

    def lower(self) -> Lowered:
        return straight(packed_rows(self.config, self.layout, self.context, self.halves))

    def regions(self) -> Mapping[str, int]:
        """A turn may read a row of the device beyond its list."""
        lists = 2 * list_count(self.layout) * pair_half(self.config, self.context)
        return {PAIR_LISTS: lists + self.config.dim, NIBBLES: 2 * BYTE_TABLE_ENTRIES}

    def limit(self) -> Bounds:
        return {LengthReg.ROWS: (0, self.context // 2), LengthReg.LEFT: (0, self.context // 2)}

    def build(self) -> PackProgram:
        used = {register: region for region, register in self.bases.items() if region in (PAIR_LISTS, NIBBLES)}
        return PackProgram(
            **self.standing(used, [CACHE, PAIR_LISTS, NIBBLES]), max_positions=self.context, batch=self.batch,
            layout=self.layout, source=self.bases[FROM], target=self.bases[TO], halves=self.halves,
            whole=self.bases.get(TO_WHOLE), lower=self.bases.get(TO_LOWER))
