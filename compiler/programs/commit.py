"""The program that keeps an accepted path in the cache, beside the one of the passes that filled it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import CACHE, NEW
from gemmule.compiler.kernels.commit import PATH, commit_rows
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.layout import Region
from gemmule.compiler.passes.allocate import allocate
from gemmule.compiler.passes.emit import base_registers, emit, with_straight_waits
from gemmule.compiler.passes.turns import place_turn_waits
from gemmule.compiler.program import Program, Registers, Step
from gemmule.config import Config
from gemmule.isa import Command, encode_program
from gemmule.timing import ceil_div

__all__ = ["COMMIT", "CommitProgram", "commit_commands", "commit_program", "path_bytes"]

COMMIT = "commit"
"""Region of the program's image."""


@dataclass(frozen=True, kw_only=True)
class CommitProgram(Program):
    """Moves rows of the cache, in all layers: up to ``max_rows``, the most that a pass adds."""

    max_rows: int
    max_positions: int
    layout: KvLayout
    window: int
    """Base register of the cache from the first moved row on."""
    cache: int
    """Base register of the cache."""

    def registers(self, position: int, rows: int, sequence: int = 0) -> Registers:
        """Registers of a launch that writes ``rows`` rows of a sequence of the batch from ``position`` on."""
        address, size = self.symbols[CACHE][0] + sequence * self.layout.size, self.layout.size
        first = position * self.layout.row
        return self.place(windows={self.cache: (address, size), self.window: (address + first, size - first)},
                          lengths={LengthReg.ROWS: rows})

    def step(self, position: int, path: Sequence[int], sequence: int = 0) -> Step | None:
        """Keep the rows ``position + i`` for i in ``path``, from ``position`` on; None where all are in place.

        ``sequence``: of the batch, whose cache it is.

        Raises:
            CompileError: the path does not rise, or goes beyond what a pass can have added.
        """
        last = min(self.max_rows, self.max_positions - position) - 1
        if not path or not 0 <= path[0] <= path[-1] <= last or any(b <= a for a, b in zip(path, path[1:])):
            raise CompileError(f"a path must rise within 0 to {last}, not {list(path)}")
        moved = next((i for i, row in enumerate(path) if row != i), len(path))
        if moved == len(path):
            return None
        rows = np.zeros(self.symbols[PATH][1] // 2, dtype="<u2")
        rows[:len(path) - moved] = np.array(path[moved:]) + position
        return Step(self.registers(position + moved, len(path) - moved, sequence),
                    ((self.symbols[PATH][0], rows.view(np.uint8)),))

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        return [self.registers(position, rows) for rows in {1, self.max_rows}
                for position in {0, self.max_positions - rows}]


def path_bytes(config: Config, rows: int) -> int:
    """Size of the region :data:`PATH`."""
    return ceil_div(2 * rows, config.dim) * config.dim


def commit_commands(config: Config, layout: KvLayout, rows: int,
                    context: int) -> tuple[list[Command], dict[str, int]]:
    """The commands, without waits between turns, and the base register of each region."""
    items = list(commit_rows(config, layout, rows, context))
    bases = base_registers(items)
    commands = emit(items, dict(allocate(items, config, apart=False)), bases)
    return with_straight_waits(commands, config, {LengthReg.ROWS: (1, rows)}), bases


def commit_program(config: Config, commands: Sequence[Command], bases: Mapping[str, int],
                   symbols: Mapping[str, Region], *, layout: KvLayout, rows: int, context: int, base_address: int,
                   size: int) -> CommitProgram:
    """The finished program among ``symbols``, the regions of the passes' program, which begin at ``base_address``."""
    def program(commands: Sequence[Command]) -> CommitProgram:
        return CommitProgram(
            config=config, image=encode_program(commands), commands=tuple(commands), base_address=base_address,
            size=size, symbols={"program": symbols[COMMIT], PATH: symbols[PATH], CACHE: symbols[CACHE]},
            bases={bases[PATH]: PATH}, max_rows=rows, max_positions=context, layout=layout, window=bases[NEW],
            cache=bases[CACHE])

    launches = program(commands).extremes()
    return program(place_turn_waits(commands, config, launches)).verified(*launches)
