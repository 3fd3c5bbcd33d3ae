"""From a published model to a quantised one, measured and checked: what ``gemmule import`` does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from gemmule import __version__
from gemmule.compiler.files.model_check import check_written
from gemmule.compiler.files.model_file import Made, model_bytes
from gemmule.compiler.ir import Graph, Network
from gemmule.compiler.quantize.accuracy import Comparison, compare
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.prefix import MASSIVE, PROBED, behind_prefix, find_outliers, find_prefix
from gemmule.compiler.quantize.rotate import can_rotate
from gemmule.compiler.quantize.verdict import verdict
from gemmule.compiler.quantize.work import calibration_work, measuring_work, rounding_work
from gemmule.io.progress import estimating, say, stderr
from gemmule.sw.models.choices import choose
from gemmule.sw.models.import_texts import Texts, texts_of
from gemmule.sw.models.sources import Source, read_source

__all__ = ["Imported", "Recipe", "import_model"]

DETAILED = 2
"""Windows of which errors by layer and operation are measured, of all kinds of text together."""
CHECKED = 16
"""Tokens of the pass that the written file is tried with."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to quantise: names, values and defaults are those of the options of ``gemmule import``."""

    bits: str = "int8"
    group: int = 32
    method: str = "auto"
    smooth: bool | None = None
    prefix: str = "auto"
    rotate: bool | None = None
    residual: str = "auto"
    inner: str = "auto"
    down: str | None = None
    attention: str = "exact"
    softmax: str = "exact"
    activation: str = "table"
    window: int = 256
    seed: int = 0

    @property
    def rounding(self) -> Literal["nearest", "second-order"]:
        """``auto``: nearest of int8, second-order of int4."""
        second = self.method == "second-order" or (self.method == "auto" and self.bits == "int4")
        return "second-order" if second else "nearest"


@dataclass(frozen=True)
class Imported:
    """A quantised network, its file's content, and how far it is from float."""

    network: Network
    made: Made
    content: bytes
    found: Comparison
    texts: Texts
    why_unusable: str | None
    """None: it is usable."""

    def check(self, path: Path) -> None:
        """Read the written file back and try it.

        Raises:
            CompileError: it is not what was quantised.
        """
        tried = next(iter(self.texts.measured.values()))[0, :CHECKED].tolist()
        check_written(path, self.network, tried)


def import_model(source: str | Path, recipe: Recipe, name: str, calibrate: str | None = None,
                 evaluate: Mapping[str, str] | None = None, *, briefly: bool = False) -> Imported:
    """Quantise what :func:`gemmule.sw.models.sources.read_source` reads and measure it; ``name`` is shown meanwhile.

    ``calibrate`` and ``evaluate``: text, and text by kind, as of :func:`gemmule.sw.models.import_texts.texts_of`.
    ``briefly``: measure on one window of each kind, which says whether it is usable, without errors of operations.

    Raises:
        CompileError: the network cannot be read or quantised.
        InputError: its tokenizer cannot be read, or a text does not do.
    """
    with stderr.status("reading"):
        read = read_source(source)
        network = choose(read.network, recipe.attention, recipe.softmax, recipe.activation)
        graph = network.graph
        texts = texts_of(read, min(recipe.window, graph.positions), calibrate, dict(evaluate or {}))
    for note in read.notes:
        say(note)
    with stderr.status("looking for massive activations"):
        options = _options(recipe, read, network, texts.used)
    measured = {kind: behind_prefix(windows[:1] if briefly else windows, options.prefix)
                for kind, windows in texts.measured.items()}
    texts = Texts(behind_prefix(texts.used, options.prefix), measured)
    detailed = 0 if briefly else max(1, DETAILED // len(measured))
    with estimating(f"importing {name}", _work(graph, options, texts, detailed)) as tell:
        quantized = quantize_network(network, texts.used, options, tell)
        found = compare(quantized, measured, detailed=detailed, progress=tell)
    made = Made(version=__version__, bits=options.bits, group=options.group, method=options.method,
                smooth=options.smooth, seed=options.seed, calibration_sha256=_sha256(texts.used),
                prefix=options.prefix, rotate=options.rotate, residual=options.residual, inner=options.inner,
                down=options.down)
    content = model_bytes(quantized.network, made, read.tokenizer_json, read.ends, read.labels, read.chat)
    return Imported(quantized.network, made, content, found, texts, verdict(found))


def _options(recipe: Recipe, source: Source, network: Network, windows: np.ndarray) -> Options:
    """What the recipe asks for, and where it leaves the choice, what the network's activations ask for."""
    front, massive = _front(source, network, windows, recipe.prefix)
    turned = can_rotate(network.graph) if (massive if recipe.rotate is None else recipe.rotate) else False
    wide = recipe.inner == "16" or (recipe.inner == "auto" and massive and recipe.activation == "table")
    by_layer = recipe.residual == "layer" or (recipe.residual == "auto" and massive)
    return Options(
        bits=8 if recipe.bits == "int8" else 4, method=recipe.rounding, seed=recipe.seed, prefix=front, rotate=turned,
        group=recipe.group if "int4" in (recipe.bits, recipe.down) else 0,
        smooth=not turned if recipe.smooth is None else recipe.smooth, residual="layer" if by_layer else "one",
        inner=16 if wide else 8, down=None if recipe.down is None else 8 if recipe.down == "int8" else 4)


def _front(source: Source, network: Network, windows: np.ndarray, prefix: str) -> tuple[tuple[int, ...], bool]:
    """(The constant tokens in front of every sequence, whether there are massive activations)."""
    if network.graph.encoder:
        return (), False
    massive = find_outliers(network, windows[:PROBED[0], :PROBED[1]]).worst.ratio >= MASSIVE
    if not massive or prefix == "none":
        return (), massive
    named = source.chat.tokens.values() if source.chat else ()
    ids = [token for text in named if (token := source.tokenizer.token_to_id(text)) is not None]
    return find_prefix(network, windows, (*source.bos, *ids, *source.ends)), massive


def _work(graph: Graph, options: Options, texts: Texts, detailed: int) -> float:
    """Of calibrating, rounding and measuring, for the estimate of the time."""
    thrice, once = (sum(windows[part].size for windows in texts.measured.values())
                    for part in (slice(detailed), slice(detailed, None)))
    used = texts.used
    calibrated = used.size + (used[:max(1, len(used) // 2)].size if options.smooth else 0)
    rounded = sum(rounding_work(node, second_order=options.method == "second-order") for node in graph.nodes)
    return (calibration_work(graph, calibrated) + rounded + measuring_work(graph, thrice, 3)
            + measuring_work(graph, once, 1))


def _sha256(windows: np.ndarray) -> str:
    return hashlib.sha256(windows.astype("<i8").tobytes()).hexdigest()
