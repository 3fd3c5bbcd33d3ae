"""The one-pass drafter of a published model: quantised once for the target as it is in integers, then from the cache.

It is calibrated on the target's own hidden rows, as its integers compute them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from gemmule import __version__
from gemmule.compiler.files.model_file import Made, ModelFile, load_model, model_bytes
from gemmule.compiler.ir import Borrowed, Cache, FloatInterpreter, IntegerInterpreter, Network, Rows, residuals
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.prefix import behind_prefix, with_prefix
from gemmule.compiler.quantize.rotate import Rotation
from gemmule.compiler.sources import sources
from gemmule.io.cache import cache_folder, cache_root, writing
from gemmule.io.files import write_atomically
from gemmule.io.locks import exclusive
from gemmule.io.progress import say
from gemmule.sw.errors import InputError
from gemmule.sw.limits import MODELS_FOLDER
from gemmule.sw.models.import_texts import texts_of
from gemmule.sw.models.one_pass_network import Trained, drafter_network, read_trained
from gemmule.sw.models.quantised import FOLDER, LOCK, SOURCES, read_cached
from gemmule.sw.models.sources import read_source

__all__ = ["Calibration", "OnePassFile", "calibrated", "hidden_rows", "one_pass_drafter", "one_pass_path"]

WINDOW = 128
"""Tokens of a window of calibration, the masks behind them among these."""


@dataclass(frozen=True)
class OnePassFile:
    """A drafter in integers.

    Attributes:
        file: its network; the masks are its last tokens.
        every: layers of the target from one depth that it reads to the next.
        tokens: the target's token of each number of its logits, int64.
        masks: ids of the masks, in the order of positions.
    """

    file: ModelFile
    every: int
    tokens: np.ndarray
    masks: tuple[int, ...]


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


def one_pass_path(name: str) -> Path | None:
    """Where the drafter that was trained for a published model lies; None: there is none."""
    path = MODELS_FOLDER / name / "parallel.safetensors"
    return path if path.is_file() else None


def one_pass_drafter(name: str, target: ModelFile) -> OnePassFile:
    """The drafter of a published model, for its file in integers. The first call makes it, which takes a minute.

    Raises:
        CacheError: it cannot be kept.
        CompileError: the trained drafter, or the published model, cannot be read.
        InputError: no drafter was trained for it.
    """
    path = one_pass_path(name)
    if path is None:
        raise InputError(f"no one-pass drafter was trained for {name}: take --model smollm2, or another --method")
    trained = read_trained(path)
    key = sha256(sources((*SOURCES, "sw/models/one_pass*.py")) + path.read_bytes() + target.sha256.encode())
    kept = cache_root() / FOLDER / f"{name}-parallel-{key.hexdigest()[:16]}.safetensors"
    if (found := read_cached(kept)) is None:
        cache_folder(FOLDER)
        with ExitStack() as alone:
            with writing():
                alone.enter_context(exclusive(kept.with_name(kept.name + LOCK), kept.name))
            if (found := read_cached(kept)) is None:  # else another process has just made it
                say(f"the one-pass drafter of {name} is made once, which takes a minute, and kept: {kept}")
                content = _made(name, trained, target)
                with writing():
                    write_atomically(kept, content)
                found = load_model(kept)
    vocab = found.network.graph.vocab
    return OnePassFile(found, min(trained.depths), trained.tokens, tuple(range(vocab - trained.masks, vocab)))


def _made(name: str, trained: Trained, target: ModelFile) -> bytes:
    source = read_source(name)
    texts = texts_of(source, WINDOW + 2, None, {})
    turn = Rotation(target.network.graph.nodes[0].columns, target.made.seed) if target.made.rotate else None
    network = drafter_network(trained, source.network, _steps(target.network, trained.depths), turn)
    made = calibrated(trained, target, source.network, texts.used, turn)
    return quantised_bytes(network, made, target.made.prefix)


def quantised_bytes(network: Network, calibration: Calibration, prefix: tuple[int, ...]) -> bytes:
    """The file of a drafter in integers; ``prefix``: the target's constant tokens."""
    names = {node.depth: node.name for node in network.graph.nodes if isinstance(node, Borrowed)}
    if prefix:
        tokens, beside = calibration.front
        network = with_prefix(network, tokens, {names[depth]: rows for depth, rows in beside.items()})
    options = Options(smooth=False)
    found = quantize_network(network, calibration.windows, options, feed={
        names[depth]: rows for depth, rows in calibration.hidden.items()})
    made = Made(version=__version__, bits=8, group=0, method=options.method, smooth=False, seed=options.seed,
                calibration_sha256=sha256(calibration.windows.astype("<i8").tobytes()).hexdigest(),
                prefix=calibration.front[0] if prefix else (), residual=options.residual, inner=options.inner)
    return model_bytes(found.network, made, None)


def _steps(target: Network, depths: tuple[int, ...]) -> list[float]:
    """Of the target's residual stream at these depths."""
    names, found = residuals(target.graph), list[float]()
    for depth in depths:
        scale = target.graph.by_name[names[depth]].type.scale
        assert isinstance(scale, float)
        found.append(scale)
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
    """What the drafter reads of texts, tokens [texts, length]: each goes as far as masks leave room."""
    prefix, depths, graph = target.made.prefix, trained.depths, target.network.graph
    windows = behind_prefix(texts, prefix)
    steps = dict(zip(depths, _steps(target.network, depths), strict=True))
    count, length = len(windows), windows.shape[1] - 1
    masks = [graph.vocab + at for at in range(trained.masks)]
    tokens = np.concatenate([windows[:, 1:], np.tile(masks, (count, 1))], axis=1)  # each row has the token that follows
    beside = {depth: np.zeros((count, length + len(masks), graph.nodes[0].columns), np.float32) for depth in depths}
    for number, window in enumerate(windows.tolist()):
        for depth, rows in hidden_rows(target.network, Rows.chain(window[:-1], len(prefix)), depths).items():
            beside[depth][number, :length] = rows * np.float32(steps[depth])
            beside[depth][number, length:] = beside[depth][number, length - 1]
    return Calibration(tokens, {depth: rows.reshape(-1, rows.shape[-1]) for depth, rows in beside.items()},
                       _front(depths, prefix, published, texts, turn))


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
