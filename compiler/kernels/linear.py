"""Products with streamed weights: chunks of columns through a ring of buffers, sums in the accumulator.

A chunk is as many column groups as a ring slot takes at whole depth; where not even one does, its depth comes in pieces
that accumulate. Each chunk is one load, so loads are long and commands few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Linear
from gemmule.compiler.kernels.constants import ColumnRows, PackedWeights
from gemmule.compiler.kernels.layout import Span
from gemmule.compiler.kernels.virtual import (
    HEAD_WEIGHTS,
    NO_DYN,
    STATIC,
    WEIGHTS,
    At,
    Bank,
    Buffer,
    Builder,
    rotation,
)
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.place import Cut, cut_evenly
from gemmule.isa import Dyn, Length, MatrixFlag, Unit
from gemmule.timing import ceil_div

__all__ = ["Piece", "Ring", "Tile", "between", "linear_tiles", "multiply"]


MOST_OFFSET = (1 << 32) - 1
"""Of a command's DRAM rows from where its base register points."""


class Ring:
    """Buffers of equal size through which all weights stream, one after another."""

    def __init__(self, slots: int, rows: int, align: int, acc_rows: int, parameter_rows: int, *,
                 wide: bool = False) -> None:
        """``acc_rows``: accumulator rows that a tile may take; ``parameter_rows``: of parameters loaded together.

        ``wide``: tiles are as wide as these rows allow, of several chunks; else each chunk is a tile.
        """
        self.rows, self.acc_rows, self.parameter_rows, self.wide = rows, acc_rows, parameter_rows, wide
        self.slots = tuple(Buffer(f"weights{i}", rows, Bank.STREAM, align) for i in range(slots))
        self._next = rotation(self.slots)

    def rewind(self) -> None:
        """Begin again with the first buffer."""
        self._next = rotation(self.slots)

    def take(self) -> Buffer:
        """The buffer whose content is oldest."""
        return next(self._next)


@dataclass(frozen=True)
class Tile:
    """Sums of consecutive column groups, which the caller takes from the accumulator."""

    acc: At
    stride: int
    """Accumulator rows from a group to the next."""
    first: int
    """First lane group."""
    groups: int
    parameters: At
    """Column parameters of the first group."""
    high: tuple[At, At] | None = None
    """Of an int16 input: sums of the high plane, and their column parameters; ``acc`` has those of the low one."""


@dataclass(frozen=True)
class Piece:
    """A product's part of the depth: tiles ``first`` .. of a span."""

    span: Span
    first: int
    tiles: int


