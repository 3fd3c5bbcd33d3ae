"""What speculative decoding should gain, from acceptance and costs.

Leviathan et al. 2023, equation 1 and theorem 3.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.sw.decoding.generate import Generation

__all__ = ["Theory", "acceptance_by_position", "best_length", "expected_tokens", "theory", "theory_of"]


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens a step of ``gamma`` drafts, each accepted with ``alpha`` where all before it were: a geometric sum."""
    return sum(alpha ** i for i in range(gamma + 1))


def acceptance_by_position(steps: Sequence[tuple[int, int]]) -> list[float]:
    """Of the drafts at each position whose predecessors were accepted, the accepted share."""
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
    """Of a run beside autoregressive decoding of the same text or law, both behind the prompt.

    Attributes:
        alpha: accepted drafts over those that were reached.
        draft_cost: c, cycles of a drafted token over those of an autoregressive step, the host's included.
        drafts: of a step, mean.
        tokens: of a step, expected: a geometric sum.
        tokens_share: tokens of a step over the expected ones; other than 1 where acceptance is no constant.
        cycles_share: expected cycles of a step, (c drafts + 1) autoregressive ones, over those that it took; below 1
            where a pass of several rows takes longer than one of one row.
    """

    alpha: float
    draft_cost: float
    drafts: float
    tokens: float
    tokens_share: float
    cycles_share: float

    @property
    def speedup(self) -> float:
        """Expected tokens over (c drafts + 1)."""
        return self.tokens / self.worst_case

    @property
    def measured(self) -> float:
        """What was gained: theory times both shares."""
        return self.speedup * self.tokens_share * self.cycles_share

    @property
    def worst_case(self) -> float:
        """How much longer a step takes in theory than an autoregressive one: the loss where nothing is accepted."""
        return self.draft_cost * self.drafts + 1


def theory_of(steps: Sequence[tuple[int, int]], tokens: int, *, drafting: float, cycles: float,
              step: float) -> Theory | None:
    """Of (drafted, accepted) steps that gave ``tokens`` in ``cycles``, of which ``drafting`` were the drafts'.

    ``step``: cycles of an autoregressive step. None where nothing was drafted.
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
    """None where there is nothing to compare: no drafts, or no token."""
    if not reference.steps:
        return None
    return theory_of(run.steps, len(run.tokens), cycles=run.ledger.cycles - run.prefill.cycles,
                     drafting=run.ledger.cycles_of("draft") - run.prefill.cycles_of("draft"),
                     step=(reference.ledger.cycles - reference.prefill.cycles) / len(reference.steps))


def best_length(acceptance: Sequence[float], draft_cost: float, verify: Mapping[int, float]) -> tuple[int, float]:
    """The draft length with the most expected tokens a cycle, and its speed-up.

    ``acceptance``: by position, of the drafts that were reached. ``verify``: cost of a pass by rows, over one of one
    row; between two it is on their line.

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
