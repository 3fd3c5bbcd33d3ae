"""Continuous batching: requests join and leave a running batch between passes, by the exact clock of device and host.

The clock counts what every launch takes on the device, the host's work for it and for each text's step, and the time in
which nothing is there to do. A request waits until a sequence of the batch is free (first come, first served).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmule.sw.decoding.asking import Batch
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods import DRAFT
from gemmule.sw.decoding.session import NONE, Session
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.serving.arrivals import Arrival

__all__ = ["Clock", "Occupancy", "Outcome", "Served", "serve"]


@dataclass
class Clock:
    """Cycles since the begin: those of a ledger, and those in which nothing was there to do."""

    ledger: Ledger
    idle: int = 0

    @property
    def now(self) -> int:
        """The time."""
        return self.ledger.cycles + self.idle

    def wait(self, until: int) -> None:
        """Nothing is there to do before this time."""
        self.idle += max(0, until - self.now)


@dataclass
class Served:
    """A request and when things happened, in cycles.

    Attributes:
        entered: it got a sequence.
        times: end of each of its steps, with the tokens of that step.
        generation: its text.
    """

    arrival: Arrival
    entered: int
    times: list[tuple[int, int]] = field(default_factory=list)
    generation: Generation | None = None

    @property
    def first(self) -> int:
        """When its first token was there."""
        return self.times[0][0]

    @property
    def last(self) -> int:
        """When its last token was there."""
        return self.times[-1][0]

    @property
    def tokens(self) -> int:
        """How many it got."""
        return sum(count for _, count in self.times)

    @property
    def to_first(self) -> int:
        """Cycles from its arrival to its first token."""
        return self.first - self.arrival.at

    @property
    def latency(self) -> int:
        """Cycles from its arrival to its last token."""
        return self.last - self.arrival.at

    @property
    def per_token(self) -> float | None:
        """Cycles a token behind the first one; None where there is one alone."""
        return (self.last - self.first) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True)
class Occupancy:
    """What a pass took, and the texts that were there when it ended.

    Attributes:
        cycles: of the pass, host included.
        lengths: cached rows of each text.
        waiting: requests without a sequence.
    """

    cycles: int
    lengths: tuple[int, ...]
    waiting: int


@dataclass
class Outcome:
    """A run: requests in the order in which they arrived, and every pass."""

    served: list[Served]
    passes: list[Occupancy]
    clock: Clock

    @property
    def tokens(self) -> int:
        """New tokens of all requests."""
        return sum(one.tokens for one in self.served)

    @property
    def span(self) -> int:
        """Cycles from the first arrival to the last token."""
        return max(one.last for one in self.served) - self.served[0].arrival.at


def serve(session: Session, arrivals: Sequence[Arrival], method: str, drafts: int | None, stop: frozenset[int], *,
          pieces: bool = False, lengths: str = "constant", options: Mapping[str, Any] = NONE,
          progress: Callable[[int, str], None] | None = None) -> Outcome:
    """Serve requests by ``method`` in the order in which they arrive, as many at a time as the session's batch has.

    ``pieces``: rows of a prompt go beside the rows that decode; else the whole prompt goes ahead. ``progress``: gets
    how many requests are done, and the name of the last one.

    Raises:
        InputError: an option is outside its range.
        ValueError: a prompt does not fit the context.
    """
    ledger = Ledger(session.config)
    clock, batch = Clock(ledger), Batch[int, Generation]((DRAFT, TARGET), session.target.program.batch, pieces=pieces)
    waiting, served, talks = deque(enumerate(arrivals)), list[Served](), dict[int, Conversation]()
    passes: list[Occupancy] = []
    while waiting or batch.busy:
        while waiting and batch.free and waiting[0][1].at <= clock.now:
            number, arrival = waiting.popleft()
            talk = session.converse(method, drafts, stop, lengths=lengths, options=options, ledger=ledger)
            one = Served(arrival, clock.now)

            def told(new: list[int], one: Served = one) -> None:
                one.times.append((clock.now, len(new)))

            talks[number] = talk
            served.append(one)
            batch.enter(number, talk.turning(list(arrival.ids), arrival.new_tokens, told))
        if not batch.busy:
            clock.wait(waiting[0][1].at)
            continue
        before = clock.now
        batch.turn()
        passes.append(Occupancy(clock.now - before, tuple(talk.cached.length for talk in talks.values()), sum(
            arrival.at <= clock.now for _, arrival in waiting)))
        for number in [number for number in talks if number in batch.done]:
            served[number].generation = batch.done[number]
            talks.pop(number).close()
            if progress:
                progress(len(batch.done), served[number].arrival.name)
    return Outcome(served, passes, clock)