def linear_tiles(b: Builder, ring: Ring, node: Linear, spans: Sequence[Span], lanes: np.ndarray, *,
                 m: Length | None = None, dyn: tuple[Dyn, int, int] = NO_DYN, last: bool = False,
                 high: Linear | None = None) -> Iterator[Tile]:
    """Write the product of ``spans`` with all columns of ``lanes``, tile by tile; the caller takes each tile's sums.

    ``m`` and ``dyn``: rows of A, and which are the first. ``last``: nothing follows, so the last chunks become smaller
    and smaller: a pass ends soon after its last weights. ``high``: the product of the high planes of an int16 value,
    with the same weights, which each tile then has too.

    Raises:
        CompileError: not one column group at the smallest depth fits a ring slot.
    """
    config, dim = b.config, b.config.dim
    form = WeightFormat(bits=node.bits, group=_device_group(node, spans, dim))
    form.check(config)
    whole = sum(form.rows(config, span.groups(dim)) for span in spans)
    stride = (2 if high else 1) * b.rows  # accumulator rows of a column group: those of the high plane behind
    total, most = len(lanes) // dim, max(1, ring.acc_rows // stride)
    groups = min(most, ring.rows // whole) or 1
    pieces = _pieces(spans, form, b, ring.rows) if whole > ring.rows else [
        [Piece(span, 0, span.groups(dim)) for span in spans]]
    if not pieces:
        raise CompileError(
            f"{node.name}: a ring slot of {ring.rows} rows must hold one tile of weights, {form.rows(config, 1)} rows: "
            "use a larger scratchpad (spm_kib)")
    scaled = [node, *([high] if high else [])]
    rows, tile = [ColumnRows.rows(part) for part in scaled], most if ring.wide else groups
    for block_first, block in _blocks(total, tile, max(tile, ring.parameter_rows // sum(rows))):
        parameters = Buffer(f"{node.name} parameters", sum(rows) * block, Bank.STATE)
        columns = lanes[block_first * dim:(block_first + block) * dim]
        b.load_constants(STATIC, [ColumnRows.of(part, columns) for part in scaled], At(parameters),
                         f"{node.name}: parameters")
        ends = last and block_first + block == total
        for at, count in _tapered(block, tile) if ends else cut_evenly(block, ceil_div(block, tile)):
            first = block_first + at
            acc = At(Buffer(f"{node.name} sums", count * stride, Bank.ACCUMULATOR))
            for begin in range(0, count, groups):
                columns = lanes[(first + begin) * dim:(first + min(begin + groups, count)) * dim]
                for number, piece in enumerate(pieces):
                    multiply(b, ring, node, form, piece, columns, acc + begin * stride, stride, number > 0,
                              b.m if m is None else m, dyn)
            behind = At(parameters, block * rows[0] + at * rows[-1])
            yield Tile(acc, stride, first, count, At(parameters, at * rows[0]),
                       (acc + b.rows, behind) if high else None)


def between(tiles: Iterable[Tile], columns: int, writes: Sequence[Callable[[], None]]) -> Iterator[Tile]:
    """The tiles of a product of so many column groups; behind each of the second half one of ``writes`` is called.

    Loads for what follows go there, piece by piece: early enough, late enough not to keep weights waiting until rows
    are free, and with weights between them.
    """
    left, waiting = ceil_div(columns, 2), list(writes)
    for tile in tiles:
        yield tile
        left -= tile.groups
        if left <= 0 and waiting:
            waiting.pop(0)()
    for write in waiting:
        write()


def _device_group(node: Linear, spans: Sequence[Span], dim: int) -> int:
    """Depth that shares a scale on the device: the network's group where lanes are in order, else one tile's."""
    if not node.group:
        return 0
    plain = len(spans) == 1 and np.array_equal(spans[0].columns[:node.depth], np.arange(node.depth))
    return node.group if plain and node.group % dim == 0 else dim


def _blocks(total: int, groups: int, most: int) -> Iterator[Cut]:
    """Blocks of column groups that share a load of parameters, in whole chunks."""
    size = max(groups, most // groups * groups)
    for first in range(0, total, size):
        yield first, min(size, total - first)


def _tapered(total: int, most: int) -> Iterator[Cut]:
    """Chunks of ``most`` groups; the last ones each take half of what is left."""
    first = 0
    while first < total:
        left = total - first
        count = most if left >= 2 * most else ceil_div(left, 2)
        yield first, count
        first += count


def _pieces(spans: Sequence[Span], form: WeightFormat, b: Builder, rows: int) -> list[list[Piece]]:
    """Each span's depth in nearly equal parts that fit ``rows``; empty when a tile does not."""
    config, step = b.config, form.tiles(b.config)
    found: list[list[Piece]] = []
    for span in spans:
        tiles = span.groups(config.dim)
        most = max((n for n in range(step, tiles + step, step) if form.rows(config, n) <= rows), default=0)
        if not most:
            return []
        units = ceil_div(tiles, step)
        for first, count in cut_evenly(units, ceil_div(units, most // step)):
            found.append([Piece(span, first * step, min(count * step, tiles - first * step))])
    return found


def multiply(b: Builder, ring: Ring, node: Linear, form: WeightFormat, pieces: Sequence[Piece], columns: np.ndarray,
              acc: At, stride: int, more: bool, m: Length, dyn: tuple[Dyn, int, int]) -> None:
    """Load the weights of some depth of a chunk and multiply; ``stride``: accumulator rows of a column group."""
    config, dim = b.config, b.config.dim
    slot, groups = ring.take(), len(columns) // dim
    tiles = [PackedWeights(node, columns, piece.span.columns[piece.first * dim:(piece.first + piece.tiles) * dim], form,
                     form.rows(config, piece.tiles) * groups * dim) for piece in pieces]
    far = node.layer is None and b.sizes.get(WEIGHTS, 0) + node.columns * node.depth > MOST_OFFSET
    b.load_constants(HEAD_WEIGHTS if far else WEIGHTS, tiles, At(slot), f"{node.name}: weights")
    shared = ({MatrixFlag.B_INT4} if form.bits == 4 else set()) | ({MatrixFlag.GROUP_SCALES} if form.group else set())
    at = 0
    for piece, tile in zip(pieces, tiles, strict=True):
        rows, span = form.rows(config, piece.tiles), piece.span
        parts = [(0, 0, m)] if span.pitch is None else [
            (i * span.pitch, i * b.each, b.m_each) for i in range(b.batch)]
        planes = [(0, 0, {MatrixFlag.A_UNSIGNED}), (span.stride // 2, b.rows, set())] if span.wide else [(0, 0, set())]
        for (from_plane, to_plane, sign), (from_row, to_row, part) in product(planes, parts):
            b.add(Unit.MATRIX, f"{node.name}: {groups} groups",
                  flags=shared | sign | ({MatrixFlag.ACCUMULATE} if more or at else set()), dyn=dyn,
                  a_row=span.at + piece.first * span.stride + from_plane + from_row, a_stride=span.stride,
                  b_row=At(slot, at), b_stride=rows, c_row=acc + to_plane + to_row, c_stride=stride, m=part,
                  n=groups * dim, k=len(tile.depth), group=form.tiles(config).bit_length() - 1 if form.group else 0)
        at += rows * groups
