"""A conversation run from the command line: progress or the text as it comes, and an end where somebody asks for it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from gemmule.io.progress import counting, say
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.stream import TextStream
from gemmule.sw.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gemmule.sw.pair import Pair

__all__ = ["Live", "decode", "halting"]


class Live:
    """Shows a conversation as it comes: given text dim, new text bold."""

    def __init__(self, console: Console, pair: Pair, texts: Sequence[str], stops: Sequence[str]) -> None:
        """``texts``: what each turn is given."""
        self.console, self.pair, self.texts, self.stops = console, pair, texts, stops

    def turn(self, number: int) -> TextStream:
        """Show what the turn is given; its new text goes to the stream."""
        self._show(self.texts[number], "dim")
        return TextStream(self.pair.decode, lambda text: self._show(text, "bold"), self.stops)

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


def decode(talk: Conversation, label: str, turns: Sequence[list[int]], max_new_tokens: int,
           live: Live | None = None) -> tuple[list[Generation], float]:
    """What each turn gave, and the seconds that simulating it took; fewer turns where the context is full.

    An interrupt ends the run behind the step that it is in.

    Raises:
        InputError: the first turn does not fit the context.
    """
    begin, done, runs = time.perf_counter(), 0, list[Generation]()
    bar = counting(label, max_new_tokens * len(turns), lines=False) if live is None else contextlib.nullcontext()
    with bar as tell, halting() as halted:
        for number, text in enumerate(turns):
            if runs and not talk.takes(text):
                runs[-1].finish_reason = "context"
                break
            stream = live.turn(number) if live else None

            def advance(new: list[int], stream: TextStream | None = stream) -> None:
                nonlocal done
                done += len(new)
                if tell is not None:
                    tell(done, "")
                if stream is not None:
                    stream.advance(new)

            try:
                runs.append(talk.turn(text, max_new_tokens, advance, halted))
            except ValueError as error:
                raise InputError(str(error)) from None
            if stream is not None:
                stream.end(runs[-1].text_end)
            if runs[-1].finish_reason in ("context", "interrupted"):
                break
    if live is not None:
        live.console.print()
    seconds = time.perf_counter() - begin
    say(f"{label}: simulated in {seconds:.1f} s")
    return runs, seconds
