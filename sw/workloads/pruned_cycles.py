"""Cycles of a token with a pruned cache, timing alone: a pass over the kept rows, and its share of a selection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.chosen.pages import MEANS
from gemmule.compiler.kernels.attention.halves.packing import PAIR_LISTS, pair_half
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.moves import LISTS
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.chosen.chunks import ChunkingProgram
from gemmule.compiler.programs.halves.packed_program import PackedProgram
from gemmule.compiler.programs.selecting import Selection
from gemmule.compiler.search.cost import passes_cost
from gemmule.compiler.search.narrow import chosen_program
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.choosing import DeviceChooser, top_k_cycles
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.kv.selected import choose_rows
from gemmule.sw.models.placed import Placed

__all__ = ["SelectionCycles", "TokenCycles", "before_that", "check_context", "copy_cycles", "rows_read",
           "selection_cycles", "token_cycles"]


@dataclass(frozen=True)
class SelectionCycles:
    """Of a selection."""

    cycles: int = 0
    """Of its launches, host work included; 0: there is none."""
    top_k: int = 0
    """Of the select unit's TOP_K."""
    top_k_exposed: int = 0
    """Of these, with no command of another unit under way."""


@dataclass(frozen=True, kw_only=True)
class TokenCycles:
    """Of one generated token."""

    rows: int
    """Cached rows that its pass reads: half an interval behind a selection."""
    passing: int
    """Cycles of the pass, of one row."""
    selection: int
    """Of a selection, host work included; 0: there is none."""
    every: int
    """Tokens that share it."""
    top_k: int = 0
    """Cycles of TOP_K in the selection, or in the pass where rows choose pages."""
    top_k_exposed: int = 0
    """Of these, with no command of another unit under way."""

    @property
    def cycles(self) -> int:
        return self.passing + self.selection // self.every


