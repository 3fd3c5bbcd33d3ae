"""Unary functions as tables: 256 bytes exactly, or 513 int16 entries with linear interpolation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .fixed import rshr

__all__ = ["BYTE_TABLE_ENTRIES", "WORD_TABLE_ENTRIES", "byte_table", "interpolate", "word_table"]

BYTE_TABLE_ENTRIES = 256
WORD_TABLE_ENTRIES = 513
_STEP = 7


def byte_table(function: Callable[[np.ndarray], np.ndarray], scale_in: float, scale_out: float) -> np.ndarray:
    """uint8[256], entry ``x & 255`` for int8 x: ``round(f(x * scale_in) / scale_out)``, saturated to int8.

    Rounds half up; the error is half an LSB of the output.
    """
    x = np.arange(BYTE_TABLE_ENTRIES).astype(np.uint8).view(np.int8).astype(np.float64)
    y = np.floor(function(x * scale_in) / scale_out + 0.5)
    return np.clip(y, -128, 127).astype(np.int8).view(np.uint8)


def word_table(function: Callable[[np.ndarray], np.ndarray], scale_in: float, scale_out: float) -> np.ndarray:
    """int16[513] for :func:`interpolate`: entry i is ``round(f((128 * i - 32768) * scale_in) / scale_out)``."""
    x = (np.arange(WORD_TABLE_ENTRIES, dtype=np.float64) * (1 << _STEP) - 32768) * scale_in
    return np.clip(np.floor(function(x) / scale_out + 0.5), -32768, 32767).astype(np.int16)


def interpolate(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    """``T[i] + rshr((T[i+1] - T[i]) * w, 7)`` with i = (x + 32768) >> 7, w = x & 127; x int16, int64 out.

    The layout of TFLite's 16-bit tables. The result lies between two entries, so it fits int16.
    """
    place = np.asarray(x, dtype=np.int64) + 32768
    i, w = place >> _STEP, place & ((1 << _STEP) - 1)
    entries = table.astype(np.int64)
    return entries[i] + rshr((entries[i + 1] - entries[i]) * w, _STEP)
