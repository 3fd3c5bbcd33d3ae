"""Text as it comes, in pieces that are never taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gemmule.sw.text.detokenize import Reply

__all__ = ["TextStream"]


class TextStream:
    """Writes the text of tokens as far as it is settled.

    Held back: bytes that are no character yet, and what may be the beginning of a stop string.
    """

    def __init__(self, reply: Reply, write: Callable[[str], None], stops: Sequence[str] = ()) -> None:
        """``reply``: a text without tokens yet, behind what stands before it."""
        self.reply, self.write, self.stops = reply, write, stops
        self.shown = 0

    def advance(self, new: Sequence[int]) -> None:
        """These tokens have been accepted."""
        for token in new:
            self.reply.add(token)
        ends = [place for stop in self.stops if (place := self.reply.find(stop)) is not None]
        ends += [self.reply.begun(stop) for stop in self.stops]
        self._show(self.reply.settled[:min(ends, default=None)])

    def end(self, text_end: int | None = None) -> None:
        """No more tokens come; ``text_end``: characters of the text in front of a stop string."""
        self._show(self.reply.whole[:text_end])

    def _show(self, text: str) -> None:
        if len(text) > self.shown:
            self.write(text[self.shown:])
            self.shown = len(text)
