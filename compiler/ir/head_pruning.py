"""Cascade head pruning of an encoder: how many heads each layer leaves, and which.

Behind a layer's attention the heads that say least leave for good (SpAtten, Wang et al. 2021, section III-B): later
layers have neither their queries, keys and values, nor their attention, nor their part of the output projection. The
layer itself still uses what they have computed. The importance of a head is the sum of the magnitudes of its int8
contexts, over all rows that are there and all columns of the head, in all layers so far. A head that has left gains no
more importance, and of equal ones the first stay, so none comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from gemmule import numerics
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir.graph import Graph

__all__ = ["HeadPruning", "HeadSchedule", "check_falling", "chosen_heads", "head_importance"]

MAGNITUDE = 128
"""Largest of an int8 number."""


def check_falling(name: str, layers: Sequence[float | int], things: str, verb: str, such: str) -> None:
    """What a schedule says of each layer: shares (up to 1.0) or numbers of ``things``, never more than before.

    ``name``: of its key; ``verb``: what layers do with them; ``such``: an example.

    Raises:
        CompileError: it says something else.
    """
    kinds = {type(value) for value in layers}
    if not kinds or not kinds <= {int, float}:
        raise CompileError(f"{name} must be numbers, one a layer, not {list(layers)}: such as {such}")
    if len(kinds) > 1:
        raise CompileError(f"{name} must be all shares or all numbers of {things}, not {list(layers)}: write 1.0 for "
                           f"all {things}")
    before = layers[0]
    for number, value in enumerate(layers):
        if not 0 < value < float("inf"):
            raise CompileError(f"layer {number} must {verb} more than 0 {things}, not {value}: {verb} at least 1")
        if isinstance(value, float) and value > 1:
            raise CompileError(f"layer {number} must {verb} a share of at most 1.0, more {things} do not exist, not "
                               f"{value}: write numbers of {things} without a point")
        if value > before:
            raise CompileError(f"layer {number} must {verb} at most what layer {number - 1} leaves, {before}, not "
                               f"{value}: {things} that have left do not come back")
        before = value


@dataclass(frozen=True, kw_only=True)
class HeadPruning:
    """A schedule.

    Raises:
        CompileError: it is none; the message says which number breaks which rule.
    """

    layers: tuple[float | int, ...]
    """By layer, the heads that are left behind its attention: shares of all heads (floats), or numbers of heads (ints).
    Layers that are not named leave what there is."""

    def __post_init__(self) -> None:
        check_falling("heads", self.layers, "heads", "leave", "[12, 8, 6]")

    def schedule(self, graph: Graph) -> HeadSchedule:
        """What it is for a network.

        Raises:
            CompileError: the network has fewer layers or heads, or layers with other numbers of heads.
        """
        if len(self.layers) > graph.layers:
            raise CompileError(f"heads must be at most {graph.layers} numbers, one for each layer that the network "
                               f"has, not {len(self.layers)}: leave out those from layer {graph.layers} on")
        heads = {node.heads for node in graph.attentions}
        if len(heads) > 1:
            raise CompileError(f"heads leave a network whose layers have equally many, not {sorted(heads)}")
        most = heads.pop()
        if isinstance(self.layers[0], int) and self.layers[0] > most:
            raise CompileError(f"layer 0 must leave at most {most} heads, which the network has, not "
                               f"{self.layers[0]}: leave fewer")
        left = [value if isinstance(value, int) else ceil(round(value * most, 6)) for value in self.layers]
        left += left[-1:] * (graph.layers - len(left))
        largest = graph.layers * graph.positions * MAGNITUDE * max(node.head_dim for node in graph.attentions)
        return HeadSchedule(heads=most, left=tuple(left), shift=max(0, largest.bit_length() - numerics.KEY_BITS))


@dataclass(frozen=True, kw_only=True)
class HeadSchedule:
    """A schedule for a network."""

    heads: int
    left: tuple[int, ...]
    """By layer, heads that are left behind it."""
    shift: int
    """Right shift of importance, with which the largest that there can be is still a key of its own. A function of the
    network alone, so that the same heads stay on every device, however long its sequences are."""

    def before(self, layer: int) -> int:
        """Heads that a layer has."""
        return self.left[layer - 1] if layer else self.heads

    @property
    def choosing(self) -> tuple[int, ...]:
        """Layers that choose."""
        return tuple(layer for layer, left in enumerate(self.left) if left < self.before(layer))

    def adds(self, layer: int) -> bool:
        """Whether a layer's contexts count."""
        return layer <= max(self.choosing, default=-1)

    def choices(self, layer: int) -> int:
        """How often heads have left before a layer."""
        return sum(one < layer for one in self.choosing)


def head_importance(contexts: np.ndarray, heads: int) -> np.ndarray:
    """Sums of magnitudes by head  # int64 [heads]; ``contexts``: int64 [rows, heads * head_dim]."""
    return np.abs(contexts).reshape(len(contexts), heads, -1).sum(axis=(0, 2))


def chosen_heads(importance: np.ndarray, kept: int, shift: int) -> np.ndarray:
    """The heads of largest importance in their order, of equal ones the first  # int64 [kept].

    ``importance``: int64 [heads], of all.
    """
    most = np.minimum(importance, numerics.IMPORTANCE_MAX)
    return numerics.top_k(numerics.importance_keys(most, shift, 0, 0), kept)
