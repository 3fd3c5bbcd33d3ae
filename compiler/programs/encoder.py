"""From a quantised encoder to a program for one device: its phases as one entry program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

from gemmule.compiler.errors import CheckError, CompileError
from gemmule.compiler.features import check_features
from gemmule.compiler.ir import Linear, Network, TokenPruning
from gemmule.compiler.kernels.attention.choosing import check_choosing
from gemmule.compiler.kernels.attention.sequence import SequenceMapping
from gemmule.compiler.kernels.virtual import Buffer, Item, LengthReg
from gemmule.compiler.passes.allocate import PHASE_EARLY, allocate, allocate_phases
from gemmule.compiler.passes.emit import fixed_bases
from gemmule.compiler.passes.encoder.fuse import EncoderOperators, LayerOperators, split_operators
from gemmule.compiler.passes.encoder.lower import EncoderPhases
from gemmule.compiler.passes.encoder.map import (
    EncoderMapping,
    PhaseMapping,
    attention_mappings,
    block_mappings,
    check_sequence,
)
from gemmule.compiler.passes.entry import Entry, Lowered, Scheduled, straight
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.fuse import fuse
from gemmule.compiler.passes.pipeline import run
from gemmule.compiler.passes.schedule import schedule_encoder, schedule_phase
from gemmule.compiler.program import FixedProgram, Program, Registers, Standing
from gemmule.compiler.programs.encoder_program import EncoderProgram
from gemmule.compiler.programs.linker import Linker
from gemmule.config import Config
from gemmule.timing import ceil_div

__all__ = ["PHASES", "compile_encoder", "compile_layer", "compile_phase", "map_encoder"]

M = TypeVar("M")
P = TypeVar("P", bound=Program)


PHASES: dict[str, Callable[[EncoderPhases, LayerOperators, Any], list[Item]]] = {
    "heads": lambda phases, layer, mapping: phases.project_heads(layer.attend, mapping),
    "attention": lambda phases, layer, mapping: phases.attention(layer.attend, mapping),
    "output": lambda phases, layer, mapping: phases.project_contexts(layer, mapping),
    "mlp": lambda phases, layer, mapping: phases.mlp(layer, mapping)}
"""What writes a layer's phases, in order, each with its part of an :class:`EncoderMapping`."""


class _PhasedEntry(Entry[P]):
    """Phases between which rows stand in DRAM, so each has the scratchpad to itself."""

    turns = (3,)
    sequence: int
    attention: SequenceMapping | None
    listed: int = 0
    """Rows of a turn that takes those of a list; 0: there is none."""

    def schedule(self) -> Scheduled:
        return schedule_encoder(self.lowered, self.config)

    def allocate(self) -> Mapping[Buffer, int]:
        return allocate_phases(self.scheduled.phases, self.config, self.scheduled.again)

    def limit(self) -> Bounds:
        found = {LengthReg.ROWS: (1, self.sequence), LengthReg.LEFT: (0, self.sequence),
                 LengthReg.BEHIND: (0, self.sequence)}
        if one := self.attention:
            found[LengthReg.ROW] = (0, (one.turns(self.sequence) - 1) * one.queries * one.flight)
        if turn := self.listed:
            most = max(found.get(LengthReg.ROW, (0, 0))[1], (ceil_div(self.sequence, turn) - 1) * turn)
            found[LengthReg.ROW] = (0, most)
        return found

    def standing_regions(self) -> Standing:
        """Every region that kernels have named is in one place."""
        return self.standing({register: region for register, region in fixed_bases(self.bases).items()
                              if region in self.lowered.sizes})


class EncoderEntry(_PhasedEntry[EncoderProgram]):
    """A whole encoder."""

    name = "an encoder"

    def __init__(self, network: Network, config: Config, split: EncoderOperators, cut: EncoderMapping,
                 pruning: TokenPruning | None) -> None:
        super().__init__(config)
        self.network, self.split, self.cut, self.pruning = network, split, cut, pruning
        self.sequence, self.attention = cut.sequence, cut.attention
        self.listed = cut.output.rows * cut.output.together if pruning and pruning.pruning else 0

    def lower(self) -> Lowered:
        cut, split = self.cut, self.split
        phases = EncoderPhases(self.network, self.config, self.sequence, cut.fused, self.pruning)
        return phases.lowered(
            before=[phases.embedding(split, cut.output.rows, cut.output.norm_rows)],
            layers=[[write(phases, layer, getattr(cut, name)) for name, write in PHASES.items()]
                    for layer in split.layers],
            behind=[phases.classify(split, cut.output)] if split.classifier else [])

    def build(self) -> EncoderProgram:
        return EncoderProgram(
            **self.standing_regions(), graph=self.network.graph, mapping=self.cut, pruning=self.pruning,
            constants={region: tuple(parts) for region, parts in self.lowered.constants.items()})


@dataclass(frozen=True, kw_only=True)
class PartProgram(FixedProgram):
    """Phases of a layer for a sequence of one length, its rows from DRAM and back: for its cycles alone."""

    sequence: int

    def registers(self) -> Registers:
        return self.place(windows={}, lengths={LengthReg.ROWS: self.sequence})


