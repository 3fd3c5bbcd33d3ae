"""What each turn of a conversation is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gemmule.sw.decoding.generation import Generation
from gemmule.sw.text.detokenize import Detokenizer

__all__ = ["Chatted", "Given", "Plain", "Script"]


@dataclass(frozen=True)
class Given:
    """Tokens of a turn.

    Attributes:
        back: tokens at the end of the text so far that are taken back before; None: all, the turn says them again.
    """

    tokens: list[int]
    back: int | None = 0


class Script(Protocol):
    """Gives the turns of one conversation, one behind the other."""

    def __len__(self) -> int: ...

    def turn(self, number: int, last: Generation | None) -> Given:
        """What this turn is given, behind what the last one generated."""


class Plain:
    """Text goes on: each turn's tokens stand behind all that was said and generated."""

    def __init__(self, turns: Sequence[list[int]]) -> None:
        self.turns = turns

    def __len__(self) -> int:
        return len(self.turns)

    def turn(self, number: int, last: Generation | None) -> Given:
        return Given(self.turns[number])


class Chatted:
    """A chat: each turn renders the whole conversation, answers included, by the model's template.

    Where that text begins with the text so far, the model's own tokens stay and only what follows is given; an end
    token that the template does not write is taken back. Where it does not, such as when a template trims answers or
    leaves out old thoughts, and behind a stop string, whose tokens reach behind the answer, the conversation is given
    again as a whole; rows of the tokens that both begin with stay in the cache.
    """

    def __init__(self, render: Callable[[Sequence[dict[str, str]]], str], encode: Callable[[str], list[int]],
                 words: Detokenizer, texts: Sequence[str], system: str | None = None) -> None:
        """``encode``: token ids of rendered text, nothing added. ``texts``: what the user says turn by turn."""
        self.render, self.encode, self.words, self.texts = render, encode, words, texts
        self.messages = [{"role": "system", "content": system}] if system is not None else []
        self.rendered = ""

    def __len__(self) -> int:
        return len(self.texts)

    def turn(self, number: int, last: Generation | None) -> Given:
        before = self.rendered
        if last is not None:
            self.messages.append({"role": "assistant", "content": self.words.text(last.tokens, last.before)[
                :last.text_end]})
        self.messages.append({"role": "user", "content": self.texts[number]})
        self.rendered = self.render(self.messages)
        whole = self.encode(self.rendered)
        if last is not None:
            for back in (0, 1):
                said = before + self.words.behind(last.before, last.tokens[:len(last.tokens) - back]).full
                if self.rendered.startswith(said) and all(
                        token in self.words.special for token in last.tokens[len(last.tokens) - back:]):
                    head = self.encode(said)
                    # Where tokens go over the border, what follows has no tokens of its own.
                    if whole[:len(head)] == head:
                        return Given(whole[len(head):], back)
        return Given(whole, None)
