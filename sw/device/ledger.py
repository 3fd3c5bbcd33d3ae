"""Where the cycles of a generation go: device by unit and by model, host, DRAM bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from gemmule.config import Config
from gemmule.isa import Command, Unit
from gemmule.sim.result import Result
from gemmule.sw.device.timeline import Earlier, LaunchRecord, StepRecord, Timeline

__all__ = ["Ledger"]


def _busy(result: Result, unit: Unit) -> int:
    """Cycles in which the unit has a command between issue and finish (both are in order)."""
    mine = result.units == unit
    issue, finish = result.issue[mine], result.finish[mine]
    if not len(issue):
        return 0
    before = np.concatenate([[-1], finish[:-1]])
    return int((finish - np.maximum(issue - 1, before)).sum())


@dataclass
class Ledger:
    """Adds up launches (device cycles plus the host's per launch) and decoding steps.

    ``units`` counts, per unit, the cycles in which it had a command between issue and finish;
    units overlap, so they do not add up to the total.
    """

    config: Config
    device_cycles: int = 0
    host_cycles: int = 0
    launches: dict[str, int] = field(default_factory=dict)
    """By model; one that drafts and verifies is the target's."""
    passes: dict[str, int] = field(default_factory=dict)
    """By model; a launch may have several."""
    by_model: dict[str, int] = field(default_factory=dict)
    units: dict[str, int] = field(default_factory=lambda: {u.label: 0 for u in Unit})
    dram_bytes: dict[str, int] = field(default_factory=dict)
    dram_busy_cycles: int = 0
    events: dict[str, int] = field(default_factory=dict)
    """What takes energy (:data:`gemmule.sim.energy.table.EVENTS`); the host is no part of it."""
    uncounted: int = 0
    """Launches of which these are not known."""
    timeline: Timeline | None = None
    """Every launch and step, if a trace is wanted of them."""

    def launch(self, model: str, result: Result, commands: Sequence[Command] = (), *, passes: int = 1,
               earlier: Earlier | None = None, answers: bool = True) -> None:
        """Charge one launch of ``model``, whose image has ``commands``, with so many passes; ``earlier``: before them.

        Not ``answers``: its program gives none.
        """
        if self.timeline is not None:
            self.timeline.append(LaunchRecord(self.cycles, model, result, commands, earlier, answers))
        self.device_cycles += result.cycles
        self.host_cycles += self.config.host.launch_cycles
        self.launches[model] = self.launches.get(model, 0) + 1
        own = int(result.cycles) - (earlier.cycles if earlier else 0)
        for name, cycles, count in ((model, own, passes), *([(earlier.model, earlier.cycles, earlier.passes)]
                                                           if earlier else [])):
            self.by_model[name] = self.by_model.get(name, 0) + cycles
            self.passes[name] = self.passes.get(name, 0) + count
        for unit in Unit:
            self.units[unit.label] += _busy(result, unit)
        for event, count in result.events.items():
            self.events[event] = self.events.get(event, 0) + count
        self.uncounted += not result.events
        for purpose, count in result.dram_bytes.items():
            self.dram_bytes[purpose] = self.dram_bytes.get(purpose, 0) + count
        beats = sum(result.dram_bytes.values()) // self.config.bus_bytes
        self.dram_busy_cycles += beats * self.config.dram.beat_cycles

    def step(self) -> None:
        """Charge the host's work of one decoding step (accept, bookkeeping)."""
        if self.timeline is not None:
            self.timeline.append(StepRecord(self.cycles))
        self.host_cycles += self.config.host.step_cycles

    def so_far(self) -> Self:
        """A copy of the sums."""
        return replace(self, launches=dict(self.launches), passes=dict(self.passes), by_model=dict(self.by_model),
                       units=dict(self.units), dram_bytes=dict(self.dram_bytes),
                       events=dict(self.events), timeline=None)

    def since(self, before: Ledger) -> Self:
        """What was charged behind ``before``, an earlier :meth:`so_far` of the same ledger."""
        return self._combined(before, -1)

    def plus(self, other: Ledger) -> Self:
        """The sums of both."""
        return self._combined(other, 1)

    def _combined(self, other: Ledger, sign: int) -> Self:
        def dicts(mine: dict[str, int], others: dict[str, int]) -> dict[str, int]:
            return {name: mine.get(name, 0) + sign * others.get(name, 0) for name in {**mine, **others}}

        return replace(
            self, device_cycles=self.device_cycles + sign * other.device_cycles,
            host_cycles=self.host_cycles + sign * other.host_cycles, launches=dicts(self.launches, other.launches),
            passes=dicts(self.passes, other.passes), by_model=dicts(self.by_model, other.by_model),
            units=dicts(self.units, other.units), dram_bytes=dicts(self.dram_bytes, other.dram_bytes),
            dram_busy_cycles=self.dram_busy_cycles + sign * other.dram_busy_cycles,
            events=dicts(self.events, other.events), uncounted=self.uncounted + sign * other.uncounted)

    def cycles_of(self, model: str) -> int:
        """A model's launches, the host's work for each included."""
        return self.by_model.get(model, 0) + self.launches.get(model, 0) * self.config.host.launch_cycles

    @property
    def cycles(self) -> int:
        """Device and host cycles; the host does not overlap the device."""
        return self.device_cycles + self.host_cycles

    @property
    def dram_bound(self) -> float:
        """Share of device cycles in which the DRAM bus moves data."""
        return self.dram_busy_cycles / max(1, self.device_cycles)
