"""Device cycles of passes of decoders that are not trained yet: random weights cost what trained ones do."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gemmule.compiler.compile import compile_network
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.passes.map import default_rows
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.config import Config
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.training.networks.export import ModelShape, save_checkpoint

__all__ = ["Passes", "measure_passes", "random_network"]


@dataclass(frozen=True)
class Passes:
    """Device cycles of a pass by its rows, at one context."""

    context: int
    cycles: dict[int, int]


def random_network(shape: ModelShape, seed: int) -> Network:
    """A quantised decoder of this shape with normal weights."""
    random = np.random.default_rng(seed)
    weights = {name: (random.standard_normal(size) / np.sqrt(size[-1])).astype(np.float32) if len(size) > 1
               else np.ones(size, dtype=np.float32) for name, size in shape.weight_shapes().items()}
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), shape, weights)
        return quantize_network(load_network(folder), random.integers(2, shape.vocab_size, (1, 64)),
                                Options(group=0, smooth=False, seed=seed)).network


def measure_passes(shape: ModelShape, config: Config, rows: tuple[int, ...], context: int, seed: int = 0) -> Passes:
    """Cycles of a pass over so many rows behind ``context`` positions, greedy tokens picked on the device.

    Raises:
        CompileError: the shape does not fit the configuration.
    """
    network = random_network(shape, seed)
    program = compile_network(network, config, rows=default_rows(network.graph, config), tokens=True)
    model = LoadedModel("measured", program, program.fill(network), open_device("model", config, program.size))
    passes = {count: model.forward(Rows.chain([2] * count, context)).results for count in rows}
    return Passes(context, {count: sum(result.cycles for result in results) for count, results in passes.items()})
