"""A trained drafter as its training wrote it: a file of matrices in int8 by row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from gemmule.compiler.errors import CompileError

__all__ = ["HEADS", "Trained", "read_trained"]

HEADS = ("medusa", "blockwise")
"""Kinds of drafters that are heads, none of which reads what another one says."""


@dataclass(frozen=True)
class Trained:
    """What a file of a trained drafter holds.

    Attributes:
        kind: ``parallel``, ``eagle``, ``medusa``, ``blockwise`` or ``hydra``.
        depths: of the target, behind whose layers hidden rows are read.
        tensors: float32, by the names of training.
        tokens: that it chooses from, int64; a number of its logits is a place here.
        masks: positions behind the first that one pass drafts; of heads their number.
        shares: of paths of ranks, head by head, how often all their tokens are right on held-out text.
    """

    kind: str
    depths: tuple[int, ...]
    tensors: dict[str, np.ndarray]
    tokens: np.ndarray
    masks: int = 0
    shares: Mapping[tuple[int, ...], float] = field(default_factory=dict)


def read_trained(path: Path, kind: str) -> Trained:
    """Read what training wrote in int8 by row.

    Raises:
        CompileError: the file is missing or damaged, of another kind of drafter, or of heads and tells no shares.
    """
    try:
        with safe_open(path, "numpy") as file:
            told = json.loads((file.metadata() or {}).get("drafter", "{}"))
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, ValueError, SafetensorError) as error:
        raise CompileError(f"{path}: a drafter must be a readable safetensors file: {error}") from None
    if not isinstance(told, dict) or told.get("kind") != kind:
        raise CompileError(f"{path}: a drafter must be of the kind {kind}, not "
                           f"{told.get('kind') if isinstance(told, dict) else told}")
    if not isinstance(told.get("network"), dict) or "depths" not in told["network"] or "vocabulary" not in found:
        raise CompileError(f"{path}: a drafter must tell its network's depths and hold its vocabulary: train it again")
    tensors = {name: value * found[f"{name}.scale"][:, None] if f"{name}.scale" in found else value
               for name, value in found.items() if not name.endswith(".scale") and name != "vocabulary"}
    depths, masks = tuple(told["network"]["depths"]), len(found.get("mask_embedding", ()))
    if kind in HEADS:  # they read the target's last row alone
        depths, masks = depths[-1:], len({name.split(".")[1] for name in tensors if name.startswith("heads.")})
    if kind == "medusa" and not told.get("paths"):
        raise CompileError(f"{path}: heads must tell which paths are right how often: train them again")
    shares = {tuple(ranks): share for ranks, share in told.get("paths", ())}
    return Trained(kind, depths, {name: value.astype(np.float32) for name, value in tensors.items()},
                   found["vocabulary"].astype(np.int64), masks, shares)
