"""DRAM layout: weights pre-tiled in the order in which they stream, tables, regions by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.config import Config
from gemmule.numerics import split_planes
from gemmule.timing import ceil_div

__all__ = [
    "MOST_DEPTH", "Region", "RegionTable", "Regions", "WeightFormat", "pack_angles",
    "pack_columns", "pack_gamma", "pack_groups", "pack_planes", "pack_weights", "unpack_groups",
]

MOST_DEPTH = (1 << 31) // 128 ** 2
"""Sums of fewer products of two bytes cannot leave int32."""
Region = tuple[int, int]
"""(offset or address, bytes)"""


@dataclass(frozen=True)
class RegionTable:
    """Where the regions of programs that share DRAM stand."""

    base_address: int
    size: int
    """Bytes from there on."""
    symbols: Mapping[str, Region]
    """(address, bytes) by name."""


class Regions:
    """Named DRAM regions, one after another, each aligned to a burst."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.align = max(config.burst_bytes, 64)
        self._end = 0
        self.table: dict[str, Region] = {}
        self.contents: list[tuple[int, np.ndarray]] = []

    def reserve(self, name: str, size: int) -> int:
        """A region without content; returns its offset."""
        offset = self.size
        self.table[name] = (offset, size)
        self._end = offset + size
        return offset

    @property
    def size(self) -> int:
        """Bytes of all regions."""
        return ceil_div(self._end, self.align) * self.align

    def put(self, name: str, content: np.ndarray) -> int:
        """A region with content (uint8); returns its offset."""
        offset = self.reserve(name, content.size)
        self.contents.append((offset, content.reshape(-1)))
        return offset

    def image(self) -> np.ndarray:
        """All regions as bytes; those without content are 0."""
        dram = np.zeros(self.size, dtype=np.uint8)
        for offset, content in self.contents:
            dram[offset:offset + content.size] = content
        return dram

    def symbols(self, base_address: int) -> dict[str, Region]:
        """(address, bytes) of the regions when the first stands at ``base_address``.

        Raises:
            CompileError: the address is not aligned, or the end lies beyond the device's addresses.
        """
        if base_address % self.align:
            raise CompileError(f"base_address must be a multiple of {self.align}, not {base_address}: align it")
        most = 1 << self.config.address_bits
        if base_address + self.size > most:
            raise CompileError(
                f"DRAM addresses must stay below 2**address_bits = {most}, not reach {base_address + self.size}: "
                "raise address_bits")
        return {name: (base_address + offset, size) for name, (offset, size) in self.table.items()}


def _columns(values: np.ndarray, dim: int) -> np.ndarray:
    """Pad the last axis to whole groups and split it  # [..., groups, dim]."""
    n = values.shape[-1]
    padded = np.zeros((*values.shape[:-1], ceil_div(n, dim) * dim), dtype=values.dtype)
    padded[..., :n] = values
    return padded.reshape(*values.shape[:-1], -1, dim)


def pack_groups(values: np.ndarray, dim: int) -> np.ndarray:
    """int8 values [..., rows, columns] as the device uses it: uint8 [..., group, rows, dim], zero padded."""
    grouped = _columns(values.astype(np.int8), dim)  # [..., rows, groups, dim]
    return np.ascontiguousarray(np.moveaxis(grouped, -2, -3)).view(np.uint8)


def unpack_groups(content: np.ndarray, columns: int) -> np.ndarray:
    """Inverse of :func:`pack_groups`: [..., group, rows, dim] to [..., rows, columns], same dtype."""
    rows = np.moveaxis(content, -3, -2)
    return rows.reshape(*rows.shape[:-2], -1)[..., :columns].copy()


def pack_weights(weight: np.ndarray, dim: int, depth: int) -> np.ndarray:
    """int8 weights [out, in] as the mesh reads them: [group][depth rows][dim], zero beyond ``in``."""
    grouped = pack_groups(weight.T, dim)  # [groups, in, dim]
    packed = np.zeros((len(grouped), depth, dim), dtype=np.uint8)
    packed[:, :weight.shape[1]] = grouped
    return packed


