"""One processing element of the weight-stationary mesh."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value, signed

__all__ = ["PE", "PEInputs", "psum_bits"]

A_BITS = 9
"""Activations are signed or unsigned bytes, so nine bits, signed."""


def psum_bits(rows: int) -> int:
    """Bits of the signed sum of ``rows`` products: one is at most 255 * 128 < 2**15 in size."""
    return 16 + (rows - 1).bit_length()


@dataclass(frozen=True)
class PEInputs:
    """What PE(r, c) sees in a cycle. Everything of one wave arrives r + c cycles after its start.

    ``a``, ``psum``: the row's activation from the west, its sum from the north. ``swap``: first row of
    a tile. ``west``, ``north``: weights that pass, ``transposed`` chooses. ``capture_row``,
    ``capture_column``: this PE's weight passes now (normal, transposed).
    """

    a: Value
    psum: Value
    swap: Value
    west: Value
    north: Value
    transposed: Value
    capture_row: Value
    capture_column: Value


class PE:
    """Multiply-add with a double-buffered weight, one row per cycle, one cycle of latency.

    A plain class that adds its registers to the parent's module, because a flat mesh simulates
    faster than one submodule per PE. The shadow weight is captured while weights of the next tile pass;
    with the ``swap`` bit of a tile's first row the shadow is used at once and becomes active. A capture
    and a swap may meet in one cycle: the swap takes the old shadow.

    Parameters
    ----------
    row, column: int
        Place in the mesh.
    preload: int
        Weights that pass per cycle.

    Attributes
    ----------
    a: Signal(signed(9))
        To the east.
    psum: Signal(signed)
        To the south: the sum of rows 0 .. row.
    passing: Signal(8 * preload)
        To the east and to the south.
    """

    def __init__(self, *, row: int, column: int, preload: int) -> None:
        where = f"{row}_{column}"
        self.row, self.column, self.preload = row, column, preload
        self.a = Signal(signed(A_BITS), name=f"a_{where}", reset_less=True)
        self.psum = Signal(signed(psum_bits(row + 1)), name=f"psum_{where}", reset_less=True)
        self.passing = Signal(8 * preload, name=f"pass_{where}", reset_less=True)
        self.shadow = Signal(signed(8), name=f"shadow_{where}", reset_less=True)
        self.active = Signal(signed(8), name=f"active_{where}", reset_less=True)

    def build(self, m: Module, i: PEInputs) -> None:
        """Add the next-state logic to ``m``."""
        where = f"{self.row}_{self.column}"
        weights = Signal(8 * self.preload, name=f"weights_{where}")
        weight = Signal(signed(8), name=f"weight_{where}")
        m.d.comb += weights.eq(Mux(i.transposed, i.west, i.north))
        m.d.comb += weight.eq(Mux(i.swap, self.shadow, self.active))
        # The weight's place in its group: normal by row, transposed by column.
        by_row = weights.word_select(self.row % self.preload, 8)
        by_column = weights.word_select(self.column % self.preload, 8)
        m.d.sync += [
            self.passing.eq(weights),
            self.active.eq(weight),
            self.a.eq(i.a),
            self.psum.eq(i.psum + i.a * weight),
        ]
        with m.If(i.capture_row):
            m.d.sync += self.shadow.eq(by_row)
        with m.Elif(i.capture_column):
            m.d.sync += self.shadow.eq(by_column)
