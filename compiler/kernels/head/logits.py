"""Logits of the wanted rows, stored as int16, or the greedy token of each."""

from __future__ import annotations

from collections.abc import Iterator

from gemmule.compiler.ir import Linear
from gemmule.compiler.kernels.epilogue import store
from gemmule.compiler.kernels.head.ids import HALF_BYTES, PLANE, halves, list_flags, region_bytes
from gemmule.compiler.kernels.layout import Span, in_order
from gemmule.compiler.kernels.linear import Ring, Tile, linear_tiles
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.isa import ArgmaxFlag, Dyn, Length, RequantFlag, SOp, Unit
from gemmule.timing import ceil_div

__all__ = ["ANSWERS", "logits", "tokens"]

ANSWERS = "answers"
"""Region of what a launch gives back; greedy tokens have a plane above where there are more of them."""


def _tiles(b: Builder, ring: Ring, node: Linear, x: Span) -> Iterator[tuple[Tile, At, int]]:
    """(tile, its int16 planes in a buffer, columns) one after another."""
    dim, wanted = b.config.dim, Length(b.rows, LengthReg.WANTED)
    for tile in linear_tiles(b, ring, node, [x], in_order(node.columns, dim), m=wanted,
                             dyn=(Dyn.SRC0, LengthReg.FIRST_WANTED, 1), last=True):
        planes = At(Buffer(f"{node.name} part", 2 * tile.groups * b.rows, Bank.STATE))
        store(b, node, tile, planes + -2 * tile.first * b.rows, 2 * b.rows, RequantFlag.WIDE, m=wanted)
        yield tile, planes, min(tile.groups * dim, node.columns - tile.first * dim)


def logits(b: Builder, ring: Ring, node: Linear, x: Span) -> None:
    """Store all logits: [row][group][low, high][dim] with as many rows as the program takes."""
    dim, groups = b.config.dim, ceil_div(node.columns, b.config.dim)
    b.reserve(ANSWERS, 2 * groups * dim * b.rows)
    for tile, planes, _ in _tiles(b, ring, node, x):
        b.add(Unit.STORE, f"{node.name}: logits", region=ANSWERS, offset=2 * tile.first * dim, stride=2 * groups * dim,
              bytes=2 * tile.groups * dim, row=planes, row_stride=1, block_stride=b.rows,
              rows=Length(b.rows, LengthReg.WANTED))


def tokens(b: Builder, ring: Ring, node: Linear, x: Span) -> None:
    """Store the greedy token of each wanted row, uint16 by plane; ties go to the lowest."""
    dim, wanted = b.config.dim, Length(b.rows, LengthReg.WANTED)
    rows = ceil_div(HALF_BYTES * b.rows, dim)
    b.reserve(ANSWERS, region_bytes(node.columns, rows * dim))
    for tile, planes, columns in _tiles(b, ring, node, x):
        b.add(Unit.SELECT, f"{node.name}: best so far", op=SOp.ARGMAX, src0=planes, src0_stride=2 * b.rows,
              first=tile.first * dim, m=wanted, n=columns, flags={ArgmaxFlag.CONTINUE} if tile.first else ())
    most = 1 if b.looped else b.rows  # a turn has one row; what stands behind its token is another turn's
    for plane in range(halves(node.columns)):
        best = At(Buffer("tokens", rows, Bank.STATE))
        b.add(Unit.SELECT, "tokens", op=SOp.LIST_STORE, dst=best, n=wanted, flags=list_flags(plane))
        b.add(Unit.STORE, "tokens", region=ANSWERS, offset=plane * PLANE, bytes=HALF_BYTES * most, row=best,
              block_stride=1, rows=Length(1, LengthReg.WANTED))
    if b.looped:
        b.control(SetDisplacement(ANSWERS, HALF_BYTES, further=True))
