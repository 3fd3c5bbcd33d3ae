"""Scale migration: a norm's output and the linears that read it share their range (SmoothQuant, Xiao et al., eq. 4).

``s_j = max|X_j| ** a / max|W_j| ** (1 - a)``, a = 1/2, with a geometric mean of 1: gamma and beta are divided by it,
the columns of the weights multiplied. The network computes the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gemmule.compiler.ir import Linear, Network, Norm
from gemmule.compiler.quantize.taps import Taps

__all__ = ["Overlay", "smooth"]

STRENGTH = 0.5
Change = Callable[[np.ndarray], np.ndarray]


class Overlay(Mapping[str, np.ndarray]):
    """Tensors of which some are computed from others when they are asked for."""

    def __init__(self, base: Mapping[str, np.ndarray], changed: Mapping[str, Change]) -> None:
        self.base, self.changed = base, changed

    def __getitem__(self, name: str) -> np.ndarray:
        found = self.base[name]
        return self.changed[name](found) if name in self.changed else found

    def __iter__(self) -> Iterator[str]:
        return iter(self.base)

    def __len__(self) -> int:
        return len(self.base)


def _times(factor: np.ndarray) -> Change:
    return lambda found: (found * factor).astype(np.float32)


def smooth(network: Network, taps: Taps) -> Network:
    """The same network with the ranges of norms' outputs evened out; the one before the logits stays."""
    graph, changed = network.graph, dict[str, Change]()
    uses = [name for node in graph.nodes for name in node.tensors.values()]
    for node in graph.nodes:
        readers = graph.readers(node.name)
        linears = [reader for reader in readers if isinstance(reader, Linear) and reader.name != graph.output]
        if not isinstance(node, Norm) or not linears or len(linears) < len(readers):
            continue
        touched = [*node.tensors.values(), *(linear.tensors["weight"] for linear in linears)]
        if any(uses.count(name) > 1 for name in touched):
            continue  # a tensor that others read too
        x = np.maximum(taps.largest[node.name].astype(np.float64), 1e-6)
        w = np.max([np.abs(network.tensor(linear, "weight")).max(axis=0) for linear in linears], axis=0)
        w = np.maximum(w, 1e-6)
        factor = x ** STRENGTH / w ** (1 - STRENGTH)
        factor /= np.exp(np.log(factor).mean())
        changed |= {name: _times(1 / factor) for name in node.tensors.values()}
        changed |= {linear.tensors["weight"]: _times(factor) for linear in linears}
    return Network(graph, Overlay(network.weights, changed))
