"""How far a network in integers is from the float one it stands for: by node, by layer, by text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

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
    Linear,
    Network,
    Node,
    Plane,
    Rows,
    Type,
    activate,
)
from gemmule.compiler.quantize.likeness import Likeness, LikenessSums, nats
from gemmule.compiler.quantize.network import Quantized
from gemmule.compiler.quantize.taps import passes
from gemmule.compiler.quantize.work import Progress, measuring_work, silent
from gemmule.numerics import saturate

__all__ = ["Comparison", "Errors", "compare", "layer_outputs", "measure_errors", "perplexity", "predictor"]

BITS = {DType.INT8: 8, DType.INT16: 16}
MOST_LOGITS = 1 << 21
"""Logits that are compared at a time."""


@dataclass(frozen=True)
class Errors:
    """Relative root mean square errors: ``rms(integer - float) / rms(float)``."""

    nodes: dict[str, float]
    """Of each node, computed from the float network's values; of an activation function's input, behind it."""
    layers: list[float]
    """Of each layer's output, computed from the float network's value before it."""
    drift: list[float]
    """Of each layer's output, everything computed in integers: the median of its rows, so that one row of huge values
    does not hide the others."""
    output: float
    """Of the output (logits, an encoder's hidden rows), everything computed in integers."""


@dataclass(frozen=True)
class Comparison:
    """Both networks on text."""

    errors: Errors
    kinds: dict[str, Likeness]
    """By kind of text; none of an encoder."""
    whole: Likeness | None
    """All kinds together; None of an encoder."""
    cosines: np.ndarray
    """Of the angles between an encoder's output rows in float and in integers  # float64 [rows that count]."""


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


def _real(node: Node, value: np.ndarray) -> np.ndarray:
    """What a node's numbers stand for  # float32."""
    found = value.astype(np.float32)
    if node.type.zero:
        found += node.type.zero
    return np.asarray(found * _scale(node, node.type).astype(np.float32))


def _squares(value: np.ndarray) -> np.ndarray:
    """Of each row, summed."""
    return np.einsum("rc,rc->r", value, value, dtype=np.float64)


class _Sums:
    """Of errors by name, over passes."""

    def __init__(self) -> None:
        self.error: dict[str, float] = {}
        self.power: dict[str, float] = {}
        self.rows: dict[str, list[np.ndarray]] = {}
        """Relative error of each row."""

    def add(self, name: str, seen: np.ndarray, wanted: np.ndarray) -> None:
        error, power = _squares(seen - wanted), _squares(wanted)
        self.error[name] = self.error.get(name, 0.0) + float(error.sum())
        self.power[name] = self.power.get(name, 0.0) + float(power.sum())
        self.rows.setdefault(name, []).append(np.sqrt(error / np.where(power == 0, 1.0, power)))

    def ratio(self, name: str) -> float:
        return float(np.sqrt(self.error[name] / (self.power[name] or 1.0)))

    def median(self, name: str) -> float:
        return float(np.median(np.concatenate(self.rows[name])))


class _World:
    """Integers that read float values in certain places."""

    def __init__(self, network: Network, fed: set[str], compared: set[str]) -> None:
        """``fed``: values that are replaced by the float network's, ``compared``: those whose errors are added up."""
        self.interpreter, self.graph = IntegerInterpreter(network), network.graph
        self.fed, self.compared, self.sums = fed, compared, _Sums()
        self.feed: dict[str, np.ndarray] = {}
        self.high: np.ndarray | int = 0
        """The product of the last high plane."""
        self._before = {node.x: node.function for node in self.graph.nodes if isinstance(node, Activation)}

    def steps(self, rows: Rows) -> Iterator[tuple[Node, np.ndarray]]:
        self.feed.clear()
        return self.interpreter.steps(rows, Cache(self.graph), self.feed)

    def see(self, node: Node, value: np.ndarray, wanted: np.ndarray, count: np.ndarray | slice) -> None:
        """A node's value in integers and in float, of which ``count`` rows count."""
        self.feed.clear()
        low = isinstance(node, Linear) and node.plane is Plane.LOW
        if node.name in self.fed and not low:  # the high plane's product is in the sum before it
            self.feed[node.name] = _codes(node, wanted)
        if node.name in self.compared:
            value = value.astype(np.int64) + self.high if low else value
            seen, wanted = _real(node, value[count]), wanted[count]
            if node.name in self._before:  # what an activation function reads, as seen behind it
                seen, wanted = (activate(self._before[node.name], part) for part in (seen, wanted))
            self.sums.add(node.name, seen, wanted)


class _Comparer:
    def __init__(self, quantized: Quantized) -> None:
        self.network, self.graph = quantized.network, quantized.network.graph
        self.real = FloatInterpreter(quantized.reference)
        last = self.graph.nodes[-1]
        self.head = last if isinstance(last, Linear) and last.name == self.graph.output and not self.graph.heads \
            else None
        """The logits' linear, computed some rows at a time."""
        self.ends = layer_outputs(self.network)
        names = set(self.graph.by_name)
        self.nodes, self.layers, self.whole = (_World(self.network, *sets) for sets in (
            (names, names), (_between(self.graph), set(self.ends)), (set(), {*self.ends, self.graph.output})))
        self.likeness: dict[str, LikenessSums] = {}
        self.cosines: list[np.ndarray] = []

    def run(self, kind: str, rows: Rows, worlds: list[_World], progress: Progress) -> None:
        """One pass of float and integers, node by node beside each other; ``whole`` is the last of the worlds."""
        work = measuring_work(self.graph, len(rows), len(worlds)) / len(self.graph.nodes)
        graph, inputs = self.graph, list[np.ndarray]()
        firsts = np.unique(rows.sequences, return_index=True)[1]
        reals = self.real.steps(rows, Cache(self.real.network.graph))
        steps = zip(*(world.steps(rows) for world in worlds), strict=True)
        for seen in islice(steps, len(graph.nodes) - (self.head is not None)):
            node = seen[0][0]
            progress(f"measuring {kind}, {node.name}", work)
            if node.name not in self.real.network.graph.by_name:  # a high plane's product, and its sum
                for world, (_, value) in zip(worlds, seen, strict=True):
                    world.feed.clear()
                    world.high = value.astype(np.int64) if isinstance(node, Linear) else world.high
                continue
            _, real = next(reals)
            for world, (_, value) in zip(worlds, seen, strict=True):
                world.see(node, value, real, firsts if node.name in graph.heads else slice(None))
            if self.head is not None and node.name == self.head.x:
                inputs = [real, *(world.feed.get(node.name, value)
                                  for world, (_, value) in zip(worlds, seen, strict=True))]
            if node.name == graph.output:
                count = firsts if node.name in graph.heads else slice(None)
                self.cosines.append(_cosines(real[count], _real(node, seen[-1][1][count])))
        if self.head is not None:
            self._logits(kind, rows, worlds, self.head, inputs)

    def _logits(self, kind: str, rows: Rows, worlds: list[_World], head: Linear, inputs: list[np.ndarray]) -> None:
        float_head = self.real.network.graph.by_name[head.name]
        assert isinstance(float_head, Linear)
        following, kept = _following(rows)
        sums = self.likeness.setdefault(kind, LikenessSums())
        weight = self.real.network.tensor(float_head, "weight").T  # made once: blocks are small, and it may be computed
        bias = self.real.network.tensor(float_head, "bias") if float_head.bias else np.float32(0)
        for some in _blocks(len(rows), head.columns):
            real = (inputs[0][some] @ weight + bias).astype(np.float64)
            for world, x in zip(worlds, inputs[1:], strict=True):
                if head.name in world.compared:
                    logits = world.interpreter.linear(head, x[some].astype(np.int64)) * _scale(head, head.type)
                    world.sums.add(head.name, logits, real)
            sums.add(real[kept[some]], logits[kept[some]], following[some][kept[some]])

    def result(self) -> Comparison:
        nodes, layers, whole = (world.sums for world in (self.nodes, self.layers, self.whole))
        kinds = {kind: sums.result() for kind, sums in self.likeness.items()}
        errors = Errors(
            nodes={node.name: nodes.ratio(node.name) for node in self.real.network.graph.nodes
                   if node.name in nodes.error},
            layers=[layers.ratio(name) for name in self.ends if name in layers.error],
            drift=[whole.median(name) for name in self.ends],
            output=whole.ratio(self.graph.output))
        return Comparison(
            errors, kinds, sum(self.likeness.values(), LikenessSums()).result() if kinds else None,
            np.concatenate(self.cosines) if self.cosines else np.zeros(0))


def compare(quantized: Quantized, texts: Mapping[str, np.ndarray], *, detailed: int = 2,
            progress: Progress = silent) -> Comparison:
    """Float and integers on windows of tokens by kind of text, each [windows, length], in one pass beside each other.

    Windows should not be those of calibration. Errors of nodes, and of layers that read float values, are those of the
    first ``detailed`` windows of each kind: each takes two more passes of the integers; none without any.

    Raises:
        CompileError: a kind has no window of two tokens.
    """
    graph, comparer = quantized.network.graph, _Comparer(quantized)
    if not texts or any(not len(windows) or windows.shape[1] < 2 for windows in texts.values()):
        raise CompileError("float and integers are compared on at least one window of two tokens or more")
    worlds = [comparer.nodes, comparer.layers, comparer.whole]
    for kind, windows in texts.items():
        for part, some in ((windows[:detailed], worlds), (windows[detailed:], worlds[-1:])):
            for rows in passes(part, graph.prefix):
                comparer.run(kind, rows, some, progress)
    return comparer.result()


def measure_errors(quantized: Quantized, windows: np.ndarray) -> Errors:
    """Errors over windows of tokens [windows, length], which should not be those of calibration."""
    return compare(quantized, {"text": windows}, detailed=len(windows)).errors


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = a.astype(np.float64), b.astype(np.float64)
    sizes = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray(np.where(sizes == 0, 1.0, (a * b).sum(axis=1) / np.where(sizes == 0, 1.0, sizes)))


def _following(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The token behind each row, and whether there is one in its sequence."""
    kept = np.roll(rows.sequences, -1) == rows.sequences
    kept[-1] = False
    return np.roll(rows.tokens, -1), kept


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, MOST_LOGITS // columns)
    return (slice(at, at + step) for at in range(0, rows, step))


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
    graph, total, count = network.graph, 0.0, 0
    integer = graph.integer
    interpreter = IntegerInterpreter(network) if integer else FloatInterpreter(network)
    node = graph.by_name[graph.output]
    scale = _scale(node, node.type) if integer else 1.0
    for part in passes(windows, graph.prefix):
        values = interpreter.forward(part, Cache(graph))
        following, kept = _following(part)
        for some in _blocks(len(part), graph.vocab):
            logits = values[some][kept[some]].astype(np.float64) * scale
            total += nats(logits, following[some][kept[some]]) if len(logits) else 0.0
        count += int(kept.sum())
    if not count:
        raise CompileError("perplexity needs windows of at least two tokens")
    return float(np.exp(total / count))
