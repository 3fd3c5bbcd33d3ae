"""What ends a text: tokens, which stay in it, and strings, before which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmule.sw.decoding.verify import cut_at_stop
from gemmule.sw.text.detokenize import Detokenizer

__all__ = ["NO_STOPS", "Cut", "Stops", "Watch"]


@dataclass(frozen=True)
class Cut:
    """What a step leaves of its tokens.

    Attributes:
        new: those up to the one that ends the text.
        stopped: whether one does.
        string: the stop string that the text has come to.
        end: characters of the text in front of it; None: all.
    """

    new: list[int]
    stopped: bool = False
    string: str | None = None
    end: int | None = None


@dataclass(frozen=True)
class Stops:
    """Ends a text, token by token, so that it ends at the same place however many tokens a step commits.

    Attributes:
        tokens: each ends the text, and is its last one.
        strings: each ends the text before it, even where it begins or ends inside a token; of several that a token
            completes the one that begins first, of these the longest. They may hold special tokens, which the text
            itself leaves out.
        words: text of token ids; not needed without strings.

    Raises:
        ValueError: a string is empty, or cannot be found without ``words``.
    """

    tokens: frozenset[int] = frozenset()
    strings: Sequence[str] = ()
    words: Detokenizer | None = None

    def __post_init__(self) -> None:
        if not all(self.strings):
            raise ValueError("a stop string must hold at least one character, not none")
        if self.strings and self.words is None:
            raise ValueError("stop strings need a detokenizer")

    def behind(self, before: Sequence[int]) -> Watch:
        """For the reply behind these tokens."""
        return Watch(self, before)


class Watch:
    """Looks through one reply as it grows."""

    def __init__(self, stops: Stops, before: Sequence[int]) -> None:
        self.stops = stops
        self.reply = stops.words.behind(before) if stops.words and stops.strings else None

    def cut(self, new: list[int]) -> Cut:
        """Of the ``new`` tokens of a step, behind those of the steps before."""
        kept, ended = cut_at_stop(new, self.stops.tokens)
        if self.reply is not None:
            for count, token in enumerate(kept, 1):
                self.reply.add(token)
                found = [(place, -len(string), string) for string in self.stops.strings
                         if (place := self.reply.find(string)) is not None]
                if found:
                    end, _, string = min(found)
                    return Cut(kept[:count], True, string, end)
        return Cut(kept, ended)


NO_STOPS = Stops()
