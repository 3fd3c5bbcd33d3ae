"""Attention of whole sequences without a cache: every row sees all rows, exact softmax, heads one after another.

Queries, keys and values come from DRAM head by head, the next head's while one is computed. Blocks of queries pass in
the order scores, scores, contexts, contexts, so that the softmax of one hides behind the products of the other. Scores
and probabilities stay on the device; in the standard way, for comparison, they go to DRAM and come back, as textbooks
have it, block by block, since a row's statistics stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.heads.leaving import ALL_STAY, LeavingHeads
from gemmule.compiler.kernels.attention.heads.sums import HeadSums
from gemmule.compiler.kernels.attention.softmax import exponential
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import NO_DYN, At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.config import Config
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Dyn, Length, MatrixFlag, MoveFlag, RequantFlag, Source, Unit, VOp
from gemmule.timing import ceil_div

__all__ = ["CONTEXT", "HEADS", "PARTS", "PROBABILITIES", "SCORES", "SCORE_BYTES", "HeadLayout", "SequenceHead",
           "SequenceMapping", "attend_heads", "attend_sequence"]

HEADS, CONTEXT = "heads", "context"
"""Regions: keys, values and queries by head; contexts, [row][head][group][dim]."""
SCORES, PROBABILITIES = "scores", "probabilities"
"""Regions of the standard way, [head][row][group][dim], int32 and uint8."""
SCORE_BYTES = 4
PARTS = ("key", "value", "query")


@dataclass(frozen=True, kw_only=True)
class SequenceMapping:
    """How attention is cut."""

    queries: int
    """Rows of a block of queries, a power of two where there are several turns."""
    flight: int
    """Blocks in flight together: those of a turn."""
    ahead: int
    """Heads whose operands are loaded before they are needed: 0 or 1."""
    standard: bool = False
    """Scores and probabilities go to DRAM and come back."""

    def turns(self, sequence: int) -> int:
        """Turns of a head."""
        return ceil_div(sequence, self.queries * self.flight)


@dataclass(frozen=True)
class HeadLayout:
    """Where keys, values and queries of ``sequence`` rows stand in DRAM: [part][head][row][group][dim]."""

    heads: int
    sequence: int
    groups: int
    dim: int

    @staticmethod
    def of(node: Attention, config: Config, sequence: int) -> HeadLayout:
        return HeadLayout(node.heads, sequence, ceil_div(node.head_dim, config.dim), config.dim)

    @property
    def row(self) -> int:
        """Bytes of a row of a head."""
        return self.groups * self.dim

    def offset(self, part: int, head: int) -> int:
        """Of the first row."""
        return (part * self.heads + head) * self.sequence * self.row

    @property
    def size(self) -> int:
        return len(PARTS) * self.heads * self.sequence * self.row


def attend_sequence(b: Builder, node: Attention, mapping: SequenceMapping, sequence: int,
                    leaving: LeavingHeads = ALL_STAY) -> None:
    """Contexts of all heads of up to ``sequence`` rows."""
    layout = HeadLayout.of(node, b.config, sequence)
    attend_heads([SequenceHead(b, node, mapping, layout, number, leaving.sums) for number in range(node.heads)],
                 mapping, leaving)


def attend_heads(heads: Sequence[SequenceHead], mapping: SequenceMapping, leaving: LeavingHeads = ALL_STAY) -> None:
    """One after another, the operands of the next one under way; behind them the heads are chosen that stay."""
    gates, predicates = leaving.gates, [0] * len(heads)

    def load(number: int) -> None:
        if gates:
            predicates[number] = gates.predicate(number)
        with heads[number].b.when(predicates[number]):
            heads[number].load()

    for number in range(mapping.ahead):
        load(number)
    for number, head in enumerate(heads):
        if number + mapping.ahead < len(heads):
            load(number + mapping.ahead)
        with head.b.when(predicates[number]):
            head.attend()
    if leaving.sums:
        leaving.sums.choose()


class SequenceHead:
    """Commands of one head; ``sums``: where its importance is added up."""

    def __init__(self, b: Builder, node: Attention, mapping: SequenceMapping, layout: HeadLayout, number: int,
                 sums: HeadSums | None = None) -> None:
        dim, align = b.config.dim, b.config.preload
        self.said = sums.head(number, mapping.queries, layout.groups, mapping.flight) if sums else None
        self.b, self.node, self.mapping, self.layout, self.number = b, node, mapping, layout, number
        self.name, self.all = f"{node.name}: head {number}", Length(layout.sequence, LengthReg.ROWS)
        self.scaling: dict[str, Any]
        self.scale: dict[str, Any]
        self.turns = mapping.turns(layout.sequence)
        self.key_pitch = ceil_div(layout.sequence, align) * align
        self.query_pitch = self.turns * mapping.queries * mapping.flight
        keys, queries = layout.groups * self.key_pitch, layout.groups * self.query_pitch
        scored = ceil_div(min(node.block or layout.sequence, layout.sequence), dim) * mapping.queries
        self.scored = ceil_div(layout.sequence, dim) * dim

        def buffers(name: str, rows: int, bank: Bank) -> list[At]:
            return [At(Buffer(f"{self.name}: {name} {i}", rows, bank)) for i in range(mapping.flight)]

        self.parts = (At(Buffer(f"{self.name}: keys", keys, Bank.STREAM, align)),
                      At(Buffer(f"{self.name}: values", keys, Bank.STREAM, align)),
                      At(Buffer(f"{self.name}: queries", queries, Bank.OPERAND)))
        self.scores, self.sums = (buffers(name, rows, Bank.ACCUMULATOR) for name, rows in (
            ("scores", scored), ("sums", layout.groups * mapping.queries)))
        self.probabilities = buffers("probabilities", scored, Bank.OPERAND)
        self.contexts = buffers("contexts", layout.groups * mapping.queries, Bank.STATE)
        self.scaling, self.scale = (  # of the scores, of the contexts
            {"mult": int(pair[0]), "shift": int(pair[1])} for pair in (
                np.asarray(b.network.tensor(node, role))[number] for role in ("score", "context")))

    def load(self) -> None:
        """Keys, values, queries."""
        row = self.layout.row
        for part, (at, pitch) in enumerate(zip(self.parts, (self.key_pitch, self.key_pitch, self.query_pitch),
                                               strict=True)):
            self.b.add(Unit.LOAD, f"{self.name}: {PARTS[part]}", region=HEADS, offset=self.layout.offset(
                part, self.number), stride=row, bytes=row, row=at, row_stride=1, block_stride=pitch, rows=self.all)

    def attend(self) -> None:
        """Block by block."""
        blocks = range(self.mapping.flight)
        with self.loop():
            for i in blocks:
                self._scores(i)
            for i in blocks if self.mapping.standard else ():
                self._through_dram(SCORES, SCORE_BYTES, self.scores[i], i, {MoveFlag.ACCUMULATOR})
            for i in blocks:
                self._softmax(i)
            for i in blocks if self.mapping.standard else ():
                self._through_dram(PROBABILITIES, 1, self.probabilities[i], i, set())
            for i in blocks:
                self._contexts(i)
            for i in blocks:
                self.normalise(i)
            for i in blocks:
                self.store(i)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """A turn for each ``flight`` blocks."""
        b, turn = self.b, self.mapping.queries * self.mapping.flight
        b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.ROWS, note="queries that are left"))
        if self.turns == 1:
            yield
            return
        moved = {stored(CONTEXT): self.layout.heads * self.layout.row}
        if self.mapping.standard:
            for region, size in ((SCORES, SCORE_BYTES), (PROBABILITIES, 1)):
                moved |= dict.fromkeys((region, stored(region)), size * self.scored)
        b.control(set_length(LengthReg.ROW), *(SetDisplacement(region, 0) for region in moved))
        with b.loop(Length(MAX_LENGTH, LengthReg.LEFT), turn.bit_length() - 1, f"queries of head {self.number}",
                    local=True):
            yield
            b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-turn),
                      set_length(LengthReg.ROW, Source.LENGTH, LengthReg.ROW, amount=turn),
                      *(SetDisplacement(region, turn * row, further=True) for region, row in moved.items()))

    def rows(self, i: int) -> Length:
        return Length(self.mapping.queries, LengthReg.LEFT, i * self.mapping.queries)

    def _scores(self, i: int) -> None:
        m, moved = self.mapping.queries, (Dyn.SRC0, LengthReg.ROW, 1) if self.turns > 1 else NO_DYN
        self.b.add(Unit.MATRIX, f"{self.name}: scores", flags={MatrixFlag.B_TRANSPOSED}, dyn=moved,
                   a_row=self.parts[2] + i * m, a_stride=self.query_pitch, b_row=self.parts[0],
                   b_stride=self.key_pitch, c_row=self.scores[i], c_stride=m, m=self.rows(i), n=self.all,
                   k=self.node.head_dim)

    def _through_dram(self, region: str, size: int, at: At, i: int, flags: set[MoveFlag]) -> None:
        """Store a block's rows of so many bytes a number and load them again."""
        row = size * self.scored
        self.b.reserve(region, self.layout.heads * self.layout.sequence * row)
        for unit, where in ((Unit.STORE, stored(region)), (Unit.LOAD, region)):
            self.b.add(unit, f"{self.name}: {region}", flags=flags, region=where, stride=row, bytes=row,
                       offset=(self.number * self.layout.sequence + i * self.mapping.queries) * row, row=at,
                       row_stride=1, block_stride=self.mapping.queries, rows=self.rows(i))

    def source(self, i: int) -> dict[str, Any]:
        """A block's scores, for the vector unit."""
        return {"src0": self.scores[i], "src0_stride": self.mapping.queries, "m": self.rows(i), "n": self.all,
                "context": i, **self.scaling}

    def _softmax(self, i: int) -> None:
        m, source = self.mapping.queries, self.source(i)
        self.b.add(Unit.VECTOR, f"{self.name}: maxima", op=VOp.SOFTMAX_MAX, **source)
        self.b.add(Unit.VECTOR, f"{self.name}: probabilities", op=VOp.SOFTMAX_EXP, dst=self.probabilities[i],
                   dst_stride=m, **source, **exponential(self.node))

    def _contexts(self, i: int) -> None:
        m = self.mapping.queries
        self.b.add(Unit.MATRIX, f"{self.name}: context", flags={MatrixFlag.A_UNSIGNED}, a_row=self.probabilities[i],
                   a_stride=m, b_row=self.parts[1], b_stride=self.key_pitch, c_row=self.sums[i], c_stride=m,
                   m=self.rows(i), n=self.node.head_dim, k=self.all)

    def normalise(self, i: int) -> None:
        """A block's contexts; what they say of the head is added up behind those of the other blocks."""
        m = self.mapping.queries
        self.b.add(Unit.VECTOR, f"{self.name}: normalise", op=VOp.REQUANT, flags={RequantFlag.ROW}, src0=self.sums[i],
                   src0_stride=m, dst=self.contexts[i], dst_stride=m, m=self.rows(i), n=self.node.head_dim, context=i,
                   **self.scale)
        if self.said:
            self.said.multiply(i, self.sums[i], self.rows(i), {"context": i, **self.scale})

    def store(self, i: int) -> None:
        m, row, every = self.mapping.queries, self.layout.row, self.layout.heads * self.layout.row
        self.b.add(Unit.STORE, f"{self.name}: contexts", region=stored(CONTEXT),
                   offset=self.number * row + i * m * every, stride=every, bytes=row, row=self.contexts[i],
                   row_stride=1, block_stride=m, rows=self.rows(i))
        if self.said:
            self.said.add(i, self.rows(i))
