"""Prices of events: those of memories from outside, those of logic fitted to what programs took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from benchmarks.energy.measure import Measured

__all__ = ["ACCESS_BIT_PJ", "ACCESS_PJ", "DRAM_BIT_PJ", "FITTED", "PUBLISHED", "Error", "errors_of", "fit", "logic_of",
           "memory_pj", "nnls"]

FITTED = (
    "cycle", "fetch_byte", "command", "load_byte", "store_byte", "mac_int8", "mac_int4", "weight", "sum", "scale",
    "lookup", "add", "rope", "norm_stat", "norm_apply", "maximum", "exponential", "normalise", "table", "key", "scan",
    "entry")
"""Events whose logic is fitted; of a cycle what changes while nothing else happens: counters, and what waits."""
PUBLISHED = {
    # Words, bits of a word, the shortest period in ns, and mW in it: reads and writes of bits that rise and fall.
    "sky130_sram_1kbyte_1rw1r_8x1024_8": (1024, 8, 6.045, (1.7719, 1.7460), (1.3295, 1.8015)),
    "sky130_sram_1kbyte_1rw1r_32x256_8": (256, 32, 6.875, (2.3916, 2.2084), (2.2269, 2.3716)),
    "sky130_sram_2kbyte_1rw1r_32x512_8": (512, 32, 5.156, (2.7070, 2.4201), (2.5540, 2.7935)),
}
"""Data sheets (datasheet.info) of OpenRAM's macros for sky130, tt, 1.8 V, 25 C, first port: simulated transistors."""
DRAM_BIT_PJ = "3.92"
"""HBM2, from its row to the processor's pins: O'Connor and others, Fine-Grained DRAM, MICRO 2017."""


def _line() -> tuple[float, float]:
    """pJ of an access, and per bit of its word: a line through the means of the published macros."""
    widths, energies = [], []
    for _, width, period, reads, writes in PUBLISHED.values():
        widths.append(width)
        energies.append(float(np.mean([*reads, *writes])) * period)
    slope, fixed = np.polyfit(widths, energies, 1)
    return round(float(fixed), 3), round(float(slope), 4)


ACCESS_PJ, ACCESS_BIT_PJ = _line()


def memory_pj(width: int) -> float:
    """pJ of an access to a word of so many bits; as far as it is published, it hardly depends on the number of words.
    """
    return ACCESS_PJ + ACCESS_BIT_PJ * width


def logic_of(one: Measured) -> float:
    """pJ of logic, and of the memories that are no event of their own."""
    return one.logic_pj + sum((reads + writes) * memory_pj(width) for _, width, reads, writes in one.others)


def fit(programs: Sequence[Measured], events: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """pJ by event of :data:`FITTED`: least squares of relative errors, none below 0; ``events`` by program."""
    taken = np.array([logic_of(one) for one in programs])
    counted = [one.events(dict(events[one.name])) for one in programs]
    counts = np.array([[one[event] for event in FITTED] for one in counted], dtype=float)
    scale = counts.max(axis=0)
    found, _ = nnls(counts / scale / taken[:, None], np.ones(len(programs)))
    return dict(zip(FITTED, (found / scale).tolist(), strict=True))


@dataclass(frozen=True)
class Error:
    """Of a program: pJ by its gates, and by the prices."""

    name: str
    cycles: int
    clock: float
    logic: float
    logic_priced: float
    memories: float
    memories_priced: float

    @property
    def of_logic(self) -> float:
        """Relative error of logic alone."""
        return self.logic_priced / self.logic - 1

    @property
    def of_all(self) -> float:
        """Relative error of clock, logic and memories."""
        return (self.clock + self.logic_priced + self.memories_priced) / (self.clock + self.logic + self.memories) - 1


def errors_of(programs: Sequence[Measured], events: Mapping[str, Mapping[str, int]], prices: Mapping[str, float],
              widths: Mapping[str, int]) -> list[Error]:
    """``widths``: bits of a row, by access of scratchpad and accumulator."""
    found = []
    for one in programs:
        counted = one.events(dict(events[one.name]))
        memories, priced = (sum(counts[access] * memory_pj(width) for access, width in widths.items())
                            for counts in (one.accesses, counted))
        found.append(Error(one.name, one.cycles, one.clock_pj, logic_of(one),
                           sum(prices[event] * counted[event] for event in FITTED), memories, priced))
    return found
