"""Plain readings of lossy policies: a whole text at once, from nothing, without a cache that outlives a layer.

They say what a policy chooses behind each place of a text, given the tokens before it. So a text that a fast path made
is right if each of its tokens is the choice behind those before: then a loop that computed everything anew for every
token would have made the same text. Nothing here is shared with the fast path but the arithmetic of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmule.compiler.ir import Network, Rows
from gemmule.sw.decoding.exits.confidence import similarity
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.device.forward import logit_scale
from gemmule.sw.device.some_layers.layerwise import Layerwise
from gemmule.sw.models.drafting.exit_heads import ExitHeads

__all__ = ["Plain", "leaving", "skipping"]


@dataclass(eq=False)
class Plain:
    """A text, and by what it is read.

    Attributes:
        ids: the tokens; the first ``given`` are the prompt.
        options: values of the method's own options, by key.
        layers_run: layers that each new token's choice took, once it has been read.
    """

    network: Network
    ids: Sequence[int]
    given: int
    options: Mapping[str, Any]
    heads: ExitHeads | None = None
    layers_run: list[int] = field(default_factory=list)

    def begin(self) -> tuple[Layerwise, Rows, np.ndarray]:
        """The layers, all rows of the text, and the stream before the first layer  # int64 [rows, columns]"""
        layers, rows = Layerwise(self.network), Rows.chain(list(self.ids)).behind(self.network.graph.prefix)
        return layers, rows, layers.embedded(rows)


def skipping(plain: Plain, ranges: Callable[[int], list[tuple[int, int]]]) -> list[int]:
    """Choices where new token ``t`` runs the layers ``ranges(t)`` and prompts run all: behind the prompt and each token
    that follows it.
    """
    layers, rows, stream = plain.begin()
    start = plain.given - 1
    own = [ranges(token) for token in range(len(rows) - start)]
    for layer in range(layers.layers):
        runs = [row < start or any(first <= layer < first + count for first, count in own[row - start])
                for row in range(len(rows))]
        index = np.flatnonzero(runs)
        stream[index] = layers.layer(layer, rows.take(index), stream[index], layers.cache(layer))
    plain.layers_run = [sum(count for _, count in one) for one in own]
    index = np.arange(start, len(rows))
    return [int(token) for token in layers.logits(rows.take(index), stream[index]).argmax(axis=1)]


def leaving(plain: Plain, exits: Sequence[int], measure: str, threshold: Callable[[int], float], *,
            exact: bool) -> list[int]:
    """Choices where a new token leaves at the first of ``exits`` at which ``measure`` reaches ``threshold(t)``.

    ``exact``: later layers go on with its row; else each reads the row with which it left, and changes it no more.
    """
    layers, rows, stream = plain.begin()
    start = plain.given - 1
    chosen: dict[int, int] = {}
    depth_of: dict[int, int] = {}
    before: dict[int, np.ndarray] = {}
    for depth in range(1, layers.layers + 1):
        made = layers.layer(depth - 1, rows, stream, layers.cache(depth - 1))
        stays = np.array([row in chosen and not exact for row in range(len(rows))])
        stream = np.where(stays[:, None], stream, made)
        if depth not in exits:
            continue
        inside = [row for row in range(start, len(rows)) if row not in chosen]
        needs_logits = measure == "softmax" or depth == layers.layers
        sure = _sureness(plain, measure, depth, layers, rows, stream, inside, before) if depth < layers.layers else {}
        leaves = inside if depth == layers.layers else [row for row in inside if sure[row] >= threshold(row - start)]
        before = {} if needs_logits else {row: stream[row] for row in inside}
        if leaves:
            tokens = layers.logits(rows.take(np.array(leaves)), stream[leaves]).argmax(axis=1)
            chosen |= dict(zip(leaves, map(int, tokens), strict=True))
            depth_of |= dict.fromkeys(leaves, depth)
    plain.layers_run = [depth_of[row] for row in range(start, len(rows))]
    return [chosen[row] for row in range(start, len(rows))]


def _sureness(plain: Plain, measure: str, depth: int, layers: Layerwise, rows: Rows, stream: np.ndarray,
              inside: Sequence[int], before: Mapping[int, np.ndarray]) -> dict[int, float]:
    """How sure the exit is of each row's next token."""
    if measure == "hidden":
        return {row: similarity(before[row], stream[row]) if row in before else 0.0 for row in inside}
    if measure == "classifier":
        assert plain.heads is not None
        return {row: plain.heads.confidence(depth, stream[row]) for row in inside}
    if not inside:
        return {}
    logits, scale = layers.logits(rows.take(np.array(inside)), stream[inside]), logit_scale(plain.network.graph)
    return {row: _gap(one, scale) for row, one in zip(inside, logits, strict=True)}


def _gap(logits: np.ndarray, scale: float) -> float:
    """The largest probability less the next one, of all weights of a row  # int64 [vocab]"""
    weights = np.sort(Sampling(1.0).weights(logits, scale))
    return float(int(weights[-1]) - int(weights[-2])) / float(weights.sum())
