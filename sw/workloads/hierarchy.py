"""What drafting in a small cache gives, by what passes cost and how often drafts stay (Leviathan et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Hierarchy", "expected_tokens"]


def expected_tokens(accepted: float, drafts: int) -> float:
    """Of a step with so many drafts, each accepted with this chance if those before it are (their equation 1)."""
    return float(drafts + 1) if accepted == 1 else (1 - accepted ** (drafts + 1)) / (1 - accepted)


@dataclass(frozen=True, kw_only=True)
class Hierarchy:
    """Cycles of both levels, the host's launches included.

    Attributes:
        whole: of a pass over the whole cache, by rows.
        small: of a pass over the small one, by rows.
        lowest: of what the lowest level proposes for such a pass.
        step: of the host in each step, and of the copy of what the step adds.
        retrieval: of choosing rows, for each token of the text.
    """

    whole: Mapping[int, int]
    small: Mapping[int, int]
    lowest: int = 0
    step: int = 0
    retrieval: float = 0.0

    def speed_up(self, accepted: float, drafts: int, proposed: int = 0, kept: float = 0.0) -> float:
        """Over autoregressive decoding.

        ``accepted``: chance that the whole cache accepts a draft of the small one. ``proposed``: tokens that the lowest
        level proposes for a pass of the small one, each ``kept`` with this chance.
        """
        passes = max(1.0, drafts / expected_tokens(kept, proposed))
        tokens = expected_tokens(accepted, drafts)
        cost = passes * (self.small[proposed + 1] + self.lowest) + self.whole[drafts + 1] + self.step
        return tokens * (self.whole[1] + self.step) / (cost + tokens * self.retrieval)

    def below_alone(self, proposed: int, kept: float) -> float:
        """The same of the lowest level without the small cache: what it proposes goes to the whole one."""
        tokens = expected_tokens(kept, proposed)
        return tokens * (self.whole[1] + self.step) / (self.whole[proposed + 1] + self.lowest + self.step)

    def best(self, accepted: float, proposed: int = 0, kept: float = 0.0) -> tuple[int, float]:
        """The number of drafts that gives most, and what it gives."""
        drafts = max((rows - 1 for rows in self.whole if rows > 1),
                     key=lambda count: self.speed_up(accepted, count, proposed, kept))
        return drafts, self.speed_up(accepted, drafts, proposed, kept)

    def needed(self, wanted: float, drafts: int, proposed: int = 0, kept: float = 0.0) -> float | None:
        """The chance of acceptance that gives a speed-up; None: none does."""
        if self.speed_up(1.0, drafts, proposed, kept) < wanted:
            return None
        low, high = 0.0, 1.0
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (low, middle) if self.speed_up(middle, drafts, proposed, kept) >= wanted else (middle, high)
        return high
