"""Who answers questions to models: one text's alone, or those of several texts together, in passes that they share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.step import KV, Ask, Asking, Forward, Keep, LayerRange, Meeting, Round, Want
from gemmule.timing import ceil_div

__all__ = ["Batch", "alone", "together"]

K = TypeVar("K")
T = TypeVar("T")


def alone(asking: Asking[T]) -> T:
    """What one text comes to, each of its passes by itself."""
    answer = None
    while True:
        try:
            asked = asking.send(answer)
        except StopIteration as done:
            found: T = done.value
            return found
        if isinstance(asked, Keep):
            asked.kv.commit(asked.path)
            answer = None
        elif isinstance(asked, Round | Meeting):
            answer = None
        elif asked.steps:
            answer = asked.model.greedy(asked.kv, asked.rows.tokens.tolist(), asked.steps)
        else:
            answer = asked.model.forward(asked.rows, asked.want, asked.kv, layers=asked.layers)


def together(askings: Sequence[Asking[T]], order: Sequence[str], batch: int,
             enters: Callable[[int, int], bool] | None = None) -> list[T]:
    """What each text comes to, ``batch`` of them at a time: where one is done, the next one takes its sequence.

    ``order``: as of a :class:`Batch`. ``enters``: whether a text may enter beside others, by its number and how many
    sequences are free; by default it does.
    """
    found, waiting = Batch[int, T](order, batch), deque(enumerate(askings))
    while waiting or found.busy:
        begins = not found.busy
        while waiting and found.free and (begins or enters is None or enters(waiting[0][0], found.free)):
            found.enter(*waiting.popleft())
        if found.busy:
            found.turn()
    return [found.done[text] for text in range(len(askings))]


@dataclass(eq=False)
class _Asked:
    """A question of a text, and how many of its rows have been passed."""

    ask: Ask
    passed: int = 0
    parts: list[tuple[np.ndarray, Forward]] = field(default_factory=list)
    """Answers so far, with the numbers of their rows."""

    def piece(self, most: int | None) -> np.ndarray:
        """Numbers of the rows that go now: all, or ``most`` of a chain that is longer  # int64 [rows]."""
        rows = self.ask.rows
        if most is None or len(rows) <= most or rows.hidden is not None or not np.array_equal(
                rows.mask, np.tri(len(rows), dtype=bool)):
            return np.arange(len(rows))
        return np.arange(self.passed, min(len(rows), self.passed + most))

    def take(self, index: np.ndarray, out: Forward) -> Forward | None:
        """The answer to the question, once all of its rows have been passed."""
        self.passed = int(index[-1]) + 1
        self.parts.append((index, out))
        if self.passed < len(self.ask.rows):
            return None
        if len(self.parts) == 1:
            return out
        if self.ask.want.last is None:
            return Forward.merged(self.parts, len(self.ask.rows))
        return replace(out, results=tuple(result for _, part in self.parts for result in part.results))


