"""The step interface: what a decoding method asks of a compiled model on a device, and what it gets back.

A question is an :class:`Ask`: new rows of a sequence, a cache, some of the layers, and what is wanted. A decoding loop,
and a drafter that runs models, is a generator of questions (:data:`Asking`), so that the same code serves one text and
a batch, whose questions to a model share a pass.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import e, log2
from typing import Any, Protocol, TypeVar

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.quantize.scale import pair
from gemmule.sim.result import Result

__all__ = [
    "KV", "Ask", "Asking", "Exponents", "Forward", "Hidden", "Keep", "LayerRange", "Meeting", "Model", "Round", "TopK",
    "Want", "exponent_scaling",
]

T = TypeVar("T")


class KV(Protocol):
    """Cached rows of one sequence. Every operation returns the cycles it took, host work included."""

    model: Any
    """Whose passes fill it."""
    sequence: int
    """Its number in the batch."""

    @property
    def length(self) -> int:
        """Cached rows."""

    def append(self, rows: int) -> int:
        """A pass has added rows behind the cached ones."""

    def commit(self, path: Sequence[int]) -> int:
        """Keep of the rows that the last pass added those with these numbers, rising, one behind the other."""

    def truncate(self, length: int) -> int:
        """Keep the first rows."""

    def fork(self, other: KV) -> int:
        """Let another sequence begin with these rows."""

    def gather(self, slots: np.ndarray) -> int:
        """Keep these rows, rising, one behind the other  # int [kept], or [layers, KV heads, kept]."""

    def evict(self, first: int, count: int) -> int:
        """Drop ``count`` rows from ``first`` on; those behind move up."""


def exponent_scaling(scale: float, temperature: float) -> tuple[int, int]:
    """Multiplier and shift of logits, ``real = number * scale``, to base-2 exponents (Q13.10) at a temperature."""
    return pair(scale / temperature * log2(e) * 1024)


@dataclass(frozen=True, kw_only=True)
class Want:
    """What is wanted back of a pass; the greedy token of each answered row always is.

    Raises:
        ValueError: a number is out of range.
    """

    last: int | None = None
    """Rows that are answered, the last ones of each sequence; None: all; 0: keys and values only, no head runs."""
    logits: bool = False
    top: int = 0
    """So many of the largest logits of each answered row."""
    temperature: float | None = None
    """Row maximum and exponent sum of the logits at this temperature; None: not wanted."""
    hidden: tuple[int, ...] = ()
    """Depths: the residual stream of all rows behind so many layers."""
    place: int | None = None
    """The first slot that the rows of one depth take, one behind the other, good until the caller has others put there;
    None: the model finds one."""

    def __post_init__(self) -> None:
        for name, value in (("last", self.last or 0), ("top", self.top), ("hidden", min(self.hidden, default=0)),
                            ("place", self.place or 0)):
            if value < 0:
                raise ValueError(f"{name} of what is wanted must be at least 0, not {value}")
        if self.temperature is not None and not 1e-3 <= self.temperature <= 1e3:
            raise ValueError(f"a temperature must be from 0.001 to 1000, not {self.temperature}: for the greedy token "
                             "take the argmax")

    @property
    def plain(self) -> bool:
        """Greedy tokens and nothing else."""
        return not (self.logits or self.top or self.hidden or self.temperature is not None)

    @property
    def only_logits(self) -> bool:
        """Logits, of which the greedy token follows, and nothing else."""
        return self.logits and not (self.top or self.hidden or self.temperature is not None)

    def joined(self, other: Want) -> Want:
        """What both want, of the rows that either has answered.

        Raises:
            ValueError: both want exponents, at other temperatures.
        """
        if None not in (self.temperature, other.temperature) and self.temperature != other.temperature:
            raise ValueError(f"a pass has exponents at one temperature, not at {self.temperature} and "
                             f"{other.temperature}")
        return Want(
            last=None if None in (self.last, other.last) else max(self.last or 0, other.last or 0),
            logits=self.logits or other.logits, top=max(self.top, other.top),
            temperature=other.temperature if self.temperature is None else self.temperature,
            hidden=tuple(sorted({*self.hidden, *other.hidden})),
            place=other.place if self.place is None else self.place)


@dataclass(frozen=True, kw_only=True)
class LayerRange:
    """``count`` layers from ``first`` on."""

    first: int
    count: int
    kv: KV | Sequence[KV] | None = None
    """Caches of their own, one for each sequence; None: those of the pass."""

    @property
    def end(self) -> int:
        """The layer behind them."""
        return self.first + self.count


@dataclass(frozen=True, eq=False)
class Hidden:
    """Rows of the residual stream, int16, in the device's memory; good until other ones take their place."""

    slots: np.ndarray
    """Where each stands among those that the model has room for, int64 [rows]."""
    depth: int
    """Layers behind which they are."""
    stamps: tuple[int, ...]
    """Numbers of the passes that wrote them."""

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, rows: slice | list[int]) -> Hidden:
        """Some of them."""
        return Hidden(self.slots[rows], self.depth, self.stamps)

    @staticmethod
    def joined(parts: Sequence[Hidden]) -> Hidden:
        """Those of several launches, one behind the other."""
        return Hidden(np.concatenate([part.slots for part in parts]), parts[0].depth,
                      tuple(stamp for part in parts for stamp in part.stamps))


