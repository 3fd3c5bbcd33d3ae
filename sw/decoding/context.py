"""What becomes of a text that fills the context.

Keys are cached as their positions turned them, so cached rows cannot move to other positions. What stays of a text is
therefore passed again where it then stands, but for the rows in front that keep their places.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OVERFLOWS", "Overflow"]


@dataclass(frozen=True)
class Overflow:
    """The first ``sinks`` tokens of a text stay in the context, and its newest ones up to half of it.

    With sinks as in StreamingLLM (Xiao et al. 2024): attention goes to the first tokens whatever they are. Where the
    text is cut depends on its length alone, so it is the same for every method.
    """

    sinks: int

    def fitted(self, window: list[int], context: int) -> list[int]:
        """The tokens that stay of a window that is as long as the context, or longer."""
        first = min(self.sinks, context // 4)
        newest = max(1, context // 2 - first)
        return window[:first] + window[-newest:]


OVERFLOWS: dict[str, Overflow | None] = {"stop": None, "crop": Overflow(0), "sinks": Overflow(4)}
"""By name; None: a full context ends the text."""
