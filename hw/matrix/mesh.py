"""The systolic mesh: DIM x DIM processing elements, flat in one module."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import C, Cat, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.matrix.pe import A_BITS, PE, SUM_BITS, PEInputs

__all__ = ["Mesh"]


class Mesh(wiring.Component):
    """Systolic mesh: activations and weights move east, sums and weights south.

    Every edge is skewed (see ``hw/matrix/skew.py``): lane i of an edge is i cycles late. One activation row and
    ``preload`` weight rows enter per cycle. Weight-stationary, column c of a row that enters in cycle x
    (lane 0) leaves in x + DIM + c. Output-stationary, PE(r, c) sums products of the activations of its
    row and the weights of its column; the sums that end with the products of x - 1 (lane 0) leave column
    c in x + DIM + r + c for rows r = 0 .. DIM - 1: every PE holds its sum until the rows of a column can
    be joined with "or", one row per cycle. A block has at least DIM products. No flow control, no reset of
    data registers needed: tags outside say which results are meant.

    Parameters
    ----------
    config: Config

    Members
    -------
    outputs: In(1)
        Output-stationary, else weight-stationary; changes while nothing is on its way, two cycles before the next
        activation at least.
    a: In(ArrayLayout(signed(9), DIM))
        West edge, lane = mesh row; -128 .. 255.
    swap: In(DIM)
        West edge, weight-stationary: one cycle before the first row of a tile.
    end: In(DIM)
        West edge, output-stationary: with the last products of a block.
    weights: In(ArrayLayout(8 * preload, DIM))
        Weights that pass, from the north edge (lane = column) and the west edge (lane = row): lane i in
        cycle T + item + i. Output-stationary: one weight, in the low byte, from the north.
    capture_row: In(DIM)
        West edge: row r in T + r // preload + r, normal tiles, from the north.
    capture_column: In(DIM)
        North edge: column c in T + c // preload + c, transposed tiles, from the west.
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
            "end": In(dim),
            "weights": In(data.ArrayLayout(8 * config.preload, dim)),
            "capture_row": In(dim),
            "capture_column": In(dim),
            "sums": Out(data.ArrayLayout(signed(SUM_BITS), dim)),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        dim, preload = self.config.dim, self.config.preload
        grid = [[PE(row=r, column=c, dim=dim, preload=preload) for c in range(dim)] for r in range(dim)]
        joined = [_joined(m, [grid[r][c].result for r in range(dim)], self.outputs, f"joined_{c}") for c in range(dim)]
        wait = dim - joined[0][1]  # from the end of a sum to its take

        # One-bit controls: bit i of a vector stands in the row's (column's) i-th PE.
        swap, capture_row, capture_column = (
            [_wave(m, edge[i], f"{name}_{i}", dim) for i in range(dim)] for name, edge in (
                ("swap", self.swap), ("capture_row", self.capture_row), ("capture_column", self.capture_column)))
        # The weight to multiply with hangs on the dataflow: a register a PE, so that no wire spans the mesh.
        rows = _wave(m, self.outputs, "dataflow", dim + 1)
        dataflow = [_wave(m, rows[r + 1], f"dataflow_{r}", dim) for r in range(dim)]
        corner = 2 * dim  # cycles after which what enters at row and column 0 has passed the whole mesh, at least
        swapping = _under_way(m, self.swap[0], corner, "swapping")
        moving = self.outputs | _under_way(
            m, self.capture_row[0] | self.capture_column[0], corner + dim // preload, "moving")
        end = [_wave(m, self.end[r], f"end_{r}", wait + dim) for r in range(dim)]

        # Weights pass in one register a row (a column): one statement of the simulator, not DIM.
        east, south = (
            [_passing(m, self.weights[i], moving, dim, f"{name}_{i}") for i in range(dim)]
            for name in ("east", "south"))

        for r in range(dim):
            for c in range(dim):
                west = grid[r][c - 1] if c else None
                north = grid[r - 1][c] if r else None
                grid[r][c].build(m, PEInputs(
                    a=west.a if west else self.a[r],
                    psum=_widened(north.running, grid[r][c].bits) if north else C(0, grid[r][c].bits),
                    outputs=self.outputs,
                    dataflow=dataflow[r][c],
                    moving=moving,
                    swapping=swapping,
                    swap=swap[r][c],
                    end=end[r][c],
                    take=end[r][wait + c],
                    west=east[r].word_select(c, 8 * preload),
                    north=south[c].word_select(r, 8 * preload),
                    capture_row=capture_row[r][c],
                    capture_column=capture_column[c][r],
                ))
        for c in range(dim):
            m.d.comb += self.sums[c].eq(Mux(
                self.outputs, _either(joined[c][0]), _widened(grid[dim - 1][c].running, SUM_BITS)))
        return m


def _widened(running: Signal, bits: int) -> Value:
    """A signed sum of a column, as unsigned with ``bits`` bits."""
    return Cat(running, running[-1].replicate(bits - len(running)))


def _passing(m: Module, entry: Value, enable: Value, places: int, name: str) -> Value:
    """What enters moves on by one PE a cycle, while ``enable`` is 1; as seen by PE 0 .. ``places`` - 1."""
    past = Signal(len(entry) * (places - 1), name=name, reset_less=True)
    seen = Cat(entry, past)
    m.d.sync += past.eq(Mux(enable, seen[:len(past)], past))
    return seen


def _either(parts: list[Signal]) -> Value:
    return reduce(or_, parts)


def _joined(m: Module, parts: list[Signal], enable: Value, name: str) -> tuple[list[Signal], int]:
    """At most two signals whose "or" is that of ``parts`` some cycles ago, and these cycles; registers of four each."""
    cycles = 0
    while len(parts) > 2:
        cycles += 1
        sums = [Signal(SUM_BITS, name=f"{name}_{cycles}_{i}", reset_less=True) for i in range(-(-len(parts) // 4))]
        m.d.sync += [
            total.eq(Mux(enable, _either(parts[4 * i:4 * i + 4]), total)) for i, total in enumerate(sums)]
        parts = sums
    return parts, cycles


def _under_way(m: Module, entry: Value, cycles: int, name: str) -> Signal:
    """Whether ``entry`` is 1 or was so in one of the last ``cycles`` cycles."""
    busy, left = Signal(name=name), Signal(range(cycles + 1), name=f"{name}_left")
    m.d.comb += busy.eq(entry | left.any())
    m.d.sync += left.eq(Mux(entry, cycles, Mux(left.any(), left - 1, 0)))
    return busy


def _wave(m: Module, entry: Value, name: str, cycles: int) -> Value:
    """A bit that passes one PE per cycle, as seen by PE 0 .. and after that."""
    past = Signal(cycles - 1, name=name)
    seen = Cat(entry, past)
    m.d.sync += past.eq(seen)
    return seen
