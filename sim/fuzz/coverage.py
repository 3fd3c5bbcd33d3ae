"""What a fuzzing run has exercised, and the least that it must have.

Counted from the commands as they ran, repeated ones each time, and from the model's result: commands by kind and mode,
stalls by cause, cycles in which three units or more are busy. Modes and causes come from the instruction set and the
configuration by rule.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from gemmule.config import Config
from gemmule.isa import CONTROL, LENGTHS, TABLE_FIELDS, MatrixFlag, MoveFlag, Unit
from gemmule.resolve import FAULTS, OUT
from gemmule.sim.fuzz.draw import sets_of
from gemmule.sim.fuzz.forms import FORMS, RARE, forms_of
from gemmule.sim.fuzz.modes import exponential, flag_names, grain, kind_name, kinds, modes_of
from gemmule.sim.fuzz.vector import SCALED
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.stream import stream_of
from gemmule.timing import Timing

__all__ = ["Coverage"]

MEAN_COMMANDS = 40
COMMANDS = 200 / 500
"""Least commands of each kind and mode, per program; half of it of rare forms."""
CONTROLLED = 1 / 2
"""Least share of programs with control commands."""
STALLS = 100 / 500
"""Least stalls of each cause, per program."""
OVERLAP = 1000
"""Least cycles in which three units or more are busy, per program. Not a share: a slow memory makes others idle.

Half of it where units take turns at few banks, and where rows come through a bus that is narrower than they are.
"""
_F = {name: i for i, name in enumerate(TABLE_FIELDS)}
_WINDOWS = ("bursts in flight", "beats in flight")
"""Stalls by the load's two limits."""
_ROWS = {
    Unit.LOAD: ("row", "list"), Unit.STORE: ("row", "list"), Unit.MATRIX: ("a_row", "b_row", "c_row"),
    Unit.VECTOR: ("src0", "src1", "dst"), Unit.SELECT: ("src0", "first", "dst")}
"""First rows and entries, of which one may be dynamic."""
_PREDICATES = [f"{unit.name.lower()} {value}" for unit in Unit for value in ("true", "false")]


