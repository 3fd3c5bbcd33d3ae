"""Passes of one sequence that load only the values that a probability meets, behind random rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmule.compiler.ir import Network
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.sim.result import Result
from gemmule.sw.device.choosing import top_k_cycles
from gemmule.sw.device.halves_skipped import halves_skipped
from gemmule.sw.device.values_skipped import values_skipped
from gemmule.sw.kv.selected import row_bytes
from gemmule.sw.workloads.passes import Passes

__all__ = ["ValuesPasses", "saved_bytes"]


def saved_bytes(program: ModelProgram, results: Sequence[Result], cached: int, pairs: int = 0) -> int:
    """Of values, and of lower halves of keys, that passes behind ``cached`` rows did not load; the cache begins with so
    many ``pairs`` of rows of 4 bits.
    """
    attention = program.choice.mappings[0].attention
    ran = program.commands, program.registers_of
    return program.graph.attentions[0].head_dim * sum(
        values_skipped(attention, *ran, result, cached) + halves_skipped(attention, *ran, result, pairs)
        for result in results)


class ValuesPasses(Passes):
    """Of a program that leaves values out. Without data nothing is left out: lists cost time and save none."""

    def __init__(self, program: ModelProgram, dense: ModelProgram, network: Network, values: int, backend: str,
                 seed: int, timing_only: bool) -> None:
        """``dense``: the program that loads all."""
        super().__init__(program, network, backend, seed, timing_only, values=values)
        self.dense = dense
        self.context = self.passed = self.wanted = 0

    def fill_cache(self, length: int) -> None:
        super().fill_cache(length)
        self.context = length

    def run(self, rows: int, wanted: int) -> None:
        super().run(rows, wanted)
        self.passed, self.wanted = rows, wanted

    def pruned(self) -> dict[str, Any]:
        graph, program = self.network.graph, self.program
        bytes_dense = row_bytes(graph) * self.context
        saved = 0 if self.timing_only else saved_bytes(program, self.results, graph.prefix + self.context)
        top_k, exposed = top_k_cycles(self.results, program.commands)
        every, met = self.interpreter.mass.tolist()
        with Passes(self.dense, self.network, "model", 0, True) as dense:
            dense.fill_cache(self.context)
            dense.run(self.passed, self.wanted)
        return {
            "kept_rows_by_layer": [self.context] * len(graph.attentions), "kept_heads_by_layer": None,
            "kv_bytes_dense": bytes_dense,
            "kv_bytes": bytes_dense - saved, "cycles_dense": dense.cycles,
            "selection_cycles": 0, "cycles_with_selection": self.cycles, "topk_cycles": top_k,
            "topk_exposed_cycles": exposed, "dropped_probability": 1 - met / every if every else
            None if self.timing_only else 0.0}
