"""A second program for more new rows than the one beside it, for keys and values alone: passes over a prompt.

It stands anywhere in the same DRAM and has the other program's weights, parameters and cache, at its places; its own
are commands, tokens, positions and bitmaps. Nothing is answered, so there is no head, and of the last layer there are
only keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmule.compiler.errors import CompileError
from gemmule.compiler.fit import fit, pass_bounds
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.attention import CACHE
from gemmule.compiler.kernels.contents import Contents
from gemmule.compiler.layout import Regions
from gemmule.compiler.model_program import ModelProgram
from gemmule.compiler.notes import Notes
from gemmule.compiler.passes.emit import base_registers, emit, fixed_bases, with_straight_waits
from gemmule.compiler.passes.fuse import fuse, unanswered
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.program import Registers
from gemmule.compiler.turns import place_turn_waits
from gemmule.isa import Command, encode_program

__all__ = ["PrefillProgram", "compile_prefill"]


@dataclass(frozen=True, kw_only=True)
class PrefillProgram(ModelProgram):
    """Passes of up to ``max_rows`` new rows behind a cache, of which no answer is wanted."""

    def registers(self, rows: int, context: int, wanted: int | None = None) -> Registers:
        if wanted:
            raise CompileError(f"a prefill answers no rows, not {wanted}: take the program beside it")
        return super().registers(rows, context, 0)

    def extremes(self) -> list[Registers]:
        most = self.max_positions
        sizes = {(rows, min(context, most - rows)) for rows in (1, self.max_rows) for context in (0, 1, 65, most - 1)}
        return [self.registers(rows, context) for rows, context in sorted(sizes)]


def compile_prefill(network: Network, program: ModelProgram, *, rows: int, base_address: int,
                    among: Sequence[Choice] | None = None, checked: bool = True,
                    notes: Notes | None = None) -> PrefillProgram:
    """Compile a prefill of up to ``rows`` new rows beside ``program``, to stand at ``base_address``.

    ``among``, ``checked``, ``notes``: as of :func:`gemmule.compiler.compile.compile_network`.

    Raises:
        CompileError: it does not fit, or cannot share weights and cache; the message says what to change.
    """
    config, graph = program.config, network.graph
    if network.alike or program.batch > 1 or program.pool:
        raise CompileError("a prefill goes beside a program of one sequence, whose cache stands in order, of a network "
                           "with numbers: compile without it")
    mapping, lowered, items, placed = fit(network, config, unanswered(fuse(graph)), among or choices(
        graph, config, rows=rows, batch=1, context=program.max_positions, tokens=True, joined=program.layout.joined),
        contents=Contents(program.constants, config.dim), notes=notes)
    if mapping.attention.layout(graph, config, 1, rows) != program.layout:
        raise CompileError("both programs must have one cache layout: the compiler is wrong")
    bases, attention = base_registers(items), graph.attentions[0]
    commands = with_straight_waits(emit(items, placed, bases), config, pass_bounds(mapping, attention, config))
    regions = Regions(config)
    regions.reserve("program", len(encode_program(commands)))
    for name, size in lowered.builder.sizes.items():
        if name not in program.constants:
            regions.reserve(name, size)
    shared = {name: program.symbols[name] for name in (*program.constants, CACHE)}

    def made(commands: Sequence[Command]) -> PrefillProgram:
        return PrefillProgram(
            config=config, image=encode_program(commands), commands=tuple(commands), base_address=base_address,
            size=regions.size, symbols=shared | regions.symbols(base_address), bases=fixed_bases(bases), commit=None,
            graph=graph, max_rows=rows, batch=1, max_positions=program.max_positions, share=program.share,
            layout=program.layout, tokens=True, pool=0, silent=len(commands), scores=mapping.attention.scores,
            registers_of=bases, constants={})

    first = made(commands)
    if not checked:
        return first
    return made(place_turn_waits(commands, config, first.extremes(), turns=3)).verified(*first.extremes())
