"""A memory that records what the functional model touches."""

from collections import defaultdict
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.operands import Memory as Space
from gemmule.sim.functional.memory import Memory

__all__ = ["RecordingMemory"]

Log = dict[tuple[Space, bool], set[int]]


class _Recorded:
    """An array, or list, that is read and written by index; a place is an index of its first axis, or all of it."""

    def __init__(self, log: Log, space: Space, values: Any, *, whole: bool = False) -> None:
        self._log, self._space, self._values, self._whole = log, space, values, whole

    def _places(self, index: Any) -> set[int]:
        if self._whole:
            return {0}
        first = index[0] if isinstance(index, tuple) else index
        return set(np.atleast_1d(np.arange(len(self._values))[first]).tolist())

    def __getitem__(self, index: Any) -> Any:
        self._log[self._space, False] |= self._places(index)
        value = self._values[index]
        return value.copy() if isinstance(value, np.ndarray) else value

    def __setitem__(self, index: Any, value: Any) -> None:
        self._log[self._space, True] |= self._places(index)
        self._values[index] = value


class RecordingMemory(Memory):
    """``log`` holds, by memory and by whether they were written, the places touched since it was last cleared."""

    def __init__(self, config: Config, *, dram_bytes: int, seed: int) -> None:
        super().__init__(config, dram_bytes=dram_bytes)
        random = np.random.default_rng(seed)
        self.dram[:] = random.integers(0, 256, dram_bytes, dtype=np.uint8)
        self.spm[:] = random.integers(0, 256, self.spm.shape, dtype=np.uint8)
        self.acc[:] = random.integers(-999, 999, self.acc.shape)
        self.list[:] = random.integers(0, 14, len(self.list))
        self.keys[:] = random.integers(0, 99, len(self.keys))
        self.log: Log = defaultdict(set)
        whole = {"table": Space.BYTE_TABLE, "words": Space.WORD_TABLE, "weights": Space.WEIGHTS}
        for name, space in whole.items():
            setattr(self, name, _Recorded(self.log, space, getattr(self, name), whole=True))
        for names, space in (
            (("list",), Space.LIST), (("keys", "ids"), Space.KEYS), (("committed",), Space.COMMITTED),
            (("shadow",), Space.SHADOW), (("mask",), Space.MASK),
            (("best", "best_ids"), Space.RUNNING), (("predicates",), Space.PREDICATE),
            (("maximum", "reciprocal", "length", "total", "rise", "center", "root", "half"), Space.STATISTICS),
        ):
            for name in names:
                setattr(self, name, _Recorded(self.log, space, getattr(self, name)))

    def _record(self, space: Space, mode: str, places: np.ndarray) -> None:
        for letter, write in (("r", False), ("w", True)):
            if letter in mode:
                self.log[space, write] |= set(places.ravel().tolist())

    def _view(self, array: np.ndarray, row: int, stride: int, rows: int, groups: int, dtype: type, row_stride: int,
              mode: str) -> np.ndarray:
        places = row + row_stride * np.arange(rows)[:, None] + stride * np.arange(groups)[None, :]
        self._record(Space.SPM if array is self.spm else Space.ACC, mode, places)
        return super()._view(array, row, stride, rows, groups, dtype, row_stride, mode)

    def dram_view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: type, *,
                  mode: str) -> np.ndarray:
        places = np.full(shape, address)
        for axis, (size, stride) in enumerate(zip(shape, strides)):
            places += (stride * np.arange(size)).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        self._record(Space.DRAM, mode, places[..., None] + np.arange(np.dtype(dtype).itemsize))
        return super().dram_view(address, shape, strides, dtype, mode=mode)
