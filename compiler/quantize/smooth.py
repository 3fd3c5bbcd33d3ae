"""Scale migration: the input of a linear and its weights share their range (SmoothQuant, Xiao et al., eq. 4).

``s_j = max|X_j| ** a / max|W_j| ** (1 - a)``, with a geometric mean of 1: what makes column j of the input, a norm's
factors or the rows of the values that attention mixes, is divided by it, the columns of the weights that read it are
multiplied. The network computes the same function. Products and ReLU could pass it on too; on random networks that
gained nothing.

a is 1/2. Norms behind a sum (post-norm) have a few columns twenty times as wide as the rest: there a is what promises
the least error of the products, the roundings of inputs and weights taken as independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmule.compiler.ir import Attention, Linear, Network, Node, Norm
from gemmule.compiler.quantize.overlay import Change, Overlay
from gemmule.compiler.quantize.taps import Taps

__all__ = ["smooth"]

STRENGTH = 0.5
STRENGTHS = np.linspace(0.3, 1.0, 15)


def smooth(network: Network, taps: Taps) -> Network:
    """The same network with the ranges of linears' inputs evened out; that of the logits stays."""
    return _Smoother(network, taps).run()


class _Smoother:
    def __init__(self, network: Network, taps: Taps) -> None:
        self.network, self.graph, self.taps = network, network.graph, taps
        self.changed: dict[str, list[Change]] = {}
        self.uses = [name for node in self.graph.nodes for name in node.tensors.values()]

    def run(self) -> Network:
        """Evened out wherever the columns' factors can go into tensors."""
        for node in self.graph.nodes:
            readers = self.graph.readers(node.name)
            linears = [reader for reader in readers if isinstance(reader, Linear) and reader.name != self.graph.output]
            if isinstance(node, Norm | Attention) and linears and len(linears) == len(readers):
                self._even(node, linears)
        return Network(self.graph, Overlay(self.network.weights, {
            name: (name, _chain(changes)) for name, changes in self.changed.items()}))

    def _even(self, node: Norm | Attention, linears: Sequence[Linear]) -> None:
        """Divide the columns of a value, multiply those of the weights of ``linears``."""
        x = self.taps.largest[node.name].astype(np.float64)
        w = np.max([np.abs(self.network.tensor(linear, "weight")).max(axis=0) for linear in linears], axis=0)
        maker: Node = node
        heads = (1, 1, node.columns)
        if isinstance(node, Attention):
            maker, heads = self.graph.by_name[node.value], (node.kv_heads, node.heads // node.kv_heads, node.head_dim)
        touched = [*maker.tensors.values(), *(linear.tensors["weight"] for linear in linears)]
        if any(self.uses.count(name) > 1 for name in touched) or len(self.graph.readers(maker.name)) > len(linears):
            return  # a tensor or a value that others read too
        x, w = (np.maximum(part.reshape(heads).max(axis=1, keepdims=True), 1e-6) for part in (x, w))
        twin = node.name in self.graph.wide_norms.values()
        factor = min((_factor(x, w, strength) for strength in (STRENGTHS if twin else (STRENGTH,))),
                     key=lambda factor: self._error(node, linears, factor))  # [KV heads, 1, columns]
        made, read = factor.reshape(-1), np.repeat(factor, heads[1], axis=1).reshape(-1)
        for role, name in maker.tensors.items():
            self._change(name, 1 / (made[:, None] if role == "weight" else made))
        for linear in linears:
            self._change(linear.tensors["weight"], read)

    def _error(self, node: Node, linears: Sequence[Linear], factor: np.ndarray) -> float:
        """Squared error of the products of a norm and ``linears`` for factors of its columns, in some unit."""
        if factor.size != node.columns:
            return 0.0
        factor = factor.reshape(-1)
        step = (self.taps.largest[node.name] / factor).max()  # 127 of them, likewise of the weights
        power = self.taps.squares[node.name] / self.taps.rows / factor ** 2
        weights = [self.network.tensor(linear, "weight").astype(np.float64) * factor for linear in linears]
        return float(sum((w ** 2).sum() * step ** 2 + (np.abs(w).max(axis=1) ** 2).sum() * power.sum()
                         for w in weights))

    def _change(self, name: str, factor: np.ndarray) -> None:
        self.changed.setdefault(name, []).append(lambda found: (found * factor).astype(np.float32))


def _factor(x: np.ndarray, w: np.ndarray, strength: float) -> np.ndarray:
    factor = x ** strength / w ** (1 - strength)
    return np.asarray(factor / np.exp(np.log(factor).mean()))


def _chain(changes: Sequence[Change]) -> Change:
    def change(found: np.ndarray) -> np.ndarray:
        for one in changes:
            found = one(found)
        return found
    return change
