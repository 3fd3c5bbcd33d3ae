"""Products of heads, all or those that are left: queries, keys and values, and the output projection of contexts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention, Linear
from gemmule.compiler.kernels.attention.heads.gates import HeadGates
from gemmule.compiler.kernels.attention.sequence import HEADS, HeadLayout
from gemmule.compiler.kernels.constants import ColumnRows
from gemmule.compiler.kernels.epilogue import Heads, store_heads
from gemmule.compiler.kernels.layout import Span, by_heads
from gemmule.compiler.kernels.linear import Piece, Ring, Tile, between, linear_tiles, multiply
from gemmule.compiler.kernels.row_blocks import RowBlock, stored
from gemmule.compiler.kernels.virtual import NO_DYN, STATIC, At, Bank, Buffer, Builder
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.place import cut_evenly
from gemmule.isa import MoveFlag, Unit
from gemmule.timing import ceil_div

__all__ = ["project_heads", "tiles_of_left"]

NO_SUMS = "no sums"
"""Region of which nothing is read: zeros go to the accumulator."""
TILES = 4
"""Of the output projection that the accumulator holds: larger ones than its ring has, since heads come one by one."""
EARLY = 2
"""Heads of a tile behind whose products the next tile's sums are cleared: these then are free as a rule."""


def project_heads(b: Builder, ring: Ring, node: Attention, linears: Sequence[Linear], layout: HeadLayout,
                  gates: HeadGates | None, block: RowBlock, x: Span, writes: Sequence[Callable[[], None]]) -> None:
    """Keys, values and queries of a block of rows; between their tiles each of ``writes`` is called.

    All heads together, or one by one with ``gates``.
    """
    if gates:
        _project_left(b, ring, node, linears, layout, gates, block, x, writes)
        return
    lanes = by_heads(np.arange(node.heads), node.head_dim, b.config.dim)
    for part, linear in enumerate(linears):
        buffers = [At(Buffer(f"{linear.name} {head}", layout.groups * b.rows, Bank.STATE))
                   for head in range(node.heads)]
        heads, done = Heads(range(node.heads), node.head_dim, buffers.__getitem__, b.rows), 0
        tiles = linear_tiles(b, ring, linear, [x], lanes)
        for tile in between(tiles, len(lanes) // b.config.dim, writes if part == 1 else ()):
            store_heads(b, linear, tile, heads, None, None)
            while done < (tile.first + tile.groups) // layout.groups:
                _store(b, layout, linear, part, done, block, buffers[done])
                done += 1


def _project_left(b: Builder, ring: Ring, node: Attention, linears: Sequence[Linear], layout: HeadLayout,
                  gates: HeadGates, block: RowBlock, x: Span, writes: Sequence[Callable[[], None]]) -> None:
    """Of the heads that are left; behind each of the second half one of ``writes`` is called."""
    waiting = list(writes)
    for head in range(node.heads):
        lanes = by_heads(np.array([head]), node.head_dim, b.config.dim)
        with gates.head(head):
            for part, linear in enumerate(linears):
                at = At(Buffer(f"{linear.name} {head}", layout.groups * b.rows, Bank.STATE))
                heads = Heads([head], node.head_dim, {head: at}.__getitem__, b.rows)
                for tile in linear_tiles(b, ring, linear, [x], lanes):
                    store_heads(b, linear, tile, heads, None, None)
                _store(b, layout, linear, part, head, block, at)
        if 2 * head >= node.heads and waiting:
            waiting.pop(0)()
    for write in waiting:
        write()


def _store(b: Builder, layout: HeadLayout, linear: Linear, part: int, head: int, block: RowBlock, at: At) -> None:
    """A block of a head's keys, values or queries: ``part`` says which."""
    b.add(Unit.STORE, f"{linear.name}: head {head}", region=stored(HEADS), offset=layout.offset(part, head)
          + block.first * layout.row, stride=layout.row, bytes=layout.row, row=at, row_stride=1, block_stride=b.rows,
          rows=block.part(0, block.rows))


def tiles_of_left(b: Builder, ring: Ring, node: Attention, linear: Linear, contexts: At, lanes: np.ndarray,
                  gates: HeadGates, writes: Sequence[Callable[[], None]]) -> Iterator[Tile]:
    """:func:`gemmule.compiler.kernels.linear.linear_tiles` of contexts, of which those of heads that are left count.

    Every head adds to sums that begin as zeros, which come while a tile before is multiplied. Behind each head of the
    last tile one of ``writes`` is called.

    Raises:
        CompileError: a slot of the ring takes not even one column group of a head's weights.
    """
    config, dim = b.config, b.config.dim
    form = WeightFormat(bits=linear.bits, group=dim if linear.group else 0)
    form.check(config)
    each = by_heads(np.arange(node.heads), node.head_dim, dim).reshape(node.heads, -1)
    deep, total = each.shape[1] // dim, len(lanes) // dim
    most = min(max(ring.acc_rows, config.acc_rows // TILES) // b.rows, ring.rows // form.rows(config, deep))
    if not most:
        raise CompileError(f"{linear.name}: a ring slot of {ring.rows} rows must hold a head's weights of {dim} "
                           f"columns, {form.rows(config, deep)} rows: use a larger scratchpad (spm_kib)")
    pieces = [Piece(Span(contexts + head * deep * b.rows, b.rows, columns), 0, deep)
              for head, columns in enumerate(each)]
    parameters = At(Buffer(f"{linear.name} parameters", ColumnRows.rows(linear) * total, Bank.STATE))
    cuts = cut_evenly(total, ceil_div(total, most))
    sums = [At(Buffer(f"{linear.name} sums", groups * b.rows, Bank.ACCUMULATOR)) for _, groups in cuts]
    waiting, left = list(writes), (len(cuts) - 1) * node.heads
    _clear(b, linear, sums[:1])
    for number, (first, groups) in enumerate(cuts):
        for head, piece in enumerate(pieces):
            with gates.head(head):
                multiply(b, ring, linear, form, [piece], lanes[first * dim:(first + groups) * dim], sums[number],
                         b.rows, True, b.m, NO_DYN)
            if head == min(EARLY, node.heads) - 1:
                _clear(b, linear, sums[number + 1:number + 2])
                if not number:
                    b.load_constants(STATIC, [ColumnRows.of(linear, lanes)], parameters, f"{linear.name}: parameters")
            left -= 1
            if left < 0 and waiting:
                waiting.pop(0)()
        yield Tile(sums[number], b.rows, first, groups, parameters + first * ColumnRows.rows(linear))
    for write in waiting:
        write()


def _clear(b: Builder, linear: Linear, sums: Sequence[At]) -> None:
    b.reserve(NO_SUMS, b.config.dim)
    for at in sums:
        b.add(Unit.LOAD, f"{linear.name}: no sums yet", region=NO_SUMS, bytes=b.config.dim, row=at, row_stride=1,
              block_stride=1, rows=at.buffer.rows, flags={MoveFlag.ZERO, MoveFlag.ACCUMULATOR, MoveFlag.NARROW})
