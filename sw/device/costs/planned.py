"""The launches that a pass takes, before any is run: programs, what they are given, and which rows their gathers take.

Time depends on nothing else, so a timing-only run of them tells the cycles of the pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.program import Program, Step
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram
from gemmule.sw.device.forward import logit_scale
from gemmule.sw.device.listed import listed_piece
from gemmule.sw.device.pieces import launches, pieces
from gemmule.sw.device.slots import HiddenSlots
from gemmule.sw.step import Hidden, Want, exponent_scaling

__all__ = ["Compiled", "Planned", "Ranges", "planned_launches"]

Ranges = tuple[tuple[int, int], ...]
"""First and number of each range of layers."""


class Planned(NamedTuple):
    """A launch.

    Attributes:
        gathered: row numbers of each gather, by the command's place.
        scattered: rows of the cache that new rows are stored to, where they are no chain  # int64 [rows].
        hidden: the hidden rows that it leaves, where some are wanted.
    """

    program: Program
    step: Step
    gathered: dict[int, np.ndarray]
    scattered: np.ndarray | None = None
    hidden: Hidden | None = None


class Compiled(Protocol):
    """Programs of a model."""

    name: str
    program: ModelProgram
    prefill: PrefillProgram | None
    narrow: Sequence[ModelProgram]
    sampled: ModelProgram | None
    slots: HiddenSlots | None


def planned_launches(model: Compiled, rows: Rows, want: Want, answered: np.ndarray, cached: Sequence[int],
                     ranges: Ranges, places: list[np.ndarray] | None = None) -> Iterator[Planned]:
    """Of a pass through ranges of layers over rows by token, or by hidden row, behind ``cached`` rows of each sequence,
    constant ones among them; ``answered``: rows whose answers are wanted, bool [rows]. ``places``: rows of a pool, by
    sequence.

    Of hidden rows those behind the last range can be wanted.

    Raises:
        ValueError: it needs the general program, and there is none.
    """
    program = model.program
    every = ((0, program.graph.layers),)
    if want.plain and ranges == every:
        for by, piece in launches(rows, answered, program, model.prefill, model.narrow, cached):
            count = int(answered[piece.index[piece.index >= 0]].sum())
            lengths = [length + done for length, done in zip(cached, piece.before)]
            step = by.step(piece.rows, count, lengths) if places is None else by.step(
                piece.rows, count, lengths, listed_piece(by, places, lengths, piece))
            yield Planned(by, step, by.gathered_by(piece.rows, step), by.scattered(piece.rows, lengths))
        return
    if model.sampled and want.only_logits and ranges == every:
        for piece in pieces(rows, program.max_rows, program.batch, cached):
            count = int(answered[piece.index[piece.index >= 0]].sum())
            yield Planned(model.sampled, model.sampled.step(piece.rows, count), model.sampled.gathered(piece.rows))
        return
    general, slots = program.general, model.slots
    if general is None or slots is None:
        raise ValueError(f"{model.name}: logits need the general program: compile with general=True")
    general.check_top(want.top)
    scale = exponent_scaling(logit_scale(program.graph), want.temperature) if want.temperature else None
    parts = list(pieces(rows, program.max_rows, program.batch, cached))
    placed = bool(want.hidden) and want.place is not None
    if want.hidden and not placed:
        slots.check_room(len(parts) * len(ranges))
    for piece in parts:
        count, taken = int(answered[piece.index[piece.index >= 0]].sum()), piece.rows
        lengths = [length + done for length, done in zip(cached, piece.before)]
        for part in ranges:
            last = part is ranges[-1]
            if last and placed:
                slot, stamp = want.place, 0
            else:
                slot, stamp = slots.take() if want.hidden or not last else (None, 0)
            wanted = Answers(rows=count if last else 0, logits=want.logits, top=want.top > 0, scale=scale, hidden=slot)
            left = None if slot is None else slot + program.slots(piece.rows)
            yield Planned(general, program.general_step(taken, lengths, part, wanted),
                          program.gathered(taken, general.commands), program.scattered(piece.rows, lengths),
                          None if left is None or not last else
                          Hidden(left[piece.index >= 0], sum(part), (stamp,)))
            if left is not None and not last:
                taken = taken.entering(left)
        if placed or not want.hidden:
            slots.drop(len(ranges) - 1)
