"""One processing element of the mesh: weight-stationary or output-stationary."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value, signed

__all__ = ["A_BITS", "PE", "SUM_BITS", "PEInputs"]

A_BITS = 9
"""Activations are signed or unsigned bytes, so nine bits, signed."""
SUM_BITS = 32
"""Sums are int32 and wrap, like the accumulator they end in."""


@dataclass(frozen=True)
class PEInputs:
    """What PE(r, c) sees in a cycle. Everything of one wave arrives r + c cycles after its start.

    ``a``, ``psum``: the row's activation from the west, sums from the north. ``outputs``: mode of the
    whole mesh, output-stationary. ``swap``: first row of a tile (weight-stationary). ``move``: the running
    sum is complete, ``take``: the held sum leaves (output-stationary). ``west``, ``north``: weights that
    pass, ``transposed`` chooses. ``capture_row``, ``capture_column``: this PE's weight passes now
    (normal, transposed).
    """

    a: Value
    psum: Value
    outputs: Value
    swap: Value
    move: Value
    take: Value
    west: Value
    north: Value
    transposed: Value
    capture_row: Value
    capture_column: Value


class PE:
    """Multiply-add, one product per cycle, one cycle of latency; the adder serves both dataflows.

    Weight-stationary: the product with the PE's weight is added to the sum that comes from the north.
    The shadow weight is captured while weights of the next tile pass; with the ``swap`` bit of a tile's
    first row the shadow is used at once and becomes active. A capture and a swap may meet in one cycle:
    the swap takes the old shadow.

    Output-stationary: the product with the weight that passes (low byte) is added to the running sum.
    ``move`` brings the running sum to the held one and begins anew with this cycle's product; ``take``
    puts the held sum on its way south. Row 0 is taken in the cycle of its move, so it holds nothing.

    A plain class that adds its registers to the parent's module, because a flat mesh simulates
    faster than one submodule per PE; registers of one dataflow do not toggle in the other.

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
    psum: Signal(signed(32))
        To the south: the sum of rows 0 .. row, or a finished sum on its way.
    passing: Signal(8 * preload)
        To the east and to the south.
    """

    def __init__(self, *, row: int, column: int, preload: int) -> None:
        where = f"{row}_{column}"
        self.row, self.column, self.preload = row, column, preload
        self.a = Signal(signed(A_BITS), name=f"a_{where}", reset_less=True)
        self.psum = Signal(signed(SUM_BITS), name=f"psum_{where}", reset_less=True)
        self.passing = Signal(8 * preload, name=f"pass_{where}", reset_less=True)
        self.shadow = Signal(signed(8), name=f"shadow_{where}", reset_less=True)
        # A REUSE command may read it before any weights came: 0 after a reset.
        self.active = Signal(signed(8), name=f"active_{where}")
        self.running = Signal(signed(SUM_BITS), name=f"running_{where}", reset_less=True)

    def build(self, m: Module, i: PEInputs) -> None:
        """Add the next-state logic to ``m``."""
        where = f"{self.row}_{self.column}"
        weights = Signal(8 * self.preload, name=f"weights_{where}")
        stays = Signal(signed(8), name=f"stays_{where}")
        total = Signal(signed(SUM_BITS), name=f"total_{where}")
        base = Mux(i.outputs, Mux(i.move, 0, self.running), i.psum)
        m.d.comb += [
            weights.eq(Mux(i.transposed, i.west, i.north)),
            stays.eq(Mux(i.swap, self.shadow, self.active)),
            total.eq(base + i.a * Mux(i.outputs, weights[:8].as_signed(), stays)),
        ]
        # The weight's place in its group: normal by row, transposed by column.
        by_row = weights.word_select(self.row % self.preload, 8)
        by_column = weights.word_select(self.column % self.preload, 8)
        held = self.running
        if self.row:
            held = Signal.like(self.running, name=f"held_{where}")
            m.d.sync += held.eq(Mux(i.outputs, Mux(i.move, self.running, held), held))
        # Expressions, not If blocks, with the mesh's mode outside: the simulator joins them to one branch.
        m.d.sync += [
            self.passing.eq(weights),
            self.a.eq(i.a),
            self.psum.eq(Mux(i.outputs, Mux(i.take, held, i.psum), total)),
            self.running.eq(Mux(i.outputs, total, self.running)),
            self.active.eq(stays),
            self.shadow.eq(Mux(i.capture_row, by_row, Mux(i.capture_column, by_column, self.shadow))),
        ]
