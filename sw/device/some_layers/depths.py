"""Values of passes through some layers whose rows stay there, by the interpreter: each layer has a cache of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gemmule.compiler.ir import Cache, Network, Rows
from gemmule.sw.device.some_layers.layerwise import Layerwise
from gemmule.sw.kv.depths import DepthKV

__all__ = ["Depths"]


class Depths:
    """The layers of a model, beside the cache that its passes through all layers fill.

    Attributes:
        slots: rows of the residual stream that passes left, by slot  # int64 [columns]
    """

    def __init__(self, network: Network, whole: Cache) -> None:
        self.network, self.whole = network, whole
        self.slots: dict[int, np.ndarray] = {}
        self._layers: Layerwise | None = None
        self._caches: dict[int, Cache] = {}
        self._turn: object | None = None
        self.newest = False
        """Whether the last pass of the model was one through some layers."""

    def through(self, rows: Rows, answered: np.ndarray, kv: DepthKV, cached: int, ranges: Sequence[tuple[int, int]],
                place: int | None) -> np.ndarray:
        """Logits of the answered rows  # int64 [answered, vocab].

        ``rows`` enter by token or by slot, behind ``cached`` rows that the layers have, constant ones among them;
        ``place``: the first slot for what leaves the last layer.
        """
        layers, self.newest = self._layers or Layerwise(self.network), True
        self._layers = layers
        if kv.turn is not self._turn:
            self._turn, self._caches = kv.turn, {}
        stream = self._entering(layers, rows)
        for first, count in ranges:
            for layer in range(first, first + count):
                stream = layers.layer(layer, rows, stream, self._behind(layer, cached))
        if place is not None:
            self.slots.update(enumerate(stream, place))
        self._seen(rows, cached)
        index = np.flatnonzero(answered)
        if not len(index):
            return np.zeros((0, self.network.graph.vocab), dtype=np.int64)
        return layers.logits(rows.take(index), stream[index])

    def settle(self, first: int, path: Sequence[int]) -> None:
        """Of the rows behind the first ones those on a path stay, in all layers: then the whole cache gets them.

        Nothing happens where some layers lack them, or another pass came after those through some layers.
        """
        last = first + max(path, default=-1)
        if not self.newest or len(self._caches) < self.network.graph.layers or any(
                cache.length() <= last for cache in self._caches.values()):
            return
        positions = self._caches[0].positions()[first:]
        self.whole.truncate(first)
        for cache in self._caches.values():
            cache.keep([*range(first), *(first + node for node in path)])
            for node in cache.width:
                keys, values = cache.contents(node)
                self.whole.extend(node, 0, keys[first:], values[first:])
        if path:
            self.whole.advance(Rows.chain([0] * len(path), int(positions[0])))

    def _entering(self, layers: Layerwise, rows: Rows) -> np.ndarray:
        """The stream with which rows begin: of tokens, or of slots."""
        if rows.hidden is None:
            return layers.embedded(rows)
        stream = layers.embedded(replace(rows, hidden=None))
        for row, slot in enumerate(rows.hidden.tolist()):
            if slot >= 0:
                stream[row] = self.slots[slot]
        return stream

    def _behind(self, layer: int, cached: int) -> Cache:
        """The cache of a layer with so many rows; at first they are those of passes through all layers."""
        if layer not in self._caches:
            assert self._layers is not None
            self._caches[layer] = self._layers.cache(layer)
            self._caches[layer].begin_with(self.whole, 0)
        self._caches[layer].truncate(cached)
        return self._caches[layer]

    def _seen(self, rows: Rows, cached: int) -> None:
        """The whole cache counts the rows; nobody reads their keys and values there."""
        new = rows.take(np.arange(max(0, self.whole.length() - cached), len(rows))) \
            if self.whole.length() < cached + len(rows) else None
        if new is None:
            return
        for node, width in self.whole.width.items():
            nothing = np.zeros((len(new), width), dtype=np.int8)
            self.whole.extend(node, 0, nothing, nothing)
        self.whole.advance(new)
