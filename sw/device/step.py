"""What a pass of a model takes and gives: the types between a decoding method and a compiled model on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import e, log2

import numpy as np

from gemmule.compiler.quantize.scale import pair
from gemmule.sim.result import Result
from gemmule.sw.kv.contiguous import KV

__all__ = ["Exponents", "Forward", "Hidden", "LayerRange", "TopK", "Want", "exponent_scaling"]


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

    def __post_init__(self) -> None:
        for name, value in (("last", self.last or 0), ("top", self.top), ("hidden", min(self.hidden, default=0))):
            if value < 0:
                raise ValueError(f"{name} of what is wanted must be at least 0, not {value}")
        if self.temperature is not None and not 1e-3 <= self.temperature <= 1e3:
            raise ValueError(f"a temperature must be from 0.001 to 1000, not {self.temperature}: for the greedy token "
                             "take the argmax")

    @property
    def plain(self) -> bool:
        """Greedy tokens and nothing else."""
        return not (self.logits or self.top or self.hidden or self.temperature is not None)


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
