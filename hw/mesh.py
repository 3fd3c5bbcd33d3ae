"""The systolic mesh: DIM x DIM processing elements, flat in one module."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Elaboratable, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.pe import A_BITS, PE, SUM_BITS, PEInputs

__all__ = ["Mesh"]


class Mesh(wiring.Component):
    """Systolic mesh: activations move east, sums and weights south (weights also east).

    Every edge is skewed (see ``hw/skew.py``): lane i of an edge is i cycles late. One activation row and
    ``preload`` weight rows enter per cycle. Weight-stationary, column c of a row that enters in cycle x
    (lane 0) leaves in x + DIM + c. Output-stationary, PE(r, c) sums products of the activations of its
    row and the weights of its column; when ``move`` and ``take`` begin in cycle x, the sums that end with
    the products of x - 1 leave column c in x + DIM + r + c for rows r = 0 .. DIM - 1. No flow control, no
    reset of data registers needed: tags outside say which results are meant.

    Parameters
    ----------
    config: Config

    Members
    -------
    outputs: In(1)
        Output-stationary, else weight-stationary; changes while nothing is on its way.
    a: In(ArrayLayout(signed(9), DIM))
        West edge, lane = mesh row.
    swap: In(DIM)
        West edge, weight-stationary: with the first row of a tile.
    move: In(DIM)
        West edge, output-stationary: with the first products of a block.
    take: In(DIM)
        West edge, output-stationary: row r is 2 * r cycles late.
    weights: In(ArrayLayout(8 * preload, DIM))
        Weights that pass: enter at the north edge (lane = column) when normal, at the west edge
        (lane = row) when transposed, in both cases lane i in cycle T + item + i. Output-stationary:
        one weight, in the low byte, from the north.
    transposed: In(DIM)
        West edge, skewed as ``weights``: the direction of the weights of this wave.
    capture_row: In(DIM)
        West edge: row r in T + r // preload + r, normal tiles.
    capture_column: In(DIM)
        North edge: column c in T + c // preload + c, transposed tiles.
    sums: Out(ArrayLayout(signed(32), DIM))
        South edge, lane = column.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        dim = config.dim
        super().__init__({
            "outputs": In(1),
            "a": In(data.ArrayLayout(signed(A_BITS), dim)),
            "swap": In(dim),
            "move": In(dim),
            "take": In(dim),
            "weights": In(data.ArrayLayout(8 * config.preload, dim)),
            "transposed": In(dim),
            "capture_row": In(dim),
            "capture_column": In(dim),
            "sums": Out(data.ArrayLayout(signed(SUM_BITS), dim)),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        dim, preload = self.config.dim, self.config.preload
        grid = [[PE(row=r, column=c, preload=preload) for c in range(dim)] for r in range(dim)]

        # One-bit controls: bit i of a vector stands in the row's (column's) i-th PE.
        swap, move, take, transposed, capture_row, capture_column = (
            [_wave(m, edge[i], f"{name}_{i}", dim) for i in range(dim)] for name, edge in (
                ("swap", self.swap), ("move", self.move), ("take", self.take), ("transposed", self.transposed),
                ("capture_row", self.capture_row), ("capture_column", self.capture_column)))

        for r in range(dim):
            for c in range(dim):
                west = grid[r][c - 1] if c else None
                north = grid[r - 1][c] if r else None
                grid[r][c].build(m, PEInputs(
                    a=west.a if west else self.a[r],
                    psum=north.psum if north else C(0),
                    outputs=self.outputs,
                    swap=swap[r][c],
                    move=move[r][c],
                    take=take[r][c],
                    west=west.passing if west else self.weights[r],
                    north=north.passing if north else self.weights[c],
                    transposed=transposed[r][c],
                    capture_row=capture_row[r][c],
                    capture_column=capture_column[c][r],
                ))
        for c in range(dim):
            m.d.comb += self.sums[c].eq(grid[dim - 1][c].psum)
        return m


def _wave(m: Module, entry: Value, name: str, dim: int) -> Value:
    """A bit that passes one PE per cycle, as seen by PE 0 .. dim - 1."""
    past = Signal(dim - 1, name=name)
    seen = Cat(entry, past)
    m.d.sync += past.eq(seen)
    return seen
