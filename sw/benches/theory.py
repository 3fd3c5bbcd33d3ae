"""The speed-up of speculative decoding predicted from acceptance and costs.

See Leviathan et al. 2023, equation 1 and theorem 3.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.sw.decoding.generate import Generation

__all__ = ["Theory", "acceptance_by_position", "best_length", "break_even", "expected_tokens", "theory", "theory_of"]


def expected_tokens(alpha: float, gamma: int) -> float:
    """Expected tokens of a step with ``gamma`` drafts, each accepted with chance ``alpha`` if all before it were."""
    return sum(alpha ** i for i in range(gamma + 1))


def acceptance_by_position(steps: Sequence[tuple[int, int]]) -> list[float]:
    """At each position, the accepted share of the drafts whose predecessors were accepted."""
    most = max((drafted for drafted, _ in steps), default=0)
    found = []
    for place in range(most):
        tried = [accepted > place for drafted, accepted in steps if drafted > place <= accepted]
        if not tried:
            break
        found.append(sum(tried) / len(tried))
    return found


@dataclass(frozen=True)
class Theory:
    """A run compared with autoregressive decoding of the same text or distribution; both exclude the prompt.

    Attributes:
        alpha: accepted drafts divided by drafts whose predecessors were accepted.
        draft_cost: c, cycles per drafted token divided by those of an autoregressive step, host included.
        drafts: mean number of drafts per step.
        tokens: expected tokens per step, a geometric sum.
        tokens_share: measured tokens per step divided by expected ones; differs from 1 if acceptance varies.
        cycles_share: expected cycles of a step, (c drafts + 1) autoregressive steps, divided by measured ones; below 1
            if a pass over several rows takes longer than a pass over one.
    """

    alpha: float
    draft_cost: float
    drafts: float
    tokens: float
    tokens_share: float
    cycles_share: float

    @property
    def speedup(self) -> float:
        """Expected tokens divided by (c drafts + 1)."""
        return self.tokens / self.worst_case

    @property
    def measured(self) -> float:
        """The measured speed-up: theory times both shares."""
        return self.speedup * self.tokens_share * self.cycles_share

    @property
    def worst_case(self) -> float:
        """Predicted cost of a step in autoregressive steps: the slow-down if no draft is accepted."""
        return self.draft_cost * self.drafts + 1


def break_even(drafts: float, cost: float) -> float | None:
    """The acceptance at which steps of so many drafts, each at ``cost`` steps of autoregressive decoding, gain nothing.

    None: nothing is drafted, or so many tokens cannot make up for it.
    """
    count = round(drafts)
    if count < 1 or cost > count + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, count) < cost else (low, middle)
    return high


def theory_of(steps: Sequence[tuple[int, int]], tokens: int, *, drafting: float, cycles: float,
              step: float) -> Theory | None:
    """Theory for (drafted, accepted) steps that gave ``tokens`` in ``cycles``, ``drafting`` of them for drafts.

    ``step``: cycles of an autoregressive step. None if nothing was drafted.
    """
    drafted = sum(d for d, _ in steps)
    if not drafted:
        return None
    alpha = sum(accepted for _, accepted in steps) / sum(min(accepted + 1, d) for d, accepted in steps)
    cost, drafts = drafting / drafted / step, drafted / len(steps)
    expected = sum(expected_tokens(alpha, d) for d, _ in steps) / len(steps)
    return Theory(alpha, cost, drafts, expected, tokens / len(steps) / expected,
                  (cost * drafts + 1) * step / (cycles / len(steps)))


def theory(run: Generation, reference: Generation) -> Theory | None:
    """Theory for a run; None if there is nothing to compare: no drafts, or no token."""
    if not reference.steps:
        return None
    return theory_of(run.steps, len(run.tokens), cycles=run.ledger.cycles - run.prefill.cycles,
                     drafting=run.ledger.cycles_of("draft") - run.prefill.cycles_of("draft"),
                     step=(reference.ledger.cycles - reference.prefill.cycles) / len(reference.steps))


def best_length(acceptance: Sequence[float], draft_cost: float, verify: Mapping[int, float]) -> tuple[int, float]:
    """The draft length with the most expected tokens per cycle, and its speed-up.

    ``acceptance``: by position, among drafts whose predecessors were accepted. ``verify``: cost of a pass by number of
    rows, relative to a pass over one row; interpolated linearly.

    Raises:
        ValueError: no acceptance, or no cost of a pass.
    """
    if not acceptance or not verify:
        raise ValueError("the best draft length needs acceptance of a position and the cost of a pass, not none")
    rows = sorted(verify)
    costs, found, tokens, chance = [verify[count] for count in rows], [], 1.0, 1.0
    for count, share in enumerate(acceptance, 1):
        chance *= share
        tokens += chance
        found.append((tokens / (float(np.interp(count + 1, rows, costs)) + count * draft_cost), count))
    gain, count = max(found)
    return count, gain
