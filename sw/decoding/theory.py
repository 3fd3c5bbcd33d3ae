"""What speculative decoding should gain, from acceptance and costs.

Leviathan et al. 2023, equation 1 and theorem 3.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmule.sw.decoding.generate import Generation

__all__ = ["Theory", "acceptance_by_position", "expected_tokens", "theory"]


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
    """Of a run beside autoregressive decoding of the same text or law.

    Attributes:
        alpha: accepted drafts over those that were reached.
        draft_cost: c, cycles of a drafted token over those of an autoregressive step, the host's included.
        speedup: expected tokens over (c gamma + 1), with the drafts that the steps had.
        measured: of the steps behind the prompt; below ``speedup`` where a pass of several rows takes longer than one
            of one row, where the host's work a step counts twice, or where acceptance is no constant.
    """

    alpha: float
    draft_cost: float
    speedup: float
    measured: float


def theory(run: Generation, reference: Generation) -> Theory | None:
    """None where there is nothing to compare: no drafts, or no token."""
    if not run.drafted or not reference.steps:
        return None
    reached = sum(min(accepted + 1, drafted) for drafted, accepted in run.steps)
    alpha = sum(accepted for _, accepted in run.steps) / reached
    step = (reference.ledger.cycles - reference.prefill.cycles) / len(reference.steps)
    drafting = run.ledger.cycles_of("draft") - run.prefill.cycles_of("draft")
    cost = drafting / run.drafted / step
    tokens = sum(expected_tokens(alpha, drafted) for drafted, _ in run.steps) / len(run.steps)
    measured = len(run.tokens) * step / (run.ledger.cycles - run.prefill.cycles)
    return Theory(alpha, cost, tokens / (cost * run.drafted / len(run.steps) + 1), measured)
