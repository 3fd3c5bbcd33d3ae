"""Continuous batching: requests join and leave a running batch between passes, by the exact clock of device and host.

The clock counts what every launch takes on the device, the host's work for it and for each text's step, and the time in
which nothing is there to do. A request waits until a sequence of the batch is free, first come, first served. Where
caches share a pool of pages it also waits until the pages of its prompt are free; where texts that grow find no page,
the one that came last leaves the batch, and its rows are passed again when it comes back (recomputation, as in vLLM,
Kwon et al. 2023).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

from gemmule.sw.decoding.asking import Batch
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods import DRAFT
from gemmule.sw.decoding.session import NONE, Session
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.kv.paged import PagedKV
from gemmule.sw.kv.text import TextKV
from gemmule.sw.serving.arrivals import Arrival
from gemmule.sw.serving.outcome import Clock, Occupancy, Outcome, Served
from gemmule.sw.step import KV, Ask, Asking

__all__ = ["serve"]


def serve(session: Session, arrivals: Sequence[Arrival], method: str, drafts: int | None, stop: frozenset[int], *,
          pieces: bool = False, lengths: str = "constant", options: Mapping[str, Any] = NONE,
          adaptive: bool = False, shared: Sequence[int] = (),
          progress: Callable[[int, str], None] | None = None) -> Outcome:
    """Serve requests by ``method`` in the order in which they arrive, as many at a time as the session's batch has.

    ``pieces``: rows of a prompt go beside the rows that decode; else the whole prompt goes ahead. ``shared``: tokens
    with which all prompts begin, whose rows are cached once, before the first request is served; with a pool only.
    ``adaptive``: steps draft and verify as many candidates as pay (:mod:`gemmule.sw.decoding.adaptive`).
    ``progress``: gets how many requests are done, and the name of the last one.

    Raises:
        InputError: an option is outside its range.
        ValueError: a request does not fit the context or the pool.
    """
    server = _Server(session, stop, method, drafts, pieces, lengths, options, adaptive)
    try:
        if shared:
            server.keep(shared)
        server.check(arrivals)
        server.run(arrivals, progress)
    finally:
        server.close()
    return Outcome(list(server.served.values()), server.passes, server.clock)


class _Server:
    """A run of requests."""

    def __init__(self, session: Session, stop: frozenset[int], method: str, drafts: int | None, pieces: bool,
                 lengths: str, options: Mapping[str, Any], adaptive: bool) -> None:
        self.session, self.stop, self.method, self.drafts = session, stop, method, drafts
        self.lengths, self.options = lengths, options
        self.ledger, self.pool = Ledger(session.config), session.target.pages
        self.clock = Clock(self.ledger)
        self.batch = Batch[int, Generation]((DRAFT, TARGET), session.batch, pieces=pieces)
        self.pace = session.pace(method, drafts, lengths)
        self.steps = session.steps(GREEDY, self.ledger) if adaptive else None
        self.served: dict[int, Served] = {}
        self.talks: dict[int, Conversation] = {}
        """Of the texts in the batch."""
        self.parked: deque[tuple[int, Conversation, Asking[Generation], int]] = deque()
        """Texts that left the batch, the one that came first first: what they wait for, and how many rows they had."""
        self.passes: list[Occupancy] = []
        self.keeper: TextKV | None = None
        """Has the rows with which all prompts begin."""

    def check(self, arrivals: Sequence[Arrival]) -> None:
        """Refuse what could never be served; raises ValueError."""
        target, pool = self.session.target, self.pool
        for arrival in arrivals:
            most = len(arrival.ids) + arrival.new_tokens
            if most > target.room:
                raise ValueError(f"{arrival.name}: a prompt and its new tokens must fit the context of {target.room}, "
                                 f"not {len(arrival.ids)} + {arrival.new_tokens}: ask for fewer, or shorten the prompt")
            if pool and (needed := self._pages(most)) > pool.free_pages:
                raise ValueError(f"{arrival.name}: the pool must have {needed} free pages of {pool.page} rows for a "
                                 f"request, not {pool.free_pages}: take a larger pool")

    def keep(self, shared: Sequence[int]) -> None:
        """Cache the tokens with which all prompts begin.

        Raises:
            ValueError: there is no pool.
        """
        if self.pool is None:
            raise ValueError("texts share the rows of what they begin with in a pool of pages: make the session with "
                             "pool=")
        target = self.session.target.charging(self.ledger)
        first = target.kv()
        batch = Batch[int, int]((TARGET,), self.batch.batch, pieces=self.batch.pieces)
        batch.enter(0, first.begin([*shared, shared[-1]]))
        while batch.busy:
            batch.turn()
        self.keeper = target.kv(self.batch.batch)
        self.keeper.sequence = 2 * self.batch.batch
        first.fork(self.keeper)
        first.rewind(0)

    def close(self) -> None:
        """Give back the pages of what is still there."""
        for kv in (*(talk.cached for talk in self.talks.values()), *([self.keeper] if self.keeper else [])):
            kv.rewind(0)

    def run(self, arrivals: Sequence[Arrival], progress: Callable[[int, str], None] | None) -> None:
        """All of them."""
        waiting = deque(enumerate(arrivals))
        while waiting or self.parked or self.batch.busy:
            self._admit(waiting)
            if not self.batch.busy:
                self.clock.wait(waiting[0][1].at)
                continue
            self.batch.meet()
            self._make_room()
            before = self.clock.now
            self.batch.turn()
            late = sum(arrival.at <= self.clock.now for _, arrival in waiting) + len(self.parked)
            self.passes.append(self._occupancy(self.clock.now - before, late))
            for number in [number for number in self.talks if number in self.batch.done]:
                self.served[number].generation = self.batch.done[number]
                self.talks.pop(number).close()
                if progress:
                    progress(sum(one.generation is not None for one in self.served.values()),
                             self.served[number].arrival.name)

    def _admit(self, waiting: deque[tuple[int, Arrival]]) -> None:
        """Texts that had left come first, then requests that have arrived; nobody overtakes."""
        while self.batch.free and self.parked and self._fits(self.parked[0][3]):
            number, talk, asking, _ = self.parked.popleft()
            self.talks[number] = talk
            self._begin_shared(talk)
            self.batch.enter(number, asking)
        while self.batch.free and not self.parked and waiting and waiting[0][1].at <= self.clock.now and self._fits(
                len(waiting[0][1].ids)):
            number, arrival = waiting.popleft()
            one = self.served[number] = Served(arrival, self.clock.now)
            talk = self.talks[number] = self.session.converse(
                self.method, self.drafts, self.stop, lengths=self.lengths, options=self.options, ledger=self.ledger,
                pace=self.pace, adaptive=self.steps is not None, steps=self.steps)
            self._begin_shared(talk)
            self.batch.enter(number, talk.turning(list(arrival.ids), arrival.new_tokens, self._telling(one)))

    def _begin_shared(self, talk: Conversation) -> None:
        """A text that enters begins with the rows that all share."""
        if self.keeper:
            talk.cached.sequence = self.batch.next
            self.keeper.fork(talk.cached)

    def _telling(self, one: Served) -> Callable[[list[int]], None]:
        """Notes when a request gets tokens."""
        return lambda new: one.times.append((self.clock.now, len(new)))

    def _pages(self, rows: int) -> int:
        """Pages that a text of so many rows takes at most, and a step behind them."""
        assert self.pool is not None
        own = rows - (self.keeper.length if self.keeper else 0) + self.session.target.program.max_rows
        return ceil(own / self.pool.page)

    def _lacking(self, kv: KV, rows: int) -> int:
        """Pages that so many more rows of a text take."""
        return kv.lacking(rows) if isinstance(kv, PagedKV) else 0

    def _fits(self, rows: int) -> bool:
        """Whether a text of so many rows finds pages, and all others for their next step."""
        most = self.session.target.program.max_rows
        return self.pool is None or self._pages(rows) + sum(
            self._lacking(talk.cached, max(most, len(talk.window) - talk.cached.length))
            for talk in self.talks.values()) <= self.pool.free_pages

    def _make_room(self) -> None:
        """Let the texts that came last leave until all others find pages for the next pass of the target."""
        pool, asking = self.pool, self.batch.asking()
        if pool is None or next(iter(asking.values())).model.name != TARGET:
            return
        most = self.session.target.program.max_rows if self.batch.pieces else self.session.target.room
        while len(asking) > 1 and sum(
                self._lacking(ask.kv, min(most, len(ask.rows))) for ask in asking.values()) > pool.free_pages:
            last = max(asking)
            del asking[last]
            text, ask = self.batch.leave(last)
            talk = self.talks.pop(last)
            ids = list(talk.cached.ids)
            talk.cached.rewind(0)
            self.parked.appendleft((last, talk, _again(text, ask, talk.cached, ids), len(ids) + len(ask.rows)))
            self.served[last].stopped += 1

    def _occupancy(self, cycles: int, late: int) -> Occupancy:
        lengths, pool = tuple(talk.cached.length for talk in self.talks.values()), self.pool
        if pool is None:
            return Occupancy(cycles, lengths, late)
        named = pool.named.reshape(-1, pool.page) > 0
        named = named[-(-(self.session.target.first + 1) // pool.page):]  # constant rows are nobody's
        return Occupancy(cycles, lengths, late, int(named.sum()), int(named.any(axis=1).sum()) * pool.page)


def _again(text: Asking[Generation], ask: Ask, kv: TextKV, ids: Sequence[int]) -> Asking[Generation]:
    """A text that comes back: it passes the tokens ``ids`` that were cached, and asks again what it waited for."""
    if ids:
        yield from kv.begin([*ids, ids[-1]])
    answer = yield ask
    while True:
        try:
            question = text.send(answer)
        except StopIteration as done:
            found: Generation = done.value
            return found
        answer = yield question
