"""Who answers questions to models: one text's alone, or those of several texts together, in passes that they share."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.step import KV, Ask, Asking, Forward, LayerRange

__all__ = ["alone", "together"]

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
        if not isinstance(asked, Ask):
            asked.kv.commit(asked.path)
            answer = None
        elif asked.steps:
            answer = asked.model.greedy(asked.kv, asked.rows.tokens.tolist(), asked.steps)
        else:
            answer = asked.model.forward(asked.rows, asked.want, asked.kv, layers=asked.layers)


def together(askings: Sequence[Asking[T]], order: Sequence[str], batch: int) -> list[T]:
    """What each text comes to, ``batch`` of them at a time: where one is done, the next one takes its sequence.

    ``order``: names of models, from the first to be asked on. Rows that need no answer go first, then a model answers
    when nobody asks one before it any more, so that texts that draft more or less still share the pass that verifies.
    """
    found: dict[int, T] = {}
    asked: dict[int, Ask] = {}
    ends: dict[int, list[int]] = {}
    """Of each program and sequence, where its last rows end: a place for a row that nobody sees."""
    waiting = deque(range(len(askings)))
    texts = [waiting.popleft() if waiting else None for _ in range(batch)]
    """That each sequence has."""

    def go_on(sequence: int, answer: Forward | None) -> None:
        while (text := texts[sequence]) is not None:
            try:
                question = askings[text].send(answer)
            except StopIteration as done:
                found[text] = done.value
                texts[sequence] = waiting.popleft() if waiting else None
                answer = None
                continue
            question.kv.sequence = sequence
            if isinstance(question, Ask):
                asked[sequence] = question
                return
            question.kv.commit(question.path)
            _ends(ends, question.kv.model, batch)[sequence] = question.kv.length
            answer = None

    for sequence in range(batch):
        go_on(sequence, None)
    while asked:
        first = min(asked.values(), key=lambda ask: (ask.want.last != 0, order.index(ask.model.name)))
        group = {sequence: ask for sequence, ask in asked.items() if _alike(ask, first)}
        for sequence in group:
            del asked[sequence]
        for sequence, answer in _shared(group, first, _ends(ends, first.model, batch)).items():
            go_on(sequence, answer)
    return [found[text] for text in range(len(askings))]


def _alike(ask: Ask, other: Ask) -> bool:
    """Whether a pass can answer both."""
    return (ask.model.name, ask.want, _spans(ask.layers)) == (other.model.name, other.want, _spans(other.layers))


def _spans(layers: Sequence[LayerRange] | None) -> list[tuple[int, int]] | None:
    return None if layers is None else [(part.first, part.count) for part in layers]


def _ends(ends: dict[int, list[int]], model: Any, batch: int) -> list[int]:
    """By program: a model under another name has the same caches."""
    return ends.setdefault(id(model.program), [0] * batch)


def _filled(model: Any, sequence: int, rows: int) -> KV:
    """What stands for the cache of a sequence without a question."""
    made = ContiguousKV(model, rows + 1, sequence)
    made.text = None
    made.append(rows)
    return made


def _shared(group: dict[int, Ask], first: Ask, ends: list[int]) -> dict[int, Forward]:
    """One pass for several sequences. One without a question has a row behind all of its own, which nobody sees."""
    parts = [group[number].rows if number in group else Rows.chain([0], end) for number, end in enumerate(ends)]
    caches = [group[number].kv if number in group else _filled(first.model, number, end)
              for number, end in enumerate(ends)]
    out = first.model.forward(Rows.batch(parts), first.want, caches, layers=first.layers)
    for number, ask in group.items():
        ends[number] = ask.kv.length
    last = first.want.last
    rows, answers = (np.cumsum([0, *sizes]).tolist() for sizes in (
        [len(part) for part in parts], [len(part) if last is None else min(last, len(part)) for part in parts]))
    return {number: out.part(slice(*rows[number:number + 2]), slice(*answers[number:number + 2])) for number in group}
