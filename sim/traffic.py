"""DRAM bytes that a program moves, from its commands alone; what a launch without counters reports."""

from __future__ import annotations

import numpy as np

from gemmule.config import Config
from gemmule.isa import TABLE_FIELDS, Unit
from gemmule.resolve import OUT, resolve

__all__ = ["program_traffic"]


def program_traffic(table: np.ndarray, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray,
                    config: Config) -> dict[str, int]:
    """Bytes by purpose (program, load, store) of a decoded program that runs to its end."""
    out = resolve(table, bases, limits, lengths, config)
    moved = out[:, OUT["m"]] * table[:, TABLE_FIELDS.index("bytes")] * (out[:, OUT["zero"]] == 0)
    unit = out[:, OUT["unit"]]
    return {
        "program": 32 * len(table),
        "load": int(moved[unit == Unit.LOAD].sum()),
        "store": int(moved[unit == Unit.STORE].sum()),
    }
