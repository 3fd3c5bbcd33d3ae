"""Which signals an FST file holds: scopes and variables, without their values."""

from __future__ import annotations

from pathlib import Path

__all__ = ["signals_of"]

HIERARCHY = 6
"""Kind of the block with the names, packed with LZ4."""
ATTRIBUTE, END, SCOPE, UPSCOPE = 252, 253, 254, 255


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count:self.at]

    def text(self) -> str:
        end = self.data.index(0, self.at)
        text = self.data[self.at:end].decode()
        self.at = end + 1
        return text

    def varint(self) -> int:
        """LEB128."""
        value = shift = 0
        while (byte := self.byte()) & 128:
            value, shift = value | (byte & 127) << shift, shift + 7
        return value | byte << shift

    def length(self, low: int) -> int:
        """A length of LZ4 of which four bits are known."""
        value, more = low, 255 if low == 15 else 0
        while more == 255:
            more = self.byte()
            value += more
        return value


def _unpacked(data: bytes, size: int) -> bytes:
    """A block of LZ4."""
    reader, out = _Reader(data), bytearray()
    while True:
        token = reader.byte()
        out += reader.take(reader.length(token >> 4))
        if len(out) >= size:
            return bytes(out)
        offset = int.from_bytes(reader.take(2), "little")
        for _ in range(reader.length(token & 15) + 4):
            out.append(out[-offset])


def signals_of(path: Path) -> dict[str, str]:
    """Bits in brackets (``[7:0]``, nothing for a single bit) of every signal by its path.

    Raises:
        ValueError: the file has no block of names: not FST, or cut off.
    """
    data, at = path.read_bytes(), 0
    while at + 9 <= len(data) and data[at] != HIERARCHY:
        at += 1 + int.from_bytes(data[at + 1:at + 9], "big")
    if at + 17 > len(data):
        raise ValueError(f"{path} is no whole FST file: no block of names")
    length, size = (int.from_bytes(data[at + i:at + i + 8], "big") for i in (1, 9))
    reader = _Reader(_unpacked(data[at + 17:at + 1 + length], size))
    found: dict[str, str] = {}
    scopes: list[str] = []
    while reader.at < size:
        tag = reader.byte()
        if tag == SCOPE:
            reader.byte()
            scopes.append(reader.text())
            reader.text()
        elif tag == UPSCOPE:
            scopes.pop()
        elif tag == ATTRIBUTE:
            reader.take(2)
            reader.text()
            reader.varint()
        elif tag != END:
            reader.byte()
            name, _, bits = reader.text().partition(" ")
            reader.varint(), reader.varint()
            found[".".join([*scopes, name])] = bits
    return found
