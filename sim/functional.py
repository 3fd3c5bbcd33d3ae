"""What the commands do to data, bit-exact, in program order.

The verifier proves a program free of races, so every legal order gives these bytes. Matrix and vector
commands stand in ``functional_matrix.py`` and ``functional_vector.py``.
"""

from __future__ import annotations

import numpy as np

from gemmule.isa import TABLE_FIELDS, MoveFlag
from gemmule.resolve import OUT
from gemmule.sim.functional_matrix import matrix
from gemmule.sim.functional_vector import vector
from gemmule.sim.memory import Memory

__all__ = ["execute"]

_STRIDE, _BYTES, _ROW_STRIDE, _BLOCK_STRIDE = (
    TABLE_FIELDS.index(name) for name in ("stride", "bytes", "row_stride", "block_stride"))
_ROWS, _ADDRESS, _ROW, _FLAGS = (OUT[name] for name in ("m", "address", "row0", "flags"))


def execute(memory: Memory, table: np.ndarray, resolved: np.ndarray, count: int) -> None:
    """Run the first ``count`` commands of a decoded and resolved program on ``memory``."""
    units = (_load, _store, matrix, vector)
    zero, unit = OUT["zero"], OUT["unit"]
    raw_rows, rows = table[:count].tolist(), resolved[:count].tolist()
    for raw, row in zip(raw_rows, rows):
        if not row[zero]:
            units[row[unit]](memory, raw, row)


class _Move:
    """DRAM and memory side of a load or store, as views ``[rows, blocks, elements]``."""

    def __init__(self, memory: Memory, raw: list[int], row: list[int]) -> None:
        self.memory, self.raw, self.row = memory, raw, row
        self.accumulator, self.narrow, self.add, self.zero, self.broadcast = (
            bool(row[_FLAGS] >> flag & 1) for flag in MoveFlag)
        self.words = self.accumulator and not self.narrow

    def pairs(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(DRAM, memory) views of the whole blocks and of the last partial block of every row."""
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

    def _outside(self, shape: tuple[int, ...], offset: int, block: int) -> np.ndarray:
        rows, size, stride, address = shape[0], self.raw[_BYTES], self.raw[_STRIDE], self.row[_ADDRESS]
        dtype = np.int32 if self.words else np.int8 if self.narrow else np.uint8
        if self.zero:
            return np.zeros(shape, dtype)
        stride = 0 if self.broadcast else stride
        end = address + (rows - 1) * stride + size
        if end > len(self.memory.dram):
            raise ValueError(
                f"DRAM addresses must lie below {len(self.memory.dram)}, not {end}; give the model more dram_bytes")
        strides = (stride, block, np.dtype(dtype).itemsize)
        return np.ndarray(shape, dtype, self.memory.dram, address + offset, strides)

    def _inside(self, shape: tuple[int, ...], block: int) -> np.ndarray:
        array = self.memory.acc if self.accumulator else self.memory.spm
        line = self.memory.dim * array.itemsize
        first = self.row[_ROW] + block * self.raw[_BLOCK_STRIDE]
        steps = self.raw[_ROW_STRIDE] * line, self.raw[_BLOCK_STRIDE] * line, array.itemsize
        return np.ndarray(shape, array.dtype, array, first * line, steps)


def _load(memory: Memory, raw: list[int], row: list[int]) -> None:
    move = _Move(memory, raw, row)
    for outside, inside in move.pairs():
        if move.add:
            inside += outside
        else:
            inside[...] = outside


def _store(memory: Memory, raw: list[int], row: list[int]) -> None:
    move = _Move(memory, raw, row)
    for outside, inside in move.pairs():
        outside[...] = np.clip(inside, -128, 127) if move.narrow else inside
