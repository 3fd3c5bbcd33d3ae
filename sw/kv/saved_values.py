"""What the passes of a text left out of the values of its cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gemmule.sw.device.value_reads import ValueReads

__all__ = ["SavedValues"]


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
