"""From a quantised encoder to a program for one device: fuse, map, lower, schedule, allocate, emit, waits, verify."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Linear, Network
from gemmule.compiler.kernels.attention.sequence import SequenceMapping
from gemmule.compiler.kernels.attention.softmax import check_exponentials
from gemmule.compiler.kernels.mlp import check_activations
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import Buffer, Builder, Item, LengthReg
from gemmule.compiler.layout import Regions
from gemmule.compiler.passes.allocate import Past, allocate, past
from gemmule.compiler.passes.emit import base_registers, emit, with_straight_waits
from gemmule.compiler.passes.encoder.fuse import EncoderOperators, LayerOperators, split_operators
from gemmule.compiler.passes.encoder.lower import EncoderPhases
from gemmule.compiler.passes.encoder.map import (
    EncoderMapping,
    PhaseMapping,
    attention_mappings,
    block_mappings,
    check_sequence,
)
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.fuse import fuse
from gemmule.compiler.passes.schedule import schedule_layers, schedule_phase
from gemmule.compiler.passes.turns import place_turn_waits
from gemmule.compiler.program import Program, Registers
from gemmule.compiler.programs.encoder_program import EncoderProgram
from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, Command, encode_program

__all__ = ["PHASES", "compile_encoder", "compile_layer", "compile_phase", "map_encoder"]

M = TypeVar("M")
Kind = TypeVar("Kind", bound=Program)
EARLY = 12
"""Items of a turn whose buffers are its own: they need not wait for the turn before."""


PHASES: dict[str, Callable[[EncoderPhases, LayerOperators, Any], list[Item]]] = {
    "heads": lambda phases, layer, mapping: phases.project_heads(layer.attend, mapping),
    "attention": lambda phases, layer, mapping: phases.attention(layer.attend, mapping),
    "output": lambda phases, layer, mapping: phases.project_contexts(layer, mapping),
    "mlp": lambda phases, layer, mapping: phases.mlp(layer, mapping)}
"""What writes a layer's phases, in order, each with its part of an :class:`EncoderMapping`."""


def compile_encoder(network: Network, config: Config, *, sequence: int, base_address: int = 0,
                    standard: bool = False, fused: bool = True, mapping: EncoderMapping | None = None,
                    checked: bool = True) -> EncoderProgram:
    """Compile a quantised encoder for sequences of up to ``sequence`` rows, one a launch.

    ``standard``: attention writes scores and probabilities to DRAM and reads them again, to the same output. Not
    ``fused``: so does every operator with its result. ``mapping``: by default the first that fits. Without ``checked``
    the program is only good for timing.

    Raises:
        CompileError: it does not fit the configuration; the message says what to change.
    """
    check_exponentials(network.graph, config)
    check_activations(network.graph, config)
    operators = split_operators(fuse(network.graph))
    mapping = mapping or map_encoder(network, config, operators, sequence, standard, fused)
    phases = EncoderPhases(network, config, sequence, mapping.fused)
    before = [phases.embedding(operators, mapping.output.rows, mapping.output.norm_rows)]
    layers = [[write(phases, layer, getattr(mapping, name)) for name, write in PHASES.items()]
              for layer in operators.layers]
    behind = [phases.classify(operators, mapping.output)] if operators.classifier else []
    before, *layers, behind = ([schedule_phase(part, config) for part in group]
                               for group in (before, *layers, behind))
    body, rolled = schedule_layers(layers, config)
    placed = _place_all([*before, *(part for layer in (layers[:1] if rolled else layers) for part in layer), *behind],
                        config, len(layers[0]) if rolled else 0)
    items = [*(item for part in before for item in part), *body, *(item for part in behind for item in part)]
    bases = base_registers(items)
    commands = with_straight_waits(emit(items, placed, bases), config, _bounds(mapping.attention, sequence))

    program = EncoderProgram(
        **_standing(phases.b, len(commands), bases, base_address), graph=network.graph, mapping=mapping,
        constants={region: tuple(parts) for region, parts in phases.b.constants.items()})
    if not checked:
        return _written(program, commands)
    commands = place_turn_waits(commands, config, program.extremes(), turns=3)
    return _written(program, commands).verified(*program.extremes())


def compile_phase(network: Network, config: Config, name: str, mapping: PhaseMapping | SequenceMapping, *,
                  sequence: int) -> tuple[Program, Registers]:
    """One of :data:`PHASES` of the first layer as a program, its rows from DRAM and back; and a launch's registers.

    Raises:
        CompileError: it does not fit the configuration.
    """
    return _compile_part(network, config, {name: mapping}, sequence)


def compile_layer(network: Network, config: Config, mapping: EncoderMapping) -> tuple[Program, Registers]:
    """The first layer as a program, its rows from DRAM and back; and a launch's registers.

    Raises:
        CompileError: it does not fit the configuration.
    """
    return _compile_part(network, config, {name: getattr(mapping, name) for name in PHASES}, mapping.sequence)


