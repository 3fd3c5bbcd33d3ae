"""What passes of a model left out of the values of its cache, and what choosing took."""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.program import Program, Step
from gemmule.compiler.programs.general_program import GeneralProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.values_skipped import values_skipped
from gemmule.sim.result import Result
from gemmule.sw.device.choosing import top_k_cycles

__all__ = ["ValueReads"]


@dataclass
class ValueReads:
    """Sums over the launches of a model whose probabilities decide which values are loaded."""

    saved: int = 0
    """Bytes of values that were not loaded."""
    top_k_cycles: int = 0
    top_k_exposed: int = 0
    """Of these, with no command of another unit under way."""

    def add(self, model: ModelProgram, program: Program, step: Step, result: Result) -> None:
        """A launch of a model's own program or of one beside it."""
        if not isinstance(program, ModelProgram | GeneralProgram):
            return
        own = program if isinstance(program, ModelProgram) else model
        cached = int(step.registers.lengths[LengthReg.CONTEXT])
        rows = values_skipped(own.choice.mappings[0].attention, program.commands, program.registers_of, result, cached)
        self.saved += rows * own.graph.attentions[0].head_dim
        found, exposed = top_k_cycles([result], program.commands)
        self.top_k_cycles += found
        self.top_k_exposed += exposed

    def since(self, before: ValueReads) -> ValueReads:
        """What was added to ``before``."""
        return ValueReads(self.saved - before.saved, self.top_k_cycles - before.top_k_cycles,
                          self.top_k_exposed - before.top_k_exposed)

    def plus(self, other: ValueReads) -> ValueReads:
        """The sums of both."""
        return ValueReads(self.saved + other.saved, self.top_k_cycles + other.top_k_cycles,
                          self.top_k_exposed + other.top_k_exposed)
