"""Adds up what launches left out of the values of a cache, and what choosing took."""

from __future__ import annotations

from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.program import Program, Step
from gemmule.compiler.programs.general_program import GeneralProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.sim.result import Result
from gemmule.sw.device.choosing import top_k_cycles
from gemmule.sw.device.halves_skipped import halves_skipped
from gemmule.sw.device.values_skipped import values_skipped
from gemmule.sw.kv.saved_values import ValueReads

__all__ = ["add_launch"]


def add_launch(reads: ValueReads, model: ModelProgram, program: Program, step: Step, result: Result,
               pairs: int = 0) -> None:
    """A launch of a model's own program or of one beside it; its cache begins with so many pairs of rows of 4 bits."""
    if not isinstance(program, ModelProgram | GeneralProgram):
        return
    own = program if isinstance(program, ModelProgram) else model
    cached = int(step.registers.lengths[LengthReg.CONTEXT])
    rows = values_skipped(own.choice.mappings[0].attention, program.commands, program.registers_of, result, cached)
    found, exposed = top_k_cycles([result], program.commands)
    rows += halves_skipped(own.choice.mappings[0].attention, program.commands, program.registers_of, result, pairs)
    reads.saved += rows * own.graph.attentions[0].head_dim
    reads.top_k_cycles += found
    reads.top_k_exposed += exposed
