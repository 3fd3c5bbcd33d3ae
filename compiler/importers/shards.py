"""The safetensors files of a checkpoint: one or several with an index, mapped into memory and not read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from gemmule.compiler.errors import CompileError
from gemmule.io.reading import ReadError, brief, named, parse_json, read_json, read_regular, shown

__all__ = ["DTYPES", "Shards", "Stored", "open_shards"]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MOST_HEADER = 1 << 24
"""Bytes of a header; a hundred for each tensor are usual."""
MOST_INDEX = 1 << 24
"""Bytes of an index."""
MOST_FILES = 4096
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""Types that weights may have, in safetensors' words; bfloat16 is mapped as its bits."""
_PLAIN = re.compile(r"[\w.+-]+\.safetensors")


@dataclass(frozen=True)
class Stored:
    """Where one tensor lies."""

    path: Path
    dtype: str
    """In safetensors' words."""
    shape: tuple[int, ...]
    begin: int
    """First byte in the file."""
    end: int


class Shards:
    """All tensors of a checkpoint by name."""

    dtypes: Collection[str] = DTYPES
    """Types that they may have."""
    describer = "config.json"
    """What says which tensors there must be."""

    def __init__(self, path: Path, tensors: Mapping[str, Stored]) -> None:
        self.path = path
        """The file that names them all: the only one, or the index."""
        self.tensors = tensors
        self._mapped: dict[Path, np.ndarray] = {}

    def check(self, expected: Mapping[str, tuple[int, ...]], harmless: Iterable[re.Pattern[str]] = ()) -> None:
        """Compare names, shapes and types with what a network of this config has; reads no values.

        Args:
            expected: shape of every tensor.
            harmless: names that may stand beside.

        Raises:
            CompileError: the first difference.
        """
        missing = sorted(expected.keys() - self.tensors.keys())
        surplus = sorted(name for name in self.tensors.keys() - expected.keys()
                         if not any(pattern.fullmatch(name) for pattern in harmless))
        if missing or surplus:
            parts = [f"{verb} the tensor {shown(self.called(names[0]))}"
                     + (f" and {len(names) - 1} more" if names[1:] else "")
                     for verb, names in (("lacks", missing), ("must not hold", surplus)) if names]
            raise CompileError(f"{named(self.path)} {' and '.join(parts)} (a model of its {self.describer})")
        for name, shape in expected.items():
            found = self.tensors[name]
            if found.shape != shape:
                raise CompileError(f"{self.where(name)} must have shape {shape}, not {shown(found.shape)}")
            if found.dtype not in self.dtypes:
                raise CompileError(
                    f"{self.where(name)} must have dtype {' or '.join(self.dtypes)}, not {found.dtype}: convert it")

    def called(self, name: str) -> str:
        """A tensor's name in the file."""
        return name

    def where(self, name: str) -> str:
        """A tensor as messages name it: its file and name."""
        return f"{named(self.tensors[name].path)}: {brief(self.called(name), 120)}"

    def array(self, name: str) -> np.ndarray:
        """A tensor's numbers as they lie in the file, mapped, not to be written  # bfloat16: its bits as uint16."""
        at = self.tensors[name]
        numbers: np.ndarray = self.bytes_of(name).view(DTYPES[at.dtype])
        return numbers.reshape(at.shape)

    def bytes_of(self, name: str) -> np.ndarray:
        """A tensor's bytes, mapped."""
        at = self.tensors[name]
        if at.path not in self._mapped:
            try:
                self._mapped[at.path] = np.memmap(at.path, dtype=np.uint8, mode="r")
            except (OSError, ValueError) as error:
                raise CompileError(f"{named(at.path)} cannot be read: {brief(str(error))}") from None
        data = np.asarray(self._mapped[at.path][at.begin:at.end])
        if len(data) != at.end - at.begin:
            raise CompileError(f"{self.where(name)} has been cut off since the file was opened: load it again")
        return data


def open_shards(folder: Path) -> Shards:
    """The tensors of ``model.safetensors``, or of all files that ``model.safetensors.index.json`` names.

    Raises:
        CompileError: no such file, or one that is damaged, or an index that does not fit its files.
    """
    single, index = folder / SINGLE, folder / INDEX
    if single.exists() and index.exists():
        raise CompileError(f"{named(folder)} has both {SINGLE} and {INDEX}: remove the one that is out of date")
    if single.exists():
        return Shards(single, _read_header(single))
    if index.exists():
        return Shards(index, _read_index(folder, index))
    other = next((name for name in ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                                    "flax_model.msgpack") if (folder / name).exists()), None)
    fix = f"convert {other} to it" if other else "give a directory in the Hugging Face layout"
    raise CompileError(f"{named(folder)} has no {SINGLE} and no {INDEX}: {fix}")


def _read_index(folder: Path, index: Path) -> dict[str, Stored]:
    try:
        content = read_json(index, MOST_INDEX)
    except ReadError as error:
        raise CompileError(f"{named(index, error.line)}: {error}") from None
    places = content.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CompileError(f"{named(index)}: weight_map must name a file for each tensor, not {shown(places)}")
    for name, file in places.items():
        if not isinstance(file, str) or not _PLAIN.fullmatch(file):
            raise CompileError(
                f"{named(index)}: {brief(name)} must lie in a .safetensors file of the same folder, not {shown(file)}")
    files = sorted(set(places.values()))
    if len(files) > MOST_FILES:
        raise CompileError(f"{named(index)}: weight_map must name at most {MOST_FILES:,} files, not {len(files):,}")
    found: dict[str, Stored] = {}
    for path in (folder / file for file in files):
        if not path.exists():
            raise CompileError(f"{named(path)} is missing, which {INDEX} names")
        for name, stored in _read_header(path).items():
            if name in found:
                raise CompileError(f"{named(path)}: {brief(name, 120)} stands in {found[name].path.name} too: keep one")
            if places.get(name) != path.name:
                raise CompileError(f"{named(path)}: {brief(name, 120)} must lie where {INDEX} says, "
                                   f"{shown(places[name]) if name in places else 'which does not name it'}")
            found[name] = stored
    missing = sorted(places.keys() - found.keys())
    if missing:
        raise CompileError(f"{named(folder / places[missing[0]])} lacks the tensor {shown(missing[0])}, "
                           f"which {INDEX} places there")
    return found


def _read_header(path: Path) -> dict[str, Stored]:
    """The tensors of a file, whose header and size the library has found in order."""
    try:
        size = int.from_bytes(read_regular(path, 8, whole=False), "little")
        if size > MOST_HEADER:
            raise ReadError(f"is not a safetensors file: its header would have {size:,} bytes")
        with safe_open(str(path), framework="numpy"):
            pass
        header = parse_json(read_regular(path, 8 + size, whole=False)[8:])
    except ReadError as error:
        raise CompileError(f"{named(path)} {error}") from None
    except Exception as error:  # the library raises its own type for malformed files
        raise CompileError(f"{named(path)} is not a safetensors file: {brief(str(error), 120)}") from None
    header.pop("__metadata__", None)
    return {name: _stored(path, 8 + size, entry) for name, entry in header.items()}


def _stored(path: Path, data: int, entry: dict[str, Any]) -> Stored:
    begin, end = entry["data_offsets"]
    return Stored(path, entry["dtype"], tuple(entry["shape"]), data + begin, data + end)
