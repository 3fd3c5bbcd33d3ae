"""Rows of a pass, launch by launch: as many of each sequence as a program takes, and one for those without any.

Of one text, rows of a prompt and few rows go by programs of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.place import cut_evenly
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram
from gemmule.compiler.search.narrow import chosen_program
from gemmule.timing import ceil_div

__all__ = ["Piece", "launches", "pieces"]


@dataclass(frozen=True, eq=False)
class Piece:
    """The rows of one launch."""

    rows: Rows
    index: np.ndarray
    """Which rows of the pass they are, int64 [rows]; -1: a row that only fills a sequence's place."""
    before: tuple[int, ...]
    """Rows of each sequence in launches before."""


def pieces(rows: Rows, max_rows: int, batch: int, cached: Sequence[int]) -> Iterator[Piece]:
    """Up to ``max_rows`` rows of each of ``batch`` sequences a launch, behind ``cached`` ones.

    Raises:
        ValueError: rows of a sequence that is not there; more than a launch takes that are no chain, or hidden.
    """
    if rows.sequences.max() >= batch or rows.sequences.min() < 0:
        raise ValueError(f"a pass takes rows of sequences 0 to {batch - 1}, not of {int(rows.sequences.max())}: "
                         "compile for a batch of more")
    own = [np.flatnonzero(rows.sequences == i) for i in range(batch)]
    most = max(len(index) for index in own)
    if most <= max_rows and all(len(index) for index in own):
        yield Piece(rows.take(np.concatenate(own)) if batch > 1 else rows, np.concatenate(own), (0,) * batch)
        return
    if most > max_rows:
        _check_long(rows, own, max_rows)
    for later in range(ceil_div(most, max_rows) - 1, -1, -1):
        # All sequences end with the last launch: one with rows to come has room for a row that fills its place.
        starts = [max(0, (ceil_div(len(index), max_rows) - 1 - later) * max_rows) for index in own]
        waits = [ceil_div(len(index), max_rows) <= later for index in own]
        parts = [index[:0] if wait else index[at:at + max_rows] for index, at, wait in zip(own, starts, waits)]
        yield Piece(_filled(rows, parts, [length + at for length, at in zip(cached, starts)]),
                    np.concatenate([part if len(part) else [-1] for part in parts]).astype(np.int64), tuple(starts))


def launches(rows: Rows, answered: np.ndarray, program: ModelProgram, prefill: PrefillProgram | None,
             narrow: Sequence[ModelProgram], cached: Sequence[int]) -> Iterator[tuple[ModelProgram, Piece]]:
    """The launches of a pass of which greedy tokens of the rows ``answered`` are wanted, each with its program.

    Rows go by the first of the ``narrow`` programs that takes those of each text, else by ``program``. Where a chain is
    longer than this takes, the rows before the last launch that answers any go by the ``prefill``, in as few launches
    as there can be, nearly equal ones: a launch of few rows takes as long as one of some more.

    Raises:
        ValueError: as of :func:`pieces`.
    """
    count, most = len(rows), program.max_rows

    def chosen(piece: Piece) -> tuple[ModelProgram, Piece]:
        rows = int(np.bincount(piece.rows.sequences).max())
        before = max(length + done for length, done in zip(cached, piece.before))
        return chosen_program(narrow, rows, before) or program, piece

    answers = int(answered[::-1].argmin()) if not answered.all() else count
    early = count - min(count, ceil_div(answers, most) * most)
    if prefill is None or early == 0 or count <= most or not _is_chain(rows):
        yield from map(chosen, pieces(rows, most, program.batch, cached))
        return
    index = np.arange(count)
    for first, size in cut_evenly(early, ceil_div(early, prefill.max_rows)):
        part = index[first:first + size]
        yield prefill, Piece(rows.take(part), part, (first,))
    if early < count:
        for piece in pieces(rows.take(index[early:]), most, 1, [cached[0] + early]):
            yield chosen(Piece(piece.rows, piece.index + early, (piece.before[0] + early,)))


def _is_chain(rows: Rows) -> bool:
    """Rows by token of one text, each of which sees all before it."""
    return rows.hidden is None and not rows.sequences.any() and np.array_equal(
        rows.mask, np.tri(len(rows), dtype=bool))


def _check_long(rows: Rows, own: Sequence[np.ndarray], max_rows: int) -> None:
    if rows.hidden is not None:
        raise ValueError(f"hidden rows must fit one launch of {max_rows}, not be {len(rows)}: pass them in parts")
    for index in own:
        chain = np.array_equal(rows.mask[np.ix_(index, index)], np.tri(len(index), dtype=bool))
        if len(index) > max_rows and not chain:
            raise ValueError(f"a tree must fit one launch of {max_rows} rows, not have {len(index)}: propose fewer")


def _filled(rows: Rows, parts: Sequence[np.ndarray], cached: Sequence[int]) -> Rows:
    """The rows of a launch; a sequence without any gets one, which nobody sees and its next pass overwrites."""
    found = [rows.take(part) if len(part) else Rows.chain([0], length) for part, length in zip(parts, cached)]
    made = Rows.batch(found)
    if rows.hidden is None:
        return made
    return made.entering(np.concatenate([
        part.hidden if part.hidden is not None else np.full(len(part), -1) for part in found]))
