"""Values at which arithmetic turns: what random bytes hold once in four billion words."""

from __future__ import annotations

import numpy as np

__all__ = ["CORNER_WORDS", "corner_bytes"]

_NEAR = {(1 << bit) + off for bit in (0, 1, 4, 7, 8, 15, 16, 23, 24, 30, 31) for off in (-1, 0, 1)}
CORNER_WORDS = np.array(sorted(
    word for near in _NEAR for word in (near, -near) if -1 << 31 <= word < 1 << 31), dtype=np.int64)
"""int32 at the ends of every width that the device cuts to, and next to them."""
_WORDS = np.append(CORNER_WORDS, np.repeat([-1 << 31, (1 << 31) - 1], 10))
"""The ends more often than the others."""
_CORNER_BYTES = np.array([0, 1, 0x7F, 0x80, 0x81, 0xFE, 0xFF], dtype=np.uint8)
_MOST = 1024


def corner_bytes(random: np.random.Generator, size: int) -> np.ndarray:
    """uint8 ``[size]``: pieces of up to 1 KiB, each of extreme words, one word, one byte, few bytes, or anything."""
    pieces, left = [], -(-size // 4) * 4
    while left:
        length = min(left, 4 * int(random.integers(4, _MOST // 4 + 1)))
        pieces.append(_piece(random, length))
        left -= length
    return np.concatenate(pieces)[:size]


def _piece(random: np.random.Generator, size: int) -> np.ndarray:
    kind = int(random.integers(5))
    if kind == 0:
        return random.choice(_WORDS, size // 4).astype("<i4").view(np.uint8)
    if kind == 1:
        return np.full(size // 4, random.choice(CORNER_WORDS)).astype("<i4").view(np.uint8)
    if kind == 2:
        return np.full(size, random.choice(_CORNER_BYTES))
    if kind == 3:
        return random.choice(_CORNER_BYTES, size)
    return random.integers(0, 256, size, dtype=np.uint8)
