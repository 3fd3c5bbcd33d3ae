"""Search: the prefill that stands beside a program, its rows and its mapping by the cycles of prompts."""

from __future__ import annotations

from functools import partial

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.attention.kv_layout import attention_of
from gemmule.compiler.kernels.attention.shared import attention_rows
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.programs.beside import with_turns
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram, compile_prefill
from gemmule.compiler.search.cost import prompt_cost
from gemmule.compiler.search.decoder import best_choice

__all__ = ["best_prefill", "prefill_rows"]


def prefill_rows(program: ModelProgram) -> list[int]:
    """Rows of the prefills that are compared: twice the program's, and so on; its own where it has as many as can be.

    None beside one of a single sequence and a pool, and where no prompt is longer than a pass.
    """
    config, longest = program.config, program.max_positions - 1
    if (program.pool and program.batch == 1) or longest <= program.max_rows:
        return []
    most = min(longest, min(config.stat_rows, 8 * config.dim) // attention_rows(attention_of(program.graph), 1))
    return [program.max_rows << i for i in range(1, most.bit_length()) if program.max_rows << i <= most] or [
        program.max_rows]


def best_prefill(network: Network, program: ModelProgram, *, effort: int, base_address: int,
                 rows: int | None = None, values: int = 0) -> PrefillProgram | None:
    """The prefill of ``rows`` new rows, by default of as many as take the fewest cycles; None where none takes fewer.

    ``effort``: mappings that are compared then; 1: the first that fits. ``values``: as of
    :func:`gemmule.compiler.compile.compile_network`.

    Raises:
        CompileError: ``rows`` are given, and do not fit.
    """
    if rows is None:
        first = _cheapest(network, program, base_address, values)
        if first is None or effort == 1:
            return first and with_turns(first)
        rows = first.max_rows
    make = partial(compile_prefill, network, program, rows=rows, base_address=base_address, values=values)

    def tried(choice: Choice) -> ModelProgram:
        return make(among=[choice], checked=False)

    among = best_choice(choices(
        program.graph, program.config, rows=rows, batch=1, context=program.max_positions, tokens=True,
        pool=program.pool, cache=program.layout, values=values), tried, prompt_cost, effort) if effort > 1 else None
    return make(among=among)


def _cheapest(network: Network, program: ModelProgram, base_address: int, values: int) -> PrefillProgram | None:
    """The prefill with the fewest cycles, each by its first mapping; None: the program itself takes no more."""
    found: list[tuple[int, PrefillProgram]] = []
    for rows in prefill_rows(program):
        try:
            made = compile_prefill(network, program, rows=rows, base_address=base_address, checked=False,
                                   values=values)
        except CompileError:  # more rows fit even less
            break
        found.append((prompt_cost(made), made))
    cost, best = min(found, key=lambda one: one[0], default=(0, None))
    return best if best and cost < prompt_cost(program) else None
