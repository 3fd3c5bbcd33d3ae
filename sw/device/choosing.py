"""Chooses rows of a text's cache on the device: selecting passes, gathers, and copies between the two caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.program import Program, Step
from gemmule.compiler.programs.selecting import Selection
from gemmule.isa import Command, SOp, Unit
from gemmule.sim.result import Result

__all__ = ["DeviceChooser", "top_k_cycles"]


def top_k_cycles(result: Result, commands: Sequence[Command]) -> tuple[int, int]:
    """Cycles of a launch in which TOP_K was under way, and of these the ones with no command of another unit."""
    chosen = np.array([one.unit is Unit.SELECT and one.op == SOp.TOP_K for one in commands], dtype=bool)
    mine = chosen[result.places] & (result.issue >= 0)
    others = (result.units != Unit.SELECT) & (result.issue >= 0)
    busy = np.zeros(int(result.cycles) + 2, dtype=np.int32)
    np.add.at(busy, result.issue[others], 1)
    np.add.at(busy, result.finish[others], -1)
    alone = np.concatenate([[0], np.cumsum(np.cumsum(busy) == 0)])
    begin, end = result.issue[mine], result.finish[mine]
    return int((end - begin).sum()), int((alone[end] - alone[begin]).sum())


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

    def on(self, model: Any, *, kept: bool) -> Any:
        return model.displaced(self.selection.displacement if kept else 0)

    def choose(self, tokens: Sequence[int], before: int, kept: int) -> int:
        rows = Rows.chain(tokens, before).behind(self.model.first)
        select = self.selection.select
        result = self.model.run(select, select.choosing(rows, self.model.first + before, kept))
        found, exposed = top_k_cycles(result, select.commands)
        self.top_k_cycles += found
        self.top_k_exposed += exposed
        return self.model.cost(result) + self._run(self.selection.gather, self.selection.gathering(kept))

    def move(self, source: int, target: int, rows: int, *, to_kept: bool) -> int:
        first = self.model.first
        return self._run(self.selection.copy, self.selection.copying(to_kept, first + source, first + target, rows))

    def _run(self, program: Program, step: Step) -> int:
        return self.model.cost(self.model.run(program, step))
