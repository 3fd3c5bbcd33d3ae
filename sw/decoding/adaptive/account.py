"""What autoregressive decoding of the same texts would have taken so far, pass by pass, beside what was taken. Light.

The passes of autoregressive decoding are known beforehand, so they are counted as if they were made: its texts enter in
the same order, share as many places, and each gets a token a pass. It gets as far as the slowest text, since what comes
behind is known of the others alone. For tokens that the others have beyond that, it has their share of later passes
still before it: what their rows and caches add to a pass.

Prompts that share passes are counted as autoregressive decoding passes them: those of texts that get their places
together are passed together, however they were passed here. What the target takes beside that and beside the passes
that verify, for other prompts and for texts that come back, counts for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmule.sw.device.ledger import Ledger

__all__ = ["HORIZON", "LIMIT", "Account", "Text", "by_place"]

LIMIT = 0.009
"""Of the cycles of autoregressive decoding, which texts may take more."""
HORIZON = 64
"""Tokens that a text is taken to have at least."""


@dataclass
class Passes:
    """Those in which prompts went together.

    Attributes:
        cycles: that they took.
        most: what the longest prompt lets expect.
    """

    cycles: float
    most: float


@dataclass(eq=False)
class Text:
    """A text that is decoded, or a turn of it.

    Attributes:
        cached: rows before each of its tokens.
        place: its number among the texts of a pass.
        over: it gets no more tokens.
        away: it left its place, and comes back.
        plain: tokens that autoregressive decoding has got.
        prompt: cycles in which the target passed its prompt; where several went together, of the first one.
        shared: cycles that its prompt lets expect where others share its passes; 0: it is passed alone.
        passes: those passes.
        entered: whether autoregressive decoding has begun with it.
    """

    place: int
    prompt: float
    shared: float = 0.0
    passes: Passes | None = None
    entered: bool = False
    cached: list[int] = field(default_factory=list)
    over: bool = False
    away: bool = False
    plain: int = 0

    @property
    def apart(self) -> float:
        """Cycles of the passes that it shared, had no longer prompt gone in them, beside texts that have none yet."""
        return self.shared * min(1.0, self.passes.cycles / self.passes.most) if self.passes else 0.0

    @property
    def done(self) -> bool:
        """Whether autoregressive decoding is done, too."""
        return self.over and self.plain == len(self.cached)


def by_place(places: int, rows: Sequence[tuple[int, int]]) -> list[int | None]:
    """Cached rows of each place, of pairs of place and rows; where two have the same place, one takes another."""
    found: list[int | None] = [None] * places
    rest = []
    for place, count in rows:
        if found[place] is None:
            found[place] = count
        else:
            rest.append(count)
    for count in rest:
        found[found.index(None)] = count
    return found


def passed(texts: Sequence[Text]) -> float:
    """Cycles of the prompts of texts that get their places together."""
    alone = sum(text.prompt for text in texts if not text.shared)
    return alone + max((text.apart for text in texts), default=0.0)


class Account:
    """Cycles of texts that share passes, and those that autoregressive decoding takes for the same tokens."""

    def __init__(self, ledger: Ledger, target: str, cost: Callable[[Sequence[int | None]], float], places: int,
                 step: int) -> None:
        """``target``: its name in the ledger; ``cost``: cycles of an autoregressive pass by the cached rows of each
        place, None of those without a text; ``places``: texts of a pass; ``step``: cycles of the host a text's step.
        """
        self.ledger, self.target, self.cost, self.places, self.step = ledger, target, cost, places, step
        self.texts: list[Text] = []
        """Those with which autoregressive decoding is not done, in the order in which they entered."""
        self.plain = self.beside = 0.0
        """Cycles of autoregressive passes; of the target beside passes that verify."""
        self.tokens = self.waiting = 0
        """Tokens of all texts; texts that wait for a place."""
        self.lacks = False
        """Whether autoregressive decoding has a place for one that waits."""
        self._begun, self._mark = float(ledger.cycles), ledger.cycles_of(target)
        self._passes: Passes | None = None
        """The last ones in which prompts went."""

    def _since(self) -> int:
        """Cycles of the target since the last call."""
        before, self._mark = self._mark, self.ledger.cycles_of(self.target)
        return self._mark - before

    def enter(self, place: int, shared: float = 0.0) -> Text:
        """A text, whose prompt the target has just passed. Where no other is left, what was counted is forgotten.

        ``shared``: cycles that its prompt lets expect where others share its passes; 0: it is passed alone.
        """
        prompt = self._since()
        self.waiting = max(0, self.waiting - 1)
        if not shared:
            self.catch_up()
        if all(text.done for text in self.texts):
            self._begun, self.plain, self.beside, self.tokens = self.ledger.cycles - prompt, 0.0, 0.0, 0
        if shared and (prompt or self._passes is None):
            self._passes = Passes(prompt, shared)
        elif shared and self._passes:
            self._passes.most = max(self._passes.most, shared)
        self.texts.append(text := Text(place, prompt, shared, self._passes if shared else None))
        return text

    def observe(self, text: Text, cached: int, tokens: int, beside: Callable[[int], float] | None = None) -> None:
        """A text got so many tokens behind so many cached rows.

        ``beside``: of the first text of a pass, tells how many of the target's cycles since the last one were for
        other rows than those that were decided.
        """
        since = self._since()
        if beside:
            self.beside += beside(since)
        text.away = False
        text.cached += range(cached, cached + tokens)
        self.tokens += tokens

    def catch_up(self) -> None:
        """Autoregressive passes as far as all of their texts have tokens, and none lacks that waits for a place."""
        while True:
            self.texts = [text for text in self.texts if not text.done]
            sharing = [text for text in self.texts if not text.away][:self.places]
            self.lacks = bool(self.waiting) and len(sharing) < self.places
            if self.lacks:
                return
            self.beside += passed([text for text in sharing if not text.entered])
            for text in sharing:
                text.entered = True
            if not sharing or any(text.plain == len(text.cached) for text in sharing):
                return
            self.plain += len(sharing) * self.step + self.cost(by_place(
                self.places, [(text.place, text.cached[text.plain]) for text in sharing]))
            for text in sharing:
                text.plain += 1

    @property
    def drafting(self) -> float:
        """Cycles since the begin, but for what counts for both."""
        return self.ledger.cycles - self._begun - self.beside - self.coming

    @property
    def coming(self) -> float:
        """Cycles of prompts with which autoregressive decoding has not begun, if it passes all together that it can,
        also with those that wait.
        """
        return passed([text for text in self.texts if not (text.entered or text.shared and self.waiting)])

    @property
    def ahead(self) -> int:
        """Tokens that texts have, and autoregressive decoding has not yet."""
        return sum(len(text.cached) - text.plain for text in self.texts)

    def spare(self, step: float, share: float = 0.0) -> float:
        """Cycles that may be lost and leave the texts within the limit, if no more candidate were accepted.

        ``step``: of an autoregressive one now; ``share``: what a text adds to it.
        """
        limit = LIMIT * (self.beside + max(self.plain, HORIZON * step))
        return limit + self.plain + self.ahead * share - self.drafting
