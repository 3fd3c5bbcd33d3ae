"""How far a network in integers is from the float one it stands for: by node, by layer, in perplexity or cosines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import (
    Activation,
    Add,
    Cache,
    DType,
    FloatInterpreter,
    Graph,
    IntegerInterpreter,
    Network,
    Node,
    Rows,
    Type,
    activate,
)
from gemmule.compiler.ir.float_interpreter import Observer
from gemmule.compiler.quantize.network import Quantized
from gemmule.compiler.quantize.taps import counting, passes
from gemmule.numerics import saturate

__all__ = ["Errors", "cosines", "layer_outputs", "measure_errors", "perplexity", "predictor"]

BITS = {DType.INT8: 8, DType.INT16: 16}


@dataclass(frozen=True)
class Errors:
    """Relative root mean square errors: ``rms(integer - float) / rms(float)``."""

    nodes: dict[str, float]
    """Of each node, computed from the float network's values; of an activation function's input, behind it."""
    layers: list[float]
    """Of each layer's output, computed from the float network's value before it."""
    output: float
    """Of the output (logits, an encoder's hidden rows), everything computed in integers."""


def layer_outputs(network: Network) -> list[str]:
    """Names of the values that leave the layers: each one's last sum, or the norm behind it."""
    graph, found = network.graph, dict[int, str]()
    for node in graph.nodes:
        if node.layer is not None and (isinstance(node, Add) or node.name in graph.wide_norms):
            found[node.layer] = node.name
    return [found[layer] for layer in sorted(found)]


def _between(graph: Graph) -> set[str]:
    """Values that go from one layer to another."""
    return {name for node in graph.nodes for name in node.inputs if graph.by_name[name].layer != node.layer}


def _scale(node: Node, type_: Type) -> np.ndarray:
    """The scale of each column."""
    scales = np.atleast_1d(np.asarray(type_.scale, dtype=np.float64))
    return np.repeat(scales, node.columns // len(scales))


def _codes(node: Node, value: np.ndarray) -> np.ndarray:
    """A float value in a node's type, to the nearest."""
    found = np.rint(value / _scale(node, node.type)).astype(np.int64) - node.type.zero
    return saturate(found, BITS[node.type.dtype]) if node.type.dtype in BITS else found


class _Sums:
    def __init__(self) -> None:
        self.error: dict[str, float] = {}
        self.power: dict[str, float] = {}

    def add(self, name: str, seen: np.ndarray, wanted: np.ndarray) -> None:
        self.error[name] = self.error.get(name, 0.0) + float(((seen - wanted) ** 2).sum())
        self.power[name] = self.power.get(name, 0.0) + float((wanted.astype(np.float64) ** 2).sum())

    def ratio(self, name: str) -> float:
        return float(np.sqrt(self.error[name] / (self.power[name] or 1.0)))


def _comparing(graph: Graph, rows: Rows, sums: _Sums, wanted: Mapping[str, np.ndarray]) -> Observer:
    """Adds up how far values are from those wanted; what an activation function reads, as seen behind it."""
    before = {node.x: node.function for node in graph.nodes if isinstance(node, Activation)}

    def observe(name: str, value: np.ndarray) -> None:
        node = graph.by_name[name]
        real = (value + node.type.zero) * _scale(node, node.type)
        if name in before:
            sums.add(name, *(activate(before[name], part) for part in (real, wanted[name])))
        else:
            sums.add(name, real, wanted[name])

    return counting(graph, rows, observe)


def measure_errors(quantized: Quantized, windows: np.ndarray) -> Errors:
    """Errors over windows of tokens [windows, length], which should not be those of calibration."""
    network, reference = quantized.network, quantized.reference
    graph = network.graph
    if not len(windows):
        raise CompileError("errors need at least one window of tokens")
    integer, real = IntegerInterpreter(network), FloatInterpreter(reference)
    ends, nodes, layers, output = layer_outputs(network), _Sums(), _Sums(), _Sums()
    for rows in passes(windows, graph.prefix):
        wanted: dict[str, np.ndarray] = {}
        real.forward(rows, Cache(reference.graph), wanted.__setitem__)
        codes = {node.name: _codes(node, wanted[node.name]) for node in graph.nodes}
        counted: dict[str, np.ndarray] = {}
        observe = counting(graph, rows, counted.__setitem__)
        for name, value in wanted.items():
            observe(name, value)

        integer.forward(rows, Cache(graph), _comparing(graph, rows, nodes, counted), codes)
        integer.forward(rows, Cache(graph), _comparing(graph, rows, layers, counted),
                        {name: codes[name] for name in _between(graph)})
        integer.forward(rows, Cache(graph), _comparing(graph, rows, output, counted))
    return Errors({node.name: nodes.ratio(node.name) for node in graph.nodes},
                  [layers.ratio(name) for name in ends], output.ratio(graph.output))


def cosines(quantized: Quantized, windows: np.ndarray) -> np.ndarray:
    """Of the angles between an encoder's output rows in float and in integers  # float64 [rows that count]."""
    graph, parts = quantized.network.graph, []
    node = graph.by_name[graph.output]
    for rows in passes(windows, graph.prefix):
        pair: list[np.ndarray] = []
        for interpreter in (FloatInterpreter(quantized.reference), IntegerInterpreter(quantized.network)):
            found: dict[str, np.ndarray] = {}
            interpreter.forward(rows, Cache(interpreter.network.graph), counting(graph, rows, found.__setitem__))
            pair.append(found[graph.output] * _scale(node, node.type))
        sizes = np.linalg.norm(pair[0], axis=1) * np.linalg.norm(pair[1], axis=1)
        parts.append(np.where(sizes == 0, 1.0, (pair[0] * pair[1]).sum(axis=1) / np.where(sizes == 0, 1.0, sizes)))
    if not parts:
        raise CompileError("cosines need at least one window of tokens")
    return np.concatenate(parts)


def predictor(network: Network) -> Callable[[np.ndarray], np.ndarray]:
    """Real-valued logits of tokens [batch, length] from position 0  # float64 [batch, length, vocab]."""
    graph, integer = network.graph, network.graph.integer
    interpreter = IntegerInterpreter(network) if integer else FloatInterpreter(network)
    node = graph.by_name[graph.output]
    scale = _scale(node, node.type) if integer else 1.0

    def predict(tokens: np.ndarray) -> np.ndarray:
        rows = [interpreter.forward(Rows.chain(window.tolist(), graph.prefix), Cache(graph)) for window in tokens]
        return np.stack(rows).astype(np.float64) * scale

    return predict


def perplexity(network: Network, windows: np.ndarray) -> float:
    """``exp`` of the mean next-token cross-entropy in nats, each window [windows, length] from an empty context."""
    graph, nats, count = network.graph, 0.0, 0
    integer = graph.integer
    interpreter = IntegerInterpreter(network) if integer else FloatInterpreter(network)
    node = graph.by_name[graph.output]
    scale = _scale(node, node.type) if integer else 1.0
    for part in passes(windows, graph.prefix):
        values = interpreter.forward(part, Cache(graph)).astype(np.float64) * scale
        following = np.roll(part.tokens, -1)
        kept = np.roll(part.sequences, -1) == part.sequences
        kept[-1] = False
        nats, count = nats + _nats(values[kept], following[kept]), count + int(kept.sum())
    if not count:
        raise CompileError("perplexity needs windows of at least two tokens")
    return float(np.exp(nats / count))


def _nats(logits: np.ndarray, tokens: np.ndarray) -> float:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    found = np.take_along_axis(shifted, tokens[:, None], -1)[:, 0]
    return float((np.log(np.exp(shifted).sum(axis=-1)) - found).sum())


