"""From a quantised network to a program for one device: fuse, map, lower, schedule, allocate, emit, waits, verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.attention.softmax import check_exponentials
from gemmule.compiler.kernels.commit import PATH
from gemmule.compiler.kernels.mlp import check_activations
from gemmule.compiler.layout import Regions
from gemmule.compiler.passes.emit import base_registers, emit, fixed_bases, with_straight_waits
from gemmule.compiler.passes.fit import fit, pass_bounds, silent_commands
from gemmule.compiler.passes.fuse import fuse
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.passes.notes import Notes
from gemmule.compiler.passes.turns import place_turn_waits
from gemmule.compiler.programs.commit import COMMIT, commit_commands, commit_program, path_bytes
from gemmule.compiler.programs.general import general_parts, general_program
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.moves import move_parts, move_programs
from gemmule.config import Config
from gemmule.isa import Command, encode_program

__all__ = ["compile_network"]


def compile_network(network: Network, config: Config, *, rows: int, batch: int = 1, context: int | None = None,
                    tokens: bool = False, general: bool = False, base_address: int = 0,
                    pool: int = 0, fused: bool = True, standard: bool = False,
                    among: Sequence[Choice] | None = None, checked: bool = True,
                    notes: Notes | None = None) -> ModelProgram:
    """Compile a quantised decoder for passes of up to ``rows`` new rows, with the cached ones up to ``context``.

    ``batch``: sequences of a pass, each with so many rows and a cache of its own. ``general``: beside it the program
    that takes hidden rows, runs some of the layers and gives other answers. A network with a window is compiled for
    contexts up to the window. ``pool``: rows of a cache in which a list names each position's (pages), instead of one
    for each position in order. Not ``fused``: every operator's result goes to DRAM and comes back. ``standard``: so do
    attention's scores and probabilities. ``among``: mappings, of which the first that fits is taken; by default all.
    Without ``checked`` the program is only good for timing. ``notes`` get what each pass made.

    Raises:
        CompileError: it does not fit the configuration; the message says what to change.
    """
    if pool and (batch > 1 or general):
        raise CompileError("cache rows by list (pool) are for a sequence alone and the plain program: compile with "
                           "batch=1 and without general=True")
    if network.graph.encoder:
        raise CompileError("an encoder takes whole sequences and has no cache: compile it with `gemmule run model`")
    check_exponentials(network.graph, config)
    check_activations(network.graph, config)
    operators = fuse(network.graph)
    if notes:
        notes.begin(network.graph, operators)
    attention = network.graph.attentions[0]
    context = min(network.graph.whole_positions, context or network.graph.positions)
    mapping, lowered, items, placed = fit(network, config, operators, among or choices(
        network.graph, config, rows=rows, batch=batch, context=context, tokens=tokens, pool=pool, fused=fused,
        standard=standard), notes=notes)
    layout, bases = mapping.attention.layout(network.graph, config, batch, rows), base_registers(items)
    bounds = pass_bounds(mapping, attention, config)
    emitted = emit(items, placed, bases)
    commands = with_straight_waits(emitted, config, bounds)
    more = general_parts(network, config, operators, mapping, bounds) if general else None
    shifts = move_parts(config, layout, context) if general else None
    keep, kept_bases = ([], {}) if pool else commit_commands(config, layout, rows, context)  # a list is edited
    sizes = {"program": len(encode_program(commands))}
    sizes |= {} if pool else {COMMIT: len(encode_program(keep)), PATH: path_bytes(config, rows)}
    sizes |= lowered.builder.sizes | {CACHE: batch * layout.size}
    for name, size in (more.sizes | shifts.sizes).items() if more and shifts else ():
        sizes[name] = max(size, sizes.get(name, 0))
    regions = _regions(config, sizes)
    symbols = regions.symbols(base_address)
    commit = commit_program(config, keep, kept_bases, symbols, layout=layout, rows=rows,
                            context=context, base_address=base_address, size=regions.size) if keep else None
    constants = lowered.builder.constants | (more.more_constants(lowered.builder) if more else {})
    wide = general_program(more, network, config, symbols, layout=layout, rows=rows, batch=batch, context=context,
                           base_address=base_address, size=regions.size) if more else None
    moves = move_programs(shifts, config, symbols, layout=layout, batch=batch, context=context,
                          base_address=base_address, size=regions.size) if shifts else None

    silent = silent_commands(lowered, commands)

    def program(commands: Sequence[Command]) -> ModelProgram:
        return ModelProgram(
            config=config, image=encode_program(commands), commands=tuple(commands), base_address=base_address,
            size=regions.size, symbols=symbols, bases=fixed_bases(bases), commit=commit, graph=network.graph,
            max_rows=rows, batch=batch, max_positions=context, share=attention.heads // attention.kv_heads,
            layout=layout, tokens=tokens, pool=pool, silent=silent, scores=mapping.attention.scores, registers_of=bases,
            constants={region: tuple(parts) for region, parts in constants.items()}, general=wide, moves=moves)

    made = program(commands)
    if not checked:
        return made
    final = program(place_turn_waits(commands, config, made.extremes(), turns=3)).verified(*made.extremes())
    if notes:
        notes.emitted("emit", emitted)
        notes.emitted("waits", final.commands)
    return final


def _regions(config: Config, sizes: Mapping[str, int]) -> Regions:
    """DRAM: programs, what the network fixes, inputs, answers, the cache."""
    regions = Regions(config)
    for name, size in sizes.items():
        regions.reserve(name, size)
    return regions
