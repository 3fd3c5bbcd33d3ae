"""Small random checkpoints and their quantised models, shared by the compiler's tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gemmule.compiler.checkpoint import Checkpoint, DecoderShape, LayerWeights
from gemmule.compiler.qmodel import QuantModel
from gemmule.compiler.quantize import quantize

Maker = Callable[..., Checkpoint]


def _checkpoint(seed: int = 1, **changes: object) -> Checkpoint:
    sizes = {
        "hidden": 32, "inner": 48, "layers": 2, "heads": 2, "head_dim": 16, "vocab": 72, "max_positions": 32,
        "rms_eps": 1e-5, "rope_theta": 10000.0, "activation": "gelu_pytorch_tanh", "gated": False,
        "tied": True,
    }
    shape = DecoderShape(**(sizes | changes))  # type: ignore[arg-type]
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * 1.2 / np.sqrt(columns)).astype(np.float32)

    def gamma() -> np.ndarray:
        return random.uniform(0.5, 1.5, shape.hidden).astype(np.float32)

    layers = tuple(
        LayerWeights(
            attention_norm=gamma(), q=matrix(shape.width, shape.hidden), k=matrix(shape.width, shape.hidden),
            v=matrix(shape.width, shape.hidden), o=matrix(shape.hidden, shape.width), mlp_norm=gamma(),
            gate=matrix(shape.inner, shape.hidden) if shape.gated else None,
            up=matrix(shape.inner, shape.hidden), down=matrix(shape.hidden, shape.inner))
        for _ in range(shape.layers))
    embedding = matrix(shape.vocab, shape.hidden)
    head = embedding if shape.tied else matrix(shape.vocab, shape.hidden)
    return Checkpoint(shape=shape, embedding=embedding, layers=layers, norm=gamma(), head=head)


@pytest.fixture(scope="session")
def make_checkpoint() -> Maker:
    """Builds a random checkpoint; keyword arguments change its shape."""
    return _checkpoint


@pytest.fixture(scope="session")
def make_model() -> Callable[..., QuantModel]:
    """Builds a quantised random model, calibrated on random tokens."""

    def make(seed: int = 1, **changes: object) -> QuantModel:
        model = _checkpoint(seed, **changes)
        random = np.random.default_rng(seed)
        tokens = random.integers(0, model.shape.vocab, (4, model.shape.max_positions))
        return quantize(model, tokens)

    return make
