"""A GGUF file: its metadata and where its tensors lie, read from a stranger's file without trust in any number.

The layout (version 2 and 3, little-endian): magic, version, number of tensors, number of metadata pairs; the pairs
(key, type, value); for each tensor name, sizes with columns first, type, offset; then, aligned, the numbers. The
package ``gguf`` has a reader too: it keeps each element of an array as an object of its own, two seconds for a
vocabulary of 49,152, and takes counts and offsets as they come.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.shards import Stored
from gemmule.io.reading import ReadError, brief, named, read_regular, shown

__all__ = ["BLOCKS", "GgufFile", "is_gguf", "open_gguf"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_PAIRS = MOST_TENSORS = 1 << 16
MOST_KEY = (1 << 16) - 1
"""Bytes of a key or of a tensor's name."""
MOST_TEXT = 1 << 24
"""Bytes of a text."""
MOST_ELEMENTS = 1 << 22
"""Elements of an array: the merges of the largest vocabularies are half a million."""
MOST_HEADER = 1 << 27
"""Bytes before the numbers."""
MOST_AXES = 4
BLOCKS: dict[str, tuple[int, int]] = {
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_1": (32, 20),
    "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210)}
"""Types that tensors may have: (numbers, bytes) of a block."""
_TEXT, _ARRAY = 8, 9
_NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8",
            12: "<f8"}
"""Types of metadata that have a fixed size, by their number in the file."""
_BOOL = 7


@dataclass(frozen=True)
class GgufFile:
    """What the head of a file says."""

    path: Path
    metadata: dict[str, Any]
    """Integers, floats, booleans, texts, and lists of one of these."""
    tensors: dict[str, Stored]
    """Shapes as numpy has them, rows first; types in GGUF's words."""


def is_gguf(path: Path) -> bool:
    """Whether a path is to be read as GGUF: by its name, or by its first bytes."""
    if path.is_dir():
        return False
    try:
        return path.suffix == ".gguf" or read_regular(path, len(MAGIC), whole=False) == MAGIC
    except ReadError:
        return False


