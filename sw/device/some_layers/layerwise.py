"""A network in integers, one layer at a time: values of passes whose rows do not all run the same layers."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows, layer_part, residuals

__all__ = ["Layerwise"]


class Layerwise:
    """The layers of a decoder, each as a network of its own.

    The residual stream is int16, here held in int64  # [rows, columns]
    """

    def __init__(self, network: Network) -> None:
        self.network, self.layers = network, network.graph.layers
        self._stream = residuals(network.graph)
        self._parts: dict[int | None, IntegerInterpreter] = {}

    def _part(self, layer: int | None) -> IntegerInterpreter:
        """A layer between embedding and head; None: these alone."""
        if layer not in self._parts:
            self._parts[layer] = IntegerInterpreter(layer_part(self.network, (0, 0) if layer is None else (layer, 1)))
        return self._parts[layer]

    def cache(self, layer: int) -> Cache:
        """An empty one for the keys and values of a layer."""
        return Cache(self._part(layer).network.graph)

    def embedded(self, rows: Rows) -> np.ndarray:
        """The stream before the first layer."""
        return self._until(None, self._stream[0], rows, None, Cache(self._part(None).network.graph))

    def layer(self, layer: int, rows: Rows, stream: np.ndarray, cache: Cache) -> np.ndarray:
        """The stream behind a layer; the rows' keys and values go behind those in ``cache``."""
        found = self._until(layer, self._stream[layer + 1], rows, stream, cache)
        cache.advance(rows)
        return found

    def logits(self, rows: Rows, stream: np.ndarray) -> np.ndarray:
        """What the last norm and the head make of the stream, wherever it comes from  # int64 [rows, vocab]"""
        part = self._part(None)
        return part.forward(rows, Cache(part.network.graph), feed={self._stream[0]: stream})

    def _until(self, layer: int | None, name: str, rows: Rows, stream: np.ndarray | None, cache: Cache) -> np.ndarray:
        """A value of a pass, which goes no further."""
        feed = {} if stream is None else {self._stream[0]: stream}
        for node, value in self._part(layer).steps(rows, cache, feed):
            if node.name == name:
                return value.astype(np.int64)
        raise AssertionError("a part has the stream behind its layer")
