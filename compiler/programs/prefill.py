"""A second program for more new rows than the one beside it, for keys and values alone: passes over a prompt.

Nothing is answered, so there is no head, and of the last layer there are only keys and values. Beside a batch it takes
the rows of one sequence, whose cache displaces the launch's registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.passes.map import Choice
from gemmule.compiler.program import Registers, Step
from gemmule.compiler.programs.beside import compile_beside
from gemmule.compiler.programs.model_program import ModelProgram, Places
from gemmule.compiler.programs.texts.listed import ListedProgram, list_gathers, list_inputs

__all__ = ["ListedPrefill", "PrefillProgram", "compile_prefill"]


@dataclass(frozen=True, kw_only=True)
class PrefillProgram(ModelProgram):
    """Passes of up to ``max_rows`` new rows behind a cache, of which no answer is wanted."""

    def registers(self, rows: int, context: int, wanted: int | None = None) -> Registers:
        if wanted:
            raise CompileError(f"a prefill answers no rows, not {wanted}: take the program beside it")
        return super().registers(rows, context, 0)

    def extremes(self) -> list[Registers]:
        most = self.max_positions
        sizes = {(rows, min(context, most - rows)) for rows in (1, self.max_rows) for context in (0, 1, 65, most - 1)}
        return [self.registers(rows, context) for rows, context in sorted(sizes)]


@dataclass(frozen=True, kw_only=True)
class ListedPrefill(PrefillProgram):
    """:class:`PrefillProgram` beside a :class:`gemmule.compiler.programs.texts.listed.ListedProgram`."""

    def step(self, rows: Rows, wanted: int, cached: Sequence[int] | None = None,
             places: Places | None = None) -> Step:
        """``places``: rows of the pool for cached and new positions; by default the first ones in order."""
        context = int(rows.positions[0]) if cached is None else cached[0]
        own = np.arange(context + len(rows)) % self.pool if places is None else np.asarray(places)
        return Step(self.registers(len(rows), context, wanted), (
            *self.inputs(rows), *list_inputs(self, [context], [len(rows)], [own])))

    def gathered_by(self, rows: Rows, step: Step) -> dict[int, np.ndarray]:
        return list_gathers(self, self.gathered(rows), step)


def compile_prefill(network: Network, program: ModelProgram, *, rows: int, base_address: int,
                    among: Sequence[Choice] | None = None, checked: bool = True,
                    values: int = 0) -> PrefillProgram:
    """Compile a prefill of up to ``rows`` new rows beside ``program`` (:func:`compile_beside`).

    Raises:
        CompileError: it does not fit, or cannot share weights and cache; the message says what to change.
    """
    kind = ListedPrefill if isinstance(program, ListedProgram) else PrefillProgram
    return compile_beside(kind, network, program, rows=rows, context=program.max_positions, answered=False,
                          base_address=base_address, among=among, checked=checked, values=values)
