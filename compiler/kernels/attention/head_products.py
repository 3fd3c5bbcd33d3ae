"""Products of the heads that are left: queries, keys and values head by head, and the output projection of contexts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gemmule.compiler.ir import Attention, Linear
from gemmule.compiler.kernels.attention.heads_left import HeadGates
from gemmule.compiler.kernels.attention.sequence import HEADS, HeadLayout
from gemmule.compiler.kernels.epilogue import Heads, store_heads
from gemmule.compiler.kernels.layout import Span, by_heads
from gemmule.compiler.kernels.linear import Ring, Tile, linear_tiles
from gemmule.compiler.kernels.row_blocks import RowBlock, stored
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder
from gemmule.isa import Unit

__all__ = ["project_left", "store_part", "tiles_of_left"]


def store_part(b: Builder, layout: HeadLayout, name: str, part: int, head: int, block: RowBlock, at: At) -> None:
    """Store a block of a head's keys, values or queries; ``part``: which of these, ``name``: their linear."""
    b.add(Unit.STORE, f"{name}: head {head}", region=stored(HEADS), offset=layout.offset(part, head)
          + block.first * layout.row, stride=layout.row, bytes=layout.row, row=at, row_stride=1, block_stride=b.rows,
          rows=block.part(0, block.rows))


def project_left(b: Builder, ring: Ring, node: Attention, linears: Sequence[Linear], layout: HeadLayout,
                 gates: HeadGates, block: RowBlock, x: Span, writes: Sequence[Callable[[], None]]) -> None:
    """Keys, values and queries of a block of rows, for the heads that are left; behind heads ``writes`` are called."""
    waiting = list(writes)
    for head in range(node.heads):
        lanes = by_heads(np.array([head]), node.head_dim, b.config.dim)
        with gates.head(head):
            for part, linear in enumerate(linears):
                at = At(Buffer(f"{linear.name} {head}", layout.groups * b.rows, Bank.STATE))
                for tile in linear_tiles(b, ring, linear, [x], lanes):
                    store_heads(b, linear, tile, Heads([head], node.head_dim, lambda _, at=at: at, b.rows), None, None)
                store_part(b, layout, linear.name, part, head, block, at)
        if 2 * head >= node.heads and waiting:
            waiting.pop(0)()
    for write in waiting:
        write()


def tiles_of_left(b: Builder, ring: Ring, node: Attention, linear: Linear, contexts: At, lanes: np.ndarray,
                  gates: HeadGates) -> Iterator[Tile]:
    """:func:`gemmule.compiler.kernels.linear.linear_tiles` of contexts of which only those of heads that are left count.
    """
    each = by_heads(np.arange(node.heads), node.head_dim, b.config.dim).reshape(node.heads, -1)
    groups = each.shape[1] // b.config.dim
    spans = [Span(contexts + head * groups * b.rows, b.rows, columns) for head, columns in enumerate(each)]
    return linear_tiles(b, ring, linear, spans, lanes, alone=gates.head)