class _PartEntry(_PhasedEntry[PartProgram]):
    """Phases of the first layer behind one another, by name with their mappings."""

    name = "an encoder's layer"

    def __init__(self, network: Network, config: Config, cuts: Mapping[str, Any], sequence: int) -> None:
        super().__init__(config)
        self.network, self.cuts, self.sequence = network, cuts, sequence
        self.attention = cuts.get("attention")

    def lower(self) -> Lowered:
        phases = EncoderPhases(self.network, self.config, self.sequence)
        layer = split_operators(fuse(self.network.graph)).layers[0]
        return phases.lowered(before=[PHASES[name](phases, layer, cut) for name, cut in self.cuts.items()])

    def build(self) -> PartProgram:
        return PartProgram(**self.standing_regions(), sequence=self.sequence)


class _PhaseEntry(Entry[Program]):
    """One phase by itself, to see whether it fits."""

    name = "a phase"

    def __init__(self, config: Config, items: Sequence[Item], *, apart: bool) -> None:
        super().__init__(config)
        self.items, self.apart = items, apart

    def lower(self) -> Lowered:
        return straight(self.items)

    def schedule(self) -> Scheduled:
        items = schedule_phase(self.items, self.config)
        return Scheduled(items, [items])

    def allocate(self) -> Mapping[Buffer, int]:
        return allocate(self.scheduled.items, self.config, apart=self.apart, early=PHASE_EARLY if self.apart else 0)


def compile_encoder(network: Network, config: Config, *, sequence: int, base_address: int = 0,
                    standard: bool = False, fused: bool = True, mapping: EncoderMapping | None = None,
                    checked: bool = True, pruning: TokenPruning | None = None) -> EncoderProgram:
    """Compile a quantised encoder for sequences of up to ``sequence`` rows, one a launch.

    ``standard``: attention writes scores and probabilities to DRAM and reads them again, to the same output. Not
    ``fused``: so does every operator with its result. ``mapping``: by default the first that fits. Without ``checked``
    the program is only good for timing. ``pruning``: rows leave by this schedule.

    Raises:
        CompileError: it does not fit the configuration; the message says what to change.
    """
    check_features(network.graph, config)
    if pruning:
        pruning.check(network.graph, sequence)
        check_choosing(network.graph.attentions[0], config, sequence, pruning, standard=standard)
    operators = split_operators(fuse(network.graph))
    mapping = mapping or map_encoder(network, config, operators, sequence, standard, fused, pruning)
    entry = EncoderEntry(network, config, operators, mapping, pruning)
    run(entry, "lower", "waits")
    linker = Linker(config)
    linker.share(entry.lowered)
    linker.add(entry)
    return linker.link(entry, linker.table(base_address), last="verify" if checked else "link")


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
    """Phases of the first layer behind one another, by name with their mappings; good for timing."""
    entry = _PartEntry(network, config, mappings, sequence)
    run(entry, "lower", "waits")
    linker = Linker(config)
    linker.share(entry.lowered)
    linker.add(entry)
    program = linker.link(entry, linker.table(0), last="turns")
    return program, program.registers()


def map_encoder(network: Network, config: Config, operators: EncoderOperators, sequence: int,
                standard: bool = False, fused: bool = True, pruning: TokenPruning | None = None) -> EncoderMapping:
    """The first mapping of each phase whose buffers fit; all layers have one.

    Raises:
        CompileError: a phase has none.
    """
    check_sequence(network.graph, config, sequence)
    layer, embed = operators.layers[0], operators.embed.embedding
    kinds = _kinds(network, operators, pruning)

    def fitting(kind: str, candidates: Iterable[M], write: Callable[[EncoderPhases, M], list[Item]]) -> M:
        reason: CompileError | None = None
        tried = list(candidates)
        for apart, candidate in product((True, False), tried):
            try:
                run(_PhaseEntry(config, write(EncoderPhases(network, config, sequence, fused, pruning), candidate),
                                apart=apart),
                    "lower", "allocate")
                return candidate
            except CheckError:
                raise
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
                      lambda phases, one: [item for kind in kinds for item in phases.project_heads(kind.attend, one)]),
        attention=fitting("attention", attention_mappings(attend.attention, config, sequence, standard),
                          lambda phases, one: [item for kind in kinds for item in phases.attention(kind.attend, one)]),
        output=fitting("attention's output", blocks(layer.output.linear),
                       lambda phases, one: [*phases.embedding(operators, one.rows, one.norm_rows),
                                            *(item for kind in kinds for item in phases.project_contexts(kind, one))]),
        mlp=fitting("the MLP", blocks(layer.inner.up, layer.down.linear),
                    lambda phases, one: phases.mlp(layer, one)))


def _kinds(network: Network, operators: EncoderOperators, pruning: TokenPruning | None) -> list[LayerOperators]:
    """A layer of each kind that a schedule makes: those in which something counts, is chosen, or has left."""
    heads = pruning.heads.schedule(network.graph) if pruning and pruning.heads else None
    found: dict[tuple[bool, ...], LayerOperators] = {}
    for number, layer in enumerate(operators.layers):
        kind = (bool(pruning and pruning.adds(number)), bool(pruning and number in pruning.pruning),
                bool(heads and heads.adds(number)), bool(heads and heads.choices(number)))
        found.setdefault(kind, layer)
    return list(found.values())
