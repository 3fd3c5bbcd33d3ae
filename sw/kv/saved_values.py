"""What the passes of a text left out of the values of its cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["SavedValues", "ValueReads"]


@dataclass
class ValueReads:
    """Sums over the launches of a model whose probabilities decide which values are loaded."""

    saved: int = 0
    """Bytes of values that were not loaded."""
    top_k_cycles: int = 0
    top_k_exposed: int = 0
    """Of these, with no command of another unit under way."""

    def since(self, before: ValueReads) -> ValueReads:
        """What was added to ``before``."""
        return ValueReads(self.saved - before.saved, self.top_k_cycles - before.top_k_cycles,
                          self.top_k_exposed - before.top_k_exposed)

    def plus(self, other: ValueReads) -> ValueReads:
        """The sums of both."""
        return ValueReads(self.saved + other.saved, self.top_k_cycles + other.top_k_cycles,
                          self.top_k_exposed + other.top_k_exposed)


class SavedValues:
    """Of the launches of a model those that a cache tells of."""

    def __init__(self, model: Any) -> None:
        """``model``: whose ``value_reads`` are the sums of all of its launches; None: nothing is ever left out."""
        self.every: ValueReads | None = getattr(model, "value_reads", None)
        self.before, self.sums = replace(self.every) if self.every else ValueReads(), ValueReads()

    def passed(self, cached: int) -> None:
        """A pass has run behind ``cached`` rows; the first one of a text reads none."""
        if self.every:
            if cached:
                self.sums = self.sums.plus(self.every.since(self.before))
            self.before = replace(self.every)
