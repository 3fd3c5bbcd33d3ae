"""What a run of requests comes to: latency, throughput, and what caches hold beside what they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from gemmule.config import Config
from gemmule.sw.serving.outcome import Occupancy, Outcome

__all__ = ["SHARES", "Waste", "percentile", "summary", "waste"]

SHARES = (50, 90, 99)
"""Percentiles that are told."""


def percentile(values: Sequence[float], share: int) -> float:
    """The least value that so many percent of the values do not exceed (nearest rank).

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    return sorted(values)[max(0, ceil(share / 100 * len(values)) - 1)]


@dataclass(frozen=True)
class Waste:
    """Rows of caches over a run, each pass by its cycles; shares of the rows taken that hold nothing.

    Attributes:
        rows: that hold a token, in the mean.
        reserved: share wasted where each text reserves a whole context.
        asked: the same where each reserves what its prompt and most new tokens take.
        paged: the same in pages that texts take as they grow.
    """

    rows: float
    reserved: float
    asked: float
    paged: float


def waste(passes: Sequence[Occupancy], room: int, page: int, asked: float) -> Waste:
    """Of the passes of a run; ``room``: positions of a context, ``asked``: rows that a request asks for in the mean."""
    cycles = max(1, sum(one.cycles for one in passes))

    def mean(rows: Sequence[float]) -> float:
        return sum(count * one.cycles for count, one in zip(rows, passes, strict=True)) / cycles

    texts, held = (mean(rows) for rows in ([len(one.lengths) for one in passes], [sum(one.lengths) for one in passes]))
    used, taken = held, mean([sum(ceil(length / page) * page for length in one.lengths) for one in passes])
    if passes and passes[0].taken is not None:  # a pool, in which texts may share rows
        used, taken = (mean([rows or 0 for rows in found]) for found in (
            [one.rows for one in passes], [one.taken for one in passes]))

    def wasted(used: float, taken: float) -> float:
        return max(0.0, 1 - used / taken) if taken else 0.0

    return Waste(used, wasted(held, texts * room), wasted(held, texts * asked), wasted(used, taken))


def summary(outcome: Outcome, config: Config, room: int, page: int) -> dict[str, Any]:
    """Figures of a run in seconds of the device's clock: latencies of requests, tokens a second, caches."""
    second, served = config.host.clock_mhz * 1e6, outcome.served
    per_token = [one.per_token for one in served if one.per_token is not None]
    arrived = served[-1].arrival.at - served[0].arrival.at
    busy = sum(one.cycles for one in outcome.passes)
    steps = [step for one in served if one.generation for step in one.generation.steps]
    asked = sum(len(one.arrival.ids) + one.arrival.new_tokens for one in served) / len(served)
    held = waste(outcome.passes, room, page, min(asked, room))

    def shares(values: Sequence[float]) -> dict[str, float]:
        return {f"p{share}": percentile(values, share) / second for share in SHARES}

    return {
        "requests": len(served), "tokens": outcome.tokens,
        "offered_per_second": (len(served) - 1) / (arrived / second) if arrived else None,
        "seconds": outcome.span / second, "tokens_per_second": outcome.tokens / (outcome.span / second),
        "cycles": outcome.clock.ledger.cycles, "idle_cycles": outcome.clock.idle,
        "launches": dict(outcome.clock.ledger.launches), "passes": len(outcome.passes),
        "tokens_per_step": outcome.tokens / max(1, len(steps)),
        "accepted": sum(took for _, took in steps) / max(1, sum(drafted for drafted, _ in steps)),
        "texts_per_pass": sum(len(one.lengths) * one.cycles for one in outcome.passes) / max(1, busy),
        "stopped": sum(one.stopped for one in served),
        "most_waiting": max((one.waiting for one in outcome.passes), default=0),
        "seconds_to_first_token": shares([one.to_first for one in served]),
        "seconds_per_token": shares(per_token) if per_token else None,
        "seconds_latency": shares([one.latency for one in served]),
        "seconds_waiting": shares([one.entered - one.arrival.at for one in served]),
        "kv_rows": held.rows, "waste_reserved": held.reserved, "waste_asked": held.asked, "waste_paged": held.paged}