def _compile_part(network: Network, config: Config, mappings: Mapping[str, Any],
                  sequence: int) -> tuple[Program, Registers]:
    """Phases of the first layer behind one another, by name with their mappings."""
    phases, layer = EncoderPhases(network, config, sequence), split_operators(fuse(network.graph)).layers[0]
    parts = [schedule_phase(PHASES[name](phases, layer, mapping), config) for name, mapping in mappings.items()]
    items = [item for part in parts for item in part]
    bases = base_registers(items)
    commands = with_straight_waits(emit(items, _place_all(parts, config, 0), bases), config,
                                   _bounds(mappings.get("attention"), sequence))
    program = Program(**_standing(phases.b, len(commands), bases, 0))
    registers = program.place(windows={}, lengths={LengthReg.ROWS: sequence})
    return _written(program, place_turn_waits(commands, config, [registers], turns=3)), registers


def _bounds(attention: SequenceMapping | None, sequence: int) -> Bounds:
    """What length registers may hold."""
    found = {LengthReg.ROWS: (1, sequence), LengthReg.LEFT: (0, sequence), LengthReg.BEHIND: (0, sequence)}
    if attention:
        found[LengthReg.ROW] = (0, (attention.turns(sequence) - 1) * attention.queries * attention.flight)
    return found


def _standing(builder: Builder, commands: int, bases: Mapping[str, int], base_address: int) -> dict[str, Any]:
    """What a program of so many commands has around them: regions and their registers; no command yet."""
    regions = Regions(builder.config)
    for name, size in [*builder.sizes.items(), ("program", COMMAND_BYTES * commands)]:
        regions.reserve(name, size)
    names = {register: region.removesuffix(stored("")) for region, register in bases.items()
             if region.removesuffix(stored("")) in builder.sizes}
    return {"config": builder.config, "image": b"", "commands": (), "base_address": base_address,
            "size": regions.size, "symbols": regions.symbols(base_address), "bases": names}


def _written(program: Kind, commands: Sequence[Command]) -> Kind:
    """The program with its commands."""
    return replace(program, commands=tuple(commands), image=encode_program(commands))


def map_encoder(network: Network, config: Config, operators: EncoderOperators, sequence: int,
                standard: bool = False, fused: bool = True) -> EncoderMapping:
    """The first mapping of each phase whose buffers fit.

    Raises:
        CompileError: a phase has none.
    """
    check_sequence(network.graph, config, sequence)
    layer, embed = operators.layers[0], operators.embed.embedding

    def fitting(kind: str, candidates: Iterable[M], write: Callable[[EncoderPhases, M], list[Item]]) -> M:
        reason: CompileError | None = None
        tried = list(candidates)
        for apart, candidate in product((True, False), tried):
            try:
                phases = EncoderPhases(network, config, sequence, fused)
                allocate(schedule_phase(write(phases, candidate), config), config, apart=apart,
                         early=EARLY if apart else 0)
                return candidate
            except CompileError as error:
                reason = reason or error
        raise reason or CompileError(f"{kind} of {embed.columns} columns must fit {config.name}: use a shorter "
                                     "sequence")

    def blocks(*linears: Linear) -> Iterable[PhaseMapping]:
        return block_mappings(list(linears), config, sequence)

    attend = layer.attend
    return EncoderMapping(
        sequence=sequence, fused=fused,
        heads=fitting("queries, keys and values", blocks(attend.query, attend.key, attend.value),
                      lambda phases, one: phases.project_heads(attend, one)),
        attention=fitting("attention", attention_mappings(attend.attention, config, sequence, standard),
                          lambda phases, one: phases.attention(attend, one)),
        output=fitting("attention's output", blocks(layer.output.linear),
                       lambda phases, one: [*phases.embedding(operators, one.rows, one.norm_rows),
                                            *phases.project_contexts(layer, one)]),
        mlp=fitting("the MLP", blocks(layer.inner.up, layer.down.linear),
                    lambda phases, one: phases.mlp(layer, one)))


def _place_all(phases: Sequence[Sequence[Item]], config: Config, turn: int) -> dict[Buffer, int]:
    """Rows of the buffers of phases, of which those behind the first, ``turn`` of them, come again and again."""
    found: dict[Buffer, int] = {}
    order = [*phases[:1 + turn], *phases[1:]]  # so that the second time the first of a turn knows the last
    for number, part in enumerate(order):
        earlier = order[number - 1] if number else ()
        found |= _place(part, config, past(earlier, found))
    return found


def _place(items: Sequence[Item], config: Config, before: Past) -> dict[Buffer, int]:
    """Rows of a phase's buffers, if possible classes in banks of their own."""
    try:
        return dict(allocate(items, config, apart=True, early=EARLY, before=before))
    except CompileError:
        return dict(allocate(items, config, apart=False, before=before))
