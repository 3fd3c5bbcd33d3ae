"""What a launch reports, from the model or from the RTL, and how two reports are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gemmule.csr import CAUSES, COUNTERS, TRAFFIC
from gemmule.isa import Unit
from gemmule.resolve import FAULTS

__all__ = ["Difference", "Result", "split_counters"]

_UNITS = tuple(dict.fromkeys(name.partition("_")[0] for name in COUNTERS[:-len(TRAFFIC)]))
_PURPOSES = tuple(dict.fromkeys(name.partition("_")[0] for name in TRAFFIC))


def split_counters(
    values: Sequence[int],
) -> tuple[dict[str, dict[str, int]], dict[str, int], dict[str, int]]:
    """``counters``, ``dram_bytes`` and ``dram_bursts`` of a :class:`Result` from the device's counters.

    ``values`` stand in the order of :data:`gemmule.csr.COUNTERS`.
    """
    named = dict(zip(COUNTERS, map(int, values), strict=True))
    units = {unit: {cause: named[f"{unit}_{cause}"] for cause in CAUSES} for unit in _UNITS}
    size, bursts = ({purpose: named[f"{purpose}_{what}"] for purpose in _PURPOSES} for what in ("bytes", "bursts"))
    return units, size, bursts


class Difference(NamedTuple):
    """First cycle in which two results disagree; ``command`` is -1 for the launch as a whole."""

    command: int
    unit: str
    what: str
    expected: int
    seen: int

    def __str__(self) -> str:
        where = "launch" if self.command < 0 else f"command {self.command} ({self.unit})"
        return f"{where}: {self.what} expected {self.expected}, seen {self.seen}"


@dataclass(frozen=True, eq=False)
class Result:
    """Cycles of one launch, and of each of its commands in the order in which they run (-1: never issued).

    A repeated command stands there each time; control commands have cycles -1.
    """

    cycles: int
    issue: np.ndarray
    finish: np.ndarray
    units: np.ndarray
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    """Per unit its cycles by cause (:data:`gemmule.csr.CAUSES`); they add up to ``cycles``. Empty: not read."""
    dram_bytes: dict[str, int] = field(default_factory=dict)
    """program, load, store: bytes in whole bus beats."""
    dram_bursts: dict[str, int] = field(default_factory=dict)
    """program, load, store."""
    events: dict[str, int] = field(default_factory=dict)
    """What takes energy (:data:`gemmule.sim.energy.table.EVENTS`). Empty: not known."""
    fault: int = 0
    """Index into :data:`gemmule.resolve.FAULTS`."""
    fault_index: int = -1
    """Number of the command, counted as it ran."""
    fault_place: int = -1
    """Its place in the image."""
    places: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Place in the image of each command."""

    @property
    def registers(self) -> dict[str, int]:
        """The device's counters by name, in the order of :data:`gemmule.csr.COUNTERS`; empty when not read."""
        if not self.counters:
            return {}
        flat = {f"{unit}_{cause}": cycles for unit, split in self.counters.items() for cause, cycles in split.items()}
        for what, moved in (("bytes", self.dram_bytes), ("bursts", self.dram_bursts)):
            flat |= {f"{purpose}_{what}": count for purpose, count in moved.items()}
        return {name: flat[name] for name in COUNTERS}

    def summary(self) -> dict[str, Any]:
        """Totals as JSON-able values."""
        return {
            "cycles": self.cycles,
            "commands": {
                unit.label: int(np.count_nonzero(self.units == unit)) for unit in Unit},
            "counters": {unit: dict(split) for unit, split in self.counters.items()},
            "dram_bytes": dict(self.dram_bytes),
            "dram_bursts": dict(self.dram_bursts),
            "fault": FAULTS[self.fault],
            "fault_index": self.fault_index,
        }

    def first_difference(self, seen: Result) -> Difference | None:
        """The earliest disagreement, ``self`` being the expectation; None when there is none.

        Counters are compared when both results have them.
        """
        found: list[tuple[int, Difference]] = []
        shared = min(len(self.issue), len(seen.issue))
        for what, mine, other in (("issue", self.issue, seen.issue), ("finish", self.finish, seen.finish)):
            wrong = np.flatnonzero(np.asarray(mine[:shared]) != np.asarray(other[:shared]))
            for i in wrong:
                expected, value = int(mine[i]), int(other[i])
                when = min(c for c in (expected, value) if c >= 0)
                found.append((when, Difference(int(i), self._unit(int(i)), what, expected, value)))
        if found:
            return min(found, key=lambda item: item[0])[1]
        for what, expected, value in (
            ("commands", len(self.issue), len(seen.issue)),
            ("cycles", self.cycles, seen.cycles), ("fault", self.fault, seen.fault),
            ("fault index", self.fault_index, seen.fault_index), ("fault place", self.fault_place, seen.fault_place),
        ):
            if expected != value:
                return Difference(-1, "", what, expected, value)
        ours, theirs = self.registers, seen.registers
        for name in ours if theirs else ():
            if ours[name] != theirs[name]:
                return Difference(-1, "", name, ours[name], theirs[name])
        return None

    def _unit(self, command: int) -> str:
        number = int(self.units[command])
        return Unit(number).label if number < len(Unit) else "control"
