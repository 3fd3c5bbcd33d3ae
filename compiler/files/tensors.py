"""Tensors of a safetensors file: all of them compared with what is expected before any is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from gemmule.compiler.errors import CompileError
from gemmule.io.reading import ReadError, brief, named, read_regular, shown

__all__ = ["Expected", "TensorFile", "open_tensors"]

MOST_HEADER = 1 << 24
"""Bytes of a header; a hundred for each tensor are usual."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What one tensor must be. ``dtypes`` in safetensors' words (``I8``, ``F32``).

    The bounds are inclusive, one for all values or one for each place in the last axis.
    """

    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    low: int | tuple[int, ...] | None = None
    high: int | tuple[int, ...] | None = None
    optional: bool = False


class TensorFile:
    """An open safetensors file."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path = named(path)
        self.names: frozenset[str] = frozenset(file.keys())
        self.metadata: dict[str, str] = file.metadata() or {}
        self._file = file

    def read(self, expected: Mapping[str, Expected]) -> dict[str, np.ndarray]:
        """All tensors, after names, shapes and dtypes were found as ``expected``; then their values are.

        Raises:
            CompileError: the first difference.
        """
        missing = sorted(name for name, one in expected.items() if not one.optional and name not in self.names)
        surplus = sorted(self.names - expected.keys())
        if missing or surplus:
            parts = [f"{verb} the tensor {shown(names[0])}" + (f" and {len(names) - 1} more" if names[1:] else "")
                     for verb, names in (("lacks", missing), ("must not hold", surplus)) if names]
            raise CompileError(f"{self.path} {' and '.join(parts)} (a model of its shape)")
        for name in sorted(self.names):
            self._check_header(name, expected[name])
        return {name: self._load(name, expected[name]) for name in sorted(self.names)}

    def _check_header(self, name: str, wanted: Expected) -> None:
        part = self._file.get_slice(name)
        shape, dtype = tuple(part.get_shape()), part.get_dtype()
        if shape != wanted.shape:
            raise CompileError(f"{self.path}: {name} must have shape {wanted.shape}, not {shape}")
        if dtype not in wanted.dtypes:
            raise CompileError(
                f"{self.path}: {name} must have dtype {' or '.join(wanted.dtypes)}, not {dtype}: convert it")

    def _load(self, name: str, wanted: Expected) -> np.ndarray:
        value: np.ndarray = self._file.get_tensor(name)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise CompileError(f"{self.path}: {name} must hold finite numbers, not NaN or infinity")
        if wanted.low is not None and wanted.high is not None:
            wrong = (value < np.asarray(wanted.low)) | (value > np.asarray(wanted.high))
            if wrong.any():
                raise CompileError(
                    f"{self.path}: {name} must hold values from {wanted.low} to {wanted.high}, not {value[wrong][0]}")
        return value


@contextlib.contextmanager
def open_tensors(path: Path) -> Iterator[TensorFile]:
    """The file, open inside the block.

    Raises:
        CompileError: it is no readable safetensors file.
    """
    try:
        size = int.from_bytes(read_regular(path, 8, whole=False), "little")
        if size > MOST_HEADER:
            raise ReadError(f"is not a safetensors file: its header would have {size:,} bytes")
        file = safe_open(str(path), framework="numpy")
    except ReadError as error:
        raise CompileError(f"{named(path)} {error}") from None
    except Exception as error:  # the library raises its own type for malformed files
        raise CompileError(f"{named(path)} is not a safetensors file: {brief(str(error), 120)}") from None
    with file:
        yield TensorFile(path, file)
