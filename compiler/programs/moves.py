"""The programs that move rows of the caches: copies (fork, evict) and gathers by layer and KV head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.moves import FROM, LISTS, TO, copied_rows, gathered_rows, list_count, list_pitch
from gemmule.compiler.kernels.virtual import Item, LengthReg
from gemmule.compiler.layout import Region
from gemmule.compiler.passes.allocate import allocate
from gemmule.compiler.passes.emit import base_registers, emit, with_straight_waits
from gemmule.compiler.passes.turns import place_turn_waits
from gemmule.compiler.program import Program, Registers, Step
from gemmule.config import Config
from gemmule.isa import Command, encode_program

__all__ = ["COPY", "GATHER", "CopyProgram", "GatherProgram", "MoveParts", "Moves", "move_parts", "move_programs"]

COPY, GATHER = "copy", "gather"
"""Regions of the programs' images."""


@dataclass(frozen=True, kw_only=True)
class _MoveProgram(Program):
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


@dataclass(frozen=True, kw_only=True)
class CopyProgram(_MoveProgram):
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
        return self.place(windows={self.source: self.window(*source), self.target: self.window(*target)},
                          lengths={LengthReg.ROWS: rows})

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
class GatherProgram(_MoveProgram):
    """Keeps rows of a sequence by a list for each layer and KV head."""

    pitch: int
    """Bytes from a list to the next."""

    def registers(self, sequence: int, rows: int) -> Registers:
        """Registers of a launch that keeps so many rows."""
        window = self.window(sequence, 0)
        return self.place(windows={self.source: window, self.target: window}, lengths={LengthReg.ROWS: rows})

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


@dataclass(frozen=True)
class MoveParts:
    """Commands without waits between turns, and base registers, of both programs."""

    copy: tuple[list[Command], dict[str, int]]
    gather: tuple[list[Command], dict[str, int]]
    lists: int
    """Bytes of the lists."""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by region."""
        return {COPY: len(encode_program(self.copy[0])), GATHER: len(encode_program(self.gather[0])),
                LISTS: self.lists}


def move_parts(config: Config, layout: KvLayout, context: int) -> MoveParts:
    """What the regions must have room for."""
    def commands(items: Sequence[Item]) -> tuple[list[Command], dict[str, int]]:
        bases = base_registers(items)
        made = emit(items, dict(allocate(items, config, apart=False)), bases)
        return with_straight_waits(made, config, {LengthReg.ROWS: (0, context), LengthReg.LEFT: (0, context)}), bases

    return MoveParts(commands(list(copied_rows(config, layout))),
                     commands(list(gathered_rows(config, layout, context))),
                     list_count(layout) * list_pitch(config, context))


def move_programs(parts: MoveParts, config: Config, symbols: Mapping[str, Region], *, layout: KvLayout, batch: int,
                  context: int, base_address: int, size: int) -> Moves:
    """The finished programs among ``symbols``, the regions of the passes' program, which begin at ``base_address``."""
    def common(name: str, bases: Mapping[str, int], commands: Sequence[Command]) -> dict[str, object]:
        used = {register: LISTS for region, register in bases.items() if region == LISTS}
        return {
            "config": config, "image": encode_program(commands), "commands": tuple(commands),
            "base_address": base_address, "size": size, "bases": used, "max_positions": context, "batch": batch,
            "symbols": {"program": symbols[name], CACHE: symbols[CACHE], LISTS: symbols[LISTS]}, "layout": layout,
            "source": bases[FROM], "target": bases[TO]}

    def copy(commands: Sequence[Command]) -> CopyProgram:
        return CopyProgram(**common(COPY, parts.copy[1], commands))  # type: ignore[arg-type]

    def gather(commands: Sequence[Command]) -> GatherProgram:
        return GatherProgram(**common(GATHER, parts.gather[1], commands),  # type: ignore[arg-type]
                             pitch=list_pitch(config, context))

    launches = copy(parts.copy[0]).extremes()
    copies = copy(place_turn_waits(parts.copy[0], config, launches)).verified(*launches)
    launches = gather(parts.gather[0]).extremes()
    return Moves(copies, gather(place_turn_waits(parts.gather[0], config, launches)).verified(*launches))
