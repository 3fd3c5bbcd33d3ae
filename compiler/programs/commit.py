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
from gemmule.compiler.passes.entry import Entry, Lowered, straight
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.place import round_up
from gemmule.compiler.program import Program, Registers, Step
from gemmule.config import Config
from gemmule.isa import MoveFlag, Unit

__all__ = ["COMMIT", "CommitEntry", "CommitProgram"]

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

    def gathered(self, position: int, path: Sequence[int]) -> dict[int, np.ndarray]:
        """Row numbers of each gather of :meth:`step`, by its place among the commands that run."""
        moved = np.array([position + row for i, row in enumerate(path) if row != i], dtype=np.int64)
        loop = next(at for at, command in enumerate(self.commands) if "body" in command.fields)
        body = self.commands[loop].fields["body"]
        gathers = [at for at in range(loop + 1, loop + 1 + body) if MoveFlag.INDEXED in self.commands[at].flags
                   and self.commands[at].unit is Unit.LOAD]
        return {at + turn * body: moved for turn in range(self.layout.runs // len(gathers)) for at in gathers}

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        return [self.registers(position, rows) for rows in {1, self.max_rows}
                for position in {0, self.max_positions - rows}]


class CommitEntry(Entry[CommitProgram]):
    """The program for paths of up to ``rows`` rows in caches of up to ``context``."""

    name = image = COMMIT

    def __init__(self, config: Config, layout: KvLayout, rows: int, context: int) -> None:
        super().__init__(config)
        self.layout, self.rows, self.context = layout, rows, context

    def lower(self) -> Lowered:
        return straight(commit_rows(self.config, self.layout, self.rows, self.context))

    def limit(self) -> Bounds:
        return {LengthReg.ROWS: (1, self.rows)}

    def regions(self) -> Mapping[str, int]:
        return {PATH: round_up(2 * self.rows, self.config.dim)}

    def build(self) -> CommitProgram:
        bases = self.bases
        return CommitProgram(
            **self.standing({bases[PATH]: PATH}, [PATH, CACHE]), max_rows=self.rows, max_positions=self.context,
            layout=self.layout, window=bases[NEW], cache=bases[CACHE])
