"""Timing-driven refinement of a placement, after nextpnr's placer and before the routing.

nextpnr's placers leave cells of slow paths far from all that they are connected to: in `edge` a look-up table stood 54
columns from both of its neighbours. This is what is called detailed placement: with the delays of cells (SDF) and
nextpnr's own estimate of a wire by its distance, a static timing analysis tells how much later each wire may be; cells
on slow paths go where their wires are farthest from being too late; and again, until nothing moves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmule.hw.flow.floorplan import Sites
from gemmule.hw.flow.paths import Delays
from gemmule.hw.flow.placing.arrivals import Arrivals
from gemmule.hw.flow.placing.moves import Round
from gemmule.hw.flow.placing.placement import Placement

__all__ = ["Refined", "refine"]

ROUNDS = 40
"""Of analysis and moves, at most."""
PATIENCE = 5
"""Rounds without a better placement after which it ends."""


@dataclass(frozen=True)
class Refined:
    """A refined placement.

    Attributes:
        before, after: estimates of the slowest path in ps.
        moved: cells at other sites.
    """

    before: float
    after: float
    moved: int
    bels: Mapping[str, str] = field(default_factory=dict)


def refine(cells: Mapping[str, Any], delays: Delays, sites: Sites, rounds: int = ROUNDS,
           progress: Callable[[str], None] = lambda step: None) -> Refined:
    """A better placement of a design's cells.

    Parameters
    ----------
    cells: of the placed netlist (nextpnr's JSON), with ``NEXTPNR_BEL``.
    delays: of the same placement, estimated or routed.
    sites: of block memories and multipliers.
    progress: called with the estimate so far before each round.

    Returns:
        The placement with the shortest slowest path that was seen: new sites of cells that moved, by their names.
    """
    placement = Placement(cells, sites)
    timing = Arrivals(delays, placement)
    of_cell = defaultdict(list)
    for i, (driver, driven) in enumerate(zip(timing.driver.tolist(), timing.driven.tolist())):
        if driver != driven:
            of_cell[driver].append(i)
            of_cell[driven].append(i)
    first = kept = placement.bels()
    before = best = np.inf
    waited = 0
    for turn in range(rounds + 1):
        slowest, ps, slack = timing.analyse(placement)
        before = slowest if turn == 0 else before
        waited += 1
        if slowest < best:
            best, kept, waited = slowest, placement.bels(), 0
        progress(f"refining, round {turn} of {rounds}: {slowest / 1000:.2f} ns")
        if turn == rounds or waited == PATIENCE or not Round(placement, timing, of_cell, slowest, ps, slack).improve():
            break
    moved = {placement.names[i]: bel for i, bel in kept.items() if bel != first[i]}
    return Refined(before, best, len(moved), moved)
