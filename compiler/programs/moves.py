"""The programs that move rows of the caches: copies (fork, evict) and gathers by layer and KV head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.moves import FROM, LISTS, TO, copied_rows, gathered_rows, list_count, list_pitch
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.layout import Region
from gemmule.compiler.passes.entry import Entry, Lowered, straight
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.program import Program, Registers, Standing, Step
from gemmule.config import Config

__all__ = ["COPY", "GATHER", "CopyEntry", "CopyProgram", "GatherEntry", "GatherProgram", "MoveEntry",
           "MoveProgram", "Moves"]

COPY, GATHER = "copy", "gather"
"""Regions of the programs' images."""


@dataclass(frozen=True, kw_only=True)
class MoveProgram(Program):
    """Moves rows of the caches of one layout."""

    max_positions: int
    batch: int
    layout: KvLayout
    source: int
    """Base register of the cache as loads see it."""
    target: int
    """The same of stores."""

    def window(self, sequence: int, row: int) -> Region:
        """The caches from a row of a sequence on.

        Raises:
            CompileError: there is no such sequence.
        """
        if not 0 <= sequence < self.batch:
            raise CompileError(f"sequences are 0 to {self.batch - 1}, not {sequence}: compile for a batch of more")
        address, size = self.symbols[CACHE]
        at = sequence * self.layout.size + row * self.layout.row
        return address + at, size - at

    def between(self, source: Region, target: Region, rows: int) -> Registers:
        """Registers of a launch that moves ``rows`` rows from one (address, bytes) to another."""
        return self.place(windows={self.source: source, self.target: target}, lengths={LengthReg.ROWS: rows})


@dataclass(frozen=True, kw_only=True)
class CopyProgram(MoveProgram):
    """Moves consecutive rows, in all layers: to another sequence, or up within one."""

    def registers(self, source: tuple[int, int], target: tuple[int, int], rows: int) -> Registers:
        """Registers of a launch; ``source`` and ``target`` are (sequence, first row).

        Raises:
            CompileError: there are no such rows, or they would go down within a sequence.
        """
        for _, first in (source, target):
            if not 0 <= first <= first + rows <= self.max_positions:
                raise CompileError(f"rows must lie within 0 to {self.max_positions}, not {first} to {first + rows}")
        if source[0] == target[0] and source[1] < target[1]:
            raise CompileError(f"rows of one cache must move up, not from {source[1]} to {target[1]}")
        return self.between(self.window(*source), self.window(*target), rows)

    def step(self, source: tuple[int, int], target: tuple[int, int], rows: int) -> Step:
        """:meth:`registers`; there is nothing to write."""
        return Step(self.registers(source, target, rows))

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        last = self.max_positions - 1
        found = [self.registers((0, by), (0, 0), rows) for by in {1, min(65, last), last}
                 for rows in {1, min(65, self.max_positions - by), self.max_positions - by} if rows]
        return found + [self.registers((0, 0), (sequence, 0), self.max_positions)
                        for sequence in {1, self.batch - 1} if 0 < sequence < self.batch]


@dataclass(frozen=True, kw_only=True)
class GatherProgram(MoveProgram):
    """Keeps rows of a sequence by a list for each layer and KV head."""

    pitch: int
    """Bytes from a list to the next."""

    def registers(self, sequence: int, rows: int) -> Registers:
        """Registers of a launch that keeps so many rows."""
        window = self.window(sequence, 0)
        return self.between(window, window, rows)

    def step(self, sequence: int, slots: np.ndarray) -> Step:
        """Keep rows ``slots``, rising  # int [kept] for all, or [layers, KV heads, kept].

        Raises:
            CompileError: they do not rise, or there are no such rows, layers or heads.
        """
        layers = list_count(self.layout) // self.layout.heads
        index = np.asarray(slots, dtype=np.int64)
        if index.ndim == 1:
            index = np.broadcast_to(index, (layers, self.layout.heads, len(index)))
        if index.shape[:2] != (layers, self.layout.heads) or index.ndim != 3:
            raise CompileError(f"kept rows must be a list, or one for each of {layers} layers and {self.layout.heads} "
                               f"KV heads, not of shape {slots.shape}")
        kept = index.shape[2]
        if not kept or index.min() < 0 or index.max() >= self.max_positions or (np.diff(index) <= 0).any():
            raise CompileError(f"kept rows must rise within 0 to {self.max_positions - 1}")
        lists = np.zeros((layers * self.layout.heads, self.pitch // 2), dtype="<u2")
        lists[:, :kept] = index.reshape(-1, kept)
        return Step(self.registers(sequence, kept), ((self.symbols[LISTS][0], lists.reshape(-1).view(np.uint8)),))

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        return [self.registers(sequence, rows) for sequence in {0, self.batch - 1}
                for rows in {1, min(65, self.max_positions), self.max_positions}]


@dataclass(frozen=True)
class Moves:
    """Both programs."""

    copy: CopyProgram
    gather: GatherProgram


M = TypeVar("M", bound=MoveProgram)


class MoveEntry(Entry[M]):
    """Caches of ``batch`` sequences of up to ``context`` rows."""

    def __init__(self, config: Config, layout: KvLayout, batch: int, context: int) -> None:
        super().__init__(config)
        self.layout, self.batch, self.context = layout, batch, context

    def limit(self) -> Bounds:
        return {LengthReg.ROWS: (0, self.context), LengthReg.LEFT: (0, self.context)}

    def standing_moves(self) -> Standing:
        """Of either program; only lists stand in one place."""
        used = {register: LISTS for region, register in self.bases.items() if region == LISTS}
        return self.standing(used, [CACHE, LISTS])


class CopyEntry(MoveEntry[CopyProgram]):
    """What compiles to a :class:`CopyProgram`."""

    name = image = COPY

    def lower(self) -> Lowered:
        return straight(copied_rows(self.config, self.layout))

    def build(self) -> CopyProgram:
        return CopyProgram(**self.standing_moves(), max_positions=self.context, batch=self.batch, layout=self.layout,
                           source=self.bases[FROM], target=self.bases[TO])


class GatherEntry(MoveEntry[GatherProgram]):
    """What compiles to a :class:`GatherProgram`."""

    name = image = GATHER

    @property
    def pitch(self) -> int:
        """Bytes from a list to the next."""
        return list_pitch(self.config, self.context)

    def lower(self) -> Lowered:
        return straight(gathered_rows(self.config, self.layout, self.context))

    def regions(self) -> Mapping[str, int]:
        return {LISTS: list_count(self.layout) * self.pitch}

    def build(self) -> GatherProgram:
        return GatherProgram(**self.standing_moves(), max_positions=self.context, batch=self.batch, layout=self.layout,
                             source=self.bases[FROM], target=self.bases[TO], pitch=self.pitch)
