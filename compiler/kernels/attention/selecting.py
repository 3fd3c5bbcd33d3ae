"""Attention over a whole cache that also says which rows of it matter: for each KV head a list of those kept.

Importance is what the new rows, the *observed* ones, attend to: the sum of their normalised 16-bit probabilities over
rows and the heads that share a KV head. The rows of largest importance are kept, the first and the newest ones always
(the observation window of SnapKV, Li et al. 2024, equation 5, without its pooling over neighbours). Attention itself is
:mod:`gemmule.compiler.kernels.attention.block`'s: behind each head comes a third pass over the scores, and the select
unit accumulates, chooses and writes the list, which the program that gathers rows reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.block import BlockAttention, BlockHead, BlockMapping
from gemmule.compiler.kernels.attention.shared import CACHE, attention_rows
from gemmule.compiler.kernels.moves import LISTS, list_pitch
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import NO_DYN, At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.config import Config
from gemmule.control import params, set_length
from gemmule.isa import (
    MAX_LENGTH,
    PARAMS_WORDS,
    Command,
    CommitFlag,
    Dyn,
    ImportanceFlag,
    KeysFlag,
    Length,
    SoftmaxFlag,
    SOp,
    Source,
    Unit,
    VOp,
)
from gemmule.timing import ceil_div

__all__ = ["SelectingAttention", "SelectingHead", "SelectingMapping", "chosen_words", "most_chosen"]


def most_chosen(config: Config, context: int) -> int:
    """Rows that a list can have."""
    return min(context, config.select_keys)


def chosen_words(config: Config, kept: int) -> Command:
    """PARAMS with how many rows each list gets, and how many rows of DRAM such a list takes; a launch's first command.
    """
    lines = ceil_div(2 * kept, config.dim)
    return params(config.parameter_words - PARAMS_WORDS, kept | lines << 16, *(PARAMS_WORDS - 1) * (0,),
                  note="rows that are chosen")


@dataclass(frozen=True, kw_only=True)
class SelectingMapping(BlockMapping):
    """How attention is cut into blocks; a head is done before the next one begins."""

    first: int
    """Rows that are always kept: the first ones, those of a constant prefix not counted."""
    last: int
    """The same of the newest ones."""

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Beside those of plain attention a block's 16-bit probabilities, and a list."""
        wide = 2 * ceil_div(self.block, dim) * attention_rows(node, rows)
        return super().scratchpad_rows(node, dim, rows) + wide + ceil_div(2 * self.context, dim)


