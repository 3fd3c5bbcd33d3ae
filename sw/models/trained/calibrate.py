"""Calibration of trained drafters: on the target's own hidden rows, as its integers compute them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from gemmule import __version__
from gemmule.compiler.files.model_file import Made, ModelFile, model_bytes
from gemmule.compiler.ir import (
    Borrowed,
    Cache,
    FloatInterpreter,
    IntegerInterpreter,
    Network,
    Rows,
    residuals,
)
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.prefix import behind_prefix, with_prefix
from gemmule.compiler.quantize.rotate import Rotation
from gemmule.compiler.quantize.taps import passes
from gemmule.sw.models.trained.read import HEADS, Trained

__all__ = ["DRAFTED", "Calibration", "calibrated", "heads_calibrated", "hidden_rows", "own_rows", "quantised_bytes",
           "steps_of"]

DRAFTED = 5
"""Rows at the end of a window that a sequential drafter drafts: as many as training rolled out."""


EVERY = 8
"""Positions from one that heads read to the next."""


@dataclass(frozen=True)
class Calibration:
    """Tokens of windows and the target's rows beside them.

    Attributes:
        windows: ids of the drafter  # int64 [windows, length]
        hidden: by depth, what stands beside each token  # float32 [windows * length, columns]
        front: tokens of the constant rows with which texts begin, and by depth what stands beside them.
    """

    windows: np.ndarray
    hidden: Mapping[int, np.ndarray]
    front: tuple[tuple[int, ...], Mapping[int, np.ndarray]]


def steps_of(target: Network, depths: tuple[int, ...]) -> dict[int, float]:
    """Of the target's residual stream, by depth."""
    names, found = residuals(target.graph), dict[int, float]()
    for depth in depths:
        scale = target.graph.by_name[names[depth]].type.scale
        assert isinstance(scale, float)
        found[depth] = scale
    return found


def hidden_rows(target: Network, rows: Rows, depths: tuple[int, ...]) -> dict[int, np.ndarray]:
    """The residual stream of a network in integers over texts from their begin, by depth  # int16 [rows, columns]."""
    wanted = {residuals(target.graph)[depth]: depth for depth in depths}
    found: dict[int, np.ndarray] = {}
    for node, value in IntegerInterpreter(target).steps(rows, Cache(target.graph)):
        if node.name in wanted:
            found[wanted[node.name]] = value
        if len(found) == len(wanted):
            break
    return found


def calibrated(trained: Trained, target: ModelFile, published: Network, texts: np.ndarray,
               turn: Rotation | None) -> Calibration:
    """What the drafter reads of texts, tokens [texts, length].

    Masks stand behind a text and have its last row; what a sequential drafter drafts is the text's own end, without
    rows of the target.
    """
    prefix, depths, graph = target.made.prefix, trained.depths, target.network.graph
    windows = behind_prefix(texts, prefix)
    steps, count = steps_of(target.network, depths), len(windows)
    masks = [graph.vocab + at for at in range(trained.masks)]
    tokens = np.concatenate([windows[:, 1:], np.tile(masks, (count, 1)).astype(np.int64)], axis=1)
    read = windows.shape[1] - 1 - (0 if masks else DRAFTED)  # each row has the token that follows it
    beside = {depth: np.zeros((*tokens.shape, graph.nodes[0].columns), np.float32) for depth in depths}
    for number, window in enumerate(windows.tolist()):
        for depth, rows in hidden_rows(target.network, Rows.chain(window[:read], len(prefix)), depths).items():
            beside[depth][number, :read] = rows * np.float32(steps[depth])
            if masks:
                beside[depth][number, read:] = beside[depth][number, read - 1]
    return Calibration(tokens, {depth: rows.reshape(-1, rows.shape[-1]) for depth, rows in beside.items()},
                       _front(depths, prefix, published, texts, turn))