@dataclass(frozen=True, eq=False)
class TopK:
    """The largest logits of each answered row, in falling order; of equal ones the lowest tokens, these first."""

    tokens: np.ndarray
    """int64 [rows, k]"""
    logits: np.ndarray
    """int64 [rows, k]"""


@dataclass(frozen=True, eq=False)
class Exponents:
    """Maximum of each answered row's logits, and the sum of all tokens' weights relative to it.

    A token's weight is the device's softmax in 16 bits: with ``t = scores(logit, mult, shift)`` (Q13.10, base 2) it is
    ``row_probabilities(t, max t, wide=True)``, so a probability is one weight over the sum, both integers.
    """

    maximum: np.ndarray
    """Largest logit, int64 [rows]."""
    total: np.ndarray
    """Sum of the weights, int64 [rows]."""
    mult: int
    shift: int


@dataclass(frozen=True)
class Forward:
    """Greedy tokens of the answered rows (ties go to the lowest), the launches, and what else was wanted."""

    argmax: list[int]
    results: tuple[Result, ...]
    logits: np.ndarray | None = None
    """int16 [answered rows, vocab]"""
    top: TopK | None = None
    exponents: Exponents | None = None
    hidden: Mapping[int, Hidden] = field(default_factory=dict)
    """By depth, for all rows."""
    others: int = 0
    """Cycles of the launches that another model had."""

    @property
    def cycles(self) -> int:
        """Of the device, in all launches."""
        return sum(int(result.cycles) for result in self.results) - self.others

    def named(self, tokens: np.ndarray) -> Forward:
        """With tokens in the place of numbers of logits: ``tokens`` has that of each  # int64 [logits]."""
        return replace(self, argmax=tokens[self.argmax].tolist(),
                       top=self.top and TopK(tokens[self.top.tokens], self.top.logits))

    def part(self, rows: slice, answers: slice) -> Forward:
        """Of some rows of the pass, of which those ``answers`` are answered; the launches are those of all."""
        return replace(
            self, argmax=self.argmax[answers], logits=None if self.logits is None else self.logits[answers],
            top=self.top and TopK(self.top.tokens[answers], self.top.logits[answers]),
            exponents=self.exponents and replace(
                self.exponents, maximum=self.exponents.maximum[answers], total=self.exponents.total[answers]),
            hidden={depth: found[rows] for depth, found in self.hidden.items()})

    @staticmethod
    def merged(parts: Sequence[tuple[np.ndarray, Forward]], count: int) -> Forward:
        """Of passes over some of ``count`` rows each, given by their numbers, with all of them answered, the answers of
        all rows; of a row in several passes the first one's."""
        where = {row: (number, place) for number, (index, _) in reversed(list(enumerate(parts)))
                 for place, row in enumerate(index.tolist())}
        places = [where[row] for row in range(count)]
        outs = [out for _, out in parts]

        def rows(arrays: Sequence[np.ndarray]) -> np.ndarray:
            return np.stack([arrays[number][place] for number, place in places])

        first = outs[0]
        logits, top, exponents = ([getattr(out, name) for out in outs] for name in ("logits", "top", "exponents"))
        return Forward(
            [outs[number].argmax[place] for number, place in places],
            tuple(result for out in outs for result in out.results),
            None if first.logits is None else rows(logits),
            first.top and TopK(rows([one.tokens for one in top]), rows([one.logits for one in top])),
            first.exponents and replace(first.exponents, maximum=rows([one.maximum for one in exponents]),
                                        total=rows([one.total for one in exponents])),
            {depth: Hidden(rows([out.hidden[depth].slots for out in outs]), depth,
                           tuple(stamp for out in outs for stamp in out.hidden[depth].stamps))
             for depth in first.hidden})


class Model(Protocol):
    """What answers questions: a compiled network on a device."""

    name: str
    program: Any
    """Of its passes."""
    prefill: Any
    """The program for prompts, if there is one."""

    def prompt(self, rows: Rows, kv: KV) -> Forward: ...

    def forward(self, rows: Rows, want: Want, kv: KV | Sequence[KV], *,
                layers: Sequence[LayerRange] | None = None) -> Forward: ...

    def greedy(self, kv: KV, tokens: Sequence[int], steps: int) -> Forward: ...


@dataclass(frozen=True, eq=False)
class Ask:
    """A question to a model; the answer is its :class:`Forward`.

    Attributes:
        rows: new rows of one sequence, behind those of the cache.
        kv: the cache; the rows are appended.
        layers: ranges that the rows go through, one launch for each; None: all layers.
        steps: greedy steps in one launch, of models that have a program for it: the token of each is the next one's
            row; the answers are those tokens. 0: a pass.
    """

    model: Model
    rows: Rows
    want: Want
    kv: KV
    layers: tuple[LayerRange, ...] | None = None
    steps: int = 0


@dataclass(frozen=True, eq=False)
class Keep:
    """Of the rows that the last pass added to a cache the path stays; there is no answer."""

    kv: KV
    path: Sequence[int]


@dataclass(frozen=True)
class Round:
    """Others of the batch finish their step first; there is no answer."""


@dataclass(frozen=True)
class Meeting:
    """Others of the batch come to theirs first, or to what the target verifies; there is no answer."""


Asking = Generator[Ask | Keep | Round | Meeting, Any, T]
"""Work that asks models and comes to a result."""
