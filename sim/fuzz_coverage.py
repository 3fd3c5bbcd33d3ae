"""What a fuzzing run has exercised, and the least that it must have."""

from __future__ import annotations

from collections import Counter

import numpy as np

from gemmule.config import Config
from gemmule.isa import TABLE_FIELDS, MatrixFlag, Unit, VectorFlag, VOp, decode_table
from gemmule.resolve import OUT, resolve
from gemmule.sim.fuzz import FuzzCase
from gemmule.sim.result import Result

__all__ = ["Coverage"]

_F = {name: i for i, name in enumerate(TABLE_FIELDS)}
_MODES = {
    VOp.REQUANT: (VectorFlag.COLUMN, VectorFlag.ROW, VectorFlag.WIDE, VectorFlag.RESIDUAL, VectorFlag.RELU,
                  VectorFlag.LOOKUP),
    VOp.ROPE: (VectorFlag.COLUMN,), VOp.SOFTMAX_MAX: (VectorFlag.CAUSAL,),
    VOp.SOFTMAX_EXP: (VectorFlag.CAUSAL,),
}
STALLS = ("waiting", "ports", "queue full")
OVERLAP = 0.15
"""Least share of cycles in which two units or more are busy."""


class Coverage:
    """Counts over programs: commands by kind and mode, empty ones, stalls by cause, overlap."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.commands: Counter[str] = Counter()
        self.stalls: Counter[str] = Counter()
        self.cycles = self.overlapped = self.faults = 0

    def add(self, case: FuzzCase, result: Result) -> None:
        table = decode_table(case.image)
        out = resolve(table, case.bases, case.limits, case.lengths, self.config)
        if result.fault:
            self.faults += 1
            table, out = table[:result.fault_index], out[:result.fault_index]
        for row, resolved in zip(table, out):
            for name in self._names(row, resolved):
                self.commands[name] += 1
        for split in result.counters.values():
            for cause in STALLS[:2]:
                self.stalls[cause] += split[cause]
        self.stalls["queue full"] += self._queue_full(table[:, _F["unit"]], result.issue[:len(table)])
        busy = np.zeros(result.cycles + 2, dtype=np.int64)
        for unit in Unit:
            mine = np.flatnonzero((table[:, _F["unit"]] == unit) & (out[:, OUT["zero"]] == 0))
            edges = np.zeros(result.cycles + 2, dtype=np.int64)
            np.add.at(edges, result.issue[mine], 1)
            np.add.at(edges, result.finish[mine] + 1, -1)
            busy += np.cumsum(edges) > 0
        self.cycles += result.cycles
        self.overlapped += int((busy >= 2).sum())

    def _queue_full(self, units: np.ndarray, issue: np.ndarray) -> int:
        """Commands that dispatch surely held back: the one a queue's depth before issued too late."""
        held = 0
        for unit in Unit:
            mine = np.flatnonzero(units == unit)
            late, early = mine[self.config.unit_queue:], mine[:-self.config.unit_queue]
            held += int((issue[early] >= issue[late - 1]).sum())
        return held

    def _names(self, row: np.ndarray, resolved: np.ndarray) -> list[str]:
        unit = Unit(int(row[_F["unit"]]))
        flags = int(row[_F["flags"]])
        kind = unit.name.lower()
        modes: tuple[VectorFlag | MatrixFlag, ...] = ()
        if unit is Unit.VECTOR:
            op = VOp(int(row[_F["op"]]))
            kind, modes = op.name.lower(), _MODES.get(op, ())
        elif unit is Unit.MATRIX:
            modes = tuple(MatrixFlag)
        names = [kind, *(f"{kind}+{flag.name.lower()}" for flag in modes if flags >> flag & 1)]
        if resolved[OUT["zero"]]:
            names.append(f"{kind}+zero")
        if row[_F["dyn_which"]]:
            names.append(f"{kind}+dynamic")
        if unit in (Unit.LOAD, Unit.STORE) and row[_F["bytes"]] % self.config.dim:
            names.append(f"{kind}+ragged")
        return names

    def counts(self) -> dict[str, object]:
        return {
            "commands": dict(sorted(self.commands.items())), "stalls": dict(self.stalls),
            "faults": self.faults, "overlap": round(self.overlapped / max(1, self.cycles), 3),
        }

    def missing(self, least: int = 5) -> list[str]:
        """Kinds and modes seen fewer than ``least`` times, causes of stall never seen, too little overlap."""
        wanted = ["load", "store", "matrix", "load+zero", "store+zero", "matrix+zero", "load+dynamic",
                  "store+dynamic", "matrix+dynamic", "load+ragged", "store+ragged"]
        wanted += [f"matrix+{flag.name.lower()}" for flag in MatrixFlag]
        for op in VOp:
            name = op.name.lower()
            wanted += [name, *(f"{name}+{flag.name.lower()}" for flag in _MODES.get(op, ()))]
        lacking = [
            f"{name} ({self.commands[name]} of {least})" for name in wanted if self.commands[name] < least]
        lacking += [f"stalls: {cause}" for cause in STALLS if not self.stalls[cause]]
        share = self.overlapped / max(1, self.cycles)
        if share < OVERLAP:
            lacking.append(f"overlap of units {share:.2f} of {OVERLAP}")
        return lacking
