"""One processing element of the mesh: weight-stationary or output-stationary."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.utils import ceil_log2

__all__ = ["A_BITS", "PE", "SUM_BITS", "PEInputs", "column_bits"]

A_BITS = 9
"""Activations are signed or unsigned bytes, -128 .. 255, so nine bits, signed."""
SUM_BITS = 32
"""Sums are int32 and wrap, like the accumulator they end in."""


def column_bits(rows: int) -> int:
    """Bits of a signed sum of ``rows`` products of an activation and an int8 weight."""
    return 16 + ceil_log2(max(1, rows))  # rows * 255 * 128 < rows * 2**15


@dataclass(frozen=True)
class PEInputs:
    """What PE(r, c) sees in a cycle. Everything of one wave arrives r + c cycles after its start.

    ``a``, ``psum``: the row's activation from the west, sums from the north. ``outputs``: mode of the
    whole mesh, output-stationary. ``dataflow``: the same mode, one cycle later and then with the wave, for the choice
    of the weight. ``moving``, ``swapping``: weights pass, or a swap is on its way, somewhere
    in the mesh; else their registers hold. ``swap``: the cycle before a tile's first row (weight-stationary).
    ``end``: this cycle's product completes the running sum, ``take``: the held sum leaves
    (output-stationary). ``west``, ``north``: weights that pass, in registers of the mesh. ``capture_row``,
    ``capture_column``: this PE's weight passes now (normal: from the north, transposed: from the west).
    """

    a: Value
    psum: Value
    outputs: Value
    dataflow: Value
    moving: Value
    swapping: Value
    swap: Value
    end: Value
    take: Value
    west: Value
    north: Value
    capture_row: Value
    capture_column: Value


class PE:
    """Multiply-add, one product per cycle, one cycle of latency; the adder serves both dataflows.

    Weight-stationary: the product with the PE's weight is added to the sum that comes from the north.
    The shadow weight is captured while weights of the next tile pass; ``swap``, in the cycle before a
    tile's first row, makes it the active one, also when it is captured in that very cycle. That may
    happen in the PEs of the last item of a tile only, so the others have no path for it.

    Output-stationary: the product with the weight that passes from the north (low byte) is added to the
    running sum. ``end`` brings the sum to the held one and begins anew with the next product; ``take``
    shows the held sum for one cycle.

    A plain class that adds its registers to the parent's module, because a flat mesh simulates
    faster than one submodule per PE; what has nothing to do holds, in one branch for the mesh.

    Parameters
    ----------
    row, column, dim: int
        Place in the mesh, and its size.
    preload: int
        Weights that pass per cycle.

    Attributes
    ----------
    a: Signal(signed(9))
        To the east.
    running: Signal(column_bits(row + 1))
        Weight-stationary: to the south, the sum of rows 0 .. row. Output-stationary: with ``upper`` the running sum.
    result: Signal(32)
        A finished sum in the cycle after ``take``, else 0.
    """

    def __init__(self, *, row: int, column: int, dim: int, preload: int) -> None:
        where = f"{row}_{column}"
        self.row, self.column, self.preload = row, column, preload
        self.last_item = max(row, column) >= dim - preload
        self.a = Signal(signed(A_BITS), name=f"a_{where}", reset_less=True)
        self.bits = column_bits(row + 1)
        self.running = Signal(self.bits, name=f"running_{where}", reset_less=True)
        self.upper = Signal(SUM_BITS - self.bits, name=f"upper_{where}", reset_less=True)
        self.held = Signal(SUM_BITS, name=f"held_{where}", reset_less=True)
        self.result = Signal(SUM_BITS, name=f"result_{where}", reset_less=True)
        self.shadow = Signal(8, name=f"shadow_{where}", reset_less=True)
        # A REUSE command may read it before any weights came: 0 after a reset.
        self.active = Signal(8, name=f"active_{where}")

    def build(self, m: Module, i: PEInputs) -> None:
        """Add the next-state logic to ``m``."""
        where = f"{self.row}_{self.column}"
        bits = self.bits
        product = Signal(signed(A_BITS + 8), name=f"product_{where}")
        total = Signal(SUM_BITS, name=f"total_{where}")
        passing = Signal(8, name=f"passing_{where}")
        # The weight's place in its group: normal by row, transposed by column.
        by_row = i.north.word_select(self.row % self.preload, 8)
        by_column = i.west.word_select(self.column % self.preload, 8)
        captured = i.capture_row | i.capture_column
        newest = Mux(captured, passing, self.shadow) if self.last_item else self.shadow
        m.d.comb += [
            product.eq(i.a * Mux(i.dataflow, i.north[:8], self.active).as_signed()),
            # Unsigned, as all that a sum is chosen with: less to extend. A weight-stationary sum has no upper bits.
            total.eq(Cat(Mux(i.outputs, self.running, i.psum), self.upper) + _extended(product)),
            passing.eq(Mux(i.capture_row, by_row, by_column)),
        ]
        # Expressions, not If blocks, with a condition of the mesh outside: the simulator joins them to one branch.
        m.d.sync += [
            self.shadow.eq(Mux(i.moving, Mux(captured, passing, self.shadow), self.shadow)),
            self.active.eq(Mux(i.swapping, Mux(i.swap, newest, self.active), self.active)),
            self.a.eq(i.a),
            self.running.eq(Mux(i.outputs, Mux(i.end, 0, total[:bits]), total[:bits])),
            self.upper.eq(Mux(i.outputs, Mux(i.end, 0, total[bits:]), self.upper)),
            self.held.eq(Mux(i.outputs, Mux(i.end, total, self.held), self.held)),
            self.result.eq(Mux(i.outputs, Mux(i.take, self.held, 0), self.result)),
        ]


def _extended(value: Value) -> Value:
    """The bits of a signed value as those of a sum."""
    return Cat(value, value[-1].replicate(SUM_BITS - len(value)))
