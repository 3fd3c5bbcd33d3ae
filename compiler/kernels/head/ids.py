"""Token ids between host, DRAM and index lists: 16 bits of each, and where ids have more a second plane above them.

Planes are uint16 by row, always :data:`PLANE` bytes apart: so one base register reaches both, and what a draft's
program answers can stand where a target's takes its tokens. Programs of smaller vocabularies have the first one alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.config import Config
from gemmule.isa import INDEX_BITS, MAX_LENGTH, ListFlag

__all__ = ["HALF_BYTES", "PLANE", "check_ids", "halves", "joined", "list_flags", "planes_in", "region_bytes", "split"]

HALF_BYTES = 2
"""Bytes of an id in each plane."""
PLANE = HALF_BYTES * (MAX_LENGTH + 1)
"""Bytes from the first plane to the second: room for an id of each position that there can be."""
_HALF_BITS = 8 * HALF_BYTES


def halves(ids: int) -> int:
    """Planes of ids 0 .. ``ids`` - 1."""
    return 1 if ids <= 1 << _HALF_BITS else 2


def region_bytes(ids: int, size: int) -> int:
    """Of a region with planes of ``size`` bytes for ids 0 .. ``ids`` - 1."""
    return (halves(ids) - 1) * PLANE + size


def planes_in(size: int) -> int:
    """Planes of a region of ``size`` bytes."""
    return 1 + (size > PLANE)


def list_flags(plane: int) -> tuple[ListFlag, ...]:
    """Flags of the LIST_LOAD or LIST_STORE of a plane."""
    return (ListFlag.HIGH,) if plane else ()


def split(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both planes of ids, uint16."""
    return (values & (1 << _HALF_BITS) - 1).astype("<u2"), (values >> _HALF_BITS).astype("<u2")


def joined(planes: Iterable[np.ndarray]) -> np.ndarray:
    """Ids from the bytes of their planes  # uint8 [.., 2 n] each to int64 [.., n]."""
    found = (np.ascontiguousarray(plane).view("<u2").astype(np.int64) for plane in planes)
    return np.sum([part << _HALF_BITS * i for i, part in enumerate(found)], axis=0)


def check_ids(ids: int, config: Config, what: str, fix: str) -> None:
    """Refuse more ids than the device's indices can name.

    Raises:
        CompileError: names both and the fix.
    """
    if ids > (most := 1 << config.index_bits):
        larger = f" or take a device with index_bits: {max(INDEX_BITS)}" if config.index_bits < max(INDEX_BITS) else ""
        raise CompileError(f"{what} must be at most {most:,} on {config.name} (index_bits {config.index_bits}), not "
                           f"{ids:,}: {fix}{larger}")
