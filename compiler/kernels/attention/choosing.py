"""Attention of whole sequences that also chooses the rows that go on.

Exact attention, head by head (:mod:`gemmule.compiler.kernels.attention.sequence`). Behind a block's softmax its
normalised 16-bit probabilities go to the select unit, which adds them up by column over queries and heads. Behind the
last head the rows of largest importance stand in the list memory, and in DRAM for the host; the register of rows has
their number, which the launch brings. What follows gathers these rows and is shorter.
"""

from __future__ import annotations

from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention, TokenPruning
from gemmule.compiler.ir.token_pruning import importance_shift
from gemmule.compiler.kernels.attention.heads.leaving import ALL_STAY, LeavingHeads
from gemmule.compiler.kernels.attention.heads.sums import HeadSums, check_heads
from gemmule.compiler.kernels.attention.sequence import HeadLayout, SequenceHead, SequenceMapping, attend_heads
from gemmule.compiler.kernels.attention.softmax import exponential
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg
from gemmule.config import Config
from gemmule.control import params, set_length
from gemmule.isa import (
    PARAMS_WORDS,
    Command,
    CommitFlag,
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

__all__ = ["KEPT_ROWS", "attend_choosing", "check_choosing", "kept_pitch", "kept_words"]

KEPT_ROWS = "kept rows"
"""Region of the lists, one for each layer that chooses: rows among those that the layer had, uint16."""


def check_choosing(node: Attention, config: Config, sequence: int, pruning: TokenPruning, *, standard: bool) -> None:
    """Refuse ways of attention, lengths and schedules with which nothing is chosen; raises CompileError."""
    if pruning.heads:
        check_heads(node, config, sequence, rows=bool(pruning.pruning))
    if not pruning.pruning:
        return
    if node.block or standard:
        raise CompileError("rows are chosen by exact attention that keeps its scores, not by "
                           f"{'standard' if standard else 'online'} attention: use exact, or prune nothing")
    if sequence > config.select_keys:
        raise CompileError(f"rows are chosen of sequences of at most {config.select_keys} rows (select_keys), not "
                           f"{sequence}: use shorter ones, or prune nothing")
    if _first_word(config, len(pruning.pruning)) < 0:
        raise CompileError(f"rows must leave behind at most {config.parameter_words // PARAMS_WORDS * PARAMS_WORDS} "
                           f"layers (parameter_words), not {len(pruning.pruning)}: keep equal rows in more of them")


def kept_pitch(config: Config, sequence: int) -> int:
    """Bytes of a list in DRAM."""
    return ceil_div(2 * sequence, config.dim) * config.dim


def kept_words(config: Config, kept: list[int]) -> tuple[Command, ...]:
    """PARAMS at the end of the parameter memory: rows that each list gets, and rows of DRAM that it takes."""
    words = [rows | ceil_div(2 * rows, config.dim) << 16 for rows in kept]
    first = _first_word(config, len(kept))
    return tuple(params(first + at, *words[at:at + PARAMS_WORDS], note="rows that are left")
                 for at in range(0, len(words), PARAMS_WORDS))


def _first_word(config: Config, lists: int) -> int:
    return config.parameter_words - ceil_div(lists, PARAMS_WORDS) * PARAMS_WORDS


def attend_choosing(b: Builder, node: Attention, mapping: SequenceMapping, sequence: int, pruning: TokenPruning,
                    layer: int, leaving: LeavingHeads = ALL_STAY) -> None:
    """Contexts of all heads, and importance; if the layer chooses, the list of rows that go on, from entry 0 on."""
    layout, every = HeadLayout.of(node, b.config, sequence), Length(sequence, LengthReg.ROWS)
    if pruning.begins(layer):
        _select(b, node, SOp.COMMIT, "no importance yet", CommitFlag.CLEAR, first=0, n=every)
    attend_heads([_ChoosingHead(b, node, mapping, layout, head, leaving.sums) for head in range(node.heads)], mapping,
                 leaving)
    if layer in pruning.pruning:
        _choose(b, node, sequence, pruning, pruning.pruning.index(layer))


def _choose(b: Builder, node: Attention, sequence: int, pruning: TokenPruning, place: int) -> None:
    """The rows of largest importance; ``place``: the list's place among all."""
    pitch, every = kept_pitch(b.config, sequence), Length(sequence, LengthReg.ROWS)
    b.reserve(KEPT_ROWS, len(pruning.pruning) * pitch)
    half = 2 * (_first_word(b.config, len(pruning.pruning)) + place)
    b.control(set_length(LengthReg.KEPT, Source.HALF, index=half, note="rows that are left"))
    _select(b, node, SOp.COMMIT, "importance is complete", first=0, n=every)
    _select(b, node, SOp.KEYS, "keys of importance", KeysFlag.FROM_IMPORTANCE, first=0, dst=0, n=every,
            shift=importance_shift(b.network.graph, pruning), aux=pruning.first | pruning.last << 8)
    _select(b, node, SOp.TOP_K, "rows that are left", n=every, k=Length(sequence, LengthReg.KEPT), dst=0)
    b.control(set_length(LengthReg.ROWS, Source.LENGTH, LengthReg.KEPT, note="rows that are left"))
    rows = At(Buffer(f"{node.name}: rows that are left", pitch // b.config.dim, Bank.STATE))
    _select(b, node, SOp.LIST_STORE, "their list", first=0, dst=rows, n=every)
    b.control(set_length(LengthReg.KEPT, Source.HALF, index=half + 1))
    b.add(Unit.STORE, f"{node.name}: rows that are left", region=stored(KEPT_ROWS), offset=place * pitch,
          stride=b.config.dim, bytes=b.config.dim, row=rows, row_stride=1, block_stride=1,
          rows=Length(pitch // b.config.dim, LengthReg.KEPT))


def _select(b: Builder, node: Attention, op: SOp, note: str, *flags: int, **fields: Any) -> None:
    b.add(Unit.SELECT, f"{node.name}: {note}", op=op, flags=flags, **fields)


class _ChoosingHead(SequenceHead):
    """Commands of one head."""

    def __init__(self, b: Builder, node: Attention, mapping: SequenceMapping, layout: HeadLayout, number: int,
                 sums: HeadSums | None) -> None:
        super().__init__(b, node, mapping, layout, number, sums)
        self.normalised = [At(Buffer(f"{self.name}: normalised {i}", 2 * at.buffer.rows, Bank.OPERAND))
                           for i, at in enumerate(self.probabilities)]

    def normalise(self, i: int) -> None:
        """What the block's rows attend to, while the mesh computes their contexts; then these."""
        to, pitch = self.normalised[i], 2 * self.mapping.queries
        self.b.add(Unit.VECTOR, f"{self.name}: normalised probabilities", op=VOp.SOFTMAX_NORM,
                   flags={SoftmaxFlag.WIDE}, dst=to, dst_stride=pitch, **self.source(i), **exponential(self.node))
        self.b.add(Unit.SELECT, f"{self.name}: importance", op=SOp.IMPORTANCE, flags={ImportanceFlag.WIDE}, src0=to,
                   src0_stride=pitch, first=0, m=self.rows(i), n=self.all)
        super().normalise(i)
