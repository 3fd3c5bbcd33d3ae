"""What passes of a compiled model cost, by rows and cached rows: a timing-only run of the launches that they take.

For whoever decides how many rows a step has, of one text or of a batch: the programs are those that would take the
pass, so fewer rows cost less where a program of fewer rows is there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.program import NO_DRAM
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.costs.planned import Compiled, Planned, planned_launches
from gemmule.sw.step import Want

__all__ = ["CHEAP", "CostCurve", "free_rows"]

GREEDY = Want()
CHEAP = 1.03
"""Cycles over those of one row up to which a pass over several counts as free."""


class CostCurve:
    """Cycles of passes, the host's work for their launches included. What was run once is kept."""

    def __init__(self, model: Compiled) -> None:
        self.model, self.config = model, model.program.config
        self._timer = Simulator(self.config, dram_bytes=1)
        self._found: dict[tuple[object, ...], int] = {}

    def of(self, rows: int, cached: int, want: Want) -> int:
        """Of a pass over so many rows, all of them answered as wanted, behind so many cached tokens.

        Where they do not fit the context: behind as many as do.
        """
        graph = self.model.program.graph
        cached = min(cached, self.model.program.max_positions - graph.prefix - rows)
        key = (rows, cached, want)
        if key not in self._found:
            made = Rows.chain([token * 7 % graph.vocab for token in range(rows)], cached).behind(graph.prefix)
            self._found[key] = sum(self._launch(one) for one in planned_launches(
                self.model, made, want, np.ones(rows, dtype=bool), [graph.prefix + cached],
                ((0, graph.layers),)))
        return self._found[key]

    def of_batch(self, rows: int | Sequence[int], cached: Sequence[int], want: Want = GREEDY) -> int:
        """Of a pass over so many rows of each sequence, all answered as wanted or none (``want.last`` 0), behind so
        many cached rows of each, constant ones among them; a number: of every sequence as many. Rows of a pool are
        taken to stand in order.

        Where they do not fit the context: behind as many as do.
        """
        program = self.model.program
        each = (rows,) * program.batch if isinstance(rows, int) else tuple(rows)
        lengths = tuple(min(length, program.text_positions - count) for length, count in zip(cached, each, strict=True))
        key = ("batch", each, lengths, want)
        if key not in self._found:
            made = Rows.ragged([[0] * count for count in each], list(lengths))
            self._found[key] = sum(self._launch(one) for one in planned_launches(
                self.model, made, want, np.full(len(made), want.last != 0), lengths, ((0, program.graph.layers),)))
        return self._found[key]

    def widths(self, want: Want) -> list[int]:
        """Numbers of rows of a text that a pass need not have fewer than, since those cost as much: of a batch those of
        its programs, which compute all rows that they have.
        """
        program = self.model.program
        if program.batch == 1:
            return list(range(1, program.max_rows + 1))
        return sorted({*(one.max_rows for one in self.model.narrow if want.plain), program.max_rows})

    def row_costs(self, cached: int) -> list[int]:
        """Of greedy passes over 1, 2, 3, .. rows of each text, as many as a launch takes, behind so many cached tokens.
        """
        program = self.model.program
        lengths = [program.graph.prefix + cached] * program.batch
        return [self.of(rows, cached, GREEDY) if program.batch == 1 else self.of_batch(rows, lengths)
                for rows in range(1, program.max_rows + 1)]

    def move(self, rows: int, cached: int) -> int:
        """Of keeping an accepted path, so many of whose rows are not in place; nothing where no path can be so."""
        program = self.model.program
        rows = min(rows, program.max_rows - 2)
        if program.commit is None or rows < 1:
            return 0
        first = program.graph.prefix
        at = first + min(cached, program.max_positions - first - rows - 2)
        key = ("move", rows, at)
        if key not in self._found:
            path = [0, *range(2, rows + 2)]
            step = program.commit.step(at, path)
            assert step is not None, "the path is not in place"
            self._found[key] = self._launch(
                Planned(program.commit, step, program.commit.gathered(at, path)))
        return self._found[key]

    def _launch(self, one: Planned) -> int:
        self._timer.load(one.program.launch(self.model.name, NO_DRAM, one.step.registers))
        result = self._timer.run(timing_only=True, indices=one.gathered, scattered=one.scattered)
        return int(result.cycles) + self.config.host.launch_cycles


def free_rows(cycles: Sequence[float]) -> int:
    """Rows up to which a pass costs no more than :data:`CHEAP` of one row's; ``cycles``: by rows, from one on."""
    return next((rows for rows, one in enumerate(cycles) if one > CHEAP * cycles[0]), len(cycles))
