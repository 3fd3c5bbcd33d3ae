"""Picture of the mesh's skew: which element each PE sees in which cycle, weight-stationary, DIM 4."""

from __future__ import annotations

from gemmule.sw.pages.svg import Drawing

__all__ = ["enters", "leaves", "mesh_svg", "sees"]

DIM = 4
ROWS = 4
"""Rows of A that are drawn."""
NOW = 3
"""The cycle of the snapshot; row 0 of A enters lane 0 in cycle 0."""
_CELL, _STEP = 46, 62
_SHADES = ("#0550ae", "#1a7f37", "#9a6700", "#8250df")
"""A colour for each row of A."""


def enters(row: int, lane: int) -> int:
    """Cycle in which element ``lane`` of a row of A is at the west edge: lane k is k cycles late."""
    return row + lane


def sees(row: int, r: int, c: int) -> int:
    """Cycle in which PE(r, c) multiplies element r of a row of A with its weight."""
    return enters(row, r) + c


def leaves(row: int, column: int) -> int:
    """Cycle in which a row's sum is at the south edge of a column."""
    return row + DIM + column


def _element(d: Drawing, x: float, y: float, text: str, row: int) -> None:
    d.parts.append(f'<rect x="{x:g}" y="{y:g}" width="38" height="20" rx="3" '
                   f'style="fill:#fff;stroke:{_SHADES[row % len(_SHADES)]};stroke-width:1.6"/>')
    d.text(x + 19, y + 14, text, "t")


def mesh_svg() -> str:
    """The figure."""
    d = Drawing(1000, 440, "The systolic mesh, DIM 4, weight-stationary: elements in flight")
    d.text(20, 28, f"Cycle {NOW}: what is in the mesh, and what waits outside", "h")
    left, top = 258.0, 96.0
    d.text(20, 54, "Weights b[k][n] stand in the PEs; the next tile's pass from the north into shadow registers.",
           "s l")
    for c in range(DIM):
        d.arrow((left + c * _STEP + _CELL / 2, 70), (left + c * _STEP + _CELL / 2, top), kind="thin")
        d.text(left + c * _STEP + _CELL / 2 + 5, 84, f"n = {c}", "t l")
    for r in range(DIM):
        y = top + r * _STEP
        # Rows that have still to enter this lane, the next one nearest to the mesh.
        waiting = [row for row in range(ROWS) if enters(row, r) > NOW]
        for row in waiting:
            _element(d, left - 50 - 42 * (enters(row, r) - NOW), y + 13, f"a[{row}][{r}]", row)
        d.arrow((left - 46, y + _CELL / 2), (left, y + _CELL / 2), kind="spm")
        d.text(left - 24, y + _CELL / 2 - 6, f"k = {r}", "t")
        for c in range(DIM):
            x = left + c * _STEP
            d.box(x, y, _CELL, _CELL, "unit", name=f"pe-{r}-{c}", radius=3)
            d.text(x + _CELL / 2, y + 41, f"b[{r}][{c}]", "t")
            for row in range(ROWS):
                if sees(row, r, c) == NOW:
                    _element(d, x + 4, y + 6, f"a[{row}][{r}]", row)
            if c + 1 < DIM:
                d.arrow((x + _CELL, y + _CELL / 2), (x + _STEP, y + _CELL / 2), kind="spm")
            d.arrow((x + _CELL / 2, y + _CELL), (x + _CELL / 2, y + _STEP), kind="acc")
    bottom = top + DIM * _STEP
    for c in range(DIM):
        x = left + c * _STEP + _CELL / 2
        d.text(x, bottom + 13, f"c[0][{c}]", "s")
        d.text(x, bottom + 27, f"cycle {leaves(0, c)}", "t")
        d.text(x, bottom + 40, f"c[1][{c}]: {leaves(1, c)}", "t")
    d.text(left - 60, bottom + 13, "sums leave", "s r")
    d.text(left - 60, bottom + 27, "the south edge in", "s r")
    # Right: the cycles of row 0, diagonal by diagonal.
    right = 610.0
    d.text(right, 28, "Row m of A: cycles after it enters lane 0", "h")
    for r in range(DIM):
        for c in range(DIM):
            x, y, first = right + c * _STEP, top + r * _STEP, sees(0, r, c)
            shade = 245 - 22 * first
            d.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{_CELL}" height="{_CELL}" rx="3" '
                           f'style="fill:rgb({shade},{min(255, shade + 8)},255);stroke:#0969da"/>')
            d.text(x + _CELL / 2, y + 28, f"m + {first}" if first else "m", "s")
    for c in range(DIM):
        d.text(right + c * _STEP + _CELL / 2, bottom + 2, f"m + {leaves(0, c)}", "s")
    d.text(right + 4 * _STEP, bottom + 2, "sum leaves", "s l")
    for i, line in enumerate((
            "PE(r, c) multiplies a[m][r] with b[r][c] in cycle m + r + c;",
            "activations move east, sums south, one PE a cycle.",
            f"Column c's sum leaves in cycle m + {DIM} + c, so M rows take",
            f"M + {2 * DIM - 1} cycles; the next tile's rows follow without a gap.")):
        d.text(right, bottom + 38 + 17 * i, line, "s l")
    for row in range(ROWS):
        _element(d, 24, bottom + 32 - 24 * (ROWS - row), f"row {row}", row)
    return d.svg()
