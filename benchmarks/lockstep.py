"""Several texts decoded together on the integer interpreter: the passes that their loops want at a time are one pass.

Every text has a loop and a drafter of its own, in a thread; a pass begins when all texts that are not done wait for
one. So texts draft, accept and end by themselves, and the rows of a pass are ragged: what must not change a token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.sw.interpreted import InterpretedModel
from gemmule.sw.ledger import Ledger
from gemmule.sw.step import Forward, Want

__all__ = ["Lockstep", "Member"]


def joined(parts: Sequence[tuple[int, Rows]]) -> Rows:
    """Rows of several sequences, each with its number, as rows of one pass."""
    ends = np.cumsum([len(rows) for _, rows in parts])
    mask = np.zeros((ends[-1], ends[-1]), dtype=bool)
    for end, (_, rows) in zip(ends, parts, strict=True):
        mask[end - len(rows):end, end - len(rows):end] = rows.mask
    return Rows(tokens=np.concatenate([rows.tokens for _, rows in parts]),
                positions=np.concatenate([rows.positions for _, rows in parts]),
                sequences=np.concatenate([np.full(len(rows), number) for number, rows in parts]), mask=mask)


class Lockstep:
    """Runs texts on shared models, pass by pass."""

    def __init__(self) -> None:
        self.turn, self.left = threading.Condition(), 0
        self.wanted: dict[int, tuple[InterpretedModel, Rows]] = {}
        self.given: dict[int, Any] = {}
        self.failed: BaseException | None = None

    def run(self, texts: Sequence[Callable[[], None]]) -> None:
        """All of them, to their ends.

        Raises:
            BaseException: what the first one that failed raised.
        """
        self.left = len(texts)
        threads = [threading.Thread(target=self._text, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failed is not None:
            raise self.failed

    def _text(self, text: Callable[[], None]) -> None:
        try:
            text()
        except BaseException as error:
            self.failed = self.failed or error
        with self.turn:
            self.left -= 1
            self._pass()

    def logits(self, sequence: int, model: InterpretedModel, rows: Rows) -> np.ndarray:
        """Of all rows of a pass of one text  # int64 [rows, vocab]."""
        with self.turn:
            self.wanted[sequence] = model, rows
            self._pass()
            self.turn.wait_for(lambda: sequence in self.given or self.failed is not None)
            if self.failed is not None:
                raise RuntimeError("another text failed")
            return np.asarray(self.given.pop(sequence))

    def _pass(self) -> None:
        """If all texts that are left wait: what they wait for, model by model."""
        if not self.left or len(self.wanted) < self.left:
            return
        try:
            for model in {id(model): model for model, _ in self.wanted.values()}.values():
                parts = sorted((number, rows) for number, (wanted, rows) in self.wanted.items() if wanted is model)
                for number, rows in parts:
                    model.cache.truncate(int(rows.positions[0]), number)
                found = model.interpreter.forward(joined(parts), model.cache)
                ends = np.cumsum([len(rows) for _, rows in parts])
                self.given |= {number: found[end - len(rows):end] for end, (number, rows) in zip(ends, parts)}
        except BaseException as error:
            self.failed = self.failed or error
        self.wanted.clear()
        self.turn.notify_all()


class Member(InterpretedModel):
    """A shared model as the loop of one text sees it."""

    def __init__(self, lockstep: Lockstep, shared: InterpretedModel, sequence: int) -> None:
        super().__init__(shared.name, shared.network, shared.program, None)
        self.lockstep, self.shared, self.sequence = lockstep, shared, sequence
        self.cache = shared.cache

    def charging(self, ledger: Ledger) -> Member:
        return self  # nothing is charged

    def forward(self, rows: Rows, want: Any = None, kv: None = None, *, layers: None = None) -> Forward:
        want = want if isinstance(want, Want) else Want(last=want)
        logits = self.lockstep.logits(self.sequence, self.shared, rows)
        found = logits if want.last is None else logits[len(logits) - want.last:]
        return Forward(found.argmax(axis=1).tolist(), (), found.astype(np.int16) if want.logits else None)

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
        return super().commit(position, path, self.sequence)
