"""Steps of texts that share passes: how many candidates are drafted, and which of them are verified. Light.

Texts come together twice a step: before they draft, and before the target verifies. A pass takes as long as the text
with the most rows needs. So one number of candidates is chosen for all texts, of which each has its likeliest ones
verified: that with the most tokens beyond those that its cycles would give otherwise, by the exact costs of passes
(:mod:`gemmule.sw.device.costs.cost_curve`). A text alone is a batch of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from gemmule.sw.decoding.adaptive.account import Account, by_place, passed
from gemmule.sw.decoding.adaptive.candidates import Candidates
from gemmule.sw.decoding.adaptive.paying import Terms

if TYPE_CHECKING:
    from gemmule.sw.decoding.adaptive.adaptive import Adaptive
    from gemmule.sw.device.ledger import Ledger
    from gemmule.sw.step import Forward, Want

__all__ = ["Curve", "Steps"]

RISK = 0.25
"""Of the cycles that may be lost, those that a step may lose, unless it drafts a single token; where the drafter tells
how sure it is of that token, those that it may be expected to lose."""
OVERHEAD = 1.5
"""Cycles of drafting over those that its weights let expect, before it was seen."""
LEARN = 0.3
"""Weight of what drafting took the last time."""
EASE = 4
"""Steps of autoregressive decoding with which the worth of a token begins."""


class Curve(Protocol):
    """Cycles of the target's passes, as of :class:`gemmule.sw.device.costs.cost_curve.CostCurve`."""

    def of(self, rows: int, cached: int, want: Want) -> float: ...
    def of_batch(self, rows: int | Sequence[int], cached: Sequence[int], want: Want) -> float: ...
    def widths(self, want: Want) -> list[int]: ...
    def move(self, rows: int, cached: int) -> int: ...


