"""The model of one device: data and exact cycles of a launch."""

from __future__ import annotations

import numpy as np

from gemmule.config import Config
from gemmule.csr import CAUSES, COUNTERS, TRAFFIC
from gemmule.isa import COMMAND_BYTES, NUM_BASES, NUM_LENGTHS, TABLE_FIELDS, decode_table
from gemmule.resolve import OUT_FIELDS, check_registers, config_vector
from gemmule.sim.engine import STATE, launch
from gemmule.sim.engine_units import parameters
from gemmule.sim.errors import SimulationError
from gemmule.sim.functional import execute
from gemmule.sim.memory import Memory
from gemmule.sim.result import Result, split_counters
from gemmule.timing import Timing

__all__ = ["Model"]

_CACHED_PROGRAMS = 64


class Model:
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
        self._config_vector = config_vector(config)
        self._tables: dict[bytes, np.ndarray] = {}
        self._image, self._address = b"", 0

    def write_dram(self, address: int, data: bytes | np.ndarray) -> None:
        """Put bytes (or an array, as it lies in memory) into the DRAM."""
        self.memory.write(address, data)

    def read_dram(self, address: int, size: int) -> bytes:
        """``size`` bytes of the DRAM."""
        return self.memory.read(address, size).tobytes()

    def close(self) -> None:
        """Nothing to release; the RTL back end has a process to end."""

    def load_program(self, image: bytes, address: int) -> None:
        """Place a program image; its address must be a multiple of the command size."""
        if address < 0 or address % COMMAND_BYTES:
            raise SimulationError(f"program address must be a multiple of {COMMAND_BYTES}, not {address}")
        self._image, self._address = bytes(image), address
        if address + len(image) <= len(self.memory.dram):
            self.memory.write(address, self._image)

    def _table(self) -> np.ndarray:
        table = self._tables.get(self._image)
        if table is None:
            if len(self._tables) >= _CACHED_PROGRAMS:
                del self._tables[next(iter(self._tables))]
            table = self._tables[self._image] = decode_table(self._image)
        return table

    def run(self, timing_only: bool = False) -> Result:
        """Launch the loaded program: data effects (unless ``timing_only``) and every cycle.

        A faulting program has the effects of the commands before the fault.
        """
        if not self._image:
            raise SimulationError("no program is loaded; call load_program first")
        check_registers(self.config, self.bases, self.limits, self.lengths)
        table = self._table()
        count = len(table)
        resolved = np.zeros((count, len(OUT_FIELDS)), dtype=np.int64)
        issue = np.full(count, -1, dtype=np.int64)
        finish = np.full(count, 1 << 62, dtype=np.int64)
        counters = np.zeros(len(COUNTERS), dtype=np.int64)
        spent, traffic = counters[:-len(TRAFFIC)].reshape(-1, len(CAUSES)), counters[-len(TRAFFIC):]
        cycles, fault, fault_index = launch(
            table, self.bases, self.limits, self.lengths, self._config_vector, self._parameters,
            self._address, np.zeros(1, STATE), resolved, issue, finish, spent, traffic)
        if cycles < 0:
            raise RuntimeError("timing engine: no event ahead although commands are in flight")
        if not timing_only:
            execute(self.memory, table, resolved, fault_index if fault else count)
        units, size, bursts = split_counters(counters.tolist())
        return Result(
            cycles=int(cycles), issue=issue, finish=finish,
            units=table[:, TABLE_FIELDS.index("unit")].copy(),
            counters=units, dram_bytes=size, dram_bursts=bursts,
            fault=int(fault), fault_index=int(fault_index),
        )
