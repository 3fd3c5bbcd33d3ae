"""What calibration keeps of every value: samples, largest magnitudes, and what the inputs of linears are like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from types import MappingProxyType

import numpy as np

from gemmule.compiler.ir import (
    Add,
    Borrowed,
    Cache,
    Embedding,
    FloatInterpreter,
    Graph,
    Linear,
    Network,
    Node,
    Position,
    Rope,
    Rows,
)
from gemmule.compiler.ir.float_interpreter import Observer
from gemmule.compiler.quantize.work import Progress, calibration_work, silent

__all__ = ["Taps", "counting", "observe", "passes"]

SAMPLES = 1 << 18
"""Numbers kept of a value."""
ROWS = 4096
"""Tokens of a pass: weights, which a file may hold in other forms, are made once a pass."""
MOST_LOGITS = 1 << 22
"""Logits that are made at a time."""
CONSTANT = 16
"""Rows of a prefix count as one of so many of a sample."""


class Taps:
    """Statistics of a network's float values by node."""

    def __init__(self, network: Network, seed: int, *, passes: int, grams: bool) -> None:
        """``grams``: also sums of products of each two columns of linears' inputs."""
        graph = network.graph
        self.random = np.random.default_rng(seed)
        self.heads = {name: node.head_dim for node in graph.attentions for name in node.inputs}
        self.inputs = {node.x for node in graph.nodes if isinstance(node, Linear)}
        self.sampled = {node.name for node in graph.nodes if _sampled(graph, node)}
        self.grams = grams
        self.kept = SAMPLES // passes
        """Numbers kept of a value of a pass."""
        self.rows = 0
        self._samples: dict[str, list[np.ndarray]] = {}
        self.largest: dict[str, np.ndarray] = {}
        """Largest magnitude of each column."""
        self.ranges: dict[str, tuple[float, float]] = {}
        """Least and largest number of a value, 0 among them."""
        self.squares: dict[str, np.ndarray] = {}
        """Sums of squares of each column of a linear's input."""
        self.gram: dict[str, np.ndarray] = {}
        """``x.T @ x`` of a linear's input  # float32 [columns, columns]."""

    def __call__(self, name: str, value: np.ndarray) -> None:
        """Take note of a node's value of a pass, or of some rows of it."""
        low, high = value.min(axis=0), value.max(axis=0)
        self.largest[name] = np.maximum(self.largest.get(name, 0), np.maximum(-low, high))
        before = self.ranges.get(name, (0.0, 0.0))
        self.ranges[name] = min(before[0], float(low.min())), max(before[1], float(high.max()))
        if name in self.sampled:
            self._samples.setdefault(name, []).append(value[self.random.permutation(len(value))[
                :max(1, self.kept // value.shape[1])]].astype(np.float32))
        if name in self.inputs:
            self.squares[name] = self.squares.get(name, 0) + np.einsum("rc,rc->c", value, value, dtype=np.float64)
            if self.grams:
                self.gram[name] = self.gram.get(name, 0) + value.T @ value

    def constant(self, name: str, value: np.ndarray) -> None:
        """Take note of rows that every sequence has, and all of whose tokens read: keys and values of a prefix."""
        self.largest[name] = np.maximum(self.largest[name], np.abs(value).max(axis=0))
        count = max(1, len(self.sample(name)) // CONSTANT // len(value))
        self._samples[name].append(np.tile(value.astype(np.float32), (count, 1)))

    def sample(self, name: str) -> np.ndarray:
        """Some rows of a value  # float32 [rows, columns]."""
        return np.concatenate(self._samples[name])

    def peak(self, name: str) -> float:
        """Largest magnitude of a value."""
        return float(self.largest[name].max())


def _sampled(graph: Graph, node: Node) -> bool:
    """Whether a value's step is searched on a sample; those of sums, of what joins them and of logits come from peaks,
    those before rotations from what is behind."""
    if isinstance(node, Embedding | Position | Borrowed | Add) or node.name == graph.output and not graph.encoder:
        return False
    readers = graph.readers(node.name)
    return not (isinstance(node, Linear) and readers and all(isinstance(reader, Add | Rope) for reader in readers))


def passes(windows: np.ndarray, first: int) -> Iterator[Rows]:
    """Windows of tokens [windows, length], some at a time, each a sequence of its own from position ``first``."""
    count = max(1, ROWS // windows.shape[1])
    for at in range(0, len(windows), count):
        part = windows[at:at + count]
        yield Rows.ragged([window.tolist() for window in part], [first] * len(part))


def counting(graph: Graph, rows: Rows, observer: Observer) -> Observer:
    """Gives an observer the rows that count: of an encoder's pooler and classifier the first of each sequence."""
    firsts = np.unique(rows.sequences, return_index=True)[1]

    def observe(name: str, value: np.ndarray) -> None:
        observer(name, value[firsts] if name in graph.heads else value)

    return observe


def observe(network: Network, windows: np.ndarray, seed: int, *, grams: bool = False, progress: Progress = silent,
            feed: Mapping[str, np.ndarray] = MappingProxyType({})) -> Taps:
    """Statistics of a float network over windows of tokens [windows, length].

    ``feed``: rows of another network that it reads, by node  # float32 [windows * length, columns]
    """
    parts, graph = list(passes(windows, network.graph.prefix)), network.graph
    taps, interpreter = Taps(network, seed, passes=len(parts), grams=grams), FloatInterpreter(network)
    last = graph.nodes[-1]
    head = last if isinstance(last, Linear) and last.name == graph.output and not graph.encoder else None
    done = 0
    for rows in parts:
        fed = {name: value[done:done + len(rows)] for name, value in feed.items()}
        done += len(rows)
        work = calibration_work(graph, len(rows)) / len(graph.nodes)
        see, steps = counting(graph, rows, taps), interpreter.steps(rows, Cache(graph), fed)
        for node, value in islice(steps, len(graph.nodes) - (head is not None)):
            see(node.name, fed.get(node.name, value))
            progress(f"calibrating {node.name}", work)
            if head is not None and node.name == head.x:
                step = max(1, MOST_LOGITS // head.columns)
                for at in range(0, len(rows), step):
                    see(head.name, interpreter.linear(head, value[at:at + step]))
        taps.rows += len(rows)
    for node in network.graph.attentions if network.graph.prefix else ():
        for name, role in ((node.key, "prefix_key"), (node.value, "prefix_value")):
            taps.constant(name, network.tensor(node, role))
    return taps
