"""Passes of one sequence with a pruned cache: behind random rows comes a selection, then half an interval of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, Network
from gemmule.compiler.kept import selection_kept
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.place import round_up
from gemmule.compiler.program import Program, Registers, Step
from gemmule.compiler.programs.halves.packed_program import PackedProgram, standing_rows
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.selecting import Selection, compile_selection, selecting_rows
from gemmule.sim.result import Result
from gemmule.sw.device.choosing import DeviceChooser, top_k_cycles
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.kv.selected import choose_rows, row_bytes
from gemmule.sw.workloads.passes import Passes
from gemmule.sw.workloads.pruned import Untimed
from gemmule.sw.workloads.pruned_cycles import (
    SelectionCycles,
    before_that,
    check_context,
    rows_read,
    selection_cycles,
)
from gemmule.sw.workloads.values_passes import ValuesPasses, saved_bytes

__all__ = ["Beside", "PrunedPasses", "beside", "check_pruned", "compiled_for", "passes_of", "selection_beside"]


def check_pruned(pruning: Pruning, *, phase: str, seq: int, rows: int, batch: int, attention: str, fusion: str) -> None:
    """Whether a decoder's pass can have a pruned cache.

    Raises:
        InputError: the options are for others, rows choose pages, or rows are kept that are not there.
    """
    if pruning.pages or pruning.chunks:
        raise InputError(f"--prune: score must be attention, heavy or none here, not {pruning.score}, whose time "
                         "depends on which are chosen: take `gemmule generate --prune`")
    for wrong, option, needed, value in (
            (phase != "decode", "--phase", "decode", phase), (batch != 1, "--batch", "1", str(batch)),
            (attention != "exact", "--attention", "exact", attention), (fusion != "on", "--fusion", "on", fusion)):
        if wrong:
            raise InputError(f"{option} must be {needed} with --prune, not {value}: drop one of the two")
    if pruning.values and not pruning.selects:
        return
    if isinstance(pruning.keep, int) and pruning.keep > seq:
        raise InputError(f"--prune: keep must be at most the {seq:,} rows that are cached, more do not exist, not "
                         f"{pruning.keep:,}: keep fewer, or raise --seq")
    if rows > pruning.every:
        raise InputError(f"--rows must be at most {pruning.every}, as no pass reaches across a selection, not {rows}: "
                         "pass fewer, or raise every in the schedule")


@dataclass(frozen=True)
class Beside:
    """What passes by a schedule need beside their program."""

    selection: Selection | None = None
    """Where rows are chosen."""
    dense: ModelProgram | None = None
    """The program that loads all values, with 8 bits, where theirs does not."""


def compiled_for(pruning: Pruning) -> dict[str, Any]:
    """Options of the program that passes by a schedule take."""
    found = {"values": pruning.values, "packed": pruning.packing}
    return {name: value for name, value in found.items() if value}


def beside(network: Network, name: str, program: ModelProgram, pruning: Pruning | None,
           compiling: Callable[[], ModelProgram], *, keep: bool = True) -> Beside:
    """``compiling``: the program without a schedule; others as of :func:`selection_beside`.

    Raises:
        InputError: the network or the device takes none.
    """
    if pruning is None:
        return Beside()
    return Beside(selection_beside(network, name, program, pruning, keep=keep) if pruning.selects else None,
                  compiling() if compiled_for(pruning) else None)


def selection_beside(network: Network, name: str, program: ModelProgram, pruning: Pruning, *,
                     keep: bool = True) -> Selection:
    """What chooses rows beside a program of few rows. As many choose as generate's passes take, or as many as fit;
    where they count, as many as divide an interval.

    ``name``: of the network; ``keep``: the programs, in the cache.

    Raises:
        InputError: the network or the device takes none.
    """
    config, rows = program.config, selecting_rows(program.graph, program.config, pruning.counts)
    base = program.base_address + round_up(program.size, config.dram.banks * config.dram.row_bytes)
    how: dict[str, Any] = {"first": pruning.first, "last": pruning.last, "base_address": base,
                           "heavy": pruning.counts > 0}
    while True:
        try:
            return (selection_kept(network, name, program, rows=rows, **how) if keep else
                    compile_selection(network, program, rows=rows, **how))
        except CompileError as error:
            if rows == 1:
                raise InputError(f"--prune: {error}") from None
            rows //= 2


def passes_of(program: ModelProgram, network: Network, pruning: Pruning | None, beside: Beside, backend: str,
              seed: int, timing_only: bool) -> Passes:
    """Passes by a schedule, if there is one, of a program compiled for it."""
    how = backend, seed, timing_only
    if pruning and beside.selection:
        return PrunedPasses(program, beside.selection, network, pruning, *how, dense=beside.dense)
    if pruning and pruning.values and beside.dense:
        return ValuesPasses(program, beside.dense, network, pruning.values, *how)
    return Passes(program, network, *how)


class PrunedPasses(Passes):
    """Passes over a kept cache. With data both caches and the answers are compared with the interpreter's.

    Attributes:
        selected: what the selection took.
        dropped: the share of the probability that dropped rows had; None without data, or where nothing was dropped.
    """

    def __init__(self, program: ModelProgram, selection: Selection, network: Network, pruning: Pruning, backend: str,
                 seed: int, timing_only: bool, dense: ModelProgram | None = None) -> None:
        """``dense``: the program that loads all values, where ``program`` does not."""
        select = selection.select
        super().__init__(program, network, backend, seed, timing_only,
                         room=select.base_address + select.size - program.base_address - program.size,
                         values=pruning.values or 1, below=pruning.progressive or 0.0)
        self.dense = dense or program
        self.selection, self.pruning, self.selected = selection, pruning, SelectionCycles()
        self.dropped: float | None = None
        self.context = self.passed = self.wanted = self.pairs = 0
        if not timing_only:
            dram = np.zeros(select.size, dtype=np.uint8)
            selection.fill(dram, network)
            self.device.write_dram(select.base_address, dram.tobytes())

    def fill_cache(self, length: int) -> None:
        """A whole cache of ``length`` random rows, a selection among them, and the rows of half an interval.

        Raises:
            DeviceError: the device faulted.
            InputError: more rows than the device chooses among, or fewer than choose.
        """
        self.context = length
        super().fill_cache(0 if self.prunes else length)
        if not self.prunes:
            return
        check_context(self.selection, self.pruning, length)
        if self.timing_only:
            self.selected = selection_cycles(self.selection, self.pruning, length)
        else:
            self._choose()
        prefix = self.network.graph.prefix
        self.cached, self.position = prefix + rows_read(self.pruning, length), prefix + length
        self.displacement = self.selection.displacement
        self.pairs = self.pruning.pairs(length)

    def _placed(self, registers: Registers) -> Registers:
        if self.pairs and isinstance(self.program, PackedProgram):
            registers = self.program.packed(registers, self.pairs)
        return super()._placed(registers)

    @property
    def prunes(self) -> bool:
        """Whether a cache of so many rows is pruned."""
        return self.context > self.pruning.whole

    def _choose(self) -> None:
        """By the device and by the interpreter."""
        pruning, length, graph = self.pruning, self.context, self.network.graph
        model = InterpretedModel(TARGET, self.network, Untimed(graph), None)  # type: ignore[arg-type]
        golden = InterpretedChooser(model, pruning, self.selection.select.max_rows)
        chooser = DeviceChooser(_Launches(self), self.selection)
        before, stand = before_that(pruning, length), pruning.stand(length)
        counted = pruning.counted(before[0]) if before else 0  # with nothing in the sums
        self._fill(golden.whole, before[0] if before else length)
        if before:
            self._fill(golden.kept, before[1] + length - before[0], self.selection.displacement)
        tokens = self.random.integers(0, graph.vocab, length).tolist()
        cycles = choose_rows(chooser, pruning, tokens, before, counted)
        choose_rows(golden, pruning, tokens, before, counted)
        self.selected = SelectionCycles(cycles, chooser.top_k_cycles, chooser.top_k_exposed)
        self.dropped = golden.dropped[-1] if golden.dropped else None
        pairs = pruning.pairs(length)
        self.equal &= self._same(golden.whole, 0) and self._same(golden.kept, self.selection.displacement, pairs)
        self.equal &= not golden.sums or np.array_equal(self.selection.select.running_sums(
            self.device.read_dram, pruning.counted(length)), np.stack([*golden.sums.values()]))
        self.cache = golden.kept
        behind = self.cache.length() - self.network.graph.prefix - stand
        self._fill(self.cache, rows_read(pruning, length) - stand,
                   self.selection.displacement - behind * self.program.layout.row)

    def _same(self, cache: Cache, by: int, pairs: int = 0) -> bool:
        """Whether the rows of a cache, but for the constant ones, are those ``by`` bytes from the program's own, where
        the first ``pairs`` pairs have 4 bits.
        """
        layout, prefix, halves = self.program.layout, self.network.graph.prefix, self.pruning.four_of
        begin = self.program.symbols[CACHE][0] + prefix * layout.row + by
        for number, node in enumerate(self.network.graph.attentions):
            for part, rows in enumerate(cache.contents(node.name)):
                by_head = rows[prefix:].reshape(-1, node.kv_heads, node.head_dim)
                for first, some in standing_rows(by_head, pairs, halves, part):
                    for head in range(node.kv_heads if len(some) else 0):
                        at = begin + layout.offset(number, head, part) + first * layout.row
                        size = (len(some) - 1) * layout.row + node.head_dim
                        found = np.frombuffer(self.device.read_dram(at, size), dtype=np.int8)
                        found = np.lib.stride_tricks.as_strided(found, (len(some), node.head_dim), (layout.row, 1))
                        if not np.array_equal(found, some[:, head]):
                            return False
        return True

    def run(self, rows: int, wanted: int) -> None:
        super().run(rows, wanted)
        self.passed, self.wanted = rows, wanted

    def pruned(self) -> dict[str, Any]:
        graph, pruning, context = self.network.graph, self.pruning, self.context
        size, before = row_bytes(graph), before_that(pruning, context)
        counted = pruning.counted(before[0]) if before else 0
        chooses = sum(pruning.selecting(context, counted, self.selection.select.max_rows)) if self.prunes else 0
        kept = pruning.rows(context) if self.prunes else context
        top_k, exposed = top_k_cycles(self.results, self.program.commands) if pruning.values else (0, 0)
        with Passes(self.dense, self.network, "model", 0, True) as dense:
            dense.fill_cache(context)
            dense.run(self.passed, self.wanted)
        return {
            "kept_rows_by_layer": [kept] * len(graph.attentions), "kept_heads_by_layer": None,
            "kv_bytes_dense": size * context,
            "kv_bytes": size * rows_read(pruning, context) + self._share(size * chooses) - self._saved()
                        - (pruning.spared(context, size) if self.prunes else 0),
            "cycles_dense": dense.cycles, "selection_cycles": self.selected.cycles,
            "cycles_with_selection": self.cycles + self._share(self.selected.cycles),
            "topk_cycles": self.selected.top_k + top_k,
            "topk_exposed_cycles": self.selected.top_k_exposed + exposed,
            "dropped_probability": self.dropped}

    def _saved(self) -> int:
        """Bytes of values that the passes did not load."""
        return 0 if self.timing_only else saved_bytes(self.program, self.results, self.cached - self.passed, self.pairs)

    def _share(self, amount: int) -> int:
        """Of what a selection takes, the part of a pass."""
        return amount * self.passed // self.pruning.every


@dataclass(frozen=True)
class _Launches:
    """Launches of a selection with data (:class:`gemmule.sw.device.choosing.Launcher`)."""

    passes: PrunedPasses

    @property
    def first(self) -> int:
        return self.passes.network.graph.prefix

    def run(self, program: Program, step: Step) -> Result:
        return self.passes.run_program(program, step)

    def cost(self, result: Result) -> int:
        return int(result.cycles) + self.passes.device.config.host.launch_cycles