class Steps:
    """Decides for all texts of a batch at once; each has an :class:`gemmule.sw.decoding.adaptive.adaptive.Adaptive`.

    Attributes:
        want: what drafters want of the pass that verifies; None: nothing.
        underway: whether a step has begun whose texts are not verified: who comes now waits for the next one.
    """

    def __init__(self, curve: Curve, ledger: Ledger, target: str, *, want: Want, rows: int, parameters: int, step: int,
                 places: int = 1, together: int = 1, prefix: int = 0, shared: int = 0) -> None:
        """``target``: its name in the ledger; ``want``: what the rule wants of its passes.

        ``rows``, ``parameters``: of a pass of the target, and its weights; ``step``: cycles of the host a text's step;
        ``places``: texts of a pass; ``together``: of a launch; ``prefix``: constant rows of each text; ``shared``: most
        rows of a prompt that goes in passes which those of others share.
        """
        self.curve, self.ledger, self.target, self.plain_want = curve, ledger, target, want
        self.rows, self.parameters, self.step, self.places, self.prefix = rows, parameters, step, places, prefix
        self.together, self.shared = together, shared
        self.account = Account(ledger, target, lambda cached: self._one_pass(1, cached, want), places, step)
        self.overhead = OVERHEAD
        """Cycles of drafting over those that its weights let expect."""
        self.extra: float | None = None
        """Cycles of rows beside the candidates, the last time; None: there were none yet."""
        self.want: Want | None = None
        self.underway = self._chosen = False
        self._texts: list[Adaptive] = []
        """All that have begun and are not over."""
        self._coming: list[Adaptive] = []
        """Those of the next step."""
        self._came: list[Adaptive] = []
        """Those of this step."""
        self._proposed: list[Adaptive] = []
        """Those of them that draft, until it is decided what is verified."""
        self._results: object = None
        """Launches of the last pass that was seen."""
        self._foreseen = 0.0
        """Cycles of the pass that was decided."""
        self._lost, self._enters = 0.0, (0, True)
        """Cycles lost by empty places since the last text entered; when it was decided whether others do, and how."""

    # -- texts

    def enter(self, text: Adaptive, rows: int) -> None:
        """A text begins, or begins again behind a cut or a new turn, with so many rows."""
        if text.entry:
            text.entry.over = True
        text.entry = self.account.enter(text.place(), self._prompt(rows) if self.shares(rows) else 0.0)
        if text not in self._texts:
            self._texts.append(text)

    def shares(self, rows: int) -> bool:
        """Whether so many rows of a prompt go in passes that those of others share."""
        return 0 < rows <= self.shared

    def admits(self, rows: int, free: int, waiting: int) -> bool:
        """Whether a text with so many rows of a prompt may take one of so many free places now, beside others.

        ``waiting``: texts that wait, this one among them. It waits for those with which it would share the passes of
        its prompt by autoregressive decoding, until the places that are empty meanwhile have lost what passes of its
        own take, and that may be lost.
        """
        if not self.shares(rows):
            return True
        now, (decided, enters) = self.ledger.cycles, self._enters
        if now != decided:
            if not enters:
                self._lost += free / self.places * (now - decided)
            for text in self._texts:
                assert text.entry is not None
                text.entry.over = text.answered and text not in self._coming
            self.account.waiting = waiting
            self.account.catch_up()
            prompt = self._prompt(rows)
            enters = self.account.lacks or not self.underway and self._lost >= prompt and (
                waiting <= free or prompt <= self._spare())
            self._lost = 0.0 if enters else self._lost
            self._enters = now, enters
        return enters

    def come(self, text: Adaptive) -> None:
        """A text is ready for its next step."""
        self._coming.append(text)

    def propose(self, text: Adaptive) -> None:
        """A text has its candidates."""
        self._proposed.append(text)

    def observe(self, text: Adaptive, out: Forward, tokens: int) -> None:
        """A text's tokens of a pass."""
        first, self._results, self.underway = out.results is not self._results, out.results, False
        assert text.entry is not None
        taken = out.cycles + len(out.results) * self.ledger.config.host.launch_cycles

        def beside(since: int) -> float:
            """Rows of prompts beside those that verify; where nothing moves in the cache, all that comes beside."""
            return (taken if self.curve.move(1, text.cached) else since) - self._foreseen

        self.account.observe(text.entry, text.cached, tokens, beside if first and self.places > 1 else None)
        text.answered = True
        if text.tree.extra:
            self.extra = max(0.0, out.cycles - self._pass(len(text.tree.tokens), self._joined([text])))

    def drafted(self) -> int:
        """Cycles so far but for those of the target."""
        return self.ledger.cycles - self.ledger.cycles_of(self.target)

    def _begin(self) -> None:
        """Which texts are over: those that were answered and do not come again; and which have left, for now."""
        for text in self._texts:
            assert text.entry is not None
            text.entry.over = text.answered and text not in self._came
            text.entry.away = not text.answered and text not in self._came
            if text in self._came:
                text.answered = text.entry.away = False
        self._texts = [text for text in self._texts if text.entry and not text.entry.over]
        self.account.catch_up()

    # -- costs

    def _one_pass(self, rows: int, cached: Sequence[int | None], want: Want) -> float:
        """Cycles of a launch of the target over so many rows of each place; None: without a text."""
        if self.places == 1:
            return self.curve.of(rows, cached[0] or 0, want)
        return self._launches([rows] * len(cached), cached, want)

    def _prompt(self, rows: int) -> float:
        """Cycles of passes over prompts of so many rows."""
        from gemmule.sw.step import Want

        return self._one_pass(rows, [0] * self.places, Want(last=0))

    def _launches(self, rows: Sequence[int], cached: Sequence[int | None], want: Want) -> float:
        """Cycles of a pass over rows of each place: of a launch for as many places as go in one, if any has a text."""
        found, parts = 0.0, range(0, len(cached), self.together)
        for part in (slice(first, first + self.together) for first in parts):
            if any(one is not None for one in cached[part]):
                lacking = self.together - len(cached[part])
                found += self.curve.of_batch([*rows[part], *[1] * lacking], [
                    self.prefix + (one or 0) for one in [*cached[part], *[0] * lacking]], want)
        return found

    def _pass(self, rows: int, want: Want) -> float:
        """Cycles of the target's pass over so many rows of each text that came."""
        full, rest = divmod(rows - 1, self.rows)
        cached = by_place(self.places, [(text.place(), text.cached) for text in self._came])
        return full * self._one_pass(self.rows, cached, want) + self._one_pass(rest + 1, cached, want)

    def _joined(self, texts: Sequence[Adaptive]) -> Want:
        """What a pass over candidates of texts gives back."""
        return reduce(lambda want, own: want if own is None else want.joined(own),
                      (text.inner.want() for text in texts), self.plain_want)

    def _foreseen_drafting(self, count: int) -> float:
        """Cycles of drafting so many tokens, in passes that the texts share."""
        weights = max(text.inner.drafting(count) for text in self._came)
        return self.overhead * weights / self.parameters * self._pass(1, self.plain_want)

    def _beside(self, want: Want) -> float:
        """Cycles of rows beside the candidates: as the last time, or before that of as many as there may be."""
        if self.extra is None and (rows := max(text.inner.extra_rows() for text in self._came)):
            return self._pass(1 + rows, want) - self._pass(1, want)
        return self.extra or 0.0

    def _one(self) -> float:
        """Cycles of an autoregressive step of all texts that came."""
        return self._pass(1, self.plain_want) + len(self._came) * self.step

    def _spare(self) -> float:
        """Cycles that may be lost."""
        texts, one = len(self._came), self._one()
        if self.places == 1:
            return self.account.spare(one)
        used = {text.place() // self.together for text in self._came}
        empty = self._one_pass(1, [0 if place // self.together in used else None for place in range(self.places)],
                               self.plain_want)
        return self.account.spare(one, (one - empty) / texts)

    def _worth(self) -> float:
        """Tokens that a cycle has given so far."""
        return (self.account.tokens + EASE * len(self._came)) / (self.account.drafting + EASE * self._one())

    # -- what pays

    def count(self) -> None:
        """Decide how many candidates each text asks its drafter for, once all have come: all, where asking is free."""
        if self.underway:
            return
        self.underway, self._chosen = True, False
        self._came, self._coming = self._coming, []
        self._begin()
        came = self._came
        joined, most = self._joined(came), max(text.budget for text in came)
        for text in came:
            text.count = text.budget
        if joined != self.plain_want or self._beside(joined) or any(text.inner.drafting(text.budget) for text in came):
            best = self._best_count(most, joined)
            for text in came:
                text.count = min(text.count, best)
        self.want = None
        for own in (text.inner.want() for text in came if text.count):
            self.want = own if self.want is None else self.want if own is None else self.want.joined(own)

    def _best_count(self, most: int, joined: Want) -> int:
        """Candidates of a text that pay most where drafting costs something; texts whose drafters would pass a prompt
        that is longer than what may be lost draft nothing.
        """
        spare = self._spare() - self._prompts_drafted()
        drafting = [text for text in self._came if text.count]
        if not drafting:
            return 0
        plain, worth, beside = self._pass(1, self.plain_want), self._worth(), self._beside(joined)
        expected = [text.won.expected()[:text.count + 1] for text in drafting]
        gains = [0.0]
        """By candidates: tokens beyond those that the cycles for them would give otherwise."""
        missed = max((0.0 if text.ends else 1 - text.won.chances()[0]) if text.pace else 1.0 for text in drafting)
        """How often all is lost; 0 where it is weighed token by token."""
        for count in range(1, most + 1):
            rows = self._widths(count + 1, joined)[-1]
            more = self._foreseen_drafting(count) + self._pass(rows, joined) + beside - plain
            if more > spare or (count > 1 and missed * more > spare * RISK):
                break
            gains.append(sum(one[min(count, len(one) - 1)] for one in expected) - worth * more)
        best = max(range(len(gains)), key=gains.__getitem__)
        if any(text.branches for text in drafting):  # a tree of more has less to do with one of few, and ends by itself
            return len(gains) - 1 if gains[-1] > 0 else 0
        return len(gains) - 1 if best and any(text.ends for text in drafting) else best

    def _prompts_drafted(self) -> float:
        """Cycles in which drafters will pass prompts of texts that came; those for which too few may be lost draft
        nothing. Drafters share passes where the target did, and those take as much over their weights as drafting.
        """
        spare, taken = self._spare(), 0.0
        first = [text for text in self._came if text.first]
        sharing = [text for text in first if text.entry and text.entry.shared]
        for texts in (sharing, *([text] for text in first if text not in sharing)):
            weights = max((text.inner.prompt_weights() for text in texts), default=0)
            needed = (self.overhead if texts is sharing else 1.0) * weights / self.parameters * passed(
                [text.entry for text in texts if text.entry])
            if needed < spare - taken:
                taken += needed
            else:
                for text in texts:
                    text.count = 0
        return taken

    def terms(self, count: int) -> Terms:
        """Of up to so many candidates of a text that ends its drafts itself."""
        want, plain = self._joined(self._came), self._pass(1, self.plain_want)
        return Terms([self._foreseen_drafting(drafts) + self._pass(drafts + 1, want) - plain
                      for drafts in range(1, count + 1)], self._worth(), RISK * self._spare())

    def choose(self) -> None:
        """Decide which candidates are verified, once all texts have proposed theirs."""
        if self._chosen:
            return
        self._chosen = True
        proposed, self._proposed = self._proposed, []
        joined, worth = self._joined(proposed), self._worth()
        taken = max((text.drafted for text in proposed), default=0)
        foreseen = self._foreseen_drafting(max((text.count for text in proposed), default=0))
        if taken and foreseen and (len(proposed) == 1 or not any(text.began for text in proposed)):
            self.overhead *= 1 + LEARN * (taken / foreseen - 1)
        parts = {text: Candidates(text.tree, text.acceptance.of_paths(text.tree), worth, self.curve.move(
            1, text.cached)) for text in proposed if not text.tree.extra}
        least = max((len(text.tree.tokens) + len(text.tree.extra) for text in proposed if text not in parts), default=1)
        rows = self._best_rows(list(parts.values()), least, joined, float("inf") if taken else self._spare())
        for text, part in parts.items():
            text.verify(part.part(rows - 1))
        if self.places > 1:
            self._foreseen = self._decided(joined)

    def _decided(self, want: Want) -> float:
        """Cycles of the target's pass over what was decided."""
        rows = [(text.place(), len(text.tree.tokens) + len(text.tree.extra)) for text in self._came]
        if (most := max(count for _, count in rows)) > self.rows:
            return self._pass(most, want)
        lengths = by_place(self.places, [(text.place(), text.cached) for text in self._came])
        return self._launches([count or 1 for count in by_place(self.places, rows)], lengths, want)

    def _best_rows(self, parts: Sequence[Candidates], least: int, want: Want, spare: float) -> int:
        """Rows of a text, ``least`` or more, for which its share of the pass pays most; ``spare``: that may be lost."""
        worth, alone = self._worth(), self._pass(least, want)
        found, best = least, sum(part.best(least - 1).tokens for part in parts) if least > 1 else 0.0
        for rows in self._widths(max((len(part.ordered) for part in parts), default=0) + 1, want):
            if rows > least:
                first = [part.best(rows - 1) for part in parts]
                more = self._pass(rows, want) - alone + sum(one.moves for one in first)
                gain = sum(one.tokens for one in first) - worth * more
                if more <= spare and gain > best:
                    found, best = rows, gain
        return found

    def _widths(self, most: int, want: Want) -> list[int]:
        """Numbers of rows, up to one that has room for ``most``, of which none fewer costs as much."""
        widths = self.curve.widths(want)
        every = [full * self.rows + width for full in range(-(-most // self.rows)) for width in widths]
        return [rows for rows, before in zip(every, [0, *every]) if before < most]
