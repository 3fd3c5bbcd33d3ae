"""Decoding from the command line: progress or the text as it comes, and an end where somebody asks for it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from gemmule.io.progress import counting, say
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation, beside, joined
from gemmule.sw.decoding.script import Script
from gemmule.sw.decoding.session import NONE, Session
from gemmule.sw.decoding.stops import Stops
from gemmule.sw.decoding.verify import Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.text.detokenize import Detokenizer
from gemmule.sw.text.stream import TextStream

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Job", "Live", "halting", "shown_progress", "turns"]

Progress = Callable[[Sequence[int]], None]
"""Takes each step's tokens."""


class Live:
    """Shows a conversation as it comes: given text dim, new text bold."""

    def __init__(self, console: Console, words: Detokenizer, texts: Sequence[str], stops: Sequence[str], *,
                 chat: bool = False, files: bool = False) -> None:
        """``texts``: what each turn is given; of a ``chat``: questions and answers, each from a line of its own.

        ``files``: also go on where nobody reads what is shown, since files are to be written.
        """
        self.console, self.words, self.texts, self.stops = console, words, texts, stops
        self.chat, self.files = chat, files

    def turn(self, number: int, before: Sequence[int]) -> TextStream:
        """Show what the turn is given; its new text, behind the tokens ``before`` it, goes to the stream."""
        text = self.texts[number]
        self._show("\n" * (self.chat and number > 0) + text + "\n" * self.chat, "dim")
        return TextStream(self.words.behind(before), lambda text: self._show(text, "bold"), self.stops)

    @property
    def closed(self) -> bool:
        """Whether it is for nobody that decoding goes on."""
        return not self.files and isinstance(getattr(self.console.file, "error", None), BrokenPipeError)

    def _show(self, text: str, style: str) -> None:
        from rich.text import Text

        from gemmule.sw.reports.terminal import printable

        self.console.print(Text(printable(text), style=style), end="", soft_wrap=True)
        self.console.file.flush()


@contextlib.contextmanager
def halting() -> Iterator[Callable[[], bool]]:
    """Whether an interrupt (Ctrl-C) has asked for an end. A second one is what it always is."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    mine = (threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    if mine:
        signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        if mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def shown_progress(label: str, total: int, bar: bool = True) -> Iterator[tuple[Progress, Callable[[], bool]]]:
    """What takes each step's tokens, and whether an interrupt has asked for an end; says how long the block took.

    ``bar``: show how many tokens of the total there are.
    """
    begin, done = time.perf_counter(), 0
    shown = counting(label, total, lines=False) if bar else contextlib.nullcontext(lambda done, note: None)
    with shown as tell, halting() as halted:
        def advance(new: Sequence[int]) -> None:
            nonlocal done
            done += len(new)
            tell(done, "")

        yield advance, halted
    say(f"{label}: simulated in {time.perf_counter() - begin:.1f} s")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be decoded, whatever the method: turns of a conversation, or texts of a batch.

    Attributes:
        script: gives the turns of a conversation, anew for each run.
        ids: tokens of each text of a batch.
        batch: texts at a time; 1: turns of one text.
    """

    script: Callable[[], Script]
    ids: Sequence[list[int]]
    max_new_tokens: int
    stops: Stops
    rule: Rule
    context_overflow: str
    batch: int

    def run(self, session: Session, label: str, method: str, ledger: Ledger, *, num_tokens: int | None = None,
            lengths: str = "constant", options: Mapping[str, Any] = NONE, kv_cache: str = "full",
            adaptive: bool = False, live: Live | None = None) -> Generation:
        """Decode by a method, charged to ``ledger``. An interrupt ends it behind the step that it is in.

        Raises:
            InputError: a text, or the first turn, does not fit the context.
        """
        script = self.script()
        total = self.max_new_tokens * (len(self.ids) if self.batch > 1 else len(script))
        with shown_progress(label, total, live is None) as (count, halted):
            if self.batch > 1:
                return beside(session.generate_batch(
                    method, self.ids, self.max_new_tokens, num_tokens, self.stops, count, rule=self.rule,
                    lengths=lengths, options=options, context_overflow=self.context_overflow, halted=halted,
                    ledger=ledger, adaptive=adaptive), ledger)
            talk = session.converse(
                method, num_tokens, self.stops, rule=self.rule, lengths=lengths, options=options, kv_cache=kv_cache,
                context_overflow=self.context_overflow, ledger=ledger, adaptive=adaptive)
            return joined(turns(talk, script, self.max_new_tokens, count, halted, live))


def turns(talk: Conversation, script: Script, max_new_tokens: int, progress: Progress, halted: Callable[[], bool],
          live: Live | None = None) -> list[Generation]:
    """What each turn gave; fewer turns where the context is full or an end is asked for.

    Raises:
        InputError: the first turn does not fit the context.
    """
    runs: list[Generation] = []
    for number in range(len(script)):
        given = script.turn(number, runs[-1] if runs else None)
        talk.retract(given.back)
        if runs and not talk.takes(given.tokens):
            runs[-1].finish_reason = "context"
            break
        stream = live.turn(number, [*talk.window, *given.tokens]) if live else None
        ended = _any(halted, live)
        try:
            runs.append(talk.turn(given.tokens, max_new_tokens, stream.advance if stream else progress, ended))
        except ValueError as error:
            raise InputError(str(error)) from None
        if stream is not None:
            stream.end(runs[-1].text_end)
        if runs[-1].finish_reason in ("context", "interrupted"):
            break
    if live is not None:
        live.console.print()
    return runs


def _any(halted: Callable[[], bool], live: Live | None) -> Callable[[], bool]:
    return halted if live is None else lambda: halted() or live.closed
