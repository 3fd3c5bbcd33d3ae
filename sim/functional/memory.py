"""Everything a launch reads and writes: DRAM, scratchpad, accumulator, weights, state of vector and select unit.

All of it is 0 at first.
"""

from __future__ import annotations

import numpy as np

from gemmule.config import Config
from gemmule.isa import NUM_PREDICATES
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES

__all__ = ["Memory"]


class Memory:
    """Content of one device and its DRAM; it persists between launches.

    Parameters
    ----------
    config: device configuration.
    dram_bytes: size of the DRAM array; pages that nobody writes cost nothing.
    """

    def __init__(self, config: Config, *, dram_bytes: int = 1 << 26) -> None:
        if not 0 < dram_bytes <= 1 << config.address_bits:
            raise ValueError(
                f"dram_bytes must be from 1 to {1 << config.address_bits} (address_bits = "
                f"{config.address_bits}), not {dram_bytes}")
        self.dim = config.dim
        self.dram = np.zeros(dram_bytes, dtype=np.uint8)
        self.spm = np.zeros((config.spm_rows, config.dim), dtype=np.uint8)
        self.acc = np.zeros((config.acc_rows, config.dim), dtype=np.int32)
        self.weights = np.zeros((config.dim, config.dim), dtype=np.int8)
        """What stands in the mesh, ``[k, n]``: the last weight-stationary tile, for REUSE."""
        self.table = np.zeros(BYTE_TABLE_ENTRIES, dtype=np.uint8)
        """The byte table of LOOKUP."""
        self.words = np.zeros(WORD_TABLE_ENTRIES, dtype=np.int16)
        """The word table of LOOKUP with WIDE."""
        shape = (config.stat_contexts, config.stat_rows)
        # Contexts: softmax maximum, reciprocal R and L, softmax sum, rise; norm s, r, h.
        self.maximum, self.reciprocal, self.length, self.total, self.rise, self.center, self.root, self.half = (
            np.zeros(shape, dtype=np.int64) for _ in range(8))
        # Select unit: keys and their ids, importance, mask, lists, each row's running maximum and its id.
        self.keys, self.ids, self.committed, self.shadow = (
            np.zeros(config.select_keys, dtype=np.int64) for _ in range(4))
        self.mask = np.zeros(config.select_keys, dtype=bool)
        self.list = np.zeros(config.list_entries, dtype=np.int64)
        self.index_mask = (1 << config.index_bits) - 1
        """All bits of an id or list entry."""
        self.best, self.best_ids = (np.zeros(config.stat_rows, dtype=np.int64) for _ in range(2))
        self.predicates = [True] + [False] * (NUM_PREDICATES - 1)
        """Those of the last launch; number 0 is always true."""

    def read(self, address: int, size: int) -> np.ndarray:
        """A copy of ``size`` DRAM bytes."""
        self._check(address, size)
        return self.dram[address:address + size].copy()

    def write(self, address: int, data: bytes | np.ndarray) -> None:
        """Put bytes (or an array, as it lies in memory) into the DRAM."""
        raw = (np.frombuffer(data, dtype=np.uint8) if isinstance(data, (bytes, bytearray, memoryview))
               else np.ascontiguousarray(data).reshape(-1).view(np.uint8))
        self._check(address, len(raw))
        self.dram[address:address + len(raw)] = raw

    def _check(self, address: int, size: int) -> None:
        if address < 0 or address + size > len(self.dram):
            raise ValueError(
                f"DRAM range must lie within 0..{len(self.dram)}, not {address}..{address + size}; "
                "give the model a larger dram_bytes")

    def spm_view(self, row: int, stride: int, rows: int, groups: int, dtype: type = np.uint8, *,
                 row_stride: int = 1, mode: str = "r") -> np.ndarray:
        """Scratchpad operand ``[rows, groups, dim]``: element (m, g) is row ``row + g * stride + m * row_stride``.

        ``mode``: "r" is read, "w" is written, "rw" both; only views that are written can be.
        """
        return self._view(self.spm, row, stride, rows, groups, dtype, row_stride, mode)

    def acc_view(self, row: int, stride: int, rows: int, groups: int, *, row_stride: int = 1,
                 mode: str = "r") -> np.ndarray:
        """Accumulator operand ``[rows, groups, dim]``, int32; as :meth:`spm_view`."""
        return self._view(self.acc, row, stride, rows, groups, np.int32, row_stride, mode)

    def dram_view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: type, *,
                  mode: str) -> np.ndarray:
        """DRAM bytes from ``address`` on as an array with these strides in bytes."""
        view = np.ndarray(shape, dtype, self.dram, address, strides)
        if mode == "r":
            view.setflags(write=False)
        return view

    def _view(self, array: np.ndarray, row: int, stride: int, rows: int, groups: int, dtype: type, row_stride: int,
              mode: str) -> np.ndarray:
        line = self.dim * array.itemsize
        view = np.ndarray((rows, groups, self.dim), dtype, array, row * line,
                          (row_stride * line, stride * line, array.itemsize))
        if mode == "r":
            view.setflags(write=False)
        return view
