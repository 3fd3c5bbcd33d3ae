"""Sums of the answered rows' exponents: the softmax's 16-bit weights of all tokens, added up by the mesh.

The vector unit takes scores from the accumulator, where int16 logits come by products: their low bytes with 1, their
high bytes with 127, 127 and 2. A first pass over a row's logits finds the maximum, a second one weights in two planes,
whose sums are products with ones. All of it is exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.head.answers import BACK, FOUND, AnswerLayout
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.compiler.kernels.widen import diagonals, widen
from gemmule.config import Config
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Length, MatrixFlag, MoveFlag, SoftmaxFlag, Source, Unit, VOp

__all__ = ["exponent_sums"]

UNITS = "units"


@dataclass(frozen=True)
class _Units:
    """Diagonals to widen with, then a row of ones  # int8 [4 * dim + 1, dim]."""

    size: int

    @property
    def key(self) -> Hashable:
        return "units"

    def groups(self, dim: int) -> tuple[_Units]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        ones = np.ones((1, config.dim), dtype=np.int8)
        return np.concatenate([diagonals(config.dim), ones]).view(np.uint8).reshape(-1)


class _Exponents:
    def __init__(self, b: Builder, layout: AnswerLayout) -> None:
        self.b, self.layout, self.dim = b, layout, b.config.dim
        self.m = Length(b.rows, LengthReg.EXPONENT_ROWS)
        groups = layout.chunk // self.dim
        align = b.config.preload
        self.units = At(Buffer("units", 4 * self.dim, Bank.STREAM, align))
        self.ones = At(Buffer("ones", layout.chunk, Bank.STREAM, align))
        self.logits, self.weights = (At(Buffer(name, 2 * groups * b.rows, Bank.OPERAND))
                                     for name in ("logits of a chunk", "weights of a chunk"))
        self.scores = At(Buffer("logits as sums", groups * b.rows, Bank.ACCUMULATOR))
        self.sums = [At(Buffer(f"sums of {name} bytes", b.rows, Bank.ACCUMULATOR)) for name in ("low", "high")]

    def write(self) -> None:
        """Both passes, and the sums to DRAM."""
        b, layout, dim = self.b, self.layout, self.dim
        at = b.constant(UNITS, _Units((4 * dim + 1) * dim))
        b.add(Unit.LOAD, "units", region=UNITS, offset=at, bytes=4 * dim * dim, row=self.units, block_stride=1, rows=1)
        b.add(Unit.LOAD, "ones", region=UNITS, offset=at + 4 * dim * dim, bytes=dim, row=self.ones, row_stride=1,
              block_stride=1, rows=layout.chunk, flags={MoveFlag.BROADCAST})
        for sums in self.sums:
            b.add(Unit.LOAD, "no weights yet", region=UNITS, bytes=4 * dim, row=sums, row_stride=1, block_stride=1,
                  rows=b.rows, flags={MoveFlag.ZERO, MoveFlag.ACCUMULATOR})
        self._load(1)
        widen(b, self.units, self.logits, self.scores, 1, self.m)
        self._softmax(VOp.SOFTMAX_MAX, Length(min(dim, layout.columns)), set())
        for _ in self._chunks("maxima"):
            self._softmax(VOp.SOFTMAX_MAX, self._left, {SoftmaxFlag.CONTINUE})
        for _ in self._chunks("weights"):
            self._softmax(VOp.SOFTMAX_EXP, self._left, {SoftmaxFlag.WIDE, SoftmaxFlag.MORE}, self.weights)
            for plane, sums in enumerate(self.sums):
                b.add(Unit.MATRIX, "sums of weights", flags={MatrixFlag.A_UNSIGNED, MatrixFlag.ACCUMULATE},
                      a_row=self.weights + plane * b.rows, a_stride=2 * b.rows, b_row=self.ones,
                      b_stride=layout.chunk, c_row=sums, c_stride=b.rows, m=self.m, n=Length(1), k=self._left)
        for plane, sums in enumerate(self.sums):
            b.add(Unit.STORE, "sums of weights", region=FOUND, offset=layout.sums + 4 * b.rows * plane, stride=4,
                  bytes=4, row=sums, row_stride=1, block_stride=1, rows=self.m, flags={MoveFlag.ACCUMULATOR})

    @property
    def _left(self) -> Length:
        return Length(self.layout.chunk, LengthReg.LEFT)

    def _load(self, groups: int) -> None:
        b = self.b
        b.add(Unit.LOAD, "logits", region=BACK, offset=self.layout.logits, stride=self.layout.pitch,
              bytes=2 * groups * self.dim, row=self.logits, row_stride=1, block_stride=b.rows, rows=self.m)

    def _softmax(self, op: VOp, n: Length, flags: set[SoftmaxFlag], dst: At | int = 0) -> None:
        b = self.b
        b.add(Unit.VECTOR, op.name.lower(), op=op, flags=flags, src0=self.scores, src0_stride=b.rows, m=self.m, n=n,
              scale_reg=LengthReg.SCALE, dst=dst, dst_stride=2 * b.rows if dst else 0)

    def _chunks(self, what: str) -> Iterator[None]:
        """Loops over all columns in chunks, each of which comes as sums; once for the body of each loop."""
        b, chunk = self.b, self.layout.chunk
        for at, count in self.layout.spans(0, chunk):
            b.control(set_length(LengthReg.LEFT, amount=count), *([] if at else [SetDisplacement(BACK, 0)]))
            with b.loop(Length(MAX_LENGTH, LengthReg.LEFT), chunk.bit_length() - 1, what):
                self._load(chunk // self.dim)
                widen(b, self.units, self.logits, self.scores, chunk // self.dim, self.m)
                yield
                b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-chunk),
                          SetDisplacement(BACK, 2 * chunk, further=True))


def exponent_sums(b: Builder, layout: AnswerLayout) -> None:
    """Sums of the low and of the high bytes of the weights of each answered row, int32 [2, rows]."""
    with b.loop(Length(1, LengthReg.EXPONENT_ROWS), 0, "exponent sums", local=True):
        _Exponents(b, layout).write()
