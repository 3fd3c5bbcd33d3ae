"""Cascade token pruning of an encoder: how many rows each layer leaves, and which.

Behind a layer's attention the rows that were attended to least leave the network for good. The importance of a row is
what all rows attend to it, summed over heads: in that layer (Learned Token Pruning, Kim et al. 2022, there as a mean),
or in all layers since rows last left (SpAtten, Wang et al. 2021, sums over all layers). How many stay is fixed by a
schedule, so time and memory are known beforehand. A schedule may also say how many heads stay
(:mod:`gemmule.compiler.ir.head_pruning`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from gemmule import numerics
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir.graph import Graph
from gemmule.compiler.ir.head_pruning import HeadPruning, check_falling

__all__ = ["IMPORTANCE", "TokenPruning", "chosen_rows", "importance_shift"]

PROBABILITY_BITS = 16
IMPORTANCE = {"layer": "what is attended to in the layer", "layers": "the same in all layers since rows last left"}
"""What importance is a sum over."""


@dataclass(frozen=True, kw_only=True)
class TokenPruning:
    """A schedule.

    Raises:
        CompileError: it is none; the message says which number breaks which rule.
    """

    layers: tuple[float | int, ...] = (1.0,)
    """By layer, the rows that are left behind its attention: shares of the sequence (floats), or numbers of rows
    (ints). Layers that are not named leave what there is."""
    first: int = 1
    """Rows that are always kept: the first ones ([CLS])."""
    last: int = 0
    """The last ones ([SEP])."""
    importance: str = "layer"
    """One of :data:`IMPORTANCE`."""
    heads: HeadPruning | None = None
    """Heads leave too, by this schedule."""

    def __post_init__(self) -> None:
        check_falling("layers", self.layers, "rows", "keep", "[1.0, 0.7, 0.5]")
        if self.importance not in IMPORTANCE:
            raise CompileError(f"importance must be one of {', '.join(IMPORTANCE)}, not {self.importance!r}")
        before = self.layers[-1]
        for name, guarded in (("first", self.first), ("last", self.last)):
            if type(guarded) is not int or not 0 <= guarded <= numerics.MOST_GUARDED:
                raise CompileError(f"{name} must be a whole number of rows from 0 to {numerics.MOST_GUARDED}, not "
                                   f"{guarded!r}")
        if isinstance(before, int) and before < self.first + self.last:
            raise CompileError(f"layer {len(self.layers) - 1} must keep at least first + last = "
                               f"{self.first + self.last} rows, not {before}: keep more, or lower one of these")

    def check(self, graph: Graph, sequence: int) -> None:
        """Refuse a network, or a length of its sequences, that the schedule is not for.

        Raises:
            CompileError: it has fewer layers, rows or heads, or is none of whose rows any may leave.
        """
        if not graph.encoder:
            raise CompileError("rows and heads leave an encoder only, and this is a decoder: prune its cache instead")
        if len(self.layers) > graph.layers:
            raise CompileError(f"layers must be at most {graph.layers}, which the network has, not {len(self.layers)}: "
                               f"leave out those from layer {graph.layers} on")
        if isinstance(self.layers[0], int) and self.layers[0] > sequence:
            raise CompileError(f"layer 0 must keep at most {sequence} rows, which a sequence has, not "
                               f"{self.layers[0]}: keep fewer, or take longer sequences")
        if graph.heads and not self.first:
            raise CompileError("first must be at least 1 where a classifier reads the first row, not 0")
        if self.heads:
            self.heads.schedule(graph)

    def rows(self, sequence: int) -> list[int]:
        """Rows that each named layer leaves of a sequence of so many."""
        found, left = [], sequence
        for value in self.layers:
            wanted = value if isinstance(value, int) else ceil(round(value * sequence, 6))
            left = min(left, max(wanted, self.first + self.last, 1))
            found.append(left)
        return found

    @property
    def pruning(self) -> tuple[int, ...]:
        """Layers from which rows leave, of sequences that are long enough."""
        whole = 1.0 if isinstance(self.layers[0], float) else None
        befores = (whole, *self.layers)
        return tuple(number for number, (before, value) in enumerate(zip(befores, self.layers)) if value != before)

    def adds(self, layer: int) -> bool:
        """Whether what is attended to in a layer counts."""
        if self.importance == "layer":
            return layer in self.pruning
        return layer <= max(self.pruning, default=-1)

    def begins(self, layer: int) -> bool:
        """Whether importance begins anew in a layer that adds to it."""
        return self.importance == "layer" or layer == 0 or layer - 1 in self.pruning


def importance_shift(graph: Graph, pruning: TokenPruning) -> int:
    """Right shift of importance with which the largest that there can be is still a key of its own.

    A function of network and schedule alone, so that equal rows are kept on every device, however long its sequences
    are.
    """
    most = max(node.heads for node in graph.attentions) * graph.positions
    most *= graph.layers if pruning.importance == "layers" else 1
    return max(0, (most - 1).bit_length() + PROBABILITY_BITS - numerics.KEY_BITS)


def chosen_rows(importance: np.ndarray, kept: int, pruning: TokenPruning, shift: int) -> np.ndarray:
    """The rows of largest importance in their order, of equal ones the first  # int64 [kept].

    ``importance``: int64 [rows]. Those that are always kept count as the largest.
    """
    most = np.minimum(importance, numerics.IMPORTANCE_MAX)
    return numerics.top_k(numerics.importance_keys(most, shift, pruning.first, pruning.last), kept)
