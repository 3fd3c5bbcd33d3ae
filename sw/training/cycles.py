"""Device cycles of passes of decoders that are not trained yet: random weights cost what trained ones do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gemmule.compiler.checkpoint import Checkpoint, LayerWeights, parse_shape
from gemmule.compiler.decoder import compile_decoder
from gemmule.compiler.qmodel import QuantModel
from gemmule.compiler.quantize import quantize
from gemmule.config import Config
from gemmule.sw.device import open_device
from gemmule.sw.runtime import LoadedModel
from gemmule.sw.training.export import ModelShape

__all__ = ["Passes", "measure_passes", "random_model"]

POSITIONS = 256
"""Positions of the program that is measured: the compiler keeps a layer's keys and values in the scratchpad."""


@dataclass(frozen=True)
class Passes:
    """Device cycles of a pass by its rows, at one context."""

    context: int
    cycles: dict[int, int]


def random_model(shape: ModelShape, seed: int) -> QuantModel:
    """A quantised decoder of this shape with normal weights."""
    random = np.random.default_rng(seed)

    def weight(*size: int) -> np.ndarray:
        return (random.standard_normal(size) / np.sqrt(size[-1])).astype(np.float32)

    hidden, inner, width = shape.hidden_size, shape.intermediate_size, shape.num_heads * shape.head_dim
    ones = np.ones(hidden, dtype=np.float32)
    layers = tuple(
        LayerWeights(attention_norm=ones, q=weight(width, hidden), k=weight(width, hidden), v=weight(width, hidden),
                     o=weight(hidden, width), mlp_norm=ones, gate=None, up=weight(inner, hidden),
                     down=weight(hidden, inner)) for _ in range(shape.num_layers))
    embedding = weight(shape.vocab_size, hidden)
    checkpoint = Checkpoint(shape=parse_shape(shape.config(), gated=False), embedding=embedding, layers=layers,
                            norm=ones, head=embedding)
    return quantize(checkpoint, random.integers(2, shape.vocab_size, (1, 64)), seed=seed)


def measure_passes(shape: ModelShape, config: Config, rows: tuple[int, ...], context: int, seed: int = 0) -> Passes:
    """Cycles of a pass over so many rows behind ``context`` positions, greedy tokens picked on the device.

    Raises:
        CompileError: the shape does not fit the configuration.
    """
    program = compile_decoder(random_model(replace(shape, max_positions=POSITIONS), seed), config, tokens=True)
    model = LoadedModel("measured", program, program.dram, open_device("model", config, program.size))
    return Passes(context, {
        count: sum(result.cycles for result in model.forward([2] * count, context).results) for count in rows})