def pack_columns(mult: np.ndarray, shift: np.ndarray, dim: int) -> np.ndarray:
    """Column parameters: [group][mult low, mult high, shift][dim]."""
    mult = mult.astype(np.int64)
    planes = [mult & 255, mult >> 8, shift.astype(np.int64)]
    return np.stack([_columns(p.astype(np.uint8), dim) for p in planes], axis=1)


def pack_planes(values: np.ndarray, dim: int) -> np.ndarray:
    """int16 rows [..., n] as [..., group][low, high][dim]."""
    low, high = split_planes(values)
    return np.stack([_columns(low, dim), _columns(high, dim)], axis=-2)


def pack_gamma(gamma: np.ndarray, dim: int) -> np.ndarray:
    """Norm weights: [group][low, high][dim]."""
    return pack_planes(gamma.astype(np.int64), dim)


def pack_angles(cosine: np.ndarray, sine: np.ndarray, dim: int) -> np.ndarray:
    """Rotary table: [position][group of a head][cos low, cos high, sin low, sin high][dim].

    Both lanes of a pair hold the pair's value; cosine and sine are [positions, head_dim / 2].
    """
    both = [pack_planes(np.repeat(t.astype(np.int64), 2, axis=1), dim) for t in (cosine, sine)]
    return np.concatenate(both, axis=-2)


@dataclass(frozen=True)
class WeightFormat:
    """How B is stored: int8, or int4 with two rows of B in a scratchpad row.

    ``group``: K elements per int4 scale (an integer from 1 to 15 per column and group), 0 for none; DIM
    times a power of two.

    Raises:
        CompileError: bits or group do not fit the device.
    """

    bits: int = 8
    group: int = 0

    def check(self, config: Config) -> None:
        if self.bits not in (4, 8):
            raise CompileError(f"weights must have 4 or 8 bits, not {self.bits}")
        if self.bits == 4 and not config.int4:
            raise CompileError(f"int4 weights need a device with int4, not {config.name}: use int8, or a configuration "
                               "that has int4")
        tiles, rest = divmod(self.group, config.dim)
        if self.group and self.bits != 4:
            raise CompileError(
                f"groups of scales are of int4 weights, not of int{self.bits}: take int4, or group size 0")
        if self.group and (rest or tiles & (tiles - 1) or tiles > 1 << 15):
            raise CompileError(
                f"a group of scales must span dim = {config.dim} times a power of two of int4 weights, "
                f"not {self.group}: choose another size or 0")

    def tiles(self, config: Config) -> int:
        """K tiles per scale row (1 without scales)."""
        return max(1, self.group // config.dim)

    def rows(self, config: Config, deep: int) -> int:
        """Scratchpad rows of one column block of ``deep`` K tiles."""
        if self.bits == 8:
            return deep * config.dim
        scales = ceil_div(deep, self.tiles(config)) if self.group else 0
        return ceil_div(deep * config.dim // 2 + scales, config.preload) * config.preload

    def pack(self, config: Config, b: np.ndarray, scales: np.ndarray | None, deep: int) -> np.ndarray:
        """B[k, n] (and scales [groups, n]) of at most ``deep`` K tiles as [column block][rows][dim]."""
        dim = config.dim
        packed = pack_weights(b.T, dim, deep * dim)
        if self.bits == 8:
            return packed
        blocks = np.zeros((len(packed), self.rows(config, deep), dim), dtype=np.uint8)
        blocks[:, :deep * dim // 2] = packed[:, ::2] & 15 | packed[:, 1::2] << 4
        if scales is not None:
            rows = _columns(scales.astype(np.uint8), dim).transpose(1, 0, 2)
            blocks[:, deep * dim // 2:deep * dim // 2 + rows.shape[1]] = rows
        return blocks