class _Cursor:
    """A place in the file that only moves on; whoever asks for more than there is gets a :class:`ReadError`."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0
        self.end = min(len(data), MOST_HEADER)

    def skip(self, size: int, what: str) -> int:
        """Where ``size`` bytes begin, which are then behind."""
        if size > self.end - self.at:
            if self.end < len(self.data):
                raise ReadError(f"must have at most {MOST_HEADER:,} bytes before its numbers")
            raise ReadError(f"ends within {what}: it is cut off or damaged")
        self.at += size
        return self.at - size

    def number(self, code: str, what: str) -> Any:
        """One number by its code in :mod:`struct`."""
        return struct.unpack_from("<" + code, self.data, self.skip(struct.calcsize("<" + code), what))[0]

    def text(self, most: int, what: str) -> str:
        """A length and that many bytes of UTF-8."""
        size = self.number("Q", what)
        if size > most:
            raise ReadError(f"{what} must have at most {most:,} bytes, not {size:,}")
        start = self.skip(size, what)
        try:
            return self.data[start:start + size].decode()
        except UnicodeDecodeError:
            raise ReadError(f"{what} is not UTF-8 text") from None

    def value(self, kind: int, what: str) -> Any:
        """A value of metadata."""
        if kind == _TEXT:
            return self.text(MOST_TEXT, what)
        if kind in _NUMBERS:
            return self.numbers(kind, 1, what)[0]
        if kind != _ARRAY:
            raise ReadError(f"{what} has the unknown type {kind}: it is damaged, or newer than this reader")
        inner, count = self.number("I", what), self.number("Q", what)
        if count > MOST_ELEMENTS:
            raise ReadError(f"{what} must have at most {MOST_ELEMENTS:,} elements, not {count:,}")
        if inner == _TEXT:
            return [self.text(MOST_TEXT, what) for _ in range(count)]
        if inner in _NUMBERS:
            return self.numbers(inner, count, what)
        raise ReadError(f"{what} must hold numbers or texts, not type {inner}")

    def numbers(self, kind: int, count: int, what: str) -> list[Any]:
        """``count`` numbers, or truth values."""
        dtype = np.dtype(_NUMBERS[kind])
        start = self.skip(count * dtype.itemsize, what)
        found = np.frombuffer(self.data[start:self.at], dtype).tolist()
        if kind != _BOOL:
            return found
        if any(one > 1 for one in found):
            raise ReadError(f"{what} must be true or false (1 or 0), not {max(found)}")
        return [bool(one) for one in found]


def open_gguf(path: Path) -> GgufFile:
    """Read a file's head; its numbers stay where they are.

    Raises:
        CompileError: it is no GGUF file, damaged, cut off, or has tensors of a type that is not read; one line.
    """
    try:
        if read_regular(path, len(MAGIC), whole=False) != MAGIC:  # a regular file too: a pipe would block
            raise ReadError(f"is not a GGUF file: it must begin with {MAGIC.decode()}")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(path, _Cursor(data))
    except OSError as error:
        raise CompileError(f"{named(path)} cannot be read: {error.strerror or brief(str(error))}") from None
    except ReadError as error:
        raise CompileError(f"{named(path)} {error}") from None


def _read(path: Path, cursor: _Cursor) -> GgufFile:
    cursor.skip(len(MAGIC), "its head")
    version = cursor.number("I", "its head")
    if version not in VERSIONS:
        turned = int.from_bytes(version.to_bytes(4, "little"), "big")
        raise ReadError("is big-endian: convert it to little-endian" if turned in VERSIONS else
                        f"has GGUF version {version:,}; supported: {', '.join(map(str, VERSIONS))}: convert it")
    tensors, pairs = cursor.number("Q", "its head"), cursor.number("Q", "its head")
    for count, most, what in ((tensors, MOST_TENSORS, "tensors"), (pairs, MOST_PAIRS, "pairs of metadata")):
        if count > most:
            raise ReadError(f"must have at most {most:,} {what}, not {count:,}")
    metadata: dict[str, Any] = {}
    for number in range(pairs):
        key = cursor.text(MOST_KEY, f"the key of pair {number}")
        if key in metadata:
            raise ReadError(f"names {shown(key)} twice: keep one")
        metadata[key] = cursor.value(cursor.number("I", brief(key)), brief(key))
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 16:
        raise ReadError(f"general.alignment must be a power of two up to 65,536, not {shown(alignment)}")
    found: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    for number in range(tensors):
        name = cursor.text(MOST_KEY, f"the name of tensor {number}")
        if name in found:
            raise ReadError(f"holds the tensor {shown(name)} twice: keep one")
        found[name] = _tensor(cursor, brief(name, 120), alignment)
    first, size = -(-cursor.at // alignment) * alignment, len(cursor.data)
    for name, (_, _, begin, length) in found.items():
        if first + begin + length > size:
            raise ReadError(f"ends at byte {size:,}, before the tensor {shown(name)} does, at "
                            f"{first + begin + length:,}: it is cut off or damaged")
    return GgufFile(path, metadata, {
        name: Stored(path, kind, shape, first + begin, first + begin + length)
        for name, (kind, shape, begin, length) in found.items()})


def _tensor(cursor: _Cursor, name: str, alignment: int) -> tuple[str, tuple[int, ...], int, int]:
    """(type, shape, first byte from where numbers begin, bytes) of a tensor."""
    from gguf import GGMLQuantizationType

    axes = cursor.number("I", name)
    if not 1 <= axes <= MOST_AXES:
        raise ReadError(f"{name} must have 1 to {MOST_AXES} axes, not {axes:,}")
    sizes = [cursor.number("Q", name) for _ in range(axes)]
    number, begin = cursor.number("I", name), cursor.number("Q", name)
    kind = next((known.name for known in GGMLQuantizationType if known.value == number), f"number {number}")
    if kind not in BLOCKS:
        raise ReadError(f"{name} has the type {kind}; supported: {', '.join(BLOCKS)}: convert the file to one of these")
    numbers, size = BLOCKS[kind]
    if any(not 1 <= one < 1 << 40 for one in sizes) or sizes[0] % numbers:
        raise ReadError(f"{name} must have sizes from 1 on, the first a multiple of {numbers} ({kind}), not "
                        f"{shown(sizes)}")
    if begin % alignment:
        raise ReadError(f"{name} must begin at a multiple of {alignment} bytes, not at {begin:,}")
    return kind, tuple(sizes[::-1]), begin, prod(sizes) // numbers * size
