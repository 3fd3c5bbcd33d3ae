"""Candidates that are more than a launch takes, cut into launches."""

from __future__ import annotations

import numpy as np

__all__ = ["parts_of"]


def parts_of(mask: np.ndarray, most: int) -> list[np.ndarray]:
    """Numbers of the rows of each launch, rising: up to ``most``, and with a row all that it sees.

    A launch sees all cached rows, so each begins behind the same ones; rows that later launches need, too, go again.
    ``mask``: bool [rows, rows], row i sees row j, itself included and none behind it.

    Raises:
        ValueError: a row sees more than a launch takes.
    """
    seen = mask.copy()
    for row in range(len(seen)):  # what a row sees was computed from what that one sees
        seen[row] |= seen[np.flatnonzero(mask[row, :row])].any(axis=0)
    found: list[np.ndarray] = []
    now = np.zeros(len(seen), dtype=bool)
    for row, needed in enumerate(seen):
        if needed.sum() > most:
            raise ValueError(f"a candidate must have at most {most - 1} before it, as many as a launch verifies, not "
                             f"{int(needed.sum()) - 1} as candidate {row}: propose shorter paths")
        if (now | needed).sum() > most:
            found.append(np.flatnonzero(now))
            now = np.zeros(len(seen), dtype=bool)
        now |= needed
    return [*found, np.flatnonzero(now)]
