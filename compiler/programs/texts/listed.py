"""A decoder's pass over a batch whose caches share a pool of rows (pages): each launch lists every sequence's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.batch import contexts
from gemmule.compiler.kernels.attention.cache_list import CACHE_ROWS, NEW_ROWS, brings_list, lists_of, nobody
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.program import Registers, Step
from gemmule.compiler.programs.model_program import ModelProgram, Places
from gemmule.isa import MoveFlag, Unit
from gemmule.sim.stream import stream_of
from gemmule.terms import OUT

__all__ = ["ListedProgram", "list_gathers", "list_inputs"]


@dataclass(frozen=True, kw_only=True)
class ListedProgram(ModelProgram):
    """:class:`ModelProgram` of several sequences in one pool.

    Rows that a sequence lacks go to a row of the pool that nobody reads. So does all of a sequence without any text.
    """

    def registers_of_batch(self, rows: Sequence[int], cached: Sequence[int], wanted: bool) -> Registers:
        for count, context in zip(rows, cached, strict=True):
            self._check(count, context)
        made = self.place(windows={}, lengths={LengthReg.WANTED: self.batch * self.max_rows if wanted else 0})
        made.first = tuple(contexts(self.config, cached))
        return made

    def step(self, rows: Rows, wanted: int, cached: Sequence[int] | None = None,
             places: Places | None = None) -> Step:
        """``places``: of each sequence rows of the pool for its cached positions, then for its new ones; by default
        the pool's rows in order, one sequence behind the other and again from the beginning.
        """
        plain = super().step(rows, wanted, cached)
        counts = np.bincount(rows.sequences, minlength=self.batch).tolist()
        before = cached or [int(rows.positions[rows.sequences == i][0]) for i in range(self.batch)]
        if places is None:
            at = np.cumsum([0, *(a + b for a, b in zip(before, counts))]).tolist()
            places = [np.arange(at[i], at[i + 1]) % self.pool for i in range(self.batch)]
        return Step(plain.registers, (*plain.inputs, *list_inputs(self, before, counts, list(places))))

    def gathered_by(self, rows: Rows, step: Step) -> dict[int, np.ndarray]:
        return list_gathers(self, self.gathered(rows), step)


def list_inputs(program: ModelProgram, cached: Sequence[int], counts: Sequence[int],
            places: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """What the host writes of the pool's rows.

    Raises:
        CompileError: a sequence has other rows than the pool, or not as many as positions.
    """
    pitch = lists_of(program.config, program.batch, program.max_positions)
    lists = np.zeros((program.batch, pitch), dtype=np.int64)
    new = np.full((program.batch, program.max_rows), nobody(program.graph.prefix), dtype=np.int64)
    for sequence, (before, count, rows) in enumerate(zip(cached, counts, places, strict=True)):
        low, high = (int(rows.min()), int(rows.max())) if len(rows) else (0, 0)
        if len(rows) != before + count or low < 0 or high >= program.pool:
            raise CompileError(f"cache rows of sequence {sequence} must be {before + count} from 0 to "
                               f"{program.pool - 1}, not {len(rows)} from {low} to {high}")
        lists[sequence, :before], new[sequence, :count] = rows[:before], rows[before:]
    for region, values in ((CACHE_ROWS, lists), (NEW_ROWS, new)):
        yield program.symbols[region][0], values.reshape(-1).astype("<u2").view(np.uint8)


def list_gathers(program: ModelProgram, found: dict[int, np.ndarray], step: Step) -> dict[int, np.ndarray]:
    """Row numbers of all gathers and scatters of a launch, by the place of each in its stream.

    ``found``: those of embeddings and positions.
    """
    written = {address: content.view("<u2").astype(np.int64) for address, content in step.inputs}
    new = written[program.symbols[NEW_ROWS][0]]
    lists = written[program.symbols[CACHE_ROWS][0]].reshape(program.batch, -1)
    first, every = 2 * program.batch * program.max_rows, program.batch * program.max_rows
    commands = program.commands
    moves = np.array([command.unit in (Unit.LOAD, Unit.STORE) and MoveFlag.INDEXED in command.flags
                      and command.fields.get("list", 0) >= first for command in commands])
    brings = np.array([brings_list(command, first + every) for command in commands])
    entries = np.array([int(command.fields.get("dst", 0)) if bring else 0  # type: ignore[call-overload]
                        for command, bring in zip(commands, brings)])
    bounds, limits, lengths = step.registers
    stream = stream_of(program.image_of(step.registers), program.config, bounds, limits, lengths)
    places = stream.places
    brought = np.flatnonzero(brings[places])
    at = entries[places[brought]]
    """Where each list that is brought stands, in the order of the sequences, layer by layer."""
    parts = [(int(begin), np.flatnonzero(at == begin)) for begin in sorted(set(at.tolist()), reverse=True)]
    numbers, sizes = stream.resolved[:, OUT["row1"]], stream.resolved[:, OUT["m"]]
    for move in np.flatnonzero(moves[places]).tolist():
        count, entry = int(sizes[move]), int(numbers[move])
        if entry < first + every:
            found[move] = new[entry - first:][:count]
            continue
        begin, which = next(part for part in parts if part[0] <= entry)
        latest = int(which[np.searchsorted(brought[which], move) - 1])
        found[move] = lists[latest % program.batch, entry - begin:][:count]
    return found
