"""A second program for steps of one row, beside one whose rows are too many for attention's scores to be kept.

The rows of all heads that share a KV head are one product: with three heads, eight rows are 24, more than the mesh
takes in the time of a load, and their scores are computed twice. Of one row they are 3, and their scores stay in the
accumulator up to some context.
"""

from __future__ import annotations

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.attention.shared import TWICE
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.programs.beside import compile_beside, with_turns
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.search.cost import passes_cost

__all__ = ["best_single"]

LEAST = 256
"""Positions below which keys are few enough to be read twice."""
GAIN = 0.99
"""Cycles, of the other program's, above which a second program is not worth its room."""


def best_single(network: Network, program: ModelProgram, *, base_address: int, values: int = 0) -> ModelProgram | None:
    """Beside ``program``, for one row and as many positions as scores are kept for; None where it gains nothing, or
    cannot share the weights as they are cut. ``values``: as of :func:`gemmule.compiler.compile.compile_network`.
    """
    if program.scores != TWICE or program.max_rows == 1 or program.batch > 1 or network.alike:
        return None
    found = _longest(network, program, values)
    if found is None:
        return None
    context, among = found
    try:
        made = compile_beside(ModelProgram, network, program, rows=1, context=context, answered=True,
                              base_address=base_address, among=among, checked=False)
    except CompileError:
        return None
    steps = [(1, context // 8), (1, context // 4), (1, context // 2)]
    return with_turns(made) if passes_cost(made, steps) < GAIN * passes_cost(program, steps) else None


def _longest(network: Network, program: ModelProgram, values: int) -> tuple[int, list[Choice]] | None:
    """The most positions, halved from the program's own on, for which some mapping keeps scores, and those that do."""
    context = program.max_positions
    while context >= LEAST:
        every = choices(network.graph, program.config, rows=1, batch=1, context=context, tokens=True,
                        cache=program.layout, values=values)
        if kept := [choice for choice in every if choice.mappings[0].attention.keep]:
            return context, kept
        context //= 2
    return None
