"""The generation loop: one for every method."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from gemmule.sw.decoding.asking import alone
from gemmule.sw.decoding.context import Overflow
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.stops import NO_STOPS, Cut, Stops
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.decoding.verify import GREEDY, Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.kv.text import Reading, TextKV
from gemmule.sw.step import Asking, Round, Want

__all__ = ["Conversation", "Generation", "generate"]

T = TypeVar("T")


class Conversation:
    """A text that grows by turns, given and generated, on one target; lossless for every drafter.

    Invariant after every step: the target's KV cache holds all of the text but its last token, which is pending.

    Attributes:
        window: what the models see of the text.
        dropped: tokens of the text that they see no more.
    """

    def __init__(self, target: LoadedModel, drafter: Drafter, ledger: Ledger, stops: Stops = NO_STOPS,
                 rule: Rule = GREEDY, *, overflow: Overflow | None = None, kv: TextKV | None = None) -> None:
        """``overflow``: what stays of a text that fills the context; None: it ends there.

        ``kv``: the target's cache of this text, charged to ``ledger``; by default a new one.
        """
        self.drafter, self.ledger, self.stops, self.rule, self.overflow = drafter, ledger, stops, rule, overflow
        self.target, self.context = target, target.room
        if kv is not None and kv.model.program is not target.program:
            raise ValueError(f"a text of {target.name} needs a cache of that model, not of {kv.model.name}: make it "
                             "with the model's kv()")
        self.cached = target.charging(ledger).kv() if kv is None else kv
        wanted = drafter.prompt_want()
        self.reading = None if wanted is None else Reading(wanted, drafter.read)
        self.window: list[int] = []
        self.dropped = 0

    def turn(self, text: list[int], max_new_tokens: int, progress: Callable[[list[int]], None] | None = None,
             halted: Callable[[], bool] | None = None) -> Generation:
        """Go on with ``text`` and generate up to ``max_new_tokens`` behind it.

        ``progress`` gets each step's tokens; the text ends behind a step where ``halted`` says so. Of a batch
        :meth:`turning` goes :func:`together <gemmule.sw.decoding.asking.together>` with others.

        Raises:
            ValueError: there is no token, or the text does not fit the context and nothing may be dropped; the drafter
                proposes a tree and the target's program sees rows in order.
        """
        return alone(self.turning(text, max_new_tokens, progress, halted))

    def turning(self, text: list[int], max_new_tokens: int, progress: Callable[[list[int]], None] | None = None,
                halted: Callable[[], bool] | None = None) -> Asking[Generation]:
        """:meth:`turn` as questions to the models."""
        if not self.window and not text:
            raise ValueError("the prompt must hold at least one token, not none")
        if not self.takes(text):
            raise ValueError(
                f"the prompt must hold at most {self.context - 1 - len(self.window)} tokens, not {len(text)}; "
                "shorten it")
        self.window += text
        if not self.drafter.lossless:  # rows of an earlier turn did not run all layers
            self.cached.rewind(0)
        start, watch = self.ledger.so_far(), self.stops.behind(self.window)
        run = Generation([], self.ledger, before=[*self.window], given=len(text), cached=self.cached.fit(self.window))
        yield from self._enter()
        prefill, cut = self.ledger.so_far(), Cut([])
        while len(run.tokens) < max_new_tokens and not cut.stopped:
            if halted is not None and halted():
                run.finish_reason = "interrupted"
                break
            if len(self.window) >= self.context:
                if self.overflow is None:
                    run.finish_reason = "context"
                    break
                yield from self._enter()
            before, position = self.ledger.cycles, len(self.window)
            yield from self.cached.begin(self.window)  # behind the prefill nothing to do, unless no cache is kept
            if self.drafter.waits():
                yield Round()
            tree = yield from self._proposed(min(
                max_new_tokens - len(run.tokens) - 1, self.context - position - 1, self.cached.ahead(position - 1),
                self.drafter.launches * self.target.program.max_rows - 1))
            out = yield from self.drafter.answers(self.cached, tree.rows(position - 1), self._want())
            tree = self.drafter.verified(tree)
            path, new = self.rule.verify(tree, out, self.target.logit_scale, self.dropped + position)
            yield from self.cached.accept([tree.tokens[node] for node in path], path)
            cut = watch.cut(new)
            self.window += cut.new
            run.tokens += cut.new
            self.cached.rewind(len(self.window) - 1)
            self.drafter.observe(out, path, cut.new)
            self.ledger.step()
            run.steps.append((len(tree.tokens) - 1, len(path) - 1))
            run.curve.append((self.dropped + position, self.ledger.cycles - before))
            if progress is not None:
                progress(cut.new)
        if cut.stopped:
            run.finish_reason, run.stop_string, run.text_end = "stop", cut.string, cut.end
        run.dropped, run.pruned, run.layers_run = self.dropped, self.cached.pruned(), self.drafter.layers_run()
        run.ledger, run.prefill = self.ledger.since(start), prefill.since(start)
        return run

    def retract(self, count: int | None = None) -> None:
        """Take back the last ``count`` tokens of the text, or all; rows of what the next turn says again stay."""
        if count is None:
            self.window, self.dropped = [], 0
        elif count:
            del self.window[-count:]

    def close(self) -> None:
        """Give back what the cache holds, such as pages of a pool; the text is over."""
        self.cached.rewind(0)

    def takes(self, text: list[int]) -> bool:
        """Whether a turn with ``text`` fits, or something may be dropped for it."""
        return len(self.window) + len(text) < self.context or (self.overflow is not None and self.context > 1)

    def _proposed(self, budget: int) -> Asking[Tree]:
        """What the drafter proposes.

        Raises:
            ValueError: it is no tree behind the pending token, or of more candidates than the budget.
        """
        tree = yield from _asked(self.drafter.propose([*self.window], budget))
        name = type(self.drafter).__name__
        if not isinstance(tree, Tree):
            raise ValueError(f"propose of {name} must return a Tree, not {type(tree).__name__}")
        if tree.tokens[0] != self.window[-1]:
            raise ValueError(f"a tree of {name} must begin with the pending token {self.window[-1]}, not with "
                             f"{tree.tokens[0]}")
        if (count := len(tree.tokens) - 1 + len(tree.extra)) > budget:
            raise ValueError(f"propose of {name} must keep its budget of {budget} candidates, not return {count}")
        return tree

    def _want(self) -> Want:
        """What the rule and the drafter want of the pass that verifies."""
        own = self.drafter.want()
        return self.rule.want() if own is None else self.rule.want().joined(own)

    def _enter(self) -> Asking[None]:
        """Make room where the context is full, and cache what is not there: by the target, then by the drafter."""
        if self.overflow is not None and len(self.window) >= self.context:
            left = self.overflow.fitted(self.window, self.context)
            self.dropped += len(self.window) - len(left)
            self.window = left
        yield from self.cached.begin(self.window, self.reading)
        yield from _asked(self.drafter.begin([*self.window], self.dropped))


def _asked(found: Asking[T] | T) -> Asking[T]:
    """What a drafter comes to, whether it asks for it or just says it."""
    return (yield from found) if isinstance(found, Generator) else found


def generate(
    target: LoadedModel,
    drafter: Drafter,
    prompt: list[int],
    max_new_tokens: int,
    ledger: Ledger,
    stop: frozenset[int] | Stops = frozenset(),
    progress: Callable[[list[int]], None] | None = None,
    rule: Rule = GREEDY,
    *,
    overflow: Overflow | None = None,
    kv: TextKV | None = None,
) -> Generation:
    """Generate up to ``max_new_tokens`` after ``prompt``, tokens chosen by ``rule``: the only turn of a conversation.

    Raises:
        ValueError: as of :meth:`Conversation.turn`.
    """
    stops = stop if isinstance(stop, Stops) else Stops(stop)
    conversation = Conversation(target, drafter, ledger, stops, rule, overflow=overflow, kv=kv)
    try:
        return conversation.turn(prompt, max_new_tokens, progress)
    finally:
        if kv is None:
            conversation.close()
