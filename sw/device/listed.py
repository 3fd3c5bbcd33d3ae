"""Rows of a pool that a pass reads and writes, where caches go by list (pages)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.cache_list import nobody
from gemmule.compiler.programs.model_program import ModelProgram, Places
from gemmule.sw.device.pieces import Piece
from gemmule.sw.kv.paged import NobodyKV, PagedKV
from gemmule.sw.step import KV

__all__ = ["Listed", "listed_piece", "places_of"]


class Listed(Protocol):
    """A model that may have its caches by list."""

    name: str
    program: ModelProgram

    @property
    def first(self) -> int: ...


def places_of(model: Listed, caches: Sequence[KV], rows: Rows) -> list[np.ndarray] | None:
    """Of each sequence rows of the pool for its cached and new positions, constant ones first; None: not by list.

    New rows are taken now.

    Raises:
        ValueError: caches of another kind than the program's, or a full pool.
    """
    listed, found = model.program.pool > 0, []
    for kv in caches:
        if listed is not isinstance(kv, PagedKV | NobodyKV):
            raise ValueError(f"{model.name}: a {'paged' if listed else 'contiguous'} program takes caches of its own "
                             "kind: make them with the model's kv()")
        if isinstance(kv, PagedKV | NobodyKV):
            own = kv.places(int((rows.sequences == kv.sequence).sum()))
            found.append(np.concatenate([np.arange(model.first), own]))
    return found if listed else None


def listed_piece(program: ModelProgram, places: list[np.ndarray], lengths: Sequence[int], piece: Piece) -> Places:
    """What of it a launch reads and writes, behind so many cached rows of each sequence.

    A row that only fills a sequence's place goes where nobody reads.
    """
    counts = np.bincount(piece.rows.sequences, minlength=program.batch).tolist()
    if program.batch == 1:
        return places[0][:lengths[0] + counts[0]]
    fills = set(piece.rows.sequences[piece.index < 0].tolist())
    blank = np.array([nobody(program.graph.prefix)])
    return [np.concatenate([own[:length], blank]) if sequence in fills else own[:length + count]
            for sequence, (own, length, count) in enumerate(zip(places, lengths, counts))]
