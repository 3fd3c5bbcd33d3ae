"""What serves: sessions of a batch, the texts that each request gives alone, and a run by each method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from gemmule.config import Config
from gemmule.io.progress import counting
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import Session, rows_of
from gemmule.sw.errors import InputError
from gemmule.sw.models.pair import Pair
from gemmule.sw.serving.arrivals import Arrival
from gemmule.sw.serving.serve import serve
from gemmule.sw.serving.summary import summary

__all__ = ["ServingPlan"]


@dataclass(kw_only=True)
class ServingPlan:
    """Sessions as methods need them. A context manager.

    Attributes:
        batch: texts of a pass at most.
        ahead: prompts go by a program of their own.
        drafts: tokens of a step at most.
        interpreted: values by the integer interpreter.
        context: positions of a text; None: the model's own.
        pool: rows of a cache that texts share in pages of ``page`` rows; 0: each has a whole context.
        shared: tokens with which all prompts begin.
        adaptive: steps draft and verify as many candidates as pay.
    """

    device: Config
    pair: Pair
    batch: int
    ahead: bool
    drafts: int
    methods: Sequence[str]
    interpreted: bool
    context: int | None
    pool: int
    page: int
    shared: Sequence[int] = ()
    adaptive: bool = False
    _opened: ExitStack = field(default_factory=ExitStack)
    _shared: dict[tuple[bool, int], Session] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.general = any(METHODS[name].needs_general for name in self.methods)
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    @property
    def room(self) -> int:
        """Tokens of a text at most, its prompt included."""
        return next(iter(self._shared.values())).target.room

    def references(self, arrivals: Sequence[Arrival], stop: frozenset[int]) -> list[list[int]]:
        """What each request gives alone, by autoregressive decoding."""
        alone = self._opened.enter_context(Session(self.device, pair=self.pair, interpreted=self.interpreted))
        found = []
        with counting("texts alone", len(arrivals)) as tell:
            for number, arrival in enumerate(arrivals, 1):
                found.append(alone.generate("ar", list(arrival.ids), arrival.new_tokens, None, stop).tokens)
                tell(number, arrival.name)
        return found

    def run(self, method: str, arrivals: Sequence[Arrival], references: Sequence[list[int]], stop: frozenset[int],
            progress: Callable[[int, str], None] | None = None) -> dict[str, Any]:
        """All requests by one method: a row of the table; ``equal``: texts that are the ``references``.

        Raises:
            InputError: a prompt does not fit.
        """
        drafts = METHODS[method].drafts
        count = None if drafts is None else self.drafts
        session = self._session(rows_of(self.batch, count or 0), METHODS[method].needs_general)
        try:
            outcome = serve(session, arrivals, method, count, stop, pieces=not self.ahead,
                            adaptive=self.adaptive, shared=self.shared if self.pool else (), progress=progress)
        except ValueError as error:
            raise InputError(str(error)) from None
        texts = [one.generation.tokens if one.generation else [] for one in outcome.served]
        return {"method": method, "drafts": count or 0, "rows_per_text": session.target.program.max_rows,
                "kv_bytes": session.target.kv_bytes,
                "equal": sum(text == known for text, known in zip(texts, references, strict=True)),
                **summary(outcome, self.device, session.target.room, self.page)}

    def _session(self, rows: int, general: bool) -> Session:
        """The one with so many rows of each text."""
        if (general, rows) not in self._shared:
            self._shared[general, rows] = self._opened.enter_context(Session(
                self.device, pair=self.pair, general=general, interpreted=self.interpreted, batch=self.batch,
                rows=rows, ahead=self.ahead, context=self.context, pool=self.pool, page=self.page))
        return self._shared[general, rows]
