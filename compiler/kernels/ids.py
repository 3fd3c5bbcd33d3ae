"""Token ids between host, DRAM and index lists: 16 bits of each, and where ids have more a second plane above them.

The planes are regions of their own, both uint16 by row: programs of smaller vocabularies have the first one alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.config import Config
from gemmule.isa import INDEX_BITS, ListFlag

__all__ = ["ABOVE", "HALF_BYTES", "check_ids", "halves", "joined", "list_flags", "plane_regions", "split"]

HALF_BYTES = 2
"""Bytes of an id in each plane."""
ABOVE = " above 16 bits"
"""Behind a region's name: the plane of the upper bits."""
_HALF_BITS = 8 * HALF_BYTES


def halves(ids: int) -> int:
    """Planes of ids 0 .. ``ids`` - 1."""
    return 1 if ids <= 1 << _HALF_BITS else 2


def plane_regions(region: str, ids: int) -> tuple[str, ...]:
    """The region of each plane, lower bits first."""
    return (region, region + ABOVE)[:halves(ids)]


def list_flags(plane: int) -> tuple[ListFlag, ...]:
    """Flags of the LIST_LOAD or LIST_STORE of a plane."""
    return (ListFlag.HIGH,) if plane else ()


def split(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both planes of ids, uint16."""
    return (values & (1 << _HALF_BITS) - 1).astype("<u2"), (values >> _HALF_BITS).astype("<u2")


def joined(planes: Iterator[np.ndarray]) -> np.ndarray:
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
