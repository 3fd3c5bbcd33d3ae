"""A network's passes up to its last wait: back from allocate to lower with the next mapping until the buffers fit."""

from __future__ import annotations

from typing import Any

from gemmule.compiler.errors import AccumulatorError, CheckError, CompileError
from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.block import BlockMapping
from gemmule.compiler.kernels.attention.chosen.chunks import ChunkingMapping
from gemmule.compiler.kernels.attention.halves.packed import PackedMapping
from gemmule.compiler.kernels.attention.kv_layout import attention_of
from gemmule.compiler.kernels.attention.selecting import SelectingMapping
from gemmule.compiler.kernels.attention.texts.branches import BranchesMapping
from gemmule.compiler.kernels.attention.values import ValuesMapping
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.passes.allocate import scratchpad_peak
from gemmule.compiler.passes.entry import Entry
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.map import DecoderMapping
from gemmule.compiler.passes.notes import Notes, Tried
from gemmule.compiler.passes.pipeline import run
from gemmule.config import Config

__all__ = ["pass_bounds", "run_fitting"]


def run_fitting(entry: Entry[Any], notes: Notes | None = None) -> None:
    """The passes from fuse to waits, with the first of the mappings whose buffers fit.

    Raises:
        CompileError: none does; the message says what to change.
    """
    run(entry, "fuse", "map")
    if notes:
        notes.begin(entry.network.graph, entry.operators)
    _fit(entry, notes)
    if notes:
        notes.chosen(entry)
    run(entry, "emit", "waits")


def _fit(entry: Entry[Any], notes: Notes | None) -> None:
    """Lower, schedule and allocate with one mapping after another."""
    reason: CompileError | None = None
    config, attention = entry.config, attention_of(entry.network.graph)
    taken: dict[tuple[bool, int, type], int] = {}
    """Scratchpad rows of all but the rings, by banks, rows of parameters and the way of attention."""
    for choice in entry.candidates:
        apart = choice.apart
        for mapping in choice.mappings:
            beside = (apart, mapping.parameter_rows, type(mapping.attention))
            rings = mapping.ring_slots * mapping.ring_rows
            rings += mapping.attention.scratchpad_rows(attention, config.dim, mapping.each)
            slack = config.spm_bank_rows if apart else 0
            if taken.get(beside, 0) + rings > config.spm_rows + slack:
                continue  # what stands beside the rings hardly depends on them
            entry.mapping, entry.apart = mapping, apart
            try:
                run(entry, "lower", "schedule")
            except CheckError:
                raise
            except CompileError as error:  # a slot below one tile: so are as many as there are
                reason = reason or error
                if notes:
                    notes.tried.append(Tried(mapping, apart, str(error)))
                break
            try:
                run(entry, "allocate", "allocate")
            except CheckError:
                raise
            except CompileError as error:
                reason = reason or error
                if notes:
                    notes.tried.append(Tried(mapping, apart, str(error)))
                if isinstance(error, AccumulatorError):
                    break
                taken.setdefault(beside, scratchpad_peak(entry.scheduled.items, config, apart=apart) - rings)
                continue
            return
    raise reason or CompileError(f"a pass must fit {config.name}, and no mapping does: use fewer rows")


def pass_bounds(mapping: DecoderMapping, attention: Attention, config: Config) -> Bounds:
    """What length registers may hold in a pass."""
    context = mapping.attention.context
    selecting = isinstance(mapping.attention, SelectingMapping) or (
        isinstance(mapping.attention, BlockMapping) and mapping.attention.pool > 0)
    values = mapping.attention if isinstance(mapping.attention, ValuesMapping) else None
    moved = mapping.attention.moved(attention, config.dim, mapping.each)
    own = {LengthReg.TURN: (0, values.part // values.turn)} if values else {}
    if isinstance(mapping.attention, PackedMapping):
        own = {LengthReg.PAIRS: (0, context // 2)}
    if isinstance(mapping.attention, ChunkingMapping):
        own = {LengthReg.CHUNKS: (0, mapping.attention.chunks),
               LengthReg.CHUNK_ROW: (0, mapping.attention.score_rows(config.dim))}
    return own | {
        LengthReg.ROWS: (1, mapping.each), LengthReg.CONTEXT: (0, context - 1), LengthReg.WANTED: (0, mapping.rows),
        LengthReg.FIRST_WANTED: (0, context if selecting else mapping.rows - 1), LengthReg.LEFT: (0, context),
        LengthReg.ROW: (0, context if isinstance(mapping.attention, BranchesMapping) else moved)}
