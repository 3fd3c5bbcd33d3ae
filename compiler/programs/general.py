"""Compile the general program beside the plain one: the same mapping, weights and regions, another image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Embedding, Network, Position, Rope
from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.contents import Constant
from gemmule.compiler.kernels.head.answers import BACK, FOUND, HIDDEN, AnswerLayout, General
from gemmule.compiler.kernels.head.ids import check_ids
from gemmule.compiler.kernels.virtual import Builder, LengthReg
from gemmule.compiler.layout import Region
from gemmule.compiler.passes.allocate import allocate
from gemmule.compiler.passes.emit import base_registers, emit, fixed_bases, with_straight_waits
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.fuse import Operator
from gemmule.compiler.passes.lower import lower
from gemmule.compiler.passes.map import DecoderMapping
from gemmule.compiler.passes.roll import LayerStrides
from gemmule.compiler.passes.schedule import schedule_general
from gemmule.compiler.passes.turns import place_turn_waits
from gemmule.compiler.programs.general_program import GENERAL, GeneralProgram
from gemmule.config import Config
from gemmule.isa import MAX_LENGTH, Command, encode_program

__all__ = ["GeneralParts", "general_parts", "general_program"]

SLOTS = 4
"""Passes whose hidden rows there is room for, at most as many rows each."""
TOP = 16
"""Largest logits of a row."""


@dataclass(frozen=True)
class GeneralParts:
    """What the plain program's regions must have room for."""

    commands: list[Command]
    bases: dict[str, int]
    ranges: LayerStrides
    general: General
    builder: Builder

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by region, those of the plain program among them."""
        return {GENERAL: len(encode_program(self.commands)), **self.builder.sizes}

    def more_constants(self, plain: Builder) -> dict[str, list[tuple[int, Constant]]]:
        """Contents that the plain program has not.

        Raises:
            CompileError: those that both have stand at different places.
        """
        for region, parts in plain.constants.items():
            found = self.builder.constants.get(region, [])
            if [(at, part.size) for at, part in parts] != [(at, part.size) for at, part in found]:
                raise CompileError(f"both programs must have the same {region}: the compiler is wrong")
        return {region: parts for region, parts in self.builder.constants.items() if region not in plain.constants}


def general_parts(network: Network, config: Config, operators: Sequence[Operator], mapping: DecoderMapping,
                  bounds: Bounds) -> GeneralParts:
    """Commands without waits between turns, for the mapping of the plain program.

    Raises:
        CompileError: layers are not equal, rows are by learned and by rotary positions, or it does not fit.
    """
    graph = network.graph
    if any(isinstance(node, Position) for node in graph.nodes) and any(isinstance(node, Rope) for node in graph.nodes):
        raise CompileError("hidden rows must have learned positions or rotary ones, not both: compile without "
                           "general=True")
    general = General(slots=SLOTS * mapping.rows, top=TOP)
    check_ids(graph.vocab + general.slots, config, "tokens and hidden rows", "compile without general=True")
    lowered = lower(network, config, operators, mapping, general)
    items, ranges = schedule_general(lowered, config)
    try:
        placed = allocate(items, config, apart=True)
    except CompileError:
        placed = allocate(items, config, apart=False)
    bases = base_registers(items)
    most = min(graph.by_name[graph.output].columns, MAX_LENGTH)
    answered = (LengthReg.LOGIT_ROWS, LengthReg.TOP_ROWS, LengthReg.EXPONENT_ROWS, LengthReg.HIDDEN_ROWS)
    wider = {**bounds, **dict.fromkeys(answered, (0, mapping.rows)), LengthReg.COLUMN: (0, most),
             LengthReg.KEYS: (0, most), LengthReg.LEFT: (0, max(most, bounds[LengthReg.LEFT][1]))}
    commands = with_straight_waits(emit(items, dict(placed), bases), config, wider)
    return GeneralParts(commands, bases, ranges, general, lowered.builder)


def general_program(parts: GeneralParts, network: Network, config: Config, symbols: Mapping[str, Region], *,
                    layout: KvLayout, rows: int, batch: int, context: int, base_address: int,
                    size: int) -> GeneralProgram:
    """The finished program among ``symbols``, the regions of both, which begin at ``base_address``."""
    graph = network.graph
    embedding = next(node for node in graph.nodes if isinstance(node, Embedding))
    same = {BACK: FOUND, HIDDEN: "embedding"}
    names = {register: same.get(region, region) for register, region in fixed_bases(parts.bases).items()}
    answers = AnswerLayout.of(config, rows * batch, graph.by_name[graph.output].columns, parts.general.top)
    dim = config.dim

    def program(commands: Sequence[Command]) -> GeneralProgram:
        return GeneralProgram(
            config=config, image=encode_program(commands), commands=tuple(commands), base_address=base_address,
            size=size, symbols={"program": symbols[GENERAL], **{name: symbols[name] for name in (
                *set(names.values()), CACHE)}}, bases=names, max_rows=rows, batch=batch, max_positions=context,
            layout=layout, answers=answers, slots=parts.general.slots,
            hidden_row=2 * -(-embedding.columns // dim) * dim, vocab=embedding.vocab, ranges=parts.ranges,
            registers_of=parts.bases)

    launches = program(parts.commands).extremes()
    most = place_turn_waits(parts.commands, config, launches, turns=3)
    # Logits that a late chunk reads were stored by late tiles, which the first turns do not show.
    return program(place_turn_waits(most, config, launches)).verified(*launches)
