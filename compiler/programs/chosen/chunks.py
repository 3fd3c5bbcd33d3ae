"""The selecting pass whose last row chooses chunks of consecutive rows of a cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network, Pages
from gemmule.compiler.kernels.attention.chosen.chunks import CHUNK_ROWS, ChunkingMapping, chunk_words
from gemmule.compiler.program import Registers, Step
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.selecting import SelectingProgram, Selection, compile_selection
from gemmule.isa import MoveFlag, Unit
from gemmule.sim.stream import stream_of

__all__ = ["ChunkingProgram", "compile_chunks"]


@dataclass(frozen=True, kw_only=True)
class ChunkingProgram(SelectingProgram):
    """:class:`SelectingProgram` whose lists have the rows of chunks, of which all rows were cached before the newest.
    """

    @property
    def pages(self) -> Pages:
        """Sizes of chunks, and which rows are not chosen from."""
        found = self.choice.mappings[0].attention
        assert isinstance(found, ChunkingMapping)
        return Pages(page=found.page, keep=1.0, first=found.first, last=found.last, whole=1)

    @property
    def least(self) -> int:
        return self.pages.sinks * self.pages.page

    def choosing_registers(self, rows: int, cached: int, kept: int, pairs: int = 0, behind: int = 0) -> Registers:
        """``kept``: rows of the chunks that are listed, the first ones too."""
        pages = self.pages
        if rows != self.max_rows:
            raise CompileError(f"a selecting pass takes {self.max_rows} rows, not {rows}")
        settled = pages.settled(cached + rows - self.graph.prefix)
        if not self.least <= kept <= settled * pages.page or kept % pages.page or pairs or behind:
            raise CompileError(f"rows of chunks must be a multiple of {pages.page} from {self.least} (those that "
                               f"always are) to {settled * pages.page} (those before the newest), not {kept}")
        made = ModelProgram.registers(self, rows, cached, 0)
        made.first = (chunk_words(self.config, settled, kept // pages.page, pages.page),)
        return made

    def extremes(self) -> list[Registers]:
        pages, most, prefix = self.pages, self.max_positions - self.max_rows, self.graph.prefix
        least, found = prefix + pages.last + self.least, []
        for cached in sorted({min(most, least + more) for more in (0, pages.page, 65, most)}):
            settled = pages.settled(cached + self.max_rows - prefix) * pages.page
            found += [self.choosing_registers(self.max_rows, cached, kept) for kept in {self.least, settled}]
        return found

    def listing(self, step: Step, rows: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
        """Row numbers of the gathers of the table of rows, by the place of each in the launch's stream.

        ``rows``: those listed, by attention node  # int64 [KV heads, rows].
        """
        loads = np.array([command.unit is Unit.LOAD and MoveFlag.INDEXED in command.flags
                          and self.bases.get(command.fields["base"]) == CHUNK_ROWS for command in self.commands])
        bases, limits, lengths = step.registers
        stream = stream_of(self.image_of(step.registers), self.config, bases, limits, lengths)
        page = self.pages.page
        every = [listed[::page] // page for node in self.graph.attentions for listed in rows[node.name]]
        return dict(zip(np.flatnonzero(loads[stream.places]).tolist(), every, strict=True))


def compile_chunks(network: Network, program: ModelProgram, *, rows: int, first: int, last: int, page: int,
                   base_address: int) -> Selection:
    """:func:`gemmule.compiler.programs.selecting.compile_selection`, by chunks of ``page`` rows.

    Raises:
        CompileError: as of it; or chunks that the device does not take.
    """
    if last < rows:
        raise CompileError(f"the newest rows (last) must be at least the {rows} of a pass, not {last}: raise last")
    return compile_selection(network, program, rows=rows, first=first, last=last, base_address=base_address, page=page,
                             kind=ChunkingProgram)
