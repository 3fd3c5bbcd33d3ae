"""Decoding as questions to models: one text asks alone, several ask together and share passes.

A decoding loop, and a drafter that runs models, is a generator: it yields the pass that it needs and goes on with the
answer. So the same loop serves one sequence and a batch, whose questions to a model go into one pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.sw.device.runtime import Forward, LoadedModel
from gemmule.sw.device.step import Want

__all__ = ["Ask", "Asking", "Keep", "alone", "together"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Ask:
    """A pass over new rows of one sequence; the answer is its :class:`Forward`."""

    model: LoadedModel
    rows: Rows
    want: Want


@dataclass(frozen=True, eq=False)
class Keep:
    """Of the rows that the last pass added at ``position`` the path stays; there is no answer."""

    model: LoadedModel
    position: int
    path: list[int]


Asking = Generator[Ask | Keep, Any, T]


def alone(asking: Asking[T]) -> T:
    """What one text comes to, each of its passes by itself."""
    answer = None
    while True:
        try:
            asked = asking.send(answer)
        except StopIteration as done:
            found: T = done.value
            return found
        answer = asked.model.forward(asked.rows, asked.want) if isinstance(asked, Ask) else asked.model.commit(
            asked.position, asked.path)


def together(askings: Sequence[Asking[T]], order: Sequence[LoadedModel], batch: int) -> list[T]:
    """What each text comes to, ``batch`` of them at a time: where one is done, the next one takes its sequence.

    ``order``: models from the first to be asked on. Rows that need no answer go first, then a model answers when
    nobody asks one before it any more, so that texts that draft more or less still share the pass that verifies.
    """
    names = [model.name for model in order]
    found: dict[int, T] = {}
    asked: dict[int, Ask] = {}
    ends = {name: [0] * batch for name in names}
    """Of each model and sequence, where its last rows end: a place for a row that nobody sees."""
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
            if isinstance(question, Ask):
                asked[sequence] = question
                return
            question.model.commit(question.position, question.path, sequence)
            ends[question.model.name][sequence] = question.position + len(question.path)
            answer = None

    for sequence in range(batch):
        go_on(sequence, None)
    while asked:
        first = min(asked.values(), key=lambda ask: (ask.want.last != 0, names.index(ask.model.name)))
        group = {sequence: ask for sequence, ask in asked.items()
                 if ask.model.name == first.model.name and ask.want == first.want}
        for sequence in group:
            del asked[sequence]
        for sequence, answer in _shared(group, first.want, ends[first.model.name]).items():
            go_on(sequence, answer)
    return [found[text] for text in range(len(askings))]


def _shared(group: dict[int, Ask], want: Want, ends: list[int]) -> dict[int, Forward]:
    """One pass for several sequences. One without a question has a row behind all of its own, which nobody sees."""
    parts = [group[number].rows if number in group else Rows.chain([0], end) for number, end in enumerate(ends)]
    for number, ask in group.items():
        ends[number] = int(ask.rows.positions[0]) + len(ask.rows)
    out = next(iter(group.values())).model.forward(Rows.batch(parts), want)
    counts = [len(part) if want.last is None else min(want.last, len(part)) for part in parts]
    edges = np.cumsum([0, *counts]).tolist()
    return {number: _part(out, edges[number], edges[number + 1]) for number in group}


def _part(out: Forward, first: int, end: int) -> Forward:
    """The answers of some rows; the launches are those of all."""
    exponents = out.exponents and replace(
        out.exponents, maximum=out.exponents.maximum[first:end], total=out.exponents.total[first:end])
    return Forward(out.argmax[first:end], out.results, None if out.logits is None else out.logits[first:end],
                   exponents=exponents)
