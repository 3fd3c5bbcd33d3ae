"""Massive activations: where a network has them, and the constant cached token that takes them away.

In most published networks the first token, whatever it is, becomes an attention sink: a few channels of its residual
stream are thousands of times as large as those of other tokens (Sun et al. 2024, *Massive Activations*). A constant
token in front, whose keys and values are computed in float and stand in every cache, takes the sink's place, so that no
token that the device computes has such numbers (PrefixQuant, Chen et al. 2024).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention, Cache, FloatInterpreter, Graph, Network, Rows, residuals
from gemmule.compiler.quantize.overlay import Overlay

__all__ = ["Outlier", "Outliers", "behind_prefix", "find_outliers", "find_prefix", "with_prefix"]

MASSIVE = 30.0
"""A row's largest magnitude over the median of rows from which it counts as massive."""
GAIN = 3.0
"""How much smaller the largest magnitudes of the stream must become, in the mean, for a prefix to be worth its row."""
ALIKE = 0.1
"""Levels that are so close to the least one count as alike."""
TRIED = 8
"""Candidates that are tried."""
PROBED = 4, 128
"""Windows, and tokens of each, on which they are tried."""


@dataclass(frozen=True)
class Outlier:
    """The largest number of the residual stream behind a layer."""

    layer: int
    """0: the embeddings; n: behind layer n - 1."""
    value: float
    token: int
    position: int
    channel: int
    ratio: float
    """To the median of the rows' largest magnitudes."""


@dataclass(frozen=True)
class Outliers:
    """Of some windows."""

    largest: tuple[Outlier, ...]
    """By layer."""
    tokens: tuple[int, ...]
    """Tokens of massive rows, the most frequent first."""

    @property
    def worst(self) -> Outlier:
        """The one that stands out most."""
        return max(self.largest, key=lambda found: found.ratio)

    @property
    def level(self) -> float:
        """Mean logarithm of the layers' largest magnitudes."""
        return float(np.mean([np.log(max(found.value, 1e-30)) for found in self.largest]))


def find_outliers(network: Network, windows: np.ndarray) -> Outliers:
    """Largest numbers of the residual stream of a float decoder over windows of tokens [windows, length]."""
    graph = network.graph
    names = residuals(graph)
    found: dict[str, np.ndarray] = {}

    def observe(name: str, value: np.ndarray) -> None:
        if name in names:
            found[name] = np.abs(value)

    first = graph.prefix
    rows = Rows.ragged([window.tolist() for window in windows], [first] * len(windows))
    FloatInterpreter(network).forward(rows, Cache(graph), observe)
    largest, massive = [], dict[int, int]()
    for layer, name in enumerate(names):
        peaks = found[name].max(axis=1)
        median = float(np.median(peaks)) or 1.0
        at = int(peaks.argmax())
        largest.append(Outlier(layer, float(peaks[at]), int(rows.tokens[at]), int(rows.positions[at]),
                               int(found[name][at].argmax()), float(peaks[at]) / median))
        for row in np.flatnonzero(peaks > MASSIVE * median):
            token = int(rows.tokens[row])
            massive[token] = massive.get(token, 0) + 1
    return Outliers(tuple(largest), tuple(sorted(massive, key=lambda token: (-massive[token], token))))


def find_prefix(network: Network, windows: np.ndarray, candidates: Iterable[int]) -> tuple[int, ...]:
    """The token that is worth a constant row in front, or none.

    Tried are ``candidates`` (what a tokenizer puts before a prompt, tokens that end a text) and the tokens that stand
    out. The first behind which the stream's largest magnitudes are least, or hardly larger, wins: prompts that begin
    with it as they are lose nothing.
    """
    graph = network.graph
    if graph.encoder or any(node.window for node in graph.attentions) or graph.prefix:
        return ()
    probe = windows[np.linspace(0, len(windows) - 1, min(PROBED[0], len(windows))).astype(np.int64), :PROBED[1]]
    plain = find_outliers(network, probe)
    if plain.worst.ratio < MASSIVE:
        return ()
    tried = list(dict.fromkeys((*candidates, *plain.tokens)))[:TRIED]
    levels = {token: find_outliers(with_prefix(network, (token,)), behind_prefix(probe, (token,))).level
              for token in tried}
    least = min(levels.values(), default=plain.level)
    best = next((token for token, level in levels.items() if level <= least + ALIKE), None)
    if best is None or plain.level - levels[best] < np.log(GAIN):
        return ()
    return (best,)


def behind_prefix(windows: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    """Windows [windows, length] as a device sees them behind a constant prefix: one that begins with the same tokens
    goes on behind them, as prompts do. All lose as many tokens, the others their last ones.
    """
    count = len(tokens)
    if not count:
        return windows
    own = (windows[:, :count] == np.asarray(tokens)).all(axis=1)
    return np.where(own[:, None], windows[:, count:], windows[:, :-count])


def with_prefix(network: Network, tokens: Sequence[int],
                feed: Mapping[str, np.ndarray] = MappingProxyType({})) -> Network:
    """A float decoder every sequence of which begins with these tokens' keys and values, as constants.

    ``feed``: rows of another network that these rows read, by node.

    Raises:
        CompileError: unknown tokens, or a network without a plain causal cache.
    """
    graph = network.graph
    if not tokens:
        return network
    if graph.encoder or any(node.window for node in graph.attentions) or graph.prefix:
        raise CompileError("a prefix needs a decoder without a window, and without a prefix: use none")
    cache = Cache(graph)
    FloatInterpreter(network).forward(Rows.chain(list(tokens)), cache, feed=feed)
    weights, nodes = dict[str, np.ndarray](), []
    for node in graph.nodes:
        if isinstance(node, Attention):
            roles = {role: f"{node.name}.{role}" for role in ("prefix_key", "prefix_value")}
            weights |= dict(zip(roles.values(), cache.contents(node.name), strict=True))
            node = node.model_copy(update={"prefix": len(tokens), "tensors": {**node.tensors, **roles}})
        nodes.append(node)
    made = Graph(family=graph.family, vocab=graph.vocab, positions=graph.positions, nodes=tuple(nodes),
                 output=graph.output)
    return Network(made, Overlay(network.weights, added=weights))
