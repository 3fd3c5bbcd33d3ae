"""Linear heads that tell from a row of the residual stream whether an early exit says what all layers would say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from json import loads
from math import exp
from pathlib import Path

import numpy as np

from gemmule.sw.limits import MODELS_FOLDER

__all__ = ["FILE", "ExitHeads", "heads_of", "normed"]

FILE = "exits.json"
"""In the folder of a bundled model."""


@dataclass(frozen=True, eq=False)
class ExitHeads:
    """Of one target.

    Attributes:
        weights: by depth, float64 [columns].
        biases: by depth.
    """

    weights: Mapping[int, np.ndarray]
    biases: Mapping[int, float]

    def confidence(self, depth: int, row: np.ndarray) -> float:
        """Chance that the exit is right  # row: int16 [columns]"""
        score = float(self.weights[depth] @ normed(row)) + self.biases[depth]
        return 1 / (1 + exp(-min(max(score, -60.0), 60.0)))


def normed(rows: np.ndarray) -> np.ndarray:
    """Rows of the stream over their root mean square, float64  # [.., columns]"""
    real = rows.astype(np.float64)
    return real / np.sqrt(np.maximum((real ** 2).mean(axis=-1, keepdims=True), 1.0))


def heads_of(name: str, folder: Path = MODELS_FOLDER) -> ExitHeads | None:
    """Those that come with a bundled model; None: there are none."""
    path = folder / name / FILE
    if not path.is_file():
        return None
    found = loads(path.read_text())["heads"]
    return ExitHeads({int(depth): np.array(one["weights"]) for depth, one in found.items()},
                     {int(depth): one["bias"] for depth, one in found.items()})
