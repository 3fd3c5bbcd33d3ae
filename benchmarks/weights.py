"""Bits of weights on the bundled models: quality, bytes, and cycles of a decode step where the device has the format.

    python -m benchmarks.weights --out docs/results                 (then `python -m benchmarks.readme`)
    python -m benchmarks.weights --out docs/results --part halves   (that part alone, the rest as it stands)

Each model is restored to float from its int8 file, its weights are rounded anew (to the nearest, clipped where the
squared error is least, all but the embedding's and the logits'), and the float interpreter reads held-out files of the
corpus: bits per byte, so that models with different tokenizers compare. Three bits are by groups with integer scales as
int4; FP8 is E4M3 with a step a column. Neither runs on the device, so they have no cycles. Halves: the target behind
its first layers, read by its own last norm and logits, with N numbers in int8 beside 2 N in int4.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import console, show, write
from gemmule import __version__
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Linear, Network, layer_part
from gemmule.compiler.quantize.accuracy import perplexity
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.compiler.quantize.restore import restore_network
from gemmule.compiler.quantize.weights import codes
from gemmule.compiler.search.decoder import compile_best
from gemmule.config import load_config
from gemmule.sw.limits import MODELS_FOLDER
from gemmule.sw.models.bundled import bundled_file
from gemmule.sw.text.corpus import load_corpus
from gemmule.sw.text.tokens import load_tokenizer, token_windows
from gemmule.sw.workloads.passes import Passes

MODELS = ("draft", "target")
"""Of the default pair."""
HALVES = (1, 2, 4)
"""Layers in int8, beside twice as many in int4."""
HALF_FORMATS = ("int8", "int4 by 32")
TEXT_BYTES, WINDOW = 60_000, 256
FP8_LARGEST, FP8_FRACTION, FP8_LEAST = 448.0, 3, -6
"""E4M3: largest number, fraction bits, exponent below which numbers are subnormal."""


def grouped(bits: int, group: int) -> Callable[[np.ndarray], np.ndarray]:
    """Rounds a matrix [columns, depth] to codes with a scale for each ``group`` rows; 0: for each column."""
    def rounded(weight: np.ndarray) -> np.ndarray:
        found = codes(weight, np.ones(weight.shape[1]), None, bits=bits, group=group)
        values = found.codes * found.step[:, None]
        if found.scales is not None:
            values = values * np.repeat(found.scales.T, group, axis=1)[:, :weight.shape[1]]
        return values
    return rounded


def fp8(weight: np.ndarray) -> np.ndarray:
    """Rounds to E4M3, the largest of a column at the largest number; ties to even."""
    step = np.abs(weight).max(axis=1, keepdims=True) / FP8_LARGEST
    scaled = weight / np.where(step, step, 1)
    exponent = np.floor(np.log2(np.maximum(np.abs(scaled), 2.0 ** FP8_LEAST)))
    unit = 2.0 ** (exponent - FP8_FRACTION)
    return np.clip(np.rint(scaled / unit) * unit, -FP8_LARGEST, FP8_LARGEST) * step


FORMATS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray] | None, tuple[int, int] | None]] = {
    "float": (32, None, None), "int8": (8, grouped(8, 0), (8, 0)), "fp8": (8, fp8, None),
    "int4 by 32": (4 + 8 / 32, grouped(4, 32), (4, 32)), "int4 by 128": (4 + 8 / 128, grouped(4, 128), (4, 128)),
    "3 bits by 32": (3 + 8 / 32, grouped(3, 32), None), "3 bits by 128": (3 + 8 / 128, grouped(3, 128), None)}
"""Bits a weight with its scales, how it is rounded, and (bits, group) where the device has it."""


def streamed(network: Network) -> list[Linear]:
    """Linears whose weights are rounded: all of the layers."""
    return [node for node in network.graph.nodes if isinstance(node, Linear) and node.name != network.graph.output]


def cycles(network: Network, bits: int, group: int) -> int:
    """Of a decode step behind half of the positions, on `base`, by shape; logits in int8."""
    integers, config = by_shape(network.graph, bits=4 if bits == 4 else 8, group=group or 32), load_config("base")
    program = compile_best(integers, config, effort=1, rows=1, tokens=True)
    with Passes(program, integers, "model", 0, True) as passes:
        passes.fill_cache(network.graph.positions // 2)
        passes.run(1, 1)
        return passes.cycles


@dataclass
class Reading:
    """A bundled model in float, and the text that it reads."""

    folder: str
    role: str
    text: str

    def __post_init__(self) -> None:
        path = bundled_file(MODELS_FOLDER / self.folder, self.role)
        self.network = restore_network(load_model(path).network)
        tokenizer, _ = load_tokenizer(MODELS_FOLDER / self.folder, self.network.graph.vocab)
        self.windows = token_windows(tokenizer, self.text, min(WINDOW, self.network.graph.positions), "the corpus")
        self.tokens_a_byte = len(tokenizer.encode(self.text).ids) / len(self.text.encode())

    def row(self, name: str, layers: int) -> dict[str, Any]:
        """One format of the first ``layers`` layers."""
        bits, rounding, device = FORMATS[name]
        network = layer_part(self.network, (0, layers))
        nodes = streamed(network)
        weights = {node.tensors["weight"]: rounding(network.tensor(node, "weight")).astype(np.float32)
                   for node in nodes} if rounding else {}
        tensors = {key: network.weights[key] for key in network.weights} | weights
        quality = float(np.log2(perplexity(Network(network.graph, tensors), self.windows)) * self.tokens_a_byte)
        numbers = sum(node.columns * node.depth for node in nodes)
        found = {"model": f"{self.folder} {self.role}", "layers": layers, "weights": name, "numbers": numbers,
                 "bytes": int(numbers * bits / 8), "bits per byte": quality,
                 "cycles": cycles(network, *device) if device else None}
        console.print(f"{found['model']}, {layers} layers, {name}: {quality:.4f} bits per byte, {found['cycles']}")
        return found


def measure(role: str, text: str) -> list[dict[str, Any]]:
    """Every format of one model."""
    reading = Reading("default", role, text)
    return [reading.row(name, reading.network.graph.layers) for name in FORMATS]


def halves(text: str) -> list[dict[str, Any]]:
    """N numbers in int8 and 2 N in int4, pair by pair: the target cut behind some of its layers, and twice as many."""
    reading = Reading("default", "target", text)
    return [reading.row(name, layers * share) for layers in HALVES
            for share, name in enumerate(HALF_FORMATS, 1) if layers * share <= reading.network.graph.layers]


PARTS: dict[str, Callable[[str], list[dict[str, Any]]]] = {
    **{role: partial(measure, role) for role in MODELS}, "halves": halves}


def parts_of(record: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The parts that a written record holds."""
    return {"halves": record["halves"], **{
        role: [row for row in record["rows"] if row["model"] == f"default {role}"] for role in MODELS}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--part", choices=("all", *PARTS), default="all", help="measure only this part again")
    args = parser.parse_args()
    path = args.out / "weights.json"
    before = parts_of(json.loads(path.read_text())) if args.part != "all" else {}
    text = "".join(content for _, content in load_corpus().held_out)
    text = text.encode()[:TEXT_BYTES].decode(errors="ignore")
    found = {name: make(text) if args.part in ("all", name) else before[name] for name, make in PARTS.items()}
    for name, rows in found.items():
        show(f"weights of the layers: {name}", rows)
    write(path, {"schema": "gemmule/benchmark-weights/2", "version": __version__, "text_bytes": len(text.encode()),
                 "rows": [row for role in MODELS for row in found[role]], "halves": found["halves"]})


if __name__ == "__main__":
    main()
