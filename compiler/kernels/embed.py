"""The residual stream's first value: each row's embedding, and learned positions added to it."""

from __future__ import annotations

from gemmule.compiler.ir import Embedding, Position, Rope
from gemmule.compiler.kernels.constants import AngleRows, EmbeddingRows, PositionRows
from gemmule.compiler.kernels.head.ids import HALF_BYTES, PLANE, check_ids, halves, list_flags
from gemmule.compiler.kernels.head.lent import BORROWED
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder
from gemmule.isa import MoveFlag, RequantFlag, SOp, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["embed", "lists", "load_angles", "new_residual"]

TOKENS, POSITIONS = "tokens", "positions"
"""Regions of the launch's inputs, uint16 by row; tokens have a plane above where there are more of them."""


def lists(b: Builder, ids: int, *, positions: bool, borrowed: bool = False) -> None:
    """Bring tokens below ``ids``, positions where they are looked up, and those of borrowed rows to the index list, in
    this order.
    """
    check_ids(ids, b.config, "tokens (and hidden rows)", "use a smaller vocabulary")
    rows = ceil_div(HALF_BYTES * b.rows, b.config.dim)
    size = rows * b.config.dim
    for region, at, planes, wanted in ((TOKENS, 0, halves(ids), True), (POSITIONS, 1, 1, positions),
                                       (BORROWED, 2, 1, borrowed)):
        if not wanted:
            continue
        for plane in range(planes):
            b.reserve(region, plane * PLANE + size)
            buffer = Buffer(region, rows, Bank.STATE)
            b.add(Unit.LOAD, region, region=region, offset=plane * PLANE, bytes=size, row=At(buffer), block_stride=1,
                  rows=1)
            b.add(Unit.SELECT, f"{region} to the list", op=SOp.LIST_LOAD, src0=At(buffer), dst=at * b.rows, n=b.m,
                  flags=list_flags(plane))


def new_residual(b: Builder, columns: int) -> At:
    """int16 planes of the residual stream: [group][low, high][row]."""
    return At(Buffer("residual", 2 * b.rows * ceil_div(columns, b.config.dim), Bank.STATE))


def embed(b: Builder, node: Embedding, position: Position | None, residual: At, slots: int = 0,
          entries: tuple[int, int] | None = None) -> None:
    """``sat16(embedding[token] + position[position])`` into the residual planes.

    ``slots``: rows of the residual stream that may be taken in place of embeddings; they stand behind the table, so
    their numbers are those of further tokens, and their position is one more, whose row is 0. ``entries``: first
    entries of the list with the tokens and with the positions, by default those of :func:`lists` for as many rows.
    """
    dim, groups = b.config.dim, ceil_div(node.columns, b.config.dim)
    first_token, first_position = entries or (0, b.rows)
    content = EmbeddingRows.of(node, dim)
    offset = b.constant("embedding", content)
    size = content.size // node.vocab
    _more_rows(b, "embedding", slots * size)
    b.add(Unit.LOAD, "embeddings", region="embedding", offset=offset, stride=size, bytes=size, row=residual,
          row_stride=1, block_stride=b.rows, rows=b.m, flags={MoveFlag.INDEXED}, list=first_token,
          last_index=node.vocab + slots - 1)
    if position is None:
        return
    table = PositionRows.of(position, dim)
    offset, size = b.constant("position", table), table.size // position.positions
    _more_rows(b, "position", size if slots else 0)
    most = max(1, b.config.acc_rows // 2 // b.rows)
    for first in range(0, groups, most):
        count = min(most, groups - first)
        acc = At(Buffer("positions", count * b.rows, Bank.ACCUMULATOR))
        _load_rows(b, "position", position.positions - (0 if slots else 1), size, {MoveFlag.ACCUMULATOR},
                   entry=first_position, offset=offset + 4 * dim * first, length=4 * dim * count, row=acc,
                   row_stride=1, block_stride=b.rows)
        b.add(Unit.VECTOR, "add positions", op=VOp.REQUANT, flags={RequantFlag.RESIDUAL}, src0=acc, src0_stride=b.rows,
              dst=residual + 2 * first * b.rows, dst_stride=2 * b.rows, mult=1, shift=0, m=b.m,
              n=min(count * dim, node.columns - first * dim))


def _load_rows(b: Builder, region: str, last: int, size: int, flags: set[MoveFlag], *, entry: int, offset: int,
               length: int, row: At, row_stride: int, block_stride: int) -> None:
    """Rows of ``size`` bytes by position: by the list from an entry on, in a loop's turn as the displacement tells."""
    if b.looped:
        b.moved[region] = size
        b.add(Unit.LOAD, f"{region} of the turn", region=region, rows=1, flags=flags, offset=offset, bytes=length,
              row=row, row_stride=row_stride, block_stride=block_stride)
        return
    b.add(Unit.LOAD, "positions" if region == "position" else region, region=region, offset=offset, stride=size,
          bytes=length, row=row, row_stride=row_stride, block_stride=block_stride, rows=b.m, list=entry,
          flags=flags | {MoveFlag.INDEXED}, last_index=last)


def _more_rows(b: Builder, region: str, size: int) -> None:
    """Room behind what a region holds, in whole rows of all DRAM banks: what follows stands in the banks it did."""
    step = b.config.dram.banks * b.config.dram.row_bytes
    b.reserve(region, b.sizes[region] + ceil_div(size, step) * step)


def load_angles(b: Builder, node: Rope) -> At:
    """Angles of the new rows: [row][group of a head, to a power of two][cos low, high, sin low, high]."""
    dim, groups = b.config.dim, ceil_div(node.head_dim, b.config.dim)
    step = 4 << (groups - 1).bit_length()
    content = AngleRows.of(node, dim)
    offset, size = b.constant("angles", content), 4 * groups * dim
    angles = At(Buffer("angles", step * b.rows, Bank.STATE))
    _load_rows(b, "angles", node.positions - 1, size, set(), entry=b.rows, offset=offset, length=size, row=angles,
               row_stride=step, block_stride=1)
    return angles
