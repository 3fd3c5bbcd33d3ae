"""The model of one device: data and exact cycles of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.csr import CAUSES, COUNTERS, TRAFFIC
from gemmule.isa import NUM_BASES, NUM_LENGTHS, TABLE_FIELDS, MoveFlag, Unit, decode_table
from gemmule.resolve import OUT, check_program, check_registers
from gemmule.sim.energy.count import count_events
from gemmule.sim.errors import SimulationError
from gemmule.sim.functional.execute import execute
from gemmule.sim.functional.memory import Memory
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result, split_counters
from gemmule.sim.stream import Stream, Streams
from gemmule.sim.timing.engine import STATE, launch
from gemmule.sim.timing.units import parameters
from gemmule.timing import Timing

__all__ = ["Simulator"]

_CACHED_PROGRAMS = 64
_UNIT, _FLAGS, _PREDICATE = (TABLE_FIELDS.index(name) for name in ("unit", "flags", "predicate"))


def _check_skipped(stream: Stream, skipped: Any) -> np.ndarray:
    """What the caller says is skipped, as bool[commands]."""
    if skipped is None:
        return np.zeros(stream.count, dtype=bool)
    found = np.ascontiguousarray(skipped, dtype=bool)
    if found.shape != (stream.count,):
        raise SimulationError(
            f"skipped must have one entry for each of {stream.count} commands, not shape {found.shape}")
    wrong = np.flatnonzero(found[:stream.good] & (stream.table[stream.places[:stream.good], _PREDICATE] == 0))
    if len(wrong):
        raise SimulationError(f"command {wrong[0]} cannot be skipped: its predicate is 0, which is always true")
    return found


def _indexed(table: np.ndarray) -> np.ndarray:
    """Which commands of a program are INDEXED moves."""
    flags = table[:, _FLAGS] >> MoveFlag.INDEXED & 1 == 1
    return (table[:, _UNIT] <= Unit.STORE) & flags


def _row_numbers(
    resolved: np.ndarray, skipped: np.ndarray, indexed: np.ndarray, indices: Mapping[int, np.ndarray],
    scattered: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """(numbers, starts): DRAM rows of those of the moves ``indexed`` that run, and by command where its own begin.

    A store that ``indices`` does not name has the first of the rows ``scattered``, any other move its rows in order.
    """
    starts = np.zeros(len(resolved), dtype=np.int64)
    numbers, at = [np.zeros(0, dtype=np.int64)], 0
    for c in indexed.tolist():
        if c >= len(resolved) or skipped[c] or resolved[c, OUT["zero"]]:
            continue
        rows = int(resolved[c, OUT["m"]])
        in_order = np.arange(rows) if scattered is None or resolved[c, OUT["unit"]] != Unit.STORE else scattered[:rows]
        found = np.asarray(indices.get(c, in_order), dtype=np.int64)
        if found.shape != (rows,):
            raise SimulationError(f"indices of command {c} must be {rows} row numbers, not shape {found.shape}")
        numbers.append(found)
        starts[c], at = at, at + rows
    return np.concatenate(numbers), starts


class Simulator:
    """One device with its DRAM. State persists between launches.

    Parameters
    ----------
    config: device configuration.
    timing: block latencies; those of ``config`` by default.
    dram_bytes: size of the model's DRAM (addresses beyond it are fine when only timing is run).

    Attributes
    ----------
    memory: DRAM, scratchpad, accumulator and vector state.
    bases, limits: DRAM base and limit registers, int64[32], bytes.
    lengths: length registers, int64[16]; number 0 reads 65535 whatever it holds.
    """

    def __init__(self, config: Config, timing: Timing | None = None, *, dram_bytes: int = 1 << 26) -> None:
        self.config = config
        self.timing = timing or Timing.of(config)
        self.memory = Memory(config, dram_bytes=dram_bytes)
        self.bases = np.zeros(NUM_BASES, dtype=np.int64)
        self.limits = np.zeros(NUM_BASES, dtype=np.int64)
        self.lengths = np.zeros(NUM_LENGTHS, dtype=np.int64)
        self._parameters = parameters(config, self.timing)
        self._streams = Streams(config, self.timing)
        self._tables: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
        self._image: bytes | None = None
        self._address = 0

    def write_dram(self, address: int, data: bytes | np.ndarray) -> None:
        """Put bytes (or an array, as it lies in memory) into the DRAM."""
        self.memory.write(address, data)

    def read_dram(self, address: int, size: int) -> bytes:
        """``size`` bytes of the DRAM."""
        return self.memory.read(address, size).tobytes()

    def close(self) -> None:
        """Nothing to release; the RTL back end has a process to end."""

    def load(self, launch: Launch) -> None:
        """Take over a launch: DRAM content, registers, program."""
        self.write_dram(0, launch.dram)
        self.bases[:], self.limits[:], self.lengths[:] = launch.bases, launch.limits, launch.lengths
        self.load_program(launch.image, launch.program)

    def load_program(self, image: bytes, address: int) -> None:
        """Place a program image, which may be empty, at a multiple of the command size within the address space."""
        check_program(self.config, address, len(image))
        self._image, self._address = bytes(image), address
        if address + len(image) <= len(self.memory.dram):
            self.memory.write(address, self._image)

    def _decoded(self, image: bytes) -> tuple[np.ndarray, np.ndarray]:
        """The table of a program, and which of its commands are INDEXED moves."""
        found = self._tables.get(image)
        if found is None:
            if len(self._tables) >= _CACHED_PROGRAMS:
                del self._tables[next(iter(self._tables))]
            table = decode_table(image)
            found = self._tables[image] = table, _indexed(table)
        return found

    def run(
        self, timing_only: bool = False, *,
        skipped: Any = None, indices: Mapping[int, np.ndarray] | None = None, scattered: np.ndarray | None = None,
    ) -> Result:
        """Launch the loaded program: data effects (unless ``timing_only``) and every cycle.

        Commands are numbered in the order in which they run, repeated ones each time, control commands too. A faulting
        program has the effects of the commands before the fault. What depends on data, the
        data effects tell. For ``timing_only`` it may be given: ``skipped``, bool[commands], of which the
        predicate is 0 (by default none), and ``indices``, int64[rows] by command, the numbers of the
        DRAM rows of an INDEXED move (by default 0, 1, ..; of a store those of ``scattered``, int64[rows], where given).

        Raises:
            SimulationError: no program, or what was given does not fit the program.
        """
        if not timing_only and not (skipped is None and indices is None and scattered is None):
            raise SimulationError("skipped, indices and scattered are for timing_only; with data, the program decides")
        if self._image is None:
            raise SimulationError("no program is loaded; call load_program first")
        check_registers(self.config, self.bases, self.limits, self.lengths)
        table, indexed = self._decoded(self._image)
        stream = self._streams.follow(table, self.bases, self.limits, self.lengths)
        good, places, resolved = stream.good, stream.places[:stream.good], stream.resolved
        issue = np.full(stream.count, -1, dtype=np.int64)
        finish = np.full(stream.count, -1, dtype=np.int64)
        counters = np.zeros(len(COUNTERS), dtype=np.int64)
        spent, traffic = counters[:-len(TRAFFIC)].reshape(len(Unit), len(CAUSES)), counters[-len(TRAFFIC):]
        skip = _check_skipped(stream, skipped)
        if not timing_only:
            trace = execute(self.memory, table, places, resolved)
            skip[:good], indices = trace.skipped, trace.indices
        moves = np.flatnonzero(indexed[places]) if indexed.any() else np.zeros(0, dtype=np.int64)
        numbers, starts = _row_numbers(resolved[:good], skip[:good], moves, indices or {}, scattered)
        cycles, fault, fault_index = launch(
            table, stream.entries, good, skip, numbers, starts, self._parameters, self._address, np.zeros(1, STATE),
            resolved, issue, finish, spent, traffic)
        if cycles < 0:
            raise RuntimeError("timing engine: no event ahead although commands are in flight")
        units, size, bursts = split_counters(counters.tolist())
        return Result(
            cycles=int(cycles), issue=issue, finish=finish, units=stream.units, places=stream.places,
            counters=units, dram_bytes=size, dram_bursts=bursts,
            events=count_events(table, places, resolved[:good], skip[:good], self.config, int(cycles), size),
            fault=int(fault), fault_index=int(fault_index),
            fault_place=int(stream.places[fault_index]) if fault else -1,
        )
