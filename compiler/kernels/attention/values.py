"""Attention that loads only those values of the cache that a probability is not 0 for.

Keys, scores and maxima are those of :mod:`gemmule.compiler.kernels.attention.block`, and scores are kept. A *part* of
the cache has as many positions as the select unit takes. It lists the cached rows that any row of the pass and any head
that shares the KV head gives a probability to (:mod:`gemmule.compiler.kernels.listed`). Values of these rows are
gathered, piece by piece; all others would be multiplied by 0, so nothing is approximated. New rows and a constant
prefix are multiplied whole.

A head's list is made while the keys of the next head are loaded, and its values come behind these.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.block import BlockAttention, BlockHead, BlockMapping
from gemmule.compiler.kernels.attention.shared import CACHE, attention_rows
from gemmule.compiler.kernels.listed import NonzeroColumns
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.compiler.place import cut_evenly, round_up
from gemmule.config import Config
from gemmule.control import set_length
from gemmule.isa import NUM_PREDICATES, Length, MatrixFlag, SoftmaxFlag, Source, VOp
from gemmule.timing import ceil_div

__all__ = ["ValuesAttention", "ValuesMapping"]

PIECES = NUM_PREDICATES - 1
"""Of a turn, each with a predicate and a buffer of its own: so many are under way, also from a turn to the next."""
MOST_STRIDE = 1023
"""Rows by which a turn of a loop moves on at most."""


@dataclass(frozen=True, kw_only=True)
class ValuesMapping(BlockMapping):
    """How attention is cut into blocks of keys, and values into parts, turns and pieces."""

    part: int
    """Positions of a list, whole turns."""
    prefix: int
    """Constant rows."""

    @property
    def parts(self) -> int:
        return ceil_div(self.context - self.prefix, self.part)

    @property
    def ring(self) -> int:
        """Buffers for pairs of blocks of keys."""
        return self.blocks // self.pair

    def pieces(self, dim: int) -> list[range]:
        """Places of a turn's list whose values are gathered together, whole groups of columns."""
        groups = self.turn // dim
        return [range(first * dim, (first + count) * dim) for first, count in cut_evenly(groups, min(PIECES, groups))]

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        groups, every = ceil_div(node.head_dim, dim), attention_rows(node, rows)
        return groups * (self.ring * self.block * self.pair + self.turn) \
            + (self.parts + min(2, self.parts)) * self.part // dim * every

    def buffers(self, node: Attention, dim: int, preload: int) -> tuple[Buffer, ...]:
        """A turn's keys, then pieces of values."""
        groups = ceil_div(node.head_dim, dim)
        keys = groups * self.block * self.pair
        return (*(Buffer(f"keys {i}", keys, Bank.STREAM, preload) for i in range(self.ring)),
                *(Buffer(f"values {i}", groups * round_up(len(piece), preload), Bank.STREAM, preload)
                  for i, piece in enumerate(self.pieces(dim))))

    @staticmethod
    def of(blocks: BlockMapping, node: Attention, config: Config, rows: int) -> ValuesMapping | None:
        """With parts as long as the device takes. None where it takes no turn, where scores are not kept, and where
        products are of more rows than the mesh: they take longer than loads then.
        """
        dim, turn, every = config.dim, blocks.turn, attention_rows(node, rows)
        room = min(config.select_keys, (config.list_entries - 2 * rows) // 2)
        part = min(room // turn, ceil_div(blocks.context - node.prefix, turn)) * turn
        if not (blocks.keep and part) or every > dim or blocks.block % dim \
                or max(turn, turn // dim * every) > MOST_STRIDE:
            return None
        return ValuesMapping(
            context=blocks.context, cache=blocks.cache, block=blocks.block, blocks=blocks.blocks, pair=blocks.pair,
            kept=blocks.context, pipelined=blocks.pipelined, joined=blocks.joined, least=blocks.least, part=part,
            prefix=node.prefix)


class ValuesAttention(BlockAttention):
    """One layer."""

    mapping: ValuesMapping

    def __init__(self, b: Builder, node: Attention, mapping: ValuesMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        """``ring``: buffers for a turn's keys, then for pieces of values, of all layers."""
        super().__init__(b, node, mapping, number, masks, nobody, ring)
        self.slots = ring[mapping.ring:]

    def _sequence(self, sequence: int) -> None:
        heads = [_ValuesHead(self, kv, kv % 2 if self.mapping.pipelined else 0, sequence)
                 for kv in range(self.node.kv_heads)]
        parts = range(self.mapping.parts)
        self._keys(heads[0])
        for head, other in zip(heads, [*heads[1:], None], strict=True):
            head.mix_new()
            head.all_probabilities()
            head.list_values(0)
            if other and self.mapping.pipelined:
                self._keys(other)
            for part in parts:
                if part + 1 in parts:
                    head.list_values(part + 1)
                head.listed_contexts(part)
            head.finish()
            if other and not self.mapping.pipelined:
                self._keys(other)

    def _keys(self, head: BlockHead) -> None:
        """Scores and the rows' maxima."""
        head.begin()
        self._loop(None, head)


class _ValuesHead(BlockHead):
    """One KV head with the heads that share it."""

    kernel: ValuesAttention

    def __init__(self, kernel: ValuesAttention, kv: int, statistics: int, sequence: int) -> None:
        super().__init__(kernel, kv, statistics, sequence)
        mapping = kernel.mapping
        rows = mapping.part // self.b.config.dim * kernel.one
        self.every = At(Buffer(f"{self.name} probabilities", mapping.parts * rows, Bank.OPERAND))
        packed = [At(Buffer(f"{self.name} packed {i}", rows, Bank.OPERAND)) for i in range(min(2, mapping.parts))]
        self.columns = [NonzeroColumns(
            self.b, self.name, source=self.every + part * rows, packed=packed[part % 2], stride=kernel.one, m=kernel.m,
            list_at=2 * self.b.rows + part % 2 * mapping.part) for part in range(mapping.parts)]
        """Of each part. Two lists are there at a time."""

    def all_probabilities(self) -> None:
        """Of all cached positions."""
        every = Length(self.mapping.context, LengthReg.LEFT)
        self._set_left(0)
        self.add_softmax(VOp.SOFTMAX_EXP, self.kernel.scores, every, {SoftmaxFlag.CONTINUE, SoftmaxFlag.MORE},
                         dst=self.every, dst_stride=self.k.one)
        self.drop(self.every, every)
        self.add_kept(self.every, every, True)

    def list_values(self, part: int) -> None:
        """The cached rows of a part that have a probability; what the pass computes of rows that it lacks is none."""
        self._set_left(part)
        self.columns[part].list_columns(Length(self.kernel.mapping.part, LengthReg.LEFT), self.k.share, self.b.m_each)

    def listed_contexts(self, part: int) -> None:
        """Their part of the contexts."""
        b, k, mapping, turn = self.b, self.k, self.kernel.mapping, self.mapping.turn
        first = part * mapping.part
        load = {"region": CACHE, "stride": k.layout.row, "bytes": k.layout.head,
                "last_index": min(mapping.part, mapping.context - k.prefix - first) - 1,
                "offset": k.layout.offset(k.number, self.kv, 1) + (k.prefix + first) * k.layout.row}
        product = {"c_row": self.sums, "c_stride": self.own.one, "n": k.node.head_dim,
                   "flags": {MatrixFlag.A_UNSIGNED, MatrixFlag.ACCUMULATE}}
        self._set_left(part)
        b.control(set_length(LengthReg.TURN), SetDisplacement(CACHE, 0))
        with b.loop(Length(mapping.part // turn, LengthReg.LEFT), turn.bit_length() - 1, f"values of {self.name}"):
            for number, piece in enumerate(mapping.pieces(b.config.dim)):
                self.columns[part].multiply(
                    piece.start, Length(len(piece), LengthReg.LEFT, piece.start), 1 + number,
                    At(self.kernel.slots[number]), round_up(len(piece), b.config.preload), "values", load, product,
                    (LengthReg.TURN, turn))
            b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-turn),
                      set_length(LengthReg.TURN, Source.LENGTH, LengthReg.TURN, amount=1))

    def _set_left(self, part: int) -> None:
        """The register of what is left, to the positions from a part on."""
        self.b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.CONTEXT,
                                  amount=-self.k.prefix - part * self.kernel.mapping.part))
