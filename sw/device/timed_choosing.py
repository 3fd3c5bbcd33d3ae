"""Chooses rows by the integer interpreter and tells what the device's launches take: its lists, copies and cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.moves import LISTS
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.chosen.chunks import ChunkingProgram
from gemmule.compiler.programs.selecting import Selection
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.choosing import top_k_cycles
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.kv.pruning import Pruning

__all__ = ["TimedChooser"]


class TimedChooser(InterpretedChooser):
    """Of a model that is timed: the rows and cycles of :class:`gemmule.sw.device.choosing.DeviceChooser`."""

    def __init__(self, model: InterpretedModel, selection: Selection, pruning: Pruning) -> None:
        """``model``: on the whole cache; ``pruning``: says which rows are always kept, as the selection has it."""
        super().__init__(model, pruning, selection.select.max_rows)
        self.selection, self.most = selection, selection.select.max_positions - model.first
        self.top_k_cycles = self.top_k_exposed = 0
        self.lists: Simulator | None = None
        """A device whose memory has nothing but the lists, by which a gather loads."""
        self.listed: dict[str, np.ndarray] = {}
        """Rows of the last lists, by attention node  # int64 [KV heads, kept]."""

    def on(self, model: Any, *, kept: bool) -> Any:
        made = super().on(model, kept=kept)
        made.displacement = self.selection.displacement if kept else 0
        return made

    def count(self, tokens: Sequence[int], before: int) -> int:
        super().count(tokens, before)
        rows, select = Rows.chain(tokens, before).behind(self.model.first), self.selection.select
        step = select.counting(rows, self.model.first + before)
        return self.model.cost(self.model.time(select, step, select.gathered(rows)))

    def choose(self, tokens: Sequence[int], before: int, kept: int, pairs: int = 0, behind: int = 0) -> int:
        """Raises ValueError: rows of 4 bits are packed by the device alone."""
        if pairs:
            raise ValueError("a timed selection packs no rows of 4 bits: use a schedule without four and progressive")
        super().choose(tokens, before, kept, behind=behind)
        rows, select = Rows.chain(tokens, before).behind(self.model.first), self.selection.select
        step = select.choosing(rows, self.model.first + before, kept, behind=behind)
        gathered = select.gathered(rows)
        if isinstance(select, ChunkingProgram):
            gathered |= select.listing(step, self.listed)
        result = self.model.time(select, step, gathered)
        found, exposed = top_k_cycles([result], select.commands)
        self.top_k_cycles += found
        self.top_k_exposed += exposed
        return self.model.cost(result) + self._gather(kept)

    def move(self, source: int, target: int, rows: int, *, to_kept: bool) -> int:
        super().move(source, target, rows, to_kept=to_kept)
        first, copy = self.model.first, self.selection.copy
        step = self.selection.copying(to_kept, first + source, first + target, rows)
        return self.model.cost(self.model.time(copy, step, {}))

    def _keep(self, lists: dict[str, np.ndarray]) -> None:
        super()._keep(lists)
        self.listed = lists
        select, pitch = self.selection.select, self.selection.gather.pitch
        if self.lists is None:
            self.lists = Simulator(select.config, dram_bytes=select.base_address + select.size)
        every = np.concatenate([lists[node.name] for node in select.graph.attentions]) + self.model.first
        found = np.zeros((len(every), pitch // 2), dtype="<u2")
        found[:, :every.shape[1]] = every
        self.lists.write_dram(select.symbols[LISTS][0], found.tobytes())

    def _gather(self, kept: int) -> int:
        gather = self.selection.gather
        assert self.lists is not None
        self.lists.load(gather.launch(self.model.name, NO_DRAM, self.selection.gathering(kept).registers))
        result = self.lists.run()
        self.model.charge(gather, result)
        return self.model.cost(result)
