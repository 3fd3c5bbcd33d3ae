"""The inner rows of an MLP: a product through the activation table, times a second product where it is gated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gemmule.compiler.ir import Linear, Product
from gemmule.compiler.ir.nodes import Activation
from gemmule.compiler.kernels.constants import TableRows
from gemmule.compiler.kernels.epilogue import store
from gemmule.compiler.kernels.layout import Span, in_order
from gemmule.compiler.kernels.linear import Ring, between, linear_tiles
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder
from gemmule.isa import RequantFlag, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["activated_rows", "inner_rows", "load_table"]


def load_table(b: Builder, node: Activation) -> None:
    """Make a node's byte table the vector unit's."""
    rows = At(Buffer(f"{node.name} table", ceil_div(256, b.config.dim), Bank.STATE))
    b.load_constants(STATIC, [TableRows(node)], rows, f"{node.name}: table")
    b.add(Unit.VECTOR, f"{node.name}: table", op=VOp.TABLE, src0=rows)


def activated_rows(b: Builder, ring: Ring, x: Span, up: Linear,
                   writes: Sequence[Callable[[], None]] = ()) -> Span:
    """``activation(up(x))`` by the table that the vector unit has: int8 rows; ``writes`` as of :func:`between`."""
    lanes = in_order(up.columns, b.config.dim)
    inner = At(Buffer(f"{up.name} inner", len(lanes) // b.config.dim * b.rows, Bank.OPERAND))
    for tile in between(linear_tiles(b, ring, up, [x], lanes), len(lanes) // b.config.dim, writes):
        store(b, up, tile, inner, b.rows, RequantFlag.LOOKUP)
    return Span(inner, b.rows, lanes)


def inner_rows(b: Builder, ring: Ring, x: Span, up: Linear, activation: Activation, gate: Linear | None,
               product: Product | None) -> Span:
    """``activation(up(x))``, or ``activation(gate(x)) * up(x)``: int8 rows."""
    load_table(b, activation)
    if gate is None or product is None:
        return activated_rows(b, ring, x, up)
    lanes, span = in_order(up.columns, b.config.dim), activated_rows(b, ring, x, gate)
    inner = span.at
    mult, shift = (int(v) for v in np.asarray(b.network.tensor(product, "scale")))
    for tile in linear_tiles(b, ring, up, [x], lanes):
        ups = At(Buffer(f"{up.name} part", tile.groups * b.rows, Bank.STATE))
        store(b, up, tile, ups + -tile.first * b.rows, b.rows)
        part = inner + tile.first * b.rows
        b.add(Unit.VECTOR, f"{product.name}: gate * up", op=VOp.PRODUCT, src0=part, src0_stride=b.rows, src1=ups,
              aux=b.rows, dst=part, dst_stride=b.rows, m=b.m,
              n=min(tile.groups * b.config.dim, up.columns - tile.first * b.config.dim), mult=mult, shift=shift)
    return span
