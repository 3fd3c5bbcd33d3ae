"""A pass of the target that was made in the launch of the drafts which it verifies, before anybody asked for it."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.sw.step import Forward, Want

__all__ = ["Ahead"]


class Ahead:
    """Answers behind a chain of tokens, for who asks next: shared by a draft model, whose launches make them, and the
    target.
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._position = 0
        self._answers: Forward | None = None

    def put(self, tokens: list[int], position: int, answers: Forward) -> None:
        """Answers behind each of ``tokens``, which stand behind ``position`` cached rows."""
        self._tokens, self._position, self._answers = tokens, position, answers

    def take(self, rows: Rows, want: Want, cached: int) -> Forward | None:
        """The answers of a pass over ``rows``, if it is the one that was made; they are gone after any question."""
        answers, self._answers = self._answers, None
        if answers is None or cached != self._position or not want.plain or want.last is not None:
            return None
        same = rows.tokens.tolist() == self._tokens and np.array_equal(rows.mask, np.tri(len(rows), dtype=bool))
        return answers if same and rows.hidden is None else None
