"""What studies of quality read: the bundled target, and held-out text that no training saw."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Network
from gemmule.sw.limits import DEFAULT, resolve_pair
from gemmule.sw.models.bundled_models import bundled_model, encode
from gemmule.sw.prompts.choose import load

__all__ = ["target_and_windows"]

WINDOW, MOST_WINDOWS = 256, 32
"""Tokens of a window, and windows."""


def target_and_windows() -> tuple[Network, np.ndarray]:
    """The target in integers, and windows of the completion prompts  # [windows, tokens]."""
    pair = resolve_pair(DEFAULT)
    tokens = encode("".join(prompt.text for prompt in load()[1]), pair)
    count = min(MOST_WINDOWS, len(tokens) // WINDOW)
    return bundled_model("target", pair).network, np.array(tokens[:count * WINDOW]).reshape(count, WINDOW)