class Batch(Generic[K, T]):
    """Texts that share passes, each on a sequence of its own. They enter and leave between passes.

    Rows that need no answer go first, then a model answers when nobody asks one before it any more, so that texts that
    draft more or less still share the pass that verifies. With ``pieces`` rows of a prompt go beside others' rows, as
    many a pass as a sequence has room for; else the whole prompt goes ahead, by the program for prompts if there is
    one.

    Attributes:
        done: what texts came to, by key.
    """

    def __init__(self, order: Sequence[str], batch: int, *, pieces: bool = False) -> None:
        """``order``: names of models, from the first to be asked on."""
        self.order, self.batch, self.pieces = order, batch, pieces
        self.texts: list[tuple[K, Asking[T]] | None] = [None] * batch
        """That each sequence has."""
        self.done: dict[K, T] = {}
        self.asked: dict[int, _Asked] = {}
        """By sequence."""
        self.waiting: list[int] = []
        """Sequences whose texts wait for the others' step."""
        self.met: list[int] = []
        """Sequences whose texts wait until the others have come as far."""
        self.ends: dict[int, tuple[Any, list[int]]] = {}
        """By program its model, and where each sequence's last rows end: a place for a row that nobody sees."""

    @property
    def free(self) -> int:
        """Sequences without a text."""
        return self.texts.count(None)

    @property
    def next(self) -> int:
        """The sequence of the text that enters next."""
        return self.texts.index(None)

    @property
    def busy(self) -> bool:
        """Whether any text asks for a pass, or waits for others to."""
        return bool(self.asked or self.met)

    def enter(self, key: K, asking: Asking[T]) -> None:
        """A text takes the first free sequence, :attr:`next`.

        Raises:
            ValueError: there is none.
        """
        if not self.free:
            raise ValueError(f"a batch takes {self.batch} texts, not {self.batch + 1}: let one end first")
        sequence = self.next
        self.texts[sequence] = key, asking
        self._go_on(sequence, None)
        self._next_round()

    def leave(self, key: K) -> tuple[Asking[T], Ask]:
        """A text leaves its sequence, with the question on which it waits; of its rows none may count as cached then.

        Raises:
            ValueError: it is not there.
        """
        for sequence, text in enumerate(self.texts):
            if text and text[0] == key:
                self._empty(sequence)
                return text[1], self.asked.pop(sequence).ask
        raise ValueError(f"a text must be in the batch to leave it, not {key!r}")

    def _empty(self, sequence: int) -> None:
        """The sequence has no text, and its rows are nobody's: the row that nobody sees needs none of them."""
        self.texts[sequence] = None
        for model, ends in self.ends.values():
            ends[sequence] = 0
            getattr(model, "owners", {})[sequence] = None

    def _ends(self, model: Any) -> list[int]:
        """By program: a model under another name has the same caches."""
        size = model.program.batch
        return self.ends.setdefault(id(model.program), (model, [0] * (ceil_div(self.batch, size) * size)))[1]

    def _first(self) -> tuple[int, Ask]:
        """The question of which the next pass is, and its sequence."""
        number, asked = min(self.asked.items(), key=lambda one: (
            (one[1].ask.want.last == 0) == self.pieces, self.order.index(one[1].ask.model.name)))
        return number, asked.ask

    def asking(self) -> dict[K, Ask]:
        """By text the questions to the model that has the next pass."""
        name = self._first()[1].model.name
        return {text[0]: self.asked[number].ask for number, text in enumerate(self.texts)
                if text and number in self.asked and self.asked[number].ask.model.name == name}

    def turn(self) -> None:
        """One pass; texts that are done leave their sequences."""
        self.meet()
        self._pass()
        self._next_round()

    def meet(self) -> None:
        """Texts that wait for others go on, once no question is left that goes before those that the target verifies.
        """
        while self.met and not any(self._before(asked.ask) for asked in self.asked.values()):
            going, self.met = self.met, []
            for sequence in going:
                self._go_on(sequence, None)

    def _before(self, ask: Ask) -> bool:
        """Whether a question goes before those that the target verifies; rows of a prompt in pieces go beside them."""
        return ask.model.name != self.order[-1] or (ask.want.last == 0 and not self.pieces)

    def _next_round(self) -> None:
        """Those go on that waited for the others' step."""
        while self.waiting:
            self._go_on(self.waiting.pop(0), None)

    def _pass(self) -> None:
        number, first = self._first()
        long = len(first.rows) > first.model.program.max_rows
        if long and not self.pieces and first.layers is None and _silent(first, first) and first.model.prefill:
            self._ahead(number, first)
            return
        group = {sequence: asked for sequence, asked in self.asked.items()
                 if _alike(asked.ask, first) or (self.pieces and _silent(asked.ask, first))}
        most = first.model.program.max_rows if self.pieces else None
        pieces = {sequence: asked.piece(most) for sequence, asked in group.items()}
        rows = {sequence: asked.ask.rows.take(pieces[sequence]) if len(pieces[sequence]) < len(asked.ask.rows)
                else asked.ask.rows for sequence, asked in group.items()}
        answers = _shared(rows, {sequence: asked.ask.kv for sequence, asked in group.items()}, first,
                          self._ends(first.model))
        for sequence, out in answers.items():
            answer = group[sequence].take(pieces[sequence], out)
            if answer is not None:
                del self.asked[sequence]
                self._go_on(sequence, answer)

    def _ahead(self, sequence: int, ask: Ask) -> None:
        """A prompt by the program for prompts."""
        out = ask.model.prompt(ask.rows, ask.kv)
        self._ends(ask.model)[sequence] = ask.kv.length
        del self.asked[sequence]
        self._go_on(sequence, out)

    def _go_on(self, sequence: int, answer: Forward | None) -> None:
        """A text up to its next question, or to its end."""
        text = self.texts[sequence]
        assert text is not None
        key, asking = text
        while True:
            try:
                question = asking.send(answer)
            except StopIteration as finished:
                self.done[key] = finished.value
                self._empty(sequence)
                return
            if isinstance(question, Round):
                self.waiting.append(sequence)
                return
            if isinstance(question, Meeting):
                self.met.append(sequence)
                return
            question.kv.sequence = sequence
            if isinstance(question, Ask):
                self.asked[sequence] = _Asked(question)
                return
            question.kv.commit(question.path)
            self._ends(question.kv.model)[sequence] = question.kv.length
            answer = None