def rows_read(pruning: Pruning, context: int) -> int:
    """Cached rows that a pass reads half an interval behind a selection among ``context`` ones."""
    if context <= pruning.whole:
        return context
    return min(pruning.stand(context) + pruning.every // 2, context)


def before_that(pruning: Pruning, context: int) -> tuple[int, int] | None:
    """Rows of the text at the selection before, and how many those that it kept take; None: there was none."""
    return (context - pruning.every, pruning.stand(context)) if context > pruning.every else None


def check_context(selection: Selection, pruning: Pruning, context: int) -> None:
    """Whether a device can choose among so many cached rows.

    Raises:
        InputError: there are more than it chooses among, or fewer than choose.
    """
    select = selection.select
    most = select.max_positions - select.graph.prefix
    if pruning.score == "none" or select.max_rows <= context <= most:
        return
    if context > most:
        raise InputError(f"--prune: {select.config.name} chooses among at most {most:,} cached rows, not {context:,}: "
                         "take a configuration with more select_keys and list_entries, or score: none")
    raise InputError(f"--prune: the last {select.max_rows} rows choose, and only {context} are cached: cache more, or "
                     "raise whole in the schedule")


def token_cycles(placed: Placed, pruning: Pruning | None, context: int) -> TokenCycles:
    """Behind ``context`` cached rows; no ``pruning``: of the whole cache.

    Raises:
        CompileError: more rows than the programs take.
        InputError: more than they choose among.
    """
    if pruning and pruning.pages:
        result = _pages_pass(placed, context)
        found, exposed = top_k_cycles([result], placed.program.commands)
        return TokenCycles(rows=pruning.pages.rows(context + 1) - 1, passing=int(result.cycles), selection=0, every=1,
                           top_k=found, top_k_exposed=exposed)
    if pruning is None or context <= pruning.whole:
        return TokenCycles(rows=context, passing=_pass(placed, context), selection=0, every=1)
    assert placed.selection is not None
    rows = rows_read(pruning, context)
    chosen = selection_cycles(placed.selection, pruning, context)
    return TokenCycles(rows=rows, passing=_pass(placed, rows, pruning.pairs(context)), every=pruning.every,
                       selection=chosen.cycles, top_k=chosen.top_k, top_k_exposed=chosen.top_k_exposed)


def _pass(placed: Placed, context: int, pairs: int = 0) -> int:
    """One row, by the program that a session takes; of the cached ones ``pairs`` pairs have 4 bits."""
    cached = placed.program.graph.prefix + context
    beside = placed.program.beside(pairs) if isinstance(placed.program, PackedProgram) else 0
    program = chosen_program(placed.narrow, 1, cached + beside) or placed.program
    return passes_cost(program, [(1, cached)], pairs)


def selection_cycles(selection: Selection, pruning: Pruning, context: int) -> SelectionCycles:
    """Of a selection among ``context`` rows, those since the last one copied back.

    The gather's time depends on where rows stand: random ones.

    Raises:
        InputError: as of :func:`check_context`.
    """
    check_context(selection, pruning, context)
    chooser = DeviceChooser(_Timed(selection, context, pruning.rows(context)), selection)
    before = before_that(pruning, context)
    cycles = choose_rows(chooser, pruning, [0] * context, before, pruning.counted(before[0]) if before else 0)
    return SelectionCycles(cycles, chooser.top_k_cycles, chooser.top_k_exposed)


def copy_cycles(selection: Selection, source: int, target: int, rows: int) -> int:
    """Of ``rows`` rows of the whole cache, from ``source`` on, to the other one, host work included."""
    chooser = DeviceChooser(_Timed(selection, source + rows, 0), selection)
    return chooser.move(source, target, rows, to_kept=True)


def _pages_pass(placed: Placed, context: int) -> Result:
    """One row with the arithmetic: its time depends on which pages it chooses. Keys and representatives are random."""
    program, random = placed.program, np.random.default_rng(0)
    device = Simulator(program.config, dram_bytes=program.base_address + program.size)
    device.write_dram(program.base_address, placed.dram[:program.size].tobytes())
    for region in (CACHE, MEANS):
        address, size = program.symbols[region]
        device.write_dram(address, random.integers(0, 256, size, dtype=np.uint8).tobytes())
    rows = Rows.chain([0], program.graph.prefix + context)
    step = program.step(rows, 1)
    for address, content in step.inputs:
        device.write_dram(address, content.tobytes())
    device.load(program.launch("pass", NO_DRAM, step.registers))
    return device.run()


class _Timed:
    """Launches of a selection on a device without data, but for the lists (:class:`gemmule.sw.device.choosing`)."""

    def __init__(self, selection: Selection, context: int, kept: int) -> None:
        self.select, select = selection.select, selection.select
        self.first = select.graph.prefix
        self.device = Simulator(select.config, dram_bytes=select.base_address + select.size)
        page = select.pages.page if isinstance(select, ChunkingProgram) else 1
        lists = self._lists(selection.gather.pitch, context, kept, page=page)
        self.device.write_dram(select.symbols[LISTS][0], lists.tobytes())
        if selection.pack:
            pairs = self._lists(pair_half(select.config, selection.pack.max_positions), context, kept // 2, PAIR_LISTS)
            self.device.write_dram(select.symbols[PAIR_LISTS][0], pairs.tobytes())
        self.rows = Rows.chain([0] * select.max_rows, max(0, context - select.max_rows)).behind(self.first)

    def run(self, program: Program, step: Step) -> Result:
        self.device.load(program.launch("selection", NO_DRAM, step.registers))
        if program is not self.select:
            return self.device.run()
        return self.device.run(timing_only=True, indices=self.select.gathered(self.rows))

    def cost(self, result: Result) -> int:
        return int(result.cycles) + self.select.config.host.launch_cycles

    def _lists(self, pitch: int, context: int, kept: int, region: str = LISTS, page: int = 1) -> np.ndarray:
        """Rising rows of each list, uint16, as a selecting pass leaves them; in chunks of ``page``."""
        random = np.random.default_rng(0)
        lists = np.zeros((self.select.symbols[region][1] // pitch, pitch // 2), dtype="<u2")
        for row in lists:
            chunks = np.sort(random.choice(context // page, kept // page, replace=False))
            row[:kept // page * page] = (chunks[:, None] * page + np.arange(page)).reshape(-1) + self.first
        return lists
