"""What the commands do to data, bit-exact, in program order.

The verifier proves a program free of races, so every legal order gives these bytes. Matrix, vector and select
commands stand in files of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gemmule.isa import CONTROL, NUM_PREDICATES, TABLE_FIELDS, MoveFlag, Unit
from gemmule.resolve import OUT
from gemmule.sim.functional.matrix import matrix
from gemmule.sim.functional.memory import Memory
from gemmule.sim.functional.select import select
from gemmule.sim.functional.vector import vector

__all__ = ["Trace", "execute"]

_STRIDE, _BYTES, _ROW_STRIDE, _BLOCK_STRIDE, _LAST_INDEX, _PREDICATE = (
    TABLE_FIELDS.index(name) for name in (
        "stride", "bytes", "row_stride", "block_stride", "last_index", "predicate"))
_ROWS, _ADDRESS, _ROW, _LIST, _FLAGS, _ZERO, _UNIT = (
    OUT[name] for name in ("m", "address", "row0", "row1", "flags", "zero", "unit"))
_UNITS = {Unit.MATRIX: matrix, Unit.VECTOR: vector, Unit.SELECT: select}


class Trace(NamedTuple):
    """What the timing of a launch owes to its data."""

    skipped: np.ndarray
    """bool[commands]: the command's predicate was 0, so it did nothing."""
    indices: dict[int, np.ndarray]
    """Command to int64[rows], for INDEXED moves that ran: numbers of the DRAM rows, none above ``last_index``."""


def execute(memory: Memory, table: np.ndarray, places: np.ndarray, resolved: np.ndarray) -> Trace:
    """Run the commands at ``places`` of a decoded program, in this order, on ``memory``, as one launch.

    ``resolved`` has a row for each of them.
    """
    trace = Trace(np.zeros(len(places), dtype=bool), {})
    memory.predicates[1:] = [False] * (NUM_PREDICATES - 1)
    raw_rows = table.tolist()
    for i, (place, row) in enumerate(zip(places.tolist(), resolved[:len(places)].tolist())):
        raw = raw_rows[place]
        if row[_UNIT] == CONTROL:
            continue
        if not memory.predicates[raw[_PREDICATE]]:
            trace.skipped[i] = True
        elif row[_ZERO]:
            continue
        elif row[_UNIT] > Unit.STORE:
            _UNITS[row[_UNIT]](memory, raw, row)
        else:
            indices = None
            if row[_FLAGS] >> MoveFlag.INDEXED & 1:
                entries = memory.list[row[_LIST]:row[_LIST] + row[_ROWS]]
                indices = trace.indices[i] = np.minimum(entries, raw[_LAST_INDEX])
            _Move(memory, raw, row, indices).run()
    return trace


class _Move:
    """DRAM and memory side of a load or store, as views ``[rows, blocks, elements]``."""

    def __init__(self, memory: Memory, raw: list[int], row: list[int], indices: np.ndarray | None) -> None:
        self.memory, self.raw, self.row, self.indices = memory, raw, row, indices
        self.accumulator, self.narrow, self.add, self.zero, self.broadcast = (
            bool(row[_FLAGS] >> flag & 1) for flag in (
                MoveFlag.ACCUMULATOR, MoveFlag.NARROW, MoveFlag.ADD, MoveFlag.ZERO, MoveFlag.BROADCAST))
        self.words = self.accumulator and not self.narrow
        self.store = row[_UNIT] == Unit.STORE

    def run(self) -> None:
        for outside, inside in self._pairs():
            if self.store:
                self._store(outside, inside)
                continue
            values = outside if self.indices is None else outside[self.indices]
            if self.add:
                inside += values
            else:
                inside[...] = values

    def _store(self, outside: np.ndarray, inside: np.ndarray) -> None:
        values = np.clip(inside, -128, 127) if self.narrow else inside
        if self.indices is None:
            outside[...] = values
            return
        for index, line in zip(self.indices, values):  # a row that comes twice keeps the later bytes
            outside[index] = line

    def _pairs(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(DRAM, memory) views of the whole blocks and of the last partial block of every row.

        The DRAM's view has as many rows as the indices reach.
        """
        dim, rows, size = self.memory.dim, self.row[_ROWS], self.raw[_BYTES]
        element = 4 if self.words else 1
        whole, rest = divmod(size // element, dim)
        pairs = []
        for blocks, lanes, start in ((whole, dim, 0), (1, rest, whole)):
            if blocks and lanes:
                shape = (rows, blocks, lanes)
                outside = self._outside(shape, start * dim * element, dim * element)
                pairs.append((outside, self._inside(shape, start)))
        return pairs

    def _outside(self, shape: tuple[int, int, int], offset: int, block: int) -> np.ndarray:
        size, stride, address = self.raw[_BYTES], self.raw[_STRIDE], self.row[_ADDRESS]
        dtype = np.int32 if self.words else np.int8 if self.narrow else np.uint8
        if self.zero:
            return np.zeros(shape, dtype)
        stride = 0 if self.broadcast else stride
        if self.indices is not None:
            shape = (int(self.indices.max()) + 1, *shape[1:])
        end = address + (shape[0] - 1) * stride + size
        if end > len(self.memory.dram):
            raise ValueError(
                f"DRAM addresses must lie below {len(self.memory.dram)}, not {end}; give the model more dram_bytes")
        strides = (stride, block, np.dtype(dtype).itemsize)
        return self.memory.dram_view(address + offset, shape, strides, dtype, mode="w" if self.store else "r")

    def _inside(self, shape: tuple[int, int, int], block: int) -> np.ndarray:
        first, block_stride = self.row[_ROW] + block * self.raw[_BLOCK_STRIDE], self.raw[_BLOCK_STRIDE]
        rows, blocks, lanes = shape
        stride, mode = self.raw[_ROW_STRIDE], "r" if self.store else "rw" if self.add else "w"
        open_view = self.memory.acc_view if self.accumulator else self.memory.spm_view
        return open_view(first, block_stride, rows, blocks, row_stride=stride, mode=mode)[:, :, :lanes]