def _alike(ask: Ask, other: Ask) -> bool:
    """Whether a pass can answer both."""
    return (ask.model.name, ask.want, _spans(ask.layers)) == (other.model.name, other.want, _spans(other.layers))


def _silent(ask: Ask, other: Ask) -> bool:
    """Whether its rows need no answer and may go in a pass that answers another question."""
    return ask.want == Want(last=0) and (ask.model.name, _spans(ask.layers)) == (other.model.name, _spans(other.layers))


def _spans(layers: Sequence[LayerRange] | None) -> list[tuple[int, int]] | None:
    return None if layers is None else [(part.first, part.count) for part in layers]


def _filled(model: Any, sequence: int, rows: int) -> KV:
    """What stands for the cache of a sequence without a question."""
    if model.program.pool:
        nobody: KV = model.nobody(sequence)
        return nobody
    made = ContiguousKV(model, rows + 1, sequence)
    made.text = None
    made.append(rows)
    return made


def _shared(rows: Mapping[int, Rows], caches: Mapping[int, KV], first: Ask, ends: list[int]) -> dict[int, Forward]:
    """One pass for several sequences: a launch, or one for each of as many as go in one, if any has a question.

    One without a question has a row behind all of its own, which nobody sees.
    """
    size, last = first.model.program.batch, first.want.last
    found: dict[int, Forward] = {}
    for begin in range(0, len(ends), size):
        numbers = range(begin, begin + size)
        if not any(number in rows for number in numbers):
            continue
        every = [caches[number] if number in caches else _filled(first.model, number, ends[number])
                 for number in numbers]
        parts = [rows[number] if number in rows else Rows.chain([0], kv.length) for number, kv in zip(numbers, every)]
        out = first.model.forward(Rows.batch(parts), first.want, every, layers=first.layers)
        places, answers = (np.cumsum([0, *sizes]).tolist() for sizes in (
            [len(part) for part in parts], [len(part) if last is None else min(last, len(part)) for part in parts]))
        found |= {number: out.part(slice(*places[at:at + 2]), slice(*answers[at:at + 2]))
                  for at, number in enumerate(numbers) if number in rows}
    for number, kv in caches.items():
        ends[number] = kv.length
    if len(ends) == size:
        return found
    launches = {id(out.results): out.results for out in found.values()}
    results = tuple(chain.from_iterable(launches.values()))
    return {number: replace(out, results=results) for number, out in found.items()}
