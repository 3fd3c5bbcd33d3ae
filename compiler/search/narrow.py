"""Programs for fewer rows or shorter contexts beside one whose rows are too many for attention's scores to be kept.

The rows of all heads that share a KV head are one product: with three heads, eight rows are 24, more than the mesh
takes in the time of a load, and behind a long context most of their scores are computed twice. Fewer rows, or the same
rows behind fewer cached ones, have scores that stay in the accumulator; where these do not, no more rows than the mesh
has lanes still take no longer than the loads, and more rows go by halves, whose scores stay behind twice as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Graph, Network
from gemmule.compiler.kernels.attention.kv_layout import attention_of
from gemmule.compiler.kernels.attention.shared import KEPT
from gemmule.compiler.kernels.attention.split import BLOCK, SplitMapping
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.place import round_up
from gemmule.compiler.programs.beside import compile_beside, with_turns
from gemmule.compiler.programs.halves.packed_program import PackedProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.search.cost import cost, passes_cost
from gemmule.compiler.search.decoder import best_choice, default_effort

__all__ = ["chosen_program", "narrow_programs"]

LEAST = 256
"""Positions below which keys are few enough to be read twice."""
GAIN = 0.99
"""Cycles, of the program's that would do it otherwise, above which a further one is not worth its room."""


def narrow_programs(network: Network, program: ModelProgram, *, base_address: int,
                    values: int = 0) -> tuple[ModelProgram, ...]:
    """Beside ``program`` from ``base_address`` on, one behind the other, each for some rows and positions; those that
    :func:`chosen_program` takes first come first. None where they gain nothing, or cannot share the weights as they
    are cut. ``values``: as of :func:`gemmule.compiler.compile.compile_network`.
    """
    if program.batch > 1:
        return tuple(_narrow_batches(network, program, base_address))
    if program.scores == KEPT or program.max_rows == 1 or program.pool or network.alike:
        return ()
    found: list[ModelProgram] = []
    dram = program.config.dram
    for wanted in _wanted(network.graph, program, values):
        try:
            made = compile_beside(type(program), network, program, rows=wanted.rows, context=wanted.context,
                                  answered=True, base_address=base_address, among=wanted.among, checked=False)
        except CompileError:
            continue
        other = chosen_program(found, wanted.rows, wanted.context - wanted.rows) or program
        if wanted.least:
            made = replace(made, least_cached=_least(made, other, wanted.least))
        if _gains(made, other):
            made = with_turns(made)
            found.append(made)
            base_address += round_up(made.size, dram.banks * dram.row_bytes)
    return tuple(found)


def _narrow_batches(network: Network, program: ModelProgram, base_address: int) -> Iterator[ModelProgram]:
    """Of a batch, half as many rows of each text, a quarter and so on, up to those that all fill the mesh at most.

    The fewest rows first; as many mappings are tried as of a program of its own, so that none of these is slower.
    """
    kind, dram, made = type(program), program.config.dram, list[ModelProgram]()
    rows = program.max_rows
    while rows > 1 and rows * program.batch > program.config.dim:
        rows //= 2

        def beside(among: Sequence[Choice] | None, rows: int = rows, base: int = base_address, *,
                   checked: bool = False) -> ModelProgram:
            return compile_beside(kind, network, program, rows=rows, context=program.max_positions, answered=True,
                                  base_address=base, batch=program.batch, among=among, checked=checked)

        try:
            best = best_choice(choices(network.graph, program.config, rows=rows, batch=program.batch,
                                       context=program.max_positions, tokens=True, pool=program.pool,
                                       cache=program.layout), lambda choice: beside([choice]), cost, effort) \
                if (effort := default_effort(network.graph)) > 1 else None
            one = beside(best, checked=True)
        except CompileError:
            break
        made.append(one)
        base_address += round_up(one.size, dram.banks * dram.row_bytes)
    yield from reversed(made)


def chosen_program(programs: Sequence[ModelProgram], rows: int, cached: int) -> ModelProgram | None:
    """The first of :func:`narrow_programs` that takes so many rows behind so many cached ones; None: none does."""
    return next((one for one in programs if rows <= one.max_rows
                 and one.least_cached <= cached <= one.max_positions - rows), None)


@dataclass(frozen=True)
class _Wanted:
    """A program to be made."""

    rows: int
    context: int
    least: int
    """Positions up to which another one of as many rows does."""
    among: list[Choice]


def _wanted(graph: Graph, program: ModelProgram, values: int) -> Iterator[_Wanted]:
    """1, 2, 4 .. rows behind as many positions as their scores are kept for, the program's own, halved. Then for all
    positions a row alone, and as many rows as fill the mesh; then more rows, by halves of them.
    """
    rows, context, whole, kept = 1, program.max_positions, 0, dict[int, int]()
    while rows <= program.max_rows and context >= LEAST:
        if among := _kept(graph, program, rows, context, values):
            yield _Wanted(rows, context, 0, among)
            whole = rows if context == program.max_positions else whole
            kept[rows] = context
            rows *= 2
        else:
            context //= 2
    node = attention_of(graph)
    for rows in sorted({1, program.config.dim * node.kv_heads // node.heads}):
        if whole < rows < program.max_rows:
            yield _Wanted(rows, program.max_positions, 0, _choices(
                graph, program, rows, program.max_positions, values))
    for rows, least in kept.items():
        yield from _split(graph, program, rows, least, values)


def _kept(graph: Graph, program: ModelProgram, rows: int, context: int, values: int) -> list[Choice]:
    return [choice for choice in _choices(graph, program, rows, context, values)
            if choice.mappings[0].attention.keep and not isinstance(choice.mappings[0].attention, SplitMapping)]


def _split(graph: Graph, program: ModelProgram, rows: int, least: int, values: int) -> Iterator[_Wanted]:
    """By halves of the rows, behind as many positions more as fit."""
    node = attention_of(graph)
    for blocks in range(program.max_positions // BLOCK + 1, least // BLOCK, -1):
        context = min(program.max_positions, graph.prefix + blocks * BLOCK + 1)
        if context > least and SplitMapping.of(node, program.config, rows, context, program.layout):
            yield _Wanted(rows, context, least, [
                choice for choice in _choices(graph, program, rows, context, values)
                if choice.apart and isinstance(choice.mappings[0].attention, SplitMapping)])
            return


def _choices(graph: Graph, program: ModelProgram, rows: int, context: int, values: int) -> list[Choice]:
    return choices(graph, program.config, rows=rows, batch=1, context=context, tokens=True, cache=program.layout,
                   values=values, packed=program.packing if isinstance(program, PackedProgram) else None)


def _least(made: ModelProgram, other: ModelProgram, least: int) -> int:
    """Cached rows, at least so many, from which on it takes fewer cycles than the other program."""
    rows, most = made.max_rows, made.max_positions - made.max_rows
    for cached in range(most, least, -BLOCK):
        if passes_cost(made, [(rows, cached)]) >= passes_cost(other, [(rows, cached)]):
            return cached + 1
    return least


def _gains(made: ModelProgram, other: ModelProgram) -> bool:
    """Against what would do its passes."""
    rows, least, more = made.max_rows, made.least_cached, made.max_positions - made.least_cached
    steps = [(rows, max(0, least + more // part - rows)) for part in (8, 4, 2, 1)]
    return passes_cost(made, steps) < GAIN * passes_cost(other, steps)
