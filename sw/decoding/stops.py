"""What ends a text: tokens, which stay in it, and strings, before which it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gemmule.sw.decoding.verify import cut_at_stop

__all__ = ["NO_STOPS", "Cut", "Stops"]


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
            completes the one that begins first, of these the longest.
        decode: text of token ids; not needed without strings.

    Raises:
        ValueError: a string is empty, or cannot be found without ``decode``.
    """

    tokens: frozenset[int] = frozenset()
    strings: Sequence[str] = ()
    decode: Callable[[list[int]], str] | None = None

    def __post_init__(self) -> None:
        if not all(self.strings):
            raise ValueError("a stop string must hold at least one character, not none")
        if self.strings and self.decode is None:
            raise ValueError("stop strings need the tokenizer's decode")

    def cut(self, before: list[int], new: list[int]) -> Cut:
        """Of the ``new`` tokens of a step behind those ``before`` it in the same reply."""
        kept, ended = cut_at_stop(new, self.tokens)
        if self.strings and self.decode:
            for count in range(1, len(kept) + 1):
                text = self.decode([*before, *kept[:count]])
                found = [(text.index(string), -len(string), string) for string in self.strings if string in text]
                if found:
                    end, _, string = min(found)
                    return Cut(kept[:count], True, string, end)
        return Cut(kept, ended)


NO_STOPS = Stops()