class SelectingAttention(BlockAttention):
    """One layer, head by head."""

    mapping: SelectingMapping

    def __init__(self, b: Builder, node: Attention, mapping: SelectingMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        super().__init__(b, node, mapping, number, masks, nobody, ring)
        self.most = most_chosen(b.config, mapping.context)
        self.list_bytes = list_pitch(b.config, mapping.context)
        b.reserve(LISTS, (number + 1) * node.kv_heads * self.list_bytes)

    def _head(self, kv: int, statistics: int, sequence: int) -> BlockHead:
        return SelectingHead(self, kv, statistics, sequence)


class SelectingHead(BlockHead):
    """One KV head with the heads that share it."""

    kernel: SelectingAttention
    streams: ClassVar[Mapping[str, int]] = {}
    """Regions that importance goes through beside the cache, with the bytes of a position."""

    def __init__(self, kernel: SelectingAttention, kv: int, statistics: int, sequence: int) -> None:
        super().__init__(kernel, kv, statistics, sequence)
        rows = max(kernel.block_rows, self.new_probabilities.buffer.rows)
        self.normalised = [At(Buffer(f"{self.name} normalised {i}", 2 * rows, Bank.OPERAND)) for i in range(2)]
        self.rows = At(Buffer(f"{self.name} chosen rows", ceil_div(2 * kernel.most, self.b.config.dim), Bank.STATE))

    def finish(self) -> None:
        """The rows' contexts, then the list."""
        super().finish()
        self.begin_importance()
        self._cached_importance()
        self._new_importance()
        self._choose()

    def begin_importance(self) -> None:
        """None yet."""
        self._select(SOp.COMMIT, "no importance yet", CommitFlag.CLEAR, first=self.k.prefix, n=self._every())

    def _cached_importance(self) -> None:
        """Block by block, in the order of the passes before."""
        b, mapping, seen = self.b, self.mapping, LengthReg.SEEN
        b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.CONTEXT, amount=-self.k.prefix),
                  set_length(seen, amount=self.k.prefix),
                  *(SetDisplacement(region, 0) for region in (CACHE, *self.streams)))
        if mapping.keep:
            b.control(set_length(LengthReg.ROW))
        with b.loop(Length(MAX_LENGTH, LengthReg.CONTEXT, self.k.prefix), mapping.turn.bit_length() - 1,
                    f"importance in {self.name}"):
            for j in range(mapping.blocks):
                if not mapping.keep and j % mapping.pair == 0:
                    self.load(0, j, again=True)
            for j in range(mapping.blocks):
                if not mapping.keep:
                    self.scores_again(j)
                self._importance(self._cached(1, j), j, self._left(j), set(), moved=mapping.keep,
                                 first=j * mapping.block, register=seen)
            b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-mapping.turn),
                      set_length(seen, Source.LENGTH, seen, amount=mapping.turn),
                      SetDisplacement(CACHE, mapping.turn * self.k.layout.row, further=True),
                      *(SetDisplacement(region, mapping.turn * size, further=True)
                        for region, size in self.streams.items()))
            if mapping.keep:
                b.control(set_length(LengthReg.ROW, Source.LENGTH, LengthReg.ROW,
                                     amount=mapping.blocks * self.kernel.block_rows))

    def _new_importance(self) -> None:
        """Of the new rows, behind the cached ones."""
        self._importance(self.new_scores, 0, self.b.m_each, {SoftmaxFlag.TREE}, moved=False, first=0,
                         register=LengthReg.CONTEXT)

    def _importance(self, scores: At, number: int, columns: Length, flags: set[SoftmaxFlag], *, moved: bool,
                    first: int, register: int) -> None:
        """Normalised probabilities of a piece, added up by column from row ``first`` behind a register's on."""
        to, pitch = self.normalised[number % 2], 2 * self.k.one
        self.add_softmax(VOp.SOFTMAX_NORM, scores, columns, flags | {SoftmaxFlag.WIDE}, moved=moved,
                         src1=self.masks if flags else 0, dst=to, dst_stride=pitch)
        self.b.add(Unit.SELECT, f"{self.name}: importance", op=SOp.IMPORTANCE, flags={ImportanceFlag.WIDE},
                   dyn=(Dyn.SRC1, register, 1), src0=to, src0_stride=pitch, first=first, m=self.k.m, n=columns)

    def _choose(self) -> None:
        """The rows of largest importance to the head's list, in rising order."""
        b, config, kernel, seen = self.b, self.b.config, self.kernel, LengthReg.SEEN
        half = 2 * (config.parameter_words - PARAMS_WORDS)
        listed, every = 2 * b.rows, self._every()
        b.control(set_length(seen, Source.HALF, index=half))
        chosen = Length(kernel.most, seen)
        self.complete_importance(every)
        self._select(SOp.KEYS, "keys of importance", KeysFlag.FROM_IMPORTANCE, first=self.k.prefix, dst=0, n=every,
                     aux=kernel.mapping.first | kernel.mapping.last << 8)
        self._select(SOp.TOP_K, "chosen rows", n=every, k=chosen, dst=listed)
        self._select(SOp.LIST_STORE, "their list", first=listed, dst=self.rows, n=chosen)
        self._store_list(half + 1, LISTS, self.number * kernel.list_bytes)
        b.control(set_length(seen, amount=b.each - 1, note="the row that is answered"))

    def complete_importance(self, every: Length) -> None:
        """Of so many rows, as what they are chosen by."""
        self._select(SOp.COMMIT, "importance is complete", first=self.k.prefix, n=every)

    @property
    def number(self) -> int:
        """Of the head's list."""
        return self.kernel.number * self.kernel.node.kv_heads + self.kv

    def _store_list(self, half: int, region: str, offset: int) -> None:
        """As many rows of the list as a half of the parameter memory says."""
        dim, seen = self.b.config.dim, LengthReg.SEEN
        self.b.control(set_length(seen, Source.HALF, index=half))
        self.b.add(Unit.STORE, f"{self.name}: chosen rows", region=stored(region), offset=offset, stride=dim, bytes=dim,
                   row=self.rows, row_stride=1, block_stride=1, rows=Length(self.rows.buffer.rows, seen))

    def _every(self) -> Length:
        """Cached and new rows, behind the prefix."""
        self.b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.CONTEXT, amount=self.b.each - self.k.prefix))
        return Length(self.kernel.most, LengthReg.LEFT)

    def _select(self, op: SOp, note: str, *flags: int, dyn: tuple[Dyn, int, int] = NO_DYN, **fields: Any) -> None:
        self.b.add(Unit.SELECT, f"{self.name}: {note}", op=op, flags=flags, dyn=dyn, **fields)
