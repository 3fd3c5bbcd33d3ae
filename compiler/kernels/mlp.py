"""The inner rows of an MLP: a product through its activation function, times a second product where it is gated.

A function is a table of bytes behind the int8 result; or, for comparison, one of words behind the int16 result, of
which the high plane is the int8 one, or I-BERT's polynomial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gemmule.compiler.ir import DType, Form, Linear, Product
from gemmule.compiler.ir.nodes import Activation
from gemmule.compiler.kernels.constants import TableRows, WordRows
from gemmule.compiler.kernels.epilogue import store, store_gelu
from gemmule.compiler.kernels.layout import Span, in_order
from gemmule.compiler.kernels.linear import Ring, between, linear_tiles
from gemmule.compiler.kernels.spill import spill
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder
from gemmule.isa import ProductFlag, RequantFlag, Unit, VOp

__all__ = ["activated_rows", "inner_rows", "load_table"]


def load_table(b: Builder, node: Activation) -> None:
    """Make a node's table, if it has one, the vector unit's."""
    if node.form is Form.IBERT:
        return
    content, op = (WordRows.of(node, b.config.dim), VOp.WORD_TABLE) if node.form else (TableRows(node), VOp.TABLE)
    rows = At(Buffer(f"{node.name} table", content.size // b.config.dim, Bank.STATE))
    b.load_constants(STATIC, [content], rows, f"{node.name}: table")
    b.add(Unit.VECTOR, f"{node.name}: table", op=op, src0=rows)


def activated_rows(b: Builder, ring: Ring, x: Span, up: Linear, node: Activation,
                   writes: Sequence[Callable[[], None]] = ()) -> Span:
    """``activation(up(x))`` by the table that the vector unit has: int8 rows; ``writes`` as of :func:`between`.

    Behind a table of words they are int16 rows, or the high planes of such.
    """
    lanes = in_order(up.columns, b.config.dim)
    stride = 2 * b.rows if node.form is Form.WORD else b.rows
    inner = At(Buffer(f"{up.name} inner", len(lanes) // b.config.dim * stride, Bank.OPERAND))
    for tile in between(linear_tiles(b, ring, up, [x], lanes), len(lanes) // b.config.dim, writes):
        match node.form:
            case Form.WORD:
                store(b, up, tile, inner, stride, RequantFlag.LOOKUP, RequantFlag.WIDE)
            case Form.IBERT:
                store_gelu(b, up, tile, inner, stride, int(b.network.tensor(node, "shift")[0]))
            case _:
                store(b, up, tile, inner, stride, RequantFlag.LOOKUP)
    if node.type.dtype is DType.INT16:
        spill(b, node.name, inner, 2 * len(lanes) // b.config.dim, b.rows)
        return Span(inner, stride, lanes, wide=True)
    found = Span(inner + (stride - b.rows), stride, lanes)
    spill(b, node.name, found.at, found.groups(b.config.dim), stride)
    return found


def inner_rows(b: Builder, ring: Ring, x: Span, up: Linear, activation: Activation, gate: Linear | None,
               product: Product | None) -> Span:
    """``activation(up(x))``, or ``activation(gate(x)) * up(x)``: int8 or int16 rows."""
    load_table(b, activation)
    if gate is None or product is None:
        return activated_rows(b, ring, x, up, activation)
    lanes, span = in_order(up.columns, b.config.dim), activated_rows(b, ring, x, gate, activation)
    mult, shift = (int(v) for v in np.asarray(b.network.tensor(product, "scale")))
    planes = 2 if span.wide else 1
    flags = {ProductFlag.WIDE} if span.wide else set()
    for tile in linear_tiles(b, ring, up, [x], lanes):
        ups, stride = At(Buffer(f"{up.name} part", planes * tile.groups * b.rows, Bank.STATE)), planes * b.rows
        store(b, up, tile, ups + -tile.first * stride, stride, *([RequantFlag.WIDE] if span.wide else []))
        part = span.at + tile.first * span.stride
        b.add(Unit.VECTOR, f"{product.name}: gate * up", op=VOp.PRODUCT, flags=flags, src0=part,
              src0_stride=span.stride, src1=ups, aux=stride, dst=part, dst_stride=span.stride, m=b.m,
              n=min(tile.groups * b.config.dim, up.columns - tile.first * b.config.dim), mult=mult, shift=shift)
    spill(b, product.name, span.at, planes * span.groups(b.config.dim), span.stride // planes)
    return span
