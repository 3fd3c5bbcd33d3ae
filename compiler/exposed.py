"""How much vector work shows: no product hides it."""

from __future__ import annotations

import numpy as np

from gemmule.isa import Unit
from gemmule.sim.result import Result

__all__ = ["exposed_vector"]


def exposed_vector(result: Result) -> int:
    """Cycles of a launch in which the vector unit has a command in flight and the matrix unit has none."""
    edges = np.zeros((2, result.cycles + 2), dtype=np.int64)
    for row, unit in enumerate((Unit.VECTOR, Unit.MATRIX)):
        ran = (result.units == unit) & (result.issue >= 0)
        np.add.at(edges[row], result.issue[ran], 1)
        np.add.at(edges[row], result.finish[ran] + 1, -1)
    vector, matrix = edges.cumsum(axis=1) > 0
    return int(np.count_nonzero(vector & ~matrix))