class Coverage:
    """Counts over programs; what faulted, and what comes after it, does not count."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.commands: Counter[str] = Counter()
        self.predicates: Counter[str] = Counter()
        self.stalls: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.sets: set[tuple[int, int, int]] = set()
        self.programs = self.controlled = self.total = self.cycles = self.overlapped = 0

    def add(self, case: Launch, result: Result) -> None:
        """Count one program and the model's result of it."""
        stream = stream_of(case.image, self.config, case.bases, case.limits, case.lengths)
        if result.fault:
            self.faults[FAULTS[result.fault]] += 1
        units, good = stream.units[:stream.good], stream.good
        self.programs += 1
        self.controlled += bool((units == CONTROL).any())
        self.total += good
        self.commands.update(forms_of(case, stream, self.config))
        taken = np.flatnonzero(units != CONTROL)
        table, out = stream.table[stream.places[taken]], stream.resolved[taken]
        issue, finish = result.issue[taken], result.finish[taken]
        skipped = self._skipped(table, out, issue, finish)
        dataflow = 0
        for row, resolved, nothing in zip(table, out, skipped.tolist()):
            if row[_F["predicate"]] and not resolved[OUT["zero"]]:
                name = Unit(int(row[_F["unit"]])).name.lower()
                self.predicates[f"{name} {'false' if nothing else 'true'}"] += 1
            if nothing:
                continue
            self.commands.update(self._names(row, resolved))
            if resolved[OUT["zero"]]:
                continue
            unit, op, flags = (int(resolved[OUT[name]]) for name in ("unit", "op", "flags"))
            self.sets.add((unit, op, flags))
            if unit == Unit.MATRIX and flags >> MatrixFlag.OUTPUT_STATIONARY & 1 != dataflow:
                dataflow = 1 - dataflow
                self.commands["matrix+switch"] += 1
        self._add_stalls(table, (out[:, OUT["zero"]] == 0) & ~skipped, out, issue, finish, result)

    def _skipped(self, table: np.ndarray, out: np.ndarray, issue: np.ndarray, finish: np.ndarray) -> np.ndarray:
        """Commands whose predicate was 0: they take what a command of length zero takes, which others take longer than.

        A short ZERO load is as fast; it counts as one that ran.
        """
        timing = Timing.of(self.config)
        zero = np.array([timing.load_zero, timing.store_zero, timing.matrix_zero, timing.vector_zero,
                         timing.select_zero])
        units = table[:, _F["unit"]]
        short = finish - issue <= zero[units]
        fill = (units == Unit.LOAD) & (out[:, OUT["flags"]] >> MoveFlag.ZERO & 1 == 1)
        found: np.ndarray = short & ~fill & (table[:, _F["predicate"]] > 0) & (out[:, OUT["zero"]] == 0)
        return found

    def _add_stalls(self, table: np.ndarray, real: np.ndarray, out: np.ndarray, issue: np.ndarray,
                    finish: np.ndarray, result: Result) -> None:
        for unit, split in result.counters.items():
            for cause in ("waiting", "ports"):
                self.stalls[f"{unit} {cause}"] += split[cause]
        units = table[:, _F["unit"]]
        self.stalls["queue full"] += self._queue_full(units, issue)
        for row, resolved in zip(table[real & (units == Unit.LOAD)], out[real & (units == Unit.LOAD)]):
            self.stalls.update(self._windows_full(row, resolved))
        busy = np.stack([self._in_flight(issue, finish, real & (units == unit), result.cycles) for unit in Unit])
        self.cycles += result.cycles
        self.overlapped += int((busy.sum(axis=0) >= 3).sum())
        # With nothing in flight the oldest command would issue: there is none, and fetch owes it.
        anything = self._in_flight(issue, finish, units >= 0, result.cycles)
        if len(issue):
            self.stalls["fetch starved"] += int((~anything[issue.min():issue.max()]).sum())

    @staticmethod
    def _in_flight(issue: np.ndarray, finish: np.ndarray, which: np.ndarray, cycles: int) -> np.ndarray:
        """Per cycle: one of these commands is between issue and finish."""
        edges = np.zeros(cycles + 2, dtype=np.int64)
        np.add.at(edges, issue[which], 1)
        np.add.at(edges, finish[which] + 1, -1)
        return np.cumsum(edges) > 0

    def _queue_full(self, units: np.ndarray, issue: np.ndarray) -> int:
        """Commands that dispatch surely held back: the one a queue's depth before issued too late."""
        held = 0
        for unit in Unit:
            mine = np.flatnonzero(units == unit)
            late, early = mine[self.config.unit_queue:], mine[:-self.config.unit_queue]
            held += int((issue[early] >= issue[late - 1]).sum())
        return held

    def _windows_full(self, row: np.ndarray, resolved: np.ndarray) -> set[str]:
        """Limits that hold requests of the load back even from a DRAM without misses, turnarounds and refresh."""
        config, flags, found = self.config, int(resolved[OUT["flags"]]), set[str]()
        if flags & (1 << MoveFlag.ZERO | 1 << MoveFlag.BROADCAST | 1 << MoveFlag.INDEXED):
            return found
        request = 0
        ends: list[int] = []  # of bursts: cycle of the last beat
        came: list[int] = []  # cycle of every beat
        rows, size = int(resolved[OUT["m"]]), int(row[_F["bytes"]])
        if resolved[OUT["joined"]]:
            rows, size = 1, rows * size
        for r in range(rows):
            at = int(resolved[OUT["address"]]) + r * int(row[_F["stride"]])
            end = at + size
            while at < end and len(found) < len(_WINDOWS):
                cut = min(end, at - at % config.burst_bytes + config.burst_bytes)
                request += 1
                for name, limit, done in zip(_WINDOWS, (config.read_bursts, config.read_beats), (ends, came)):
                    if len(done) >= limit and done[-limit] >= request:
                        request = done[-limit] + 1
                        found.add(name)
                first = max(came[-1] + config.dram.beat_cycles if came else 0, request + config.dram.latency)
                beats = (cut - 1) // config.bus_bytes - at // config.bus_bytes + 1
                came += range(first, first + beats * config.dram.beat_cycles, config.dram.beat_cycles)
                ends.append(came[-1])
                at = cut
        return found

    def _names(self, row: np.ndarray, resolved: np.ndarray) -> list[str]:
        """The command's kind, and its kind with each of its modes; an empty one has no other."""
        unit, op, dim = Unit(int(row[_F["unit"]])), int(row[_F["op"]]), self.config.dim
        kind = kind_name(unit, op)
        if resolved[OUT["zero"]]:
            return [kind, f"{kind}+empty"]
        bits = int(row[_F["flags"]])
        flags = frozenset(bit for bit in range(8) if bits >> bit & 1)
        modes = flag_names(unit, op, flags)
        static = sum(row[_F[name]] for name in _ROWS[unit])
        if row[_F["dyn_reg"]] and resolved[OUT["row0"]] + resolved[OUT["row1"]] + resolved[OUT["row2"]] != static:
            modes.append("dynamic")
        if unit is Unit.VECTOR and op in SCALED and row[_F["scale_reg"]]:
            modes.append("scaled")
        if any(row[_F[f"{name}_reg"]] for name in LENGTHS[unit]):
            modes.append("register")
        if unit in (Unit.LOAD, Unit.STORE):
            words = MoveFlag.ACCUMULATOR in flags and MoveFlag.NARROW not in flags
            ragged = row[_F["bytes"]] % (4 * dim if words else dim)
            stride = row[_F["stride"]] if resolved[OUT["m"]] > 1 else 0
            if (resolved[OUT["address"]] | stride) % self.config.bus_bytes:
                modes.append("unaligned")
            if resolved[OUT["joined"]] and resolved[OUT["m"]] > 1 and MoveFlag.ZERO not in flags:
                modes.append("joined")
        else:
            ragged = resolved[OUT["n"]] % grain(self.config, unit, op)
            ragged = ragged or unit is Unit.MATRIX and resolved[OUT["k"]] % dim
        if ragged:
            modes.append("ragged")
        if resolved[OUT["apart"]]:
            modes.append("apart")
        modes += filter(None, [exponential(unit, op, int(row[_F["period"]]))])
        return [kind, *(f"{kind}+{mode}" for mode in modes)]

    def counts(self) -> dict[str, object]:
        """Everything counted, as JSON-able values; the commands by kind and mode."""
        seen, every = Counter((unit, op) for unit, op, _ in self.sets), kinds(self.config)
        return {
            "commands": {
                kind: {"all": self.commands[kind]} | {
                    mode: self.commands[f"{kind}+{mode}"] for mode in modes_of(self.config, unit, op)}
                for unit, op, kind in every} | {
                kind: {"all": self.commands[kind]} | {form: self.commands[f"{kind}+{form}"] for form in forms}
                for kind, forms in FORMS.items()},
            "flag sets": {kind: f"{seen[unit, op]} of {len(sets_of(self.config, unit, op))}"
                          for unit, op, kind in every},
            "predicates": {name: self.predicates[name] for name in _PREDICATES},
            "stalls": {cause: self.stalls[cause] for cause in self._causes()},
            "faults": {name: self.faults[name] for name in FAULTS if self.faults[name]},
            "commands a program": round(self.total / max(1, self.programs), 1),
            "programs with control commands": self.controlled,
            "three units busy": round(self.overlapped / max(1, self.cycles), 3),
            "cycles of that a program": round(self.overlapped / max(1, self.programs)),
        }

    def _causes(self) -> list[str]:
        causes = [f"{unit.name.lower()} {cause}" for unit in Unit for cause in ("waiting", "ports")]
        reached = self.config.read_bursts < self.config.read_beats, self.config.beats_bind
        return [*causes, "queue full", "fetch starved", *(name for name, can in zip(_WINDOWS, reached) if can)]

    def missing(self) -> list[str]:
        """What stays below its minimum, for as many programs as were counted."""
        lacking = []
        mean = self.total / max(1, self.programs)
        if mean < MEAN_COMMANDS:
            lacking.append(f"commands a program ({mean:.0f} of {MEAN_COMMANDS})")
        if self.controlled < CONTROLLED * self.programs:
            lacking.append(f"programs with control commands ({self.controlled} of {CONTROLLED * self.programs:g})")
        least = COMMANDS * self.programs
        modes = {kind: modes_of(self.config, unit, op) for unit, op, kind in kinds(self.config)} | FORMS
        for kind, names in modes.items():
            for name in (kind, *(f"{kind}+{mode}" for mode in names)):
                needed = least / 2 if name in RARE else least
                if self.commands[name] < needed:
                    lacking.append(f"{name} ({self.commands[name]} of {needed:g})")
        lacking += [f"predicate: {name} ({self.predicates[name]} of {least:g})"
                    for name in _PREDICATES if self.predicates[name] < least]
        least = STALLS * self.programs
        lacking += [f"stall: {cause} ({self.stalls[cause]} of {least:g})"
                    for cause in self._causes() if self.stalls[cause] < least]
        config, least = self.config, OVERLAP * self.programs
        least >>= (config.spm_banks < 4 or config.acc_banks < 2) + (config.bus_bytes < config.dim)
        if self.overlapped < least:
            lacking.append(f"three units busy ({self.overlapped:,} of {least:,} cycles)")
        return lacking