def heads_calibrated(trained: Trained, target: ModelFile, texts: np.ndarray) -> Calibration:
    """What heads read at some positions of texts, tokens [texts, length]: a window for each.

    It has a row of each head; or, of heads one behind the other, the token that follows and as many as are drafted,
    where only the first has a row of the target. No row is constant, as none sees another one.
    """
    prefix, (depth,) = target.made.prefix, trained.depths
    windows = behind_prefix(texts, prefix)
    step = steps_of(target.network, trained.depths)[depth]
    every = trained.masks if trained.kind in HEADS else 1 + DRAFTED
    tokens, beside = list[np.ndarray](), list[np.ndarray]()
    for window in windows:
        rows = hidden_rows(target.network, Rows.chain(window.tolist(), len(prefix)), trained.depths)[depth]
        for at in range(EVERY - 1, len(window) - every, EVERY):
            one = np.zeros((every, rows.shape[1]), np.float32)
            one[:every if trained.kind in HEADS else 1] = rows[at] * np.float32(step)
            beside.append(one)
            tokens.append(np.arange(every) if trained.kind in HEADS else window[at + 1:at + 1 + every])
    return Calibration(np.stack(tokens), {depth: np.concatenate(beside)}, ((), {}))


def _front(depths: tuple[int, ...], prefix: tuple[int, ...], published: Network, texts: np.ndarray,
           turn: Rotation | None) -> tuple[tuple[int, ...], dict[int, np.ndarray]]:
    """The drafter's constant rows: tokens that follow the target's, as texts that begin with these have them, and the
    target's rows in float.
    """
    if not prefix:
        return (), {}
    begun = [text for text in texts.tolist() if tuple(text[:len(prefix)]) == prefix] or texts.tolist()
    wanted = {residuals(published.graph)[depth]: depth for depth in depths}
    found: dict[int, np.ndarray] = {}

    def observe(name: str, value: np.ndarray) -> None:
        if name in wanted:
            found[wanted[name]] = value if turn is None else turn(value)

    FloatInterpreter(published).forward(Rows.chain(list(prefix)), Cache(published.graph), observe)
    return (*prefix[1:], begun[0][len(prefix)]), found


def own_rows(network: Network, windows: np.ndarray, feed: Mapping[str, np.ndarray]) -> np.ndarray:
    """What a sequential drafter leaves itself over windows [windows, length] whose last rows it drafts, each from the
    row before; of the others 0  # float32 [windows * length, columns]
    """
    graph, last = network.graph, residuals(network.graph)[-1]
    name, columns = next((node.name, node.columns) for node in graph.nodes if isinstance(node, Borrowed) and node.own)
    found = np.zeros((*windows.shape, columns), np.float32)
    for at in range(windows.shape[1] - DRAFTED, windows.shape[1]):
        streams, done = [], 0
        for rows in passes(windows, graph.prefix):
            fed = {key: value[done:done + len(rows)] for key, value in feed.items()}
            fed[name] = found.reshape(-1, columns)[done:done + len(rows)]
            steps = FloatInterpreter(network).steps(rows, Cache(graph), fed)
            streams.append(next(value for node, value in steps if node.name == last))
            done += len(rows)
        found[:, at] = np.concatenate(streams).reshape(found.shape)[:, at - 1]
    return found.reshape(-1, columns)


def quantised_bytes(network: Network, calibration: Calibration, prefix: tuple[int, ...]) -> bytes:
    """The file of a drafter in integers; ``prefix``: the target's constant tokens."""
    borrowed = [node for node in network.graph.nodes if isinstance(node, Borrowed)]
    names = {node.depth: node.name for node in borrowed if not node.own}
    if prefix:
        tokens, beside = calibration.front
        network = with_prefix(network, tokens, {names[depth]: rows for depth, rows in beside.items()} | {
            node.name: np.zeros((len(tokens), node.columns), np.float32) for node in borrowed if node.own})
    feed = {names[depth]: rows for depth, rows in calibration.hidden.items()}
    feed |= {node.name: own_rows(network, calibration.windows, feed) for node in borrowed if node.own}
    options = Options(smooth=False)
    found = quantize_network(network, calibration.windows, options, feed=feed)
    made = Made(version=__version__, bits=8, group=0, method=options.method, smooth=False, seed=options.seed,
                calibration_sha256=sha256(calibration.windows.astype("<i8").tobytes()).hexdigest(),
                prefix=calibration.front[0] if prefix else (), residual=options.residual, inner=options.inner)
    return model_bytes(found.network, made, None)
