"""SmolLM2 and its forms in integers, as `gemmule import` makes them, with one remedy or another left out."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmule import __version__
from gemmule.compiler.files.model_file import Made, save_model
from gemmule.compiler.quantize.network import Options, Quantized, quantize_network
from gemmule.compiler.quantize.prefix import behind_prefix
from gemmule.io.progress import working
from gemmule.sw.models.import_texts import texts_of
from gemmule.sw.models.pair import Pair, imported_pair
from gemmule.sw.models.sources import Source, read_source

__all__ = ["ALL", "BITS", "FOLDER", "VARIANTS", "model_path", "options", "pair_of", "quantised", "source"]

NAME, PREFIX = "smollm2", "<|im_start|>"
"""The token that the chat template puts first stands in front of every cache."""
WINDOW = 256
"""Tokens of a window of calibration, import's own choice."""
BITS = ("int8", "int4")
FOLDER = Path("build/smollm2")
"""Where models are kept between parts."""
ALL = "all remedies"
VARIANTS: dict[str, dict[str, Any]] = {
    ALL: {},
    "without the prefix": {"prefix": ()},
    "without the rotation": {"rotate": False, "smooth": True},
    "one residual step": {"residual": "one"},
    "8 bits within the MLP": {"inner": 8},
    "no remedy": {"prefix": (), "rotate": False, "smooth": True, "residual": "one", "inner": 8},
    "down in int8": {"down": 8},
    "nearest": {"method": "nearest"},
}
"""What is changed of :func:`options`; the last two are of int4 alone. Where nothing is rotated import evens out ranges.
"""


@cache
def source() -> Source:
    """The published model in float, with its tokenizer."""
    return read_source(NAME)


def options(bits: str, variant: str = ALL) -> Options:
    """What import takes by default, but for the prefix, which is named."""
    token = source().tokenizer.token_to_id(PREFIX)
    whole = Options(bits=8 if bits == "int8" else 4, group=0 if bits == "int8" else 32, smooth=False, rotate=True,
                    method="nearest" if bits == "int8" else "second-order", prefix=(token,), residual="layer", inner=16)
    return replace(whole, **VARIANTS[variant])


@cache
def _calibration() -> np.ndarray:
    return behind_prefix(texts_of(source(), WINDOW, None, {}).used, options("int8").prefix)


def quantised(bits: str, variant: str = ALL) -> Quantized:
    """Made now, from import's own windows of calibration; the one with all remedies is kept as a file too."""
    with working(f"quantising {NAME}, {bits}, {variant}"):
        made = quantize_network(source().network, _calibration(), options(bits, variant))
    if variant == ALL:
        _keep(bits, made)
    return made


def model_path(bits: str) -> Path:
    """The model file with all remedies, made if it is not there."""
    path = FOLDER / f"{bits}.safetensors"
    if not path.is_file():
        quantised(bits)
    return path


def _keep(bits: str, made: Quantized) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    taken, read = options(bits), source()
    save_model(FOLDER / f"{bits}.safetensors", made.network, Made(
        version=__version__, bits=taken.bits, group=taken.group, method=taken.method, smooth=taken.smooth, seed=0,
        calibration_sha256=hashlib.sha256(_calibration().astype("<i8").tobytes()).hexdigest(), prefix=taken.prefix,
        rotate=taken.rotate, residual=taken.residual, inner=taken.inner, down=taken.down),
        read.tokenizer_json, read.ends, read.labels, read.chat)


def pair_of(bits: str) -> Pair:
    """The model, for sessions."""
    return imported_pair(model_path(bits))
