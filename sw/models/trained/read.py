"""A trained drafter as its training wrote it: a file of matrices in int8 by row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open

from gemmule.compiler.errors import CompileError

__all__ = ["Trained", "read_trained"]


@dataclass(frozen=True)
class Trained:
    """What a file of a trained drafter holds.

    Attributes:
        kind: ``parallel`` or ``eagle``.
        depths: of the target, behind whose layers hidden rows are read.
        tensors: float32, by the names of training.
        tokens: that it chooses from, int64; a number of its logits is a place here.
        masks: positions behind the first that one pass drafts.
    """

    kind: str
    depths: tuple[int, ...]
    tensors: dict[str, np.ndarray]
    tokens: np.ndarray
    masks: int = 0


def read_trained(path: Path, kind: str) -> Trained:
    """Read what training wrote in int8 by row.

    Raises:
        CompileError: the file is missing, or of another kind of drafter.
    """
    try:
        with safe_open(path, "numpy") as file:
            told = json.loads((file.metadata() or {}).get("drafter", "{}"))
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, ValueError) as error:
        raise CompileError(f"{path}: a drafter must be a readable safetensors file: {error}") from None
    if told.get("kind") != kind:
        raise CompileError(f"{path}: a drafter must be of the kind {kind}, not {told.get('kind')}")
    tensors = {name: value * found[f"{name}.scale"][:, None] if f"{name}.scale" in found else value
               for name, value in found.items() if not name.endswith(".scale") and name != "vocabulary"}
    return Trained(
        kind, tuple(told["network"]["depths"]), {name: value.astype(np.float32) for name, value in tensors.items()},
        found["vocabulary"].astype(np.int64), len(found.get("mask_embedding", ())))
