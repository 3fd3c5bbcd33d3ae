"""From a product's sums to what is stored: int8, activated, added to the residual stream, rotated, by heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gemmule.compiler.ir import Linear, Rope
from gemmule.compiler.kernels.constants import ColumnRows
from gemmule.compiler.kernels.linear import Tile
from gemmule.compiler.kernels.virtual import At, Builder
from gemmule.isa import ColumnFlag, Length, RequantFlag, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["ROPE_SHIFT", "Heads", "add_to_residual", "store", "store_heads"]

ROPE_SHIFT = 21
"""Fraction bits of an angle and of what is rotated."""


def _columns(b: Builder, node: Linear, tile: Tile) -> int:
    """Columns of a tile of a value without heads; the last group may be ragged."""
    return min(tile.groups * b.config.dim, node.columns - tile.first * b.config.dim)


def _biased(node: Linear) -> set[RequantFlag]:
    return {RequantFlag.COLUMN} | ({RequantFlag.BIAS} if node.bias else set())


def store(b: Builder, node: Linear, tile: Tile, to: At, stride: int, *flags: RequantFlag, m: Length | None = None,
          note: str = "") -> None:
    """int8 rows (WIDE: int16 planes) of a tile at ``to``, the row of the value's group 0, ``stride`` rows a group."""
    b.add(Unit.VECTOR, note or f"{node.name}: store", op=VOp.REQUANT, flags=_biased(node) | set(flags), src0=tile.acc,
          src0_stride=tile.stride, src1=tile.parameters, dst=to + tile.first * stride, dst_stride=stride,
          m=b.m if m is None else m, n=_columns(b, node, tile))


def add_to_residual(b: Builder, node: Linear, tile: Tile, residual: At) -> None:
    """The tile added to the int16 planes at ``residual``."""
    store(b, node, tile, residual, 2 * b.rows, RequantFlag.RESIDUAL, note=f"{node.name}: to the residual")


@dataclass(frozen=True)
class Heads:
    """Where the heads of a query, key or value go: each head's first group, and rows from a group to the next."""

    order: Sequence[int]
    """Head numbers in the order of the linear's lanes."""
    head_dim: int
    place: Callable[[int], At]
    stride: int
    pitch: int | None = None
    """Rows from a sequence of the batch to the next where others stand between them."""


def store_heads(b: Builder, node: Linear, tile: Tile, heads: Heads, rope: Rope | None, angles: At | None) -> None:
    """int8 rows of the heads, or parts of heads, of a tile, rotated where there are angles."""
    dim, groups = b.config.dim, ceil_div(heads.head_dim, b.config.dim)
    at = tile.first
    while at < tile.first + tile.groups:
        number, inside = divmod(at, groups)
        count = min(groups - inside, tile.first + tile.groups - at)
        done, name = at - tile.first, heads.order[number]
        source, to = tile.acc + done * tile.stride, heads.place(name) + inside * heads.stride
        parts = [(0, 0, b.m)] if heads.pitch is None else [
            (i * b.each, i * heads.pitch, b.m_each) for i in range(b.batch)]
        for from_row, to_row, m in parts:
            shared: dict[str, Any] = {
                "src0": source + from_row, "src0_stride": tile.stride,
                "src1": tile.parameters + done * ColumnRows.rows(node), "dst": to + to_row, "dst_stride": heads.stride,
                "m": m, "n": min(count * dim, heads.head_dim - inside * dim)}
            if rope is None or angles is None:
                b.add(Unit.VECTOR, f"{node.name}: head {name}", op=VOp.REQUANT, flags=_biased(node), **shared)
            else:
                step = (groups - 1).bit_length()
                b.add(Unit.VECTOR, f"{node.name}: rotate head {name}", op=VOp.ROPE,
                      flags={ColumnFlag.COLUMN} | ({ColumnFlag.BIAS} if node.bias else set()),
                      aux=angles + 4 * inside + (from_row * 4 << step), period=step, shift2=ROPE_SHIFT, **shared)
        at += count
