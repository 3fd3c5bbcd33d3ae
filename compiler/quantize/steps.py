"""Static steps of activations: the clipping point with the least squared error on a sample."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Function, activate

__all__ = ["activation_step", "doublings", "head_steps", "int8_step"]

CLIPS = np.linspace(0.3, 1.0, 36)
CODES = np.arange(256).astype(np.uint8).view(np.int8).astype(np.float64)
"""int8 numbers in the order of a byte table."""


def int8_step(values: np.ndarray, peak: float) -> float:
    """The step of int8 numbers for a sample; ``peak`` is the largest magnitude of all."""
    if peak == 0:
        return 1.0
    return float(peak * min(CLIPS, key=lambda clip: _error(values, peak * clip / 127)) / 127)


def _error(values: np.ndarray, step: float) -> float:
    """Squared error of a sample as int8 numbers."""
    return float(((np.clip(np.rint(values / step), -128, 127) * step - values) ** 2).sum())


def doublings(values: np.ndarray, peak: float, unit: float) -> int:
    """How often ``unit`` is doubled for the best step of int8 numbers among its powers of two."""
    if peak == 0:
        return 0
    most = int(np.ceil(np.log2(peak / 127 / unit)))
    return max(0, min((most - 2, most - 1, most), key=lambda count: _error(values, unit * 2.0 ** count)))


def head_steps(sample: np.ndarray, largest: np.ndarray, head_dim: int, share: int) -> np.ndarray:
    """A step for each head, equal within groups of ``share`` heads that go with one KV head."""
    columns = head_dim * share
    parts = [(sample[:, at:at + columns], float(largest[at:at + columns].max()))
             for at in range(0, sample.shape[1], columns)]
    return np.repeat([int8_step(part.reshape(-1), peak) for part, peak in parts], share)


def activation_step(function: Function, before: np.ndarray, peak: float, out_step: float) -> tuple[float, np.ndarray]:
    """(step of a byte table's input with the least error behind it, the table uint8 [256])."""
    wanted = activate(function, before.astype(np.float32)).astype(np.float64)

    def table(step: float) -> np.ndarray:
        real = activate(function, (CODES * step).astype(np.float32)).astype(np.float64)
        return np.clip(np.rint(real / out_step), -128, 127)

    def error(clip: float) -> float:
        step = peak * clip / 127
        code = np.clip(np.rint(before / step), -128, 127).astype(np.int64)
        return float(((table(step)[code & 255] * out_step - wanted) ** 2).sum())

    step = peak * float(min(CLIPS, key=error)) / 127 if peak else 1.0
    return step, (table(step).astype(np.int64) & 255).astype(np.uint8)
