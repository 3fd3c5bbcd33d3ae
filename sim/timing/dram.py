"""The DRAM behind the bus: strictly in order of arrival, open rows per bank, refresh.

One call a burst (docs/timing.md, section DRAM). The state is a numpy record, so that the timing engine
can compile it.
"""

from __future__ import annotations

import numpy as np

from gemmule.sim.compiled import borrowing

__all__ = ["DRAM", "after_refresh", "close", "first_beat", "reset", "serve"]

DRAM = np.dtype([
    ("bus_free", np.int64),
    ("direction", np.int64),  # of the last burst: 0 read, 1 write, -1 none yet
    ("refresh", np.int64),  # start of the last refresh that a burst has met or passed; 0: none yet
    ("next_refresh", np.int64),
    ("open_row", np.int64, 64),  # by bank; -1: closed
    ("bank_end", np.int64, 64),
])


@borrowing
def reset(dram, p):  # type: ignore[no-untyped-def]
    """The state at cycle 0: rows closed, bus free."""
    dram.direction = -1
    dram.next_refresh = p.refresh_period if p.refresh_period > 0 else 1 << 62
    dram.open_row[:] = -1


@borrowing
def first_beat(dram, p, arrival, address, free, turn):  # type: ignore[no-untyped-def]
    """Cycle of the first beat of a burst that arrives now, but for refreshes; its row is open then.

    ``free``: the bus is, from this cycle on, ``turn`` cycles later for this direction.
    """
    index = address >> p.row_shift
    bank = index & (p.banks - 1)
    row = index >> p.bank_shift
    prep = arrival
    if dram.open_row[bank] != row:
        prep = max(arrival, dram.bank_end[bank]) + p.row_miss
        dram.open_row[bank] = row
    return max(free + turn, prep + p.latency)


@borrowing
def after_refresh(p, start, length, refresh, next_refresh):  # type: ignore[no-untyped-def]
    """(first beat behind the refresh that it would meet, last refresh, next one)."""
    # The ends of bursts only grow, so the last refresh before an end is found without a division.
    if start + length > next_refresh:
        refresh = (start + length - 1) // p.refresh_period * p.refresh_period
        next_refresh = refresh + p.refresh_period
    if refresh > 0 and start < refresh + p.refresh_cycles:
        start = refresh + p.refresh_cycles
    return start, refresh, next_refresh


@borrowing
def close(dram, p, address, end):  # type: ignore[no-untyped-def]
    """The burst's last beat is over before cycle ``end``."""
    dram.bank_end[(address >> p.row_shift) & (p.banks - 1)] = end


@borrowing
def serve(dram, p, arrival, address, beats, write):  # type: ignore[no-untyped-def]
    """Cycle of the first beat of a burst that arrives now; beat i follows in ``start + i * beat_cycles``."""
    turn = p.turnaround if dram.direction == 1 - write else 0
    start, length = first_beat(dram, p, arrival, address, dram.bus_free, turn), beats * p.beat_cycles
    start, dram.refresh, dram.next_refresh = after_refresh(p, start, length, dram.refresh, dram.next_refresh)
    dram.bus_free, dram.direction = start + length, write
    close(dram, p, address, dram.bus_free)
    return start
