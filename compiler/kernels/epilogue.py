"""From a product's sums to what is stored: int8, activated, added to the residual stream, rotated, by heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gemmule.compiler.ir import RESCALE_BITS, Linear, Rope
from gemmule.compiler.kernels.constants import ColumnRows
from gemmule.compiler.kernels.linear import Tile
from gemmule.compiler.kernels.spill import spill
from gemmule.compiler.kernels.virtual import NO_DYN, At, Builder
from gemmule.isa import ColumnFlag, Dyn, Length, RequantFlag, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["ROPE_SHIFT", "Heads", "add_to_residual", "store", "store_gelu", "store_heads"]

ROPE_SHIFT = 21
"""Fraction bits of an angle and of what is rotated."""


def _columns(b: Builder, node: Linear, tile: Tile) -> int:
    """Columns of a tile of a value without heads; the last group may be ragged."""
    return min(tile.groups * b.config.dim, node.columns - tile.first * b.config.dim)


def _biased(node: Linear) -> set[RequantFlag]:
    return {RequantFlag.COLUMN} | ({RequantFlag.BIAS} if node.bias else set())


def _spill_sums(b: Builder, node: Linear, tile: Tile, m: Length | None = None) -> None:
    """Where operators are not fused, a product is one by itself: its sums go to DRAM."""
    spill(b, f"{node.name}: sums", tile.acc, tile.groups, tile.stride, m)


def store(b: Builder, node: Linear, tile: Tile, to: At, stride: int, *flags: RequantFlag, m: Length | None = None,
          note: str = "", rescale: int | None = None) -> None:
    """int8 rows (WIDE: int16 planes) of a tile at ``to``, the row of the value's group 0, ``stride`` rows a group.

    ``rescale``: a residual that is added has ``2 ** rescale`` times the result's step.
    """
    scaling: dict[str, Any] = {}
    if rescale is not None:
        scaling = {"aux": 1 << RESCALE_BITS, "shift2": RESCALE_BITS - rescale}
        flags = *flags, RequantFlag.RESCALE
    _spill_sums(b, node, tile, m)
    b.add(Unit.VECTOR, note or f"{node.name}: store", op=VOp.REQUANT, flags=_biased(node) | set(flags), src0=tile.acc,
          src0_stride=tile.stride, src1=tile.parameters, dst=to + tile.first * stride, dst_stride=stride,
          m=b.m if m is None else m, n=_columns(b, node, tile), **scaling)


def store_gelu(b: Builder, node: Linear, tile: Tile, to: At, stride: int, shift: int) -> None:
    """The same of I-BERT's GELU of a tile, with the shift of its result."""
    _spill_sums(b, node, tile)
    flags = {ColumnFlag.COLUMN} | ({ColumnFlag.BIAS} if node.bias else set())
    b.add(Unit.VECTOR, f"{node.name}: GELU", op=VOp.I_GELU, flags=flags, src0=tile.acc, src0_stride=tile.stride,
          src1=tile.parameters, dst=to + tile.first * stride, dst_stride=stride, m=b.m, n=_columns(b, node, tile),
          shift2=shift)


def add_to_residual(b: Builder, node: Linear, tile: Tile, residual: At, rescale: int | None = None) -> None:
    """The tile added to the int16 planes at ``residual``, whose step is ``2 ** rescale`` times what it becomes.

    ``rescale`` None: the step stays, in all layers.
    """
    store(b, node, tile, residual, 2 * b.rows, RequantFlag.RESIDUAL, note=f"{node.name}: to the residual",
          rescale=rescale)


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
    dyn: tuple[Dyn, int, int] = NO_DYN
    """Which rows are the first, where a register says it."""

    def in_line(self, groups: int) -> bool:
        """Whether each head of so many groups begins where the one before ends."""
        return all(self.place(b) == self.place(a) + groups * self.stride for a, b in pairwise(self.order))


def store_heads(b: Builder, node: Linear, tile: Tile, heads: Heads, rope: Rope | None, angles: At | None) -> None:
    """int8 rows of the heads, or parts of heads, of a tile, rotated where there are angles.

    Heads that lie one behind the other are one command; rotated ones if their groups are a power of two, since angles
    come again with that period.
    """
    _spill_sums(b, node, tile)
    dim, groups = b.config.dim, ceil_div(heads.head_dim, b.config.dim)
    step, end, at = (groups - 1).bit_length(), tile.first + tile.groups, tile.first
    while at < end:
        number, inside = divmod(at, groups)
        single = not heads.in_line(groups) or rope is not None and (inside or groups != 1 << step)
        count = min(groups - inside, end - at) if single else end - at
        last, done = (at + count - 1) // groups, at - tile.first
        source, to = tile.acc + done * tile.stride, heads.place(heads.order[number]) + inside * heads.stride
        name = f"head {heads.order[number]}" + (f" to {heads.order[last]}" if last > number else "")
        parts = [(0, 0, b.m)] if heads.pitch is None else [
            (i * b.each, i * heads.pitch, b.m_each) for i in range(b.batch)]
        for from_row, to_row, m in parts:
            shared: dict[str, Any] = {
                "src0": source + from_row, "src0_stride": tile.stride,
                "src1": tile.parameters + done * ColumnRows.rows(node), "dst": to + to_row, "dst_stride": heads.stride,
                "m": m, "dyn": heads.dyn,
                "n": min((at + count) * dim, last * groups * dim + heads.head_dim) - at * dim}
            if rope is None or angles is None:
                b.add(Unit.VECTOR, f"{node.name}: {name}", op=VOp.REQUANT, flags=_biased(node), **shared)
            else:
                b.add(Unit.VECTOR, f"{node.name}: rotate {name}", op=VOp.ROPE,
                      flags={ColumnFlag.COLUMN} | ({ColumnFlag.BIAS} if node.bias else set()),
                      aux=angles + 4 * inside + (from_row * 4 << step), period=step, shift2=ROPE_SHIFT, **shared)
        at += count
