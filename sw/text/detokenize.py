"""Text of new tokens behind those that stand before them, in pieces that are never taken back.

A token's text depends on its neighbours: SentencePiece's first token loses its space, and bytes of one character may be
spread over several tokens. So a token is decoded behind the tokens before it, and bytes wait until they are a
character.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Detokenizer", "Reply"]

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer gives for bytes that are no character yet."""
BEHIND = 4
"""Tokens of the text before that a new one is decoded behind, at least."""


@dataclass(frozen=True)
class Detokenizer:
    """Text of token ids.

    Attributes:
        decode: of any ids; special tokens are left out.
        special: text of each special token.
    """

    decode: Callable[[list[int]], str]
    special: Mapping[int, str] = field(default_factory=dict)

    def text(self, tokens: Sequence[int], before: Sequence[int] = ()) -> str:
        """Of tokens behind others, special ones left out; bytes at the end that are no character are U+FFFD."""
        return self.behind(before, tokens).whole

    def behind(self, before: Sequence[int], tokens: Sequence[int] = ()) -> Reply:
        """The text that ``tokens`` begin behind those ``before`` them."""
        reply = Reply(self, before)
        for token in tokens:
            reply.add(token)
        return reply


class Reply:
    """The text of new tokens as far as it is settled: whatever follows, it stays.

    Attributes:
        settled: the text, special tokens left out.
    """

    def __init__(self, words: Detokenizer, before: Sequence[int]) -> None:
        self.words, self.settled = words, ""
        self._marks: list[tuple[int, str]] = []  # special tokens: characters of the text before each, and its own text
        self._window = self._last(before)  # settled tokens, behind which others are decoded
        self._prefix = words.decode(self._window)
        self._pending: list[int] = []
        self._done = 0  # characters of the pending tokens that are settled

    def add(self, token: int) -> None:
        """One token more."""
        name = self.words.special.get(token)
        if name is not None:
            self._marks.append((len(self.settled), name))
            return
        self._pending.append(token)
        text = self._rest()
        whole = text.rstrip(UNFINISHED)
        self.settled += whole[self._done:]
        self._done = max(self._done, len(whole))
        if whole == text:
            # Tokens without text of their own, such as a space that is stripped, cannot be what others stand behind.
            alone = self.words.decode(self._pending)
            self._window = self._pending if alone else self._window + self._pending
            self._prefix = alone or self.words.decode(self._window)
            self._pending, self._done = [], 0

    @property
    def whole(self) -> str:
        """The text if nothing follows, special tokens left out."""
        return self.settled + self._rest()[self._done:]

    @property
    def full(self) -> str:
        """The same with the special tokens."""
        return self._with_special(self.whole)

    def find(self, string: str) -> int | None:
        """Where the string begins: characters of the settled text before it; None: nowhere.

        One that holds a special token's text is looked for in the text with special tokens.
        """
        special = self._holds_special(string)
        place = (self._with_special(self.settled) if special else self.settled).find(string)
        return None if place < 0 else self._shown(place) if special else place

    def begun(self, string: str) -> int:
        """Characters of the settled text in front of what may be the beginning of the string."""
        special = self._holds_special(string)
        text = self._with_special(self.settled) if special else self.settled
        size = next(size for size in range(min(len(text), len(string) - 1), -1, -1) if text.endswith(string[:size]))
        return self._shown(len(text) - size) if special else len(text) - size

    def _rest(self) -> str:
        """Text of the tokens that are not settled."""
        if not self._pending:
            return ""
        text = self.words.decode(self._window + self._pending)
        if text.startswith(self._prefix):
            return text[len(self._prefix):]
        # Some decoders give up a whole run of bytes, settled ones too, where its end is no character.
        return self.words.decode(self._pending)

    def _last(self, before: Sequence[int]) -> list[int]:
        """The newest of the tokens before, from the beginning of a character on."""
        plain = [token for token in before if token not in self.words.special]
        size = BEHIND
        while size < len(plain):
            text = self.words.decode(plain[-size:])
            if text and not text.startswith(UNFINISHED):
                break
            size *= 2
        return plain[-size:]

    def _holds_special(self, string: str) -> bool:
        return any(name in string for name in self.words.special.values() if name)

    def _with_special(self, text: str) -> str:
        parts, begin = list[str](), 0
        for at, name in self._marks:
            parts += text[begin:at], name
            begin = at
        return "".join((*parts, text[begin:]))

    def _shown(self, place: int) -> int:
        """Characters without special tokens, of so many with them."""
        added = 0
        for at, name in self._marks:
            if place <= at + added:
                break
            added += min(len(name), place - at - added)
        return place - added
