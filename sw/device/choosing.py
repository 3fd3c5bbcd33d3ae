"""Chooses rows of a text's cache on the device: selecting passes, gathers, and copies between the two caches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.program import Program, Step
from gemmule.compiler.programs.selecting import Selection
from gemmule.isa import CONTROL, Command, SOp, Unit
from gemmule.sim.result import Result

__all__ = ["DeviceChooser", "top_k_cycles"]


def top_k_cycles(results: Iterable[Result], commands: Sequence[Command]) -> tuple[int, int]:
    """Cycles of TOP_K commands, and those of them in which no command of another unit runs."""
    chooses = np.array([command.unit == Unit.SELECT and command.op == SOp.TOP_K for command in commands])
    others = np.array([command.unit not in (CONTROL, Unit.SELECT) for command in commands])
    every = exposed = 0
    for result in results:
        ran = result.issue >= 0
        begin, end = result.issue[ran], result.finish[ran]
        beside, chosen = others[result.places[ran]], chooses[result.places[ran]]
        for first, last in zip(begin[chosen].tolist(), end[chosen].tolist(), strict=True):
            covered = np.zeros(last - first, dtype=bool)
            for i in np.flatnonzero(beside & (begin < last) & (end > first)):
                covered[max(0, begin[i] - first):max(0, end[i] - first)] = True
            every += last - first
            exposed += int((~covered).sum())
    return every, exposed


class Launcher(Protocol):
    """A model on a device, on the whole cache."""

    @property
    def first(self) -> int:
        """Constant rows with which the cache begins."""

    def run(self, program: Program, step: Step) -> Result:
        """One launch, charged."""

    def cost(self, result: Result) -> int:
        """Cycles of a launch."""


class DeviceChooser:
    """Of a model with its programs beside it (:class:`gemmule.sw.kv.selected.Chooser`)."""

    def __init__(self, model: Launcher, selection: Selection) -> None:
        self.model, self.selection = model, selection
        self.observed = selection.select.max_rows
        self.most = selection.select.max_positions - model.first
        self.top_k_cycles = self.top_k_exposed = 0
        self.pairs = 0

    def on(self, model: Any, *, kept: bool) -> Any:
        return model.displaced(self.selection.displacement, self.pairs) if kept else model.displaced(0)

    def count(self, tokens: Sequence[int], before: int) -> int:
        rows, select = Rows.chain(tokens, before).behind(self.model.first), self.selection.select
        return self._run(select, select.counting(rows, self.model.first + before))

    def choose(self, tokens: Sequence[int], before: int, kept: int, pairs: int = 0, behind: int = 0) -> int:
        rows = Rows.chain(tokens, before).behind(self.model.first)
        select = self.selection.select
        result = self.model.run(select, select.choosing(rows, self.model.first + before, kept, pairs, behind))
        found, exposed = top_k_cycles([result], select.commands)
        self.top_k_cycles += found
        self.top_k_exposed += exposed
        self.pairs, selection = pairs, self.selection
        cycles = self.model.cost(result) + self._run(selection.gather, selection.gathering(kept - 2 * pairs, pairs))
        if pairs and selection.pack:
            cycles += self._run(selection.pack, selection.packing(pairs))
        return cycles

    def move(self, source: int, target: int, rows: int, *, to_kept: bool) -> int:
        first = self.model.first
        return self._run(self.selection.copy, self.selection.copying(to_kept, first + source, first + target, rows))

    def _run(self, program: Program, step: Step) -> int:
        return self.model.cost(self.model.run(program, step))
