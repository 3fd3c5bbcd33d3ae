"""From a quantised network to a program for one device: fuse, map, lower, schedule, allocate, emit, waits, verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmule.compiler.commit import COMMIT, commit_commands, commit_program, path_bytes
from gemmule.compiler.errors import CompileError
from gemmule.compiler.footprints import Bounds
from gemmule.compiler.general import general_parts, general_program
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.attention import CACHE, NEW, OLD
from gemmule.compiler.kernels.commit import PATH
from gemmule.compiler.kernels.mlp import check_activations
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.softmax import check_exponentials
from gemmule.compiler.kernels.virtual import Buffer, Item, Registers, Step
from gemmule.compiler.layout import Regions
from gemmule.compiler.model_program import ModelProgram
from gemmule.compiler.moves import move_parts, move_programs
from gemmule.compiler.notes import Notes, Tried
from gemmule.compiler.passes.allocate import allocate, scratchpad_peak
from gemmule.compiler.passes.emit import base_registers, emit, with_straight_waits
from gemmule.compiler.passes.fuse import Operator, fuse
from gemmule.compiler.passes.lower import Lowered, lower
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.passes.map import Mapping as Cut
from gemmule.compiler.passes.roll import LAYER_REGION
from gemmule.compiler.passes.schedule import schedule
from gemmule.compiler.turns import place_turn_waits
from gemmule.config import Config
from gemmule.isa import Command, Unit, encode_program

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
    mapping, lowered, items, placed = _fit(network, config, operators, rows=rows, batch=batch, context=context,
                                            tokens=tokens, pool=pool, fused=fused, standard=standard, among=among,
                                            notes=notes)
    layout, bases = mapping.attention.layout(network.graph, config, batch, rows), base_registers(items)
    bounds: Bounds = {
        Registers.ROWS: (1, rows), Registers.CONTEXT: (0, context - 1), Registers.WANTED: (0, mapping.rows),
        Registers.FIRST_WANTED: (0, mapping.rows - 1), Registers.LEFT: (0, context),
        Registers.ROW: (0, mapping.attention.moved(attention, config.dim, rows))}
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
    names = {register: CACHE if region.startswith((NEW, OLD)) else region.removesuffix(stored(""))
             for region, register in bases.items() if not region.endswith(LAYER_REGION)}

    constants = lowered.builder.constants | (more.more_constants(lowered.builder) if more else {})
    wide = general_program(more, network, config, symbols, layout=layout, rows=rows, batch=batch, context=context,
                           base_address=base_address, size=regions.size) if more else None
    moves = move_programs(shifts, config, symbols, layout=layout, batch=batch, context=context,
                          base_address=base_address, size=regions.size) if shifts else None

    first = next(item.note for item in lowered.behind if isinstance(item, Step) and item.unit is not Unit.LOAD)
    silent = next(i for i, command in enumerate(commands) if command.note == first)

    def program(commands: Sequence[Command]) -> ModelProgram:
        return ModelProgram(
            config=config, image=encode_program(commands), commands=tuple(commands), base_address=base_address,
            size=regions.size, symbols=symbols, bases=names, commit=commit, graph=network.graph, max_rows=rows,
            batch=batch, max_positions=context, share=attention.heads // attention.kv_heads, layout=layout,
            tokens=tokens, pool=pool, silent=silent, scores=mapping.attention.scores, registers_of=bases,
            constants={region: tuple(parts) for region, parts in constants.items()}, general=wide, moves=moves)

    made = program(commands)
    if not checked:
        return made
    final = program(place_turn_waits(commands, config, made.extremes(), turns=3)).verified(*made.extremes())
    if notes:
        notes.emitted("emit", emitted)
        notes.emitted("waits", final.commands)
    return final


def _fit(network: Network, config: Config, operators: Sequence[Operator], *, rows: int, batch: int,
         context: int, tokens: bool, pool: int, fused: bool, standard: bool, among: Sequence[Choice] | None,
         notes: Notes | None) -> tuple[Cut, Lowered, list[Item], dict[Buffer, int]]:
    """The first mapping whose buffers fit."""
    reason: CompileError | None = None
    attention = network.graph.attentions[0]
    taken: dict[tuple[bool, int, type], int] = {}
    """Scratchpad rows of all but the rings, by banks, rows of parameters and the way of attention."""
    for choice in among or choices(network.graph, config, rows=rows, batch=batch, context=context, tokens=tokens,
                                   pool=pool, fused=fused, standard=standard):
        apart = choice.apart
        for mapping in choice.mappings:
            beside = (apart, mapping.parameter_rows, type(mapping.attention))
            rings = mapping.ring_slots * mapping.ring_rows
            rings += mapping.attention.scratchpad_rows(attention, config.dim, rows)
            slack = config.spm_bank_rows if apart else 0
            if taken.get(beside, 0) + rings > config.spm_rows + slack:
                continue  # what stands beside the rings hardly depends on them
            try:
                lowered = lower(network, config, operators, mapping)
                items = schedule(lowered, config)
            except CompileError as error:  # a slot below one tile: so is every smaller one
                reason = reason or error
                if notes:
                    notes.tried.append(Tried(mapping, apart, str(error)))
                continue
            try:
                placed = dict(allocate(items, config, apart=apart))
            except CompileError as error:
                reason = reason or error
                if notes:
                    notes.tried.append(Tried(mapping, apart, str(error)))
                taken.setdefault(beside, scratchpad_peak(items, config, apart=apart) - rings)
                continue
            if notes:
                notes.chosen(mapping, lowered, items, placed, apart)
            return mapping, lowered, items, placed
    raise reason or CompileError(f"{batch * rows} rows a launch must fit {config.name}: use fewer rows")


def _regions(config: Config, sizes: Mapping[str, int]) -> Regions:
    """DRAM: programs, what the network fixes, inputs, answers, the cache."""
    regions = Regions(config)
    for name, size in sizes.items():
        regions.reserve(name, size)
    return regions
