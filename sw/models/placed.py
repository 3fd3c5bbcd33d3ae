"""A compiled network and what stands in DRAM for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Network
from gemmule.compiler.programs.greedy_loop import GreedyLoop
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram
from gemmule.compiler.programs.selecting import Selection

__all__ = ["Placed"]


@dataclass(frozen=True)
class Placed:
    """A network, compiled, and what stands in DRAM from its ``base_address`` on (uint8), other programs included."""

    network: Network
    program: ModelProgram
    dram: np.ndarray
    loop: GreedyLoop | None = None
    """Of several greedy steps, if wanted."""
    prefill: PrefillProgram | None = None
    """Of a prompt's rows, if wanted and where it pays."""
    narrow: tuple[ModelProgram, ...] = ()
    """Of fewer rows or positions, where they pay and passes are of one text: the first that takes a pass is best."""
    selection: Selection | None = None
    """Of what chooses rows of the cache, if wanted."""
    sampled: ModelProgram | None = None
    """Of passes that leave rows for another network and give back logits; the general program leaves none."""
    values: int = 0
    """Least probability that meets a value; 0: all values are loaded."""
