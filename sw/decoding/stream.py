"""Text as it comes, in pieces that are never taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["TextStream"]

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer gives for bytes that are no character yet."""


class TextStream:
    """Writes the text of tokens as far as it is settled.

    Held back: bytes that are no character yet, and what may be the beginning of a stop string.
    """

    def __init__(self, decode: Callable[[list[int]], str], write: Callable[[str], None],
                 stops: Sequence[str] = ()) -> None:
        self.decode, self.write, self.stops = decode, write, stops
        self.tokens: list[int] = []
        self.shown = ""

    def advance(self, new: Sequence[int]) -> None:
        """These tokens have been accepted."""
        self.tokens += new
        text = self.decode(self.tokens)
        text = text[:min((text.index(stop) for stop in self.stops if stop in text), default=len(text))]
        text = text.rstrip(UNFINISHED)
        self._show(text[:len(text) - max((_begun(text, stop) for stop in self.stops), default=0)])

    def end(self, text_end: int | None = None) -> None:
        """No more tokens come; ``text_end``: characters of the text in front of a stop string."""
        self._show(self.decode(self.tokens)[:text_end])

    def _show(self, text: str) -> None:
        if text.startswith(self.shown) and len(text) > len(self.shown):
            self.write(text[len(self.shown):])
            self.shown = text


def _begun(text: str, stop: str) -> int:
    """Characters at the end of a text that begin the stop string."""
    return next(size for size in range(min(len(text), len(stop) - 1), -1, -1) if text.endswith(stop[:size]))
