"""Activation functions on real numbers."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir.nodes import Function

__all__ = ["activate"]


def _erf(x: np.ndarray) -> np.ndarray:
    """The error function, wrong by at most 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.copysign(1 - series * np.exp(-x * x), x)


def activate(function: Function, x: np.ndarray) -> np.ndarray:
    """A function of each number, in the type of ``x``."""
    match function:
        case Function.GELU:
            return (0.5 * x * (1 + _erf(x.astype(np.float64) / np.sqrt(2)))).astype(x.dtype)
        case Function.GELU_TANH:
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * x * (1 + 0.044715 * (x * x))))
        case Function.SILU:
            return x / (1 + np.exp(-np.clip(x, -80, None)))  # exp(80) is still a float32
        case Function.RELU:
            return np.maximum(x, 0)
        case Function.RELU2:
            return np.square(np.maximum(x, 0))
    return np.tanh(x)
