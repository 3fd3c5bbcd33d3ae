"""A decoder's pass whose rows choose pages of the cache: the lists and numbers that a launch takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.chosen.pages import PAGE_LISTS
from gemmule.compiler.kernels.attention.chosen.pages_mapping import PagesMapping, page_words
from gemmule.compiler.program import Registers, Step
from gemmule.compiler.programs.model_program import ModelProgram, Places

__all__ = ["PagesProgram"]


@dataclass(frozen=True, kw_only=True)
class PagesProgram(ModelProgram):
    """:class:`ModelProgram` of rows that choose pages."""

    @property
    def mapping(self) -> PagesMapping:
        """How attention was cut."""
        found = self.choice.mappings[0].attention
        assert isinstance(found, PagesMapping)
        return found

    def registers(self, rows: int, context: int, wanted: int | None = None) -> Registers:
        """Of a chain."""
        seen = context - self.graph.prefix + 1 + np.arange(rows)
        return self._with_numbers(super().registers(rows, context, wanted), context, seen)

    def step(self, rows: Rows, wanted: int, cached: Sequence[int] | None = None,
             places: Places | None = None) -> Step:
        context = int(rows.positions[0]) if cached is None else cached[0]
        plain = super().step(rows, wanted, [context])
        seen = rows.mask.sum(axis=1) + context - self.graph.prefix
        registers = self._with_numbers(plain.registers, context, seen)
        lists = self._lists(rows, context, seen)
        return Step(registers, (*plain.inputs, (self.symbols[PAGE_LISTS][0], lists.astype("<u2").view(np.uint8))))

    def _settling(self, context: int, rows: int) -> range:
        """Pages that become candidates in a pass of so many rows behind ``context`` cached ones."""
        pages, cached = self.mapping.pages, context - self.graph.prefix
        return range(pages.settled(cached), pages.settled(cached + rows))

    def _with_numbers(self, registers: Registers, context: int, seen: np.ndarray) -> Registers:
        """``seen``: rows of the text that each row sees, itself among them."""
        pages, rows = self.mapping.pages, len(seen)
        settling = self._settling(context, rows)
        numbers = [number for count in seen.tolist() for number in (
            pages.candidates(count), pages.chosen(count), pages.chosen(count) * pages.page,
            count - pages.candidates(count) * pages.page, pages.rows(count))]
        numbers += [0] * (5 * self.max_rows - len(numbers))
        numbers += [max(map(pages.candidates, seen.tolist())), len(settling), len(settling) * pages.page]
        registers.first = page_words(self.config, self.max_rows, numbers)
        return registers

    def extremes(self) -> list[Registers]:
        """Those of a pass, and as many numbers of pages and rows as there can ever be, each with all the others."""
        mapping, found = self.mapping, super().extremes()
        chosen, settling = mapping.chosen * mapping.pages.page, mapping.settling(self.max_rows)
        for rows in sorted({1, self.max_rows}):
            made = super().registers(rows, self.max_positions - rows)
            one = [mapping.candidates, mapping.chosen, chosen, mapping.others, mapping.others + chosen]
            made.first = page_words(self.config, self.max_rows, [
                *one * self.max_rows, mapping.candidates, settling, settling * mapping.pages.page])
            found.append(made)
        return found

    def _lists(self, rows: Rows, context: int, seen: np.ndarray) -> np.ndarray:
        """What the host tells: settling pages, their rows, and the rows that each row always sees."""
        mapping, pages, cached = self.mapping, self.mapping.pages, context - self.graph.prefix
        found = np.zeros(mapping.listed(self.max_rows), dtype=np.int64)
        settling, count = np.array(self._settling(context, len(rows)), dtype=np.int64), mapping.settling(self.max_rows)
        found[:len(settling)] = settling
        every = (settling[:, None] * pages.page + np.arange(pages.page)).reshape(-1)
        found[count:count + len(every)] = every
        for row, sees in enumerate(seen.tolist()):
            begin = count * (1 + pages.page) + row * mapping.others
            settled = pages.settled(sees) * pages.page
            if settled > cached:
                raise CompileError(f"a branch of a tree must be at most {pages.last} rows deep, as many as the newest "
                                   "that are always seen")
            own = [*range(min(pages.sinks * pages.page, settled)), *range(settled, cached),
                   *(cached + np.flatnonzero(rows.mask[row])).tolist()]
            found[begin:begin + len(own)] = own
        return found
