"""The general program's answers: the residual stream as it is, logits in DRAM, greedy tokens, and what is made of them.

Logits of the answered rows go to DRAM where they are wanted, or where more is made of them: the largest ones
(:mod:`gemmule.compiler.kernels.head.top`) and the sums of their exponents
(:mod:`gemmule.compiler.kernels.head.exponents`), each by a loop that does not run where nobody asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmule.compiler.ir import Linear
from gemmule.compiler.kernels.epilogue import store
from gemmule.compiler.kernels.head.ids import HALF_BYTES, halves, list_flags
from gemmule.compiler.kernels.head.launch_words import set_answers
from gemmule.compiler.kernels.layout import Span, in_order
from gemmule.compiler.kernels.linear import Ring, linear_tiles
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg
from gemmule.config import Config
from gemmule.isa import MAX_LENGTH, ArgmaxFlag, Dyn, Length, RequantFlag, SOp, Unit
from gemmule.timing import ceil_div

__all__ = ["BACK", "FOUND", "HIDDEN", "AnswerLayout", "General", "begin_answers", "head_answers"]

FOUND, BACK = "found", "found_back"
"""The answers as stores and as loads see them."""
HIDDEN = "hidden"
"""The embedding's region from the first slot that a launch writes on."""
CHUNK_GROUPS = 16
"""Column groups of logits that are taken together, at most: a power of two."""
STRIP = 2
"""So many times as many are stored together."""


@dataclass(frozen=True, kw_only=True)
class General:
    """What the general program has that the plain one has not."""

    slots: int
    """Rows of the residual stream that it keeps room for."""
    top: int
    """Largest logits of a row that it finds, at most."""


@dataclass(frozen=True, kw_only=True)
class AnswerLayout:
    """Bytes of the answers: tokens, sums, largest logits' tokens, logits [row][group][low, high][dim].

    Tokens are uint16, by plane where there are more of them.
    """

    rows: int
    columns: int
    dim: int
    top: int
    """Tokens of a row's largest logits, a multiple of dim or all columns."""
    chunk: int
    """Columns that are taken together, a power of two of groups."""

    @staticmethod
    def of(config: Config, rows: int, columns: int, top: int) -> AnswerLayout:
        """For a device; ``top`` is rounded up to whole groups."""
        dim = config.dim
        groups = min(CHUNK_GROUPS, max(1, config.acc_rows // 4 // rows), max(1, config.spm_rows // 16 // rows))
        return AnswerLayout(rows=rows, columns=columns, dim=dim, top=min(ceil_div(top, dim) * dim, columns),
                            chunk=dim << groups.bit_length() - 1)

    @property
    def planes(self) -> int:
        """Of tokens."""
        return halves(self.columns)

    @property
    def token_pitch(self) -> int:
        """Bytes from a plane of the greedy tokens, uint16 [rows], to the next one."""
        return ceil_div(HALF_BYTES * self.rows, 64) * 64

    @property
    def sums(self) -> int:
        """Offset of the sums of the weights' low and high bytes, int32 [2, rows]."""
        return self.planes * self.token_pitch

    @property
    def tops(self) -> int:
        """Offset of the tokens of the largest logits, uint16 [rows, planes, top]."""
        return self.sums + ceil_div(8 * self.rows, 64) * 64

    @property
    def top_pitch(self) -> int:
        """Bytes from a row's to the next row's."""
        return self.planes * self.top_plane

    @property
    def top_plane(self) -> int:
        """Bytes from a plane of a row's to the next one."""
        return ceil_div(HALF_BYTES * self.top, 64) * 64

    @property
    def logits(self) -> int:
        """Offset of the logits."""
        return self.tops + self.rows * self.top_pitch

    @property
    def pitch(self) -> int:
        """Bytes of a row's logits."""
        return 2 * ceil_div(self.columns, self.dim) * self.dim

    def spans(self, first: int, chunk: int) -> Iterator[tuple[int, int]]:
        """(column, columns) of the parts from a first column on that a length register counts with those before it.

        They are whole chunks but for the last one.
        """
        most = (MAX_LENGTH - first) // chunk * chunk
        for at in range(first, self.columns, most):
            yield at, min(most, self.columns - at)

    @property
    def size(self) -> int:
        """All bytes, and those that the last chunk's load takes beyond the last row."""
        return self.logits + self.rows * self.pitch + 2 * self.chunk


def begin_answers(b: Builder, residual: At, columns: int) -> None:
    """What is wanted, and the residual stream of all rows behind the last layer, as an embedding's rows."""
    b.control(*set_answers(b.config, b.batch))
    size = 2 * ceil_div(columns, b.config.dim) * b.config.dim
    b.add(Unit.STORE, "hidden rows", region=HIDDEN, stride=size, bytes=size, row=residual, row_stride=1,
          block_stride=b.rows, rows=Length(b.rows, LengthReg.HIDDEN_ROWS))


def head_answers(b: Builder, ring: Ring, node: Linear, x: Span, layout: AnswerLayout) -> None:
    """Logits where they are wanted, and the greedy token of each answered row; ties go to the lowest."""
    dim, wanted = b.config.dim, Length(b.rows, LengthReg.WANTED)
    b.reserve(FOUND, layout.size)
    for planes, first, columns in _strips(b, ring, node, x, layout):
        b.add(Unit.STORE, f"{node.name}: logits", region=FOUND, offset=layout.logits + 2 * first * dim,
              stride=layout.pitch, bytes=2 * ceil_div(columns, dim) * dim, row=planes, row_stride=1,
              block_stride=b.rows, rows=Length(b.rows, LengthReg.LOGIT_ROWS))
        b.add(Unit.SELECT, f"{node.name}: best so far", op=SOp.ARGMAX, src0=planes, src0_stride=2 * b.rows,
              first=first * dim, m=wanted, n=columns, flags={ArgmaxFlag.CONTINUE} if first else ())
    for plane in range(layout.planes):
        best = At(Buffer("tokens", ceil_div(HALF_BYTES * b.rows, dim), Bank.STATE))
        b.add(Unit.SELECT, "tokens", op=SOp.LIST_STORE, dst=best, n=wanted, flags=list_flags(plane))
        b.add(Unit.STORE, "tokens", region=FOUND, offset=plane * layout.token_pitch, bytes=HALF_BYTES * b.rows,
              row=best, block_stride=1, rows=Length(1, LengthReg.WANTED))


def _strips(b: Builder, ring: Ring, node: Linear, x: Span, layout: AnswerLayout) -> Iterator[tuple[At, int, int]]:
    """(int16 planes, first group, columns) of some tiles together: short stores take longer than their bytes."""
    dim, wanted = b.config.dim, Length(b.rows, LengthReg.WANTED)
    planes, first, end, room = At(Buffer("", 0, Bank.STATE)), 0, 0, 0
    for tile in linear_tiles(b, ring, node, [x], in_order(node.columns, dim), m=wanted,
                             dyn=(Dyn.SRC0, LengthReg.FIRST_WANTED, 1), last=True):
        if tile.first + tile.groups > room:
            if end:
                yield planes, first, (end - first) * dim
            left = ceil_div(node.columns, dim) - tile.first
            size = min(max(layout.chunk // dim * STRIP, tile.groups), left)
            planes = At(Buffer(f"{node.name} part", 2 * size * b.rows, Bank.STATE))
            first, room = tile.first, tile.first + size
        store(b, node, tile, planes + -2 * first * b.rows, 2 * b.rows, RequantFlag.WIDE, m=wanted)
        end = tile.first + tile.groups
    yield planes, first, node.columns - first * dim
