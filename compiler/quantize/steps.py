"""Static steps of activations: the clipping point with the least squared error on a sample."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Function, activate
from gemmule.numerics.table import interpolate, word_table

__all__ = [
    "activation_step", "doublings", "head_steps", "int8_step", "lopsided_activation", "lopsided_step",
    "word_step",
]

CLIPS = np.linspace(0.3, 1.0, 36)
SIDES = np.geomspace(0.1, 1.0, 20)
WORD_CLIPS = np.geomspace(0.05, 1.25, 12)
BINS = 1 << 13
CODES = np.arange(256).astype(np.uint8).view(np.int8).astype(np.float64)
"""int8 numbers in the order of a byte table."""


def int8_step(values: np.ndarray, peak: float, weights: np.ndarray | float = 1.0) -> float:
    """The step of int8 numbers for a sample; ``peak`` is the largest magnitude of all.

    ``weights`` of the squared errors, of the sample's shape or one that broadcasts to it.
    """
    if peak == 0:
        return 1.0
    if np.ndim(weights) == 0:
        values, weights = _counted(np.abs(values))
    return float(peak * min(CLIPS, key=lambda clip: _error(values, peak * clip / 127, 0, weights)) / 127)


def _error(values: np.ndarray, step: float, zero: int = 0, weights: np.ndarray | float = 1.0) -> float:
    """Squared error of a sample as int8 numbers."""
    code = np.minimum(np.maximum(np.rint(values / step) - zero, -128), 127) + zero
    return float(((code * step - values) ** 2 * weights).sum())


def doublings(values: np.ndarray, peak: float, unit: float, weights: np.ndarray | float = 1.0) -> int:
    """How often ``unit`` is doubled for the best step of int8 numbers among its powers of two."""
    if peak == 0:
        return 0
    most = int(np.ceil(np.log2(peak / 127 / unit)))
    return max(0, min((most - 2, most - 1, most), key=lambda count: _error(values, unit * 2.0 ** count, 0, weights)))


def _counted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A sample as (numbers, how many there are of each), in fine bins."""
    count, edges = np.histogram(values, bins=BINS)
    return ((edges[1:] + edges[:-1]) / 2)[count > 0], count[count > 0]


def _steps_of(low: float, high: float) -> tuple[float, int]:
    """(step, zero) of int8 numbers that reach from ``low`` to ``high``."""
    step = (high - low) / 255 or 1.0
    return step, int(np.rint(low / step)) + 128


def lopsided_step(values: np.ndarray, low: float, high: float) -> tuple[float, int]:
    """(step, zero) of int8 numbers ``(number + zero) * step`` for a sample that reaches further up than down."""
    points, count = _counted(values)
    return min((_steps_of(low, high * clip) for clip in CLIPS),
               key=lambda made: _error(points, made[0], made[1], count))


def head_steps(sample: np.ndarray, largest: np.ndarray, head_dim: int, share: int) -> np.ndarray:
    """A step for each head, equal within groups of ``share`` heads that go with one KV head."""
    columns = head_dim * share
    parts = [(sample[:, at:at + columns], float(largest[at:at + columns].max()))
             for at in range(0, sample.shape[1], columns)]
    return np.repeat([int8_step(part.reshape(-1), peak) for part, peak in parts], share)


def activation_step(function: Function, before: np.ndarray, peak: float, out_step: float) -> tuple[float, np.ndarray]:
    """(step of a byte table's input with the least error behind it, the table uint8 [256])."""
    wanted = activate(function, before.astype(np.float32)).astype(np.float64)

    def error(clip: float) -> float:
        step = peak * clip / 127
        code = np.clip(np.rint(before / step), -128, 127).astype(np.int64)
        return float(((_table(function, step, 0, out_step, 0)[code & 255] * out_step - wanted) ** 2).sum())

    step = peak * float(min(CLIPS, key=error)) / 127 if peak else 1.0
    return step, (_table(function, step, 0, out_step, 0).astype(np.int64) & 255).astype(np.uint8)


def word_step(function: Function, before: np.ndarray, peak: float, out_step: float) -> tuple[float, np.ndarray]:
    """(step of a word table's int16 input with the least error behind it, the table int16 [513])."""
    wanted = activate(function, before.astype(np.float32)).astype(np.float64)

    def table(step: float) -> np.ndarray:
        return word_table(lambda x: activate(function, x.astype(np.float32)).astype(np.float64), step, out_step)

    def error(step: float) -> float:
        code = np.clip(np.rint(before / step), -(1 << 15), (1 << 15) - 1).astype(np.int64)
        return float(((interpolate(code, table(step)) * out_step - wanted) ** 2).sum())

    most = peak / ((1 << 15) - 1) or 1.0
    step = min((most * clip for clip in WORD_CLIPS), key=error)
    return step, table(step)


def _table(function: Function, step: float, zero: int, out_step: float, out_zero: int) -> np.ndarray:
    """The int8 result of each int8 number, in the order of a byte table  # float64 [256]."""
    real = activate(function, ((CODES + zero) * step).astype(np.float32)).astype(np.float64)
    return np.clip(np.rint(real / out_step) - out_zero, -128, 127)


def lopsided_activation(function: Function, before: np.ndarray, low: float, high: float, out_step: float,
                        out_zero: int) -> tuple[float, int, np.ndarray]:
    """(step, zero, table) of a byte table's input with the least error behind it, each side clipped by itself."""
    points, count = _counted(before)
    wanted = activate(function, points.astype(np.float32)).astype(np.float64)

    def error(made: tuple[float, int]) -> float:
        step, zero = made
        code = np.clip(np.rint(points / step) - zero, -128, 127).astype(np.int64)
        found = (_table(function, step, zero, out_step, out_zero)[code & 255] + out_zero) * out_step
        return float(((found - wanted) ** 2 * count).sum())

    step, zero = min((_steps_of(low * down, high * up) for down in SIDES for up in SIDES), key=error)
    return step, zero, (_table(function, step, zero, out_step, out_zero).astype(np.int64) & 255).astype(np.uint8)
