"""Trained weights as they ship: matrices in int8 with a scale for each row, vectors in float32."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from torch import Tensor, nn

from gemmule.io.files import write_atomically

__all__ = ["in_int8", "rounded", "write_int8"]

LEVELS = 127


def rounded(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix in int8 and the scale of each row."""
    scale = np.maximum(np.abs(weights).max(1, keepdims=True), 1e-12).astype(np.float32) / LEVELS
    return np.rint(weights / scale).clip(-LEVELS, LEVELS).astype(np.int8), scale[:, 0]


def in_int8(drafter: nn.Module, vocabulary: Tensor) -> dict[str, np.ndarray]:
    """A drafter's weights by name, and the tokens that it proposes."""
    kept: dict[str, np.ndarray] = {"vocabulary": vocabulary.cpu().numpy().astype(np.int32)}
    for name, weight in drafter.named_parameters():
        kept[name] = weight.detach().float().cpu().numpy()
        if weight.dim() == 2:
            kept[name], kept[f"{name}.scale"] = rounded(kept[name])
    return kept


def write_int8(path: Path, kept: dict[str, np.ndarray], told: Mapping[str, Any]) -> int:
    """Write them with what is told of the drafter; bytes of the file."""
    write_atomically(path, content := save(kept, {"drafter": json.dumps(told)}))
    return len(content)
