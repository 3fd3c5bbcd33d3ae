"""The systolic mesh: DIM x DIM processing elements, flat in one module."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Elaboratable, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.pe import A_BITS, PE, PEInputs, psum_bits

__all__ = ["Mesh"]


class Mesh(wiring.Component):
    """Weight-stationary mesh: activations move east, sums and weights south (weights also east).

    Every edge is skewed (see ``hw/skew.py``): lane i of an edge is i cycles late. One activation row
    and ``preload`` weight rows enter per cycle; column c of a row that enters in cycle x (lane 0)
    leaves in x + DIM + c. No flow control, no reset of data registers needed: tags outside say which
    results are meant.

    Parameters
    ----------
    config: Config

    Members
    -------
    a: In(ArrayLayout(signed(9), DIM))
        West edge, lane = mesh row.
    swap: In(DIM)
        West edge, with the first row of a tile.
    weights: In(ArrayLayout(8 * preload, DIM))
        Weights that pass: enter at the north edge (lane = column) when normal, at the west edge
        (lane = row) when transposed, in both cases lane i in cycle T + item + i.
    transposed: In(DIM)
        West edge, skewed as ``weights``: the direction of the weights of this wave.
    capture_row: In(DIM)
        West edge: row r in T + r // preload + r, normal tiles.
    capture_column: In(DIM)
        North edge: column c in T + c // preload + c, transposed tiles.
    sums: Out(ArrayLayout(signed(16 + log2(DIM)), DIM))
        South edge, lane = column.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        dim = config.dim
        super().__init__({
            "a": In(data.ArrayLayout(signed(A_BITS), dim)),
            "swap": In(dim),
            "weights": In(data.ArrayLayout(8 * config.preload, dim)),
            "transposed": In(dim),
            "capture_row": In(dim),
            "capture_column": In(dim),
            "sums": Out(data.ArrayLayout(signed(psum_bits(dim)), dim)),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        dim, preload = self.config.dim, self.config.preload
        grid = [[PE(row=r, column=c, preload=preload) for c in range(dim)] for r in range(dim)]

        # One-bit controls: bit i of a vector stands in the row's (column's) i-th PE.
        swap = [_wave(m, self.swap[r], dim, f"swap_{r}") for r in range(dim)]
        transposed = [_wave(m, self.transposed[r], dim, f"transposed_{r}") for r in range(dim)]
        capture_row = [_wave(m, self.capture_row[r], dim, f"capture_row_{r}") for r in range(dim)]
        capture_column = [_wave(m, self.capture_column[c], dim, f"capture_column_{c}") for c in range(dim)]

        for r in range(dim):
            for c in range(dim):
                west = grid[r][c - 1] if c else None
                north = grid[r - 1][c] if r else None
                grid[r][c].build(m, PEInputs(
                    a=west.a if west else self.a[r],
                    psum=north.psum if north else C(0),
                    swap=swap[r][c],
                    west=west.passing if west else self.weights[r],
                    north=north.passing if north else self.weights[c],
                    transposed=transposed[r][c],
                    capture_row=capture_row[r][c],
                    capture_column=capture_column[c][r],
                ))
        for c in range(dim):
            m.d.comb += self.sums[c].eq(grid[dim - 1][c].psum)
        return m


def _wave(m: Module, entry: Value, dim: int, name: str) -> Value:
    """A bit that passes one PE per cycle, as seen by PE 0 .. dim - 1."""
    past = Signal(dim - 1, name=name)
    seen = Cat(entry, past)
    m.d.sync += past.eq(seen)
    return seen
