"""Cycles of a token with a pruned cache, timing alone: a pass over the kept rows, and its share of a selection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.pages import MEANS
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.moves import LISTS
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.selecting import Selection
from gemmule.compiler.search.cost import passes_cost
from gemmule.sim.simulator import Simulator
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.models.pair import Placed

__all__ = ["TokenCycles", "token_cycles"]


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

    @property
    def cycles(self) -> int:
        return self.passing + self.selection // self.every


def token_cycles(placed: Placed, pruning: Pruning | None, context: int) -> TokenCycles:
    """Behind ``context`` cached rows; no ``pruning``: of the whole cache.

    Raises:
        CompileError: more rows than the programs take, or choose among.
    """
    if pruning and pruning.pages:
        return TokenCycles(rows=pruning.pages.rows(context + 1) - 1, passing=_pages_pass(placed, context), selection=0,
                           every=1)
    if pruning is None or context <= pruning.whole:
        return TokenCycles(rows=context, passing=_pass(placed, context), selection=0, every=1)
    assert placed.selection is not None
    kept = pruning.rows(context)
    rows = min(kept + pruning.every // 2, context)
    return TokenCycles(rows=rows, passing=_pass(placed, rows), every=pruning.every,
                       selection=_selection(placed.selection, pruning, context, kept))


def _pass(placed: Placed, context: int) -> int:
    """One row, by the program that a session takes."""
    cached = placed.program.graph.prefix + context
    single = placed.single if placed.single and cached < placed.single.max_positions else None
    return passes_cost(single or placed.program, [(1, cached)])


def _pages_pass(placed: Placed, context: int) -> int:
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
    return int(device.run().cycles)


def _selection(selection: Selection, pruning: Pruning, context: int, kept: int) -> int:
    """With the rows since the last time copied back. The gather's time depends on where rows stand: random ones."""
    select, first = selection.select, selection.select.graph.prefix
    steps: list[tuple[Program, Step, Rows | None]] = [
        (selection.copy, selection.copying(False, first + kept, first + context - pruning.every, pruning.every), None)]
    if pruning.score == "none":
        newest = kept - pruning.first
        steps.append((selection.copy, selection.copying(True, first + context - newest, first + pruning.first, newest),
                      None))
    else:
        rows = Rows.chain([0] * select.max_rows, context - select.max_rows).behind(first)
        steps += [(select, select.choosing(rows, first + context - select.max_rows, kept), rows),
                  (selection.gather, selection.gathering(kept), None)]
    device, host, total = Simulator(select.config, dram_bytes=select.base_address + select.size), select.config.host, 0
    device.write_dram(select.symbols[LISTS][0], _lists(selection, context, kept).tobytes())
    for program, step, passed in steps:
        device.load(program.launch("selection", NO_DRAM, step.registers))
        result = device.run() if passed is None else device.run(timing_only=True, indices=select.gathered(passed))
        total += int(result.cycles) + host.launch_cycles
    return total


def _lists(selection: Selection, context: int, kept: int) -> np.ndarray:
    """Rising rows of each list, uint16, as a selecting pass leaves them."""
    pitch, random = selection.gather.pitch, np.random.default_rng(0)
    lists = np.zeros((selection.select.symbols[LISTS][1] // pitch, pitch // 2), dtype="<u2")
    for row in lists:
        row[:kept] = np.sort(random.choice(context, kept, replace=False)) + selection.select.graph.prefix
    return lists
