"""The DRAM behind the bus: strictly in order of arrival, open rows per bank, refresh.

One call a burst. State lives in plain int64 arrays so that the timing engine can compile it:
``state`` = [bus free, last direction (-1 none, 0 read, 1 write)], ``open_row`` and ``bank_end`` per bank.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["new_state", "serve"]


def new_state(banks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(state, open_row, bank_end) at cycle 0: rows closed, bus free."""
    return (
        np.array([0, -1], dtype=np.int64),
        np.full(banks, -1, dtype=np.int64),
        np.zeros(banks, dtype=np.int64),
    )


@njit
def serve(state, open_row, bank_end, p, arrival, address, beats, write):  # type: ignore[no-untyped-def]
    """First data cycle of a burst that arrives now; data occupies start .. start + beats - 1."""
    index = address // p.row_bytes
    bank = index % p.banks
    row = index // p.banks
    prep = arrival
    if open_row[bank] != row:
        prep = max(arrival, bank_end[bank]) + p.row_miss
        open_row[bank] = row
    turn = p.turnaround if state[1] == 1 - write else 0
    start = max(state[0] + turn, prep + p.latency)
    if p.refresh_period > 0:
        q = (start + beats - 1) // p.refresh_period
        if q >= 1 and start < q * p.refresh_period + p.refresh_cycles:
            start = q * p.refresh_period + p.refresh_cycles
    state[0] = bank_end[bank] = start + beats
    state[1] = write
    return start

