"""A second program that shares another one's weights, parameters and cache, for passes that it suits better.

It stands anywhere in the same DRAM and has what both need at the other program's places; its own are commands, tokens,
positions, bitmaps and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.contents import Contents
from gemmule.compiler.layout import Regions
from gemmule.compiler.passes.emit import base_registers, emit, fixed_bases, with_straight_waits
from gemmule.compiler.passes.fit import fit, pass_bounds, silent_commands
from gemmule.compiler.passes.fuse import Operator
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.passes.notes import Notes
from gemmule.compiler.passes.turns import place_turn_waits
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.isa import encode_program

__all__ = ["compile_beside", "with_turns"]

Kind = TypeVar("Kind", bound=ModelProgram)


def compile_beside(kind: type[Kind], network: Network, program: ModelProgram, operators: Sequence[Operator], *,
                   rows: int, context: int, answered: bool, base_address: int,
                   among: Sequence[Choice] | None = None, checked: bool = True, notes: Notes | None = None) -> Kind:
    """Compile ``operators`` for up to ``rows`` new rows, with the cached ones up to ``context``, beside ``program``.

    ``answered``: their last ones are a head, which runs where answers are wanted. ``among``, ``checked``, ``notes``: as
    of :func:`gemmule.compiler.compile.compile_network`.

    Raises:
        CompileError: it does not fit, or cannot share weights and cache; the message says what to change.
    """
    config, graph = program.config, network.graph
    if network.alike or program.batch > 1 or program.pool:
        raise CompileError("a second program goes beside one of one sequence, whose cache stands in order, of a "
                           "network with numbers: compile without it")
    mapping, lowered, items, placed = fit(network, config, operators, among or choices(
        graph, config, rows=rows, batch=1, context=context, tokens=True, cache=program.layout),
        contents=Contents(program.constants, config.dim), notes=notes)
    bases, attention = base_registers(items), graph.attentions[0]
    commands = with_straight_waits(emit(items, placed, bases), config, pass_bounds(mapping, attention, config))
    silent = silent_commands(lowered, commands) if answered else len(commands)
    regions = Regions(config)
    regions.reserve("program", len(encode_program(commands)))
    for name, size in lowered.builder.sizes.items():
        if name not in program.constants:
            regions.reserve(name, size)
    shared = {name: program.symbols[name] for name in (*program.constants, CACHE)}
    made = kind(
        config=config, image=encode_program(commands), commands=tuple(commands), base_address=base_address,
        size=regions.size, symbols=shared | regions.symbols(base_address), bases=fixed_bases(bases), commit=None,
        graph=graph, max_rows=rows, batch=1, max_positions=context, share=program.share, layout=program.layout,
        tokens=True, pool=0, silent=silent, scores=mapping.attention.scores, registers_of=bases, constants={})
    return with_turns(made) if checked else made


def with_turns(program: Kind) -> Kind:
    """A program that was made without ``checked``, with waits between turns of its loops, and verified.

    Raises:
        CompileError: the verifier refuses it.
    """
    commands, extremes = program.commands, program.extremes()
    placed = place_turn_waits(list(commands), program.config, extremes, turns=3)
    return replace(program, image=encode_program(placed), commands=tuple(placed)).verified(*extremes)
