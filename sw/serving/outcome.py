"""What serving gives: the clock, each request's times, what every pass took and what caches held."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmule.sw.decoding.generation import Generation
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.serving.arrivals import Arrival

__all__ = ["Clock", "Occupancy", "Outcome", "Served"]


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
        entered: it first got a sequence.
        times: end of each of its steps, with the tokens of that step.
        generation: its text.
        stopped: how often it left the batch to make room for others.
    """

    arrival: Arrival
    entered: int
    times: list[tuple[int, int]] = field(default_factory=list)
    generation: Generation | None = None
    stopped: int = 0

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
    """What a pass took, and what was there when it ended.

    Attributes:
        cycles: of the pass, host included.
        lengths: cached rows of each text.
        waiting: requests without a sequence.
        rows: of the pool that hold something, each once; None: there is no pool.
        taken: rows of the pages that were handed out.
    """

    cycles: int
    lengths: tuple[int, ...]
    waiting: int
    rows: int | None = None
    taken: int | None = None


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
