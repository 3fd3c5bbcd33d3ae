"""Attention of whole sequences by online softmax: keys in blocks, so that a row of scores need not fit the accumulator.

As FlashAttention has it (Dao et al., 2022), with Softermax's running maximum in whole octaves
(:mod:`gemmule.numerics.online`): each block of keys brings scores, a maximum, probabilities, and its part of the
contexts, which a rise of the maximum shifts first. A block that a shorter sequence does not have is a body of no turns:
nothing rises. Queries go in larger blocks than where whole rows of scores are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.heads.leaving import ALL_STAY, LeavingHeads
from gemmule.compiler.kernels.attention.heads.sums import HeadSums
from gemmule.compiler.kernels.attention.sequence import HeadLayout, SequenceHead, SequenceMapping, attend_heads
from gemmule.compiler.kernels.attention.shared import load_nobody
from gemmule.compiler.kernels.attention.softmax import exponential
from gemmule.compiler.kernels.virtual import NO_DYN, At, Builder, LengthReg
from gemmule.control import set_length
from gemmule.isa import Dyn, Length, MatrixFlag, SoftmaxFlag, Source, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["attend_online"]


def attend_online(b: Builder, node: Attention, mapping: SequenceMapping, sequence: int,
                  leaving: LeavingHeads = ALL_STAY) -> None:
    """Contexts of all heads of up to ``sequence`` rows; the node's block is a power of two, a multiple of DIM."""
    layout, nobody = HeadLayout.of(node, b.config, sequence), load_nobody(b, mapping.queries)
    heads = [_SequenceOnlineHead(b, node, mapping, layout, number, nobody, leaving.sums)
             for number in range(node.heads)]
    attend_heads(heads, mapping, leaving)


class _SequenceOnlineHead(SequenceHead):
    """Commands of one head."""

    def __init__(self, b: Builder, node: Attention, mapping: SequenceMapping, layout: HeadLayout, number: int,
                 nobody: At, sums: HeadSums | None) -> None:
        super().__init__(b, node, mapping, layout, number, sums)
        self.nobody, self.block = nobody, node.block or layout.sequence

    def attend(self) -> None:
        """Block of queries by block of queries, in each block of keys by block of keys."""
        both = range(self.mapping.flight)
        with self.loop():
            self.b.control(set_length(LengthReg.BEHIND, Source.LENGTH, LengthReg.ROWS, note="keys"))
            for number in range(ceil_div(self.layout.sequence, self.block)):
                with self._if_there(number):
                    self._piece(number)
            for i in both:
                self._reciprocal(i)
            for i in both:
                self.normalise(i)
            for i in both:
                self.store(i)

    @contextmanager
    def _if_there(self, number: int) -> Iterator[None]:
        """A body of one turn, or of none where the sequence ends before this block of keys."""
        times, shift = Length(1, LengthReg.BEHIND), self.block.bit_length() - 1
        with self.b.loop(times, shift, f"keys from {number * self.block} on") if number else nullcontext():
            yield
        self.b.control(set_length(LengthReg.BEHIND, Source.LENGTH, LengthReg.BEHIND, amount=-self.block))

    def _piece(self, number: int) -> None:
        """A block of keys for the blocks of queries of a turn."""
        both = range(self.mapping.flight)
        for i in both:
            self._block_scores(i, number)
        for i in both:
            self._block_softmax(i, number)
        for i in both:
            self._block_contexts(i, number)

    @property
    def _keys(self) -> Length:
        return Length(self.block, LengthReg.BEHIND)

    def _block_scores(self, i: int, number: int) -> None:
        m, moved = self.mapping.queries, (Dyn.SRC0, LengthReg.ROW, 1) if self.turns > 1 else NO_DYN
        self.b.add(Unit.MATRIX, f"{self.name}: scores", flags={MatrixFlag.B_TRANSPOSED}, dyn=moved,
                   a_row=self.parts[2] + i * m, a_stride=self.query_pitch, b_row=self.parts[0] + number * self.block,
                   b_stride=self.key_pitch, c_row=self.scores[i], c_stride=m, m=self.rows(i), n=self._keys,
                   k=self.node.head_dim)

    def _source(self, i: int) -> dict[str, Any]:
        return {"src0": self.scores[i], "src0_stride": self.mapping.queries, "m": self.rows(i), "context": i,
                **self.scaling}

    def _block_softmax(self, i: int, number: int) -> None:
        flags = {SoftmaxFlag.ONLINE} | ({SoftmaxFlag.CONTINUE} if number else set())
        self.b.add(Unit.VECTOR, f"{self.name}: maxima", op=VOp.SOFTMAX_MAX, flags=flags, n=self._keys,
                   **self._source(i))
        self.b.add(Unit.VECTOR, f"{self.name}: probabilities", op=VOp.SOFTMAX_EXP, flags=flags | {SoftmaxFlag.MORE},
                   n=self._keys, dst=self.probabilities[i], dst_stride=self.mapping.queries, **self._source(i),
                   **exponential(self.node))

    def _block_contexts(self, i: int, number: int) -> None:
        m, size = self.mapping.queries, self.node.head_dim
        if number:
            self.b.add(Unit.VECTOR, f"{self.name}: rise", op=VOp.RESCALE, src0=self.sums[i], src0_stride=m,
                       dst=self.sums[i], dst_stride=m, m=self.rows(i), n=size, context=i)
        flags = {MatrixFlag.A_UNSIGNED} | ({MatrixFlag.ACCUMULATE} if number else set())
        self.b.add(Unit.MATRIX, f"{self.name}: context", flags=flags, a_row=self.probabilities[i], a_stride=m,
                   b_row=self.parts[1] + number * self.block, b_stride=self.key_pitch, c_row=self.sums[i], c_stride=m,
                   m=self.rows(i), n=size, k=self._keys)

    def _reciprocal(self, i: int) -> None:
        """Of the sum, which a column makes that no row sees."""
        self.b.add(Unit.VECTOR, f"{self.name}: reciprocals", op=VOp.SOFTMAX_EXP, n=1, src1=self.nobody,
                   flags={SoftmaxFlag.CONTINUE, SoftmaxFlag.TREE}, dst=self.probabilities[i],
                   dst_stride=self.mapping.queries, **self._source(i))
