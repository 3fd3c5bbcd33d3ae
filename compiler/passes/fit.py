"""The first mapping of a decoder whose buffers fit, lowered, scheduled and placed; what registers hold in a pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gemmule.compiler.errors import AccumulatorError, CompileError
from gemmule.compiler.ir import Attention, Network
from gemmule.compiler.kernels.contents import Contents
from gemmule.compiler.kernels.virtual import Buffer, Item, LengthReg, VirtualCommand
from gemmule.compiler.passes.allocate import allocate, scratchpad_peak
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.fuse import Operator
from gemmule.compiler.passes.lower import Lowered, lower
from gemmule.compiler.passes.map import Choice, DecoderMapping
from gemmule.compiler.passes.notes import Notes, Tried
from gemmule.compiler.passes.schedule import schedule
from gemmule.config import Config
from gemmule.isa import Command, Unit

__all__ = ["Fitted", "fit", "pass_bounds", "silent_commands"]


class Fitted(NamedTuple):
    """A mapping and what the passes made with it."""

    mapping: DecoderMapping
    lowered: Lowered
    items: list[Item]
    placed: dict[Buffer, int]
    """First row of each buffer."""


def fit(network: Network, config: Config, operators: Sequence[Operator], among: Sequence[Choice], *,
        contents: Contents | None = None, notes: Notes | None = None) -> Fitted:
    """The first of ``among`` whose buffers fit; ``contents``: where a program beside it has its constants.

    Raises:
        CompileError: none does; the message says what to change.
    """
    reason: CompileError | None = None
    attention = network.graph.attentions[0]
    taken: dict[tuple[bool, int, type], int] = {}
    """Scratchpad rows of all but the rings, by banks, rows of parameters and the way of attention."""
    for choice in among:
        apart = choice.apart
        for mapping in choice.mappings:
            beside = (apart, mapping.parameter_rows, type(mapping.attention))
            rings = mapping.ring_slots * mapping.ring_rows
            rings += mapping.attention.scratchpad_rows(attention, config.dim, mapping.each)
            slack = config.spm_bank_rows if apart else 0
            if taken.get(beside, 0) + rings > config.spm_rows + slack:
                continue  # what stands beside the rings hardly depends on them
            try:
                lowered = lower(network, config, operators, mapping, contents=contents)
                items = schedule(lowered, config)
            except CompileError as error:  # a slot below one tile: so are as many as there are
                reason = reason or error
                if notes:
                    notes.tried.append(Tried(mapping, apart, str(error)))
                break
            try:
                placed = dict(allocate(items, config, apart=apart, closely=True))
            except CompileError as error:
                reason = reason or error
                if notes:
                    notes.tried.append(Tried(mapping, apart, str(error)))
                if isinstance(error, AccumulatorError):
                    break
                taken.setdefault(beside, scratchpad_peak(items, config, apart=apart) - rings)
                continue
            if notes:
                notes.chosen(mapping, lowered, items, placed, apart)
            return Fitted(mapping, lowered, items, placed)
    raise reason or CompileError(f"a pass must fit {config.name}, and no mapping does: use fewer rows")


def pass_bounds(mapping: DecoderMapping, attention: Attention, config: Config) -> Bounds:
    """What length registers may hold in a pass."""
    context = mapping.attention.context
    return {
        LengthReg.ROWS: (1, mapping.each), LengthReg.CONTEXT: (0, context - 1), LengthReg.WANTED: (0, mapping.rows),
        LengthReg.FIRST_WANTED: (0, mapping.rows - 1), LengthReg.LEFT: (0, context),
        LengthReg.ROW: (0, mapping.attention.moved(attention, config.dim, mapping.each))}


def silent_commands(lowered: Lowered, commands: Sequence[Command]) -> int:
    """Commands of a launch without answers: those before the head's."""
    first = next(item.note for item in lowered.behind
                 if isinstance(item, VirtualCommand) and item.unit is not Unit.LOAD)
    return next(i for i, command in enumerate(commands) if command.note == first)
