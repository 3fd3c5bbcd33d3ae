"""Lower an encoder: phases of commands on virtual buffers, between which rows stand in DRAM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gemmule.compiler.ir import Attention, Network, TokenPruning
from gemmule.compiler.kernels import embed, mlp
from gemmule.compiler.kernels.attention.choosing import attend_choosing, kept_words
from gemmule.compiler.kernels.attention.heads.gates import HeadGates
from gemmule.compiler.kernels.attention.heads.leaving import LeavingHeads
from gemmule.compiler.kernels.attention.heads.products import project_heads, tiles_of_left
from gemmule.compiler.kernels.attention.sequence import (
    CONTEXT,
    HEADS,
    HeadLayout,
    SequenceMapping,
    attend_sequence,
)
from gemmule.compiler.kernels.attention.sequence_online import attend_online
from gemmule.compiler.kernels.epilogue import add_to_residual, store
from gemmule.compiler.kernels.head.logits import ANSWERS
from gemmule.compiler.kernels.layout import Span, by_heads, in_order
from gemmule.compiler.kernels.linear import Ring, between, linear_tiles
from gemmule.compiler.kernels.norm import RowNorm
from gemmule.compiler.kernels.row_blocks import RowBlock, load_rows, row_blocks, store_rows, stored
from gemmule.compiler.kernels.spill import spill
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, Item, LengthReg, SetDisplacement
from gemmule.compiler.passes.encoder.fuse import EncoderOperators, LayerOperators
from gemmule.compiler.passes.encoder.map import PhaseMapping
from gemmule.compiler.passes.entry import Lowered, Part
from gemmule.compiler.passes.fuse import Attend, Normalize
from gemmule.config import Config
from gemmule.control import set_length
from gemmule.isa import Length, RequantFlag, Source, Unit
from gemmule.timing import ceil_div

__all__ = ["EncoderPhases"]

NARROW, WIDE = "narrow", "wide"
"""Regions: the rows between layers, int8 and int16."""
INNER_NARROW, INNER_WIDE = "inner narrow", "inner wide"
"""The same within a layer."""
Writes = list[Callable[[], None]]
PIECES = 4
"""In which the int16 rows of a block come while another block is computed, with weights between them."""


@dataclass
class EncoderPhases:
    """Writes the phases of an encoder, in any order; each returns its items."""

    network: Network
    config: Config
    sequence: int
    """Most rows."""
    fused: bool = True
    pruning: TokenPruning | None = None
    """Rows and heads leave behind the attention of some layers."""
    b: Builder = field(init=False)

    def __post_init__(self) -> None:
        found = self.pruning.heads if self.pruning else None
        self.heads = found.schedule(self.network.graph) if found else None
        self.b = Builder(self.config, self.network, self.sequence, fused=self.fused)

    def lowered(self, *, before: list[Part], layers: Sequence[list[Part]] = (), behind: Sequence[Part] = ()) -> Lowered:
        """These phases, and what they have in DRAM."""
        return Lowered(before=before, layers=list(layers), behind=list(behind), sizes=self.b.sizes,
                       constants=self.b.constants, launch=kept_words(self.config, [1] * len(self._pruning)))

    @property
    def _pruning(self) -> tuple[int, ...]:
        """Layers behind whose attention rows leave."""
        return self.pruning.pruning if self.pruning else ()

    def _gates(self, node: Attention) -> HeadGates | None:
        """Of a phase, where heads have left before the layer."""
        return LeavingHeads.gates_of(self.b, node, self.heads)

    def _done(self) -> list[Item]:
        items, self.b.items, self.b.spilled = self.b.items, [], 0
        return items

    def _groups(self, columns: int) -> int:
        return ceil_div(columns, self.config.dim)

    def _row(self, columns: int) -> int:
        """Bytes of an int8 row."""
        return self._groups(columns) * self.config.dim

    def _ring(self, mapping: PhaseMapping) -> Ring:
        return Ring(mapping.ring_slots, mapping.ring_rows, self.config.preload, mapping.acc_rows,
                    mapping.parameter_rows, wide=True)

    def _reserve(self, region: str, size: int) -> None:
        self.b.reserve(region, self.sequence * size)

    # -- phases

    def embedding(self, operators: EncoderOperators, rows: int, norm_rows: int) -> list[Item]:
        """Tokens and positions to normalised rows; blocks one by one, since gathers tell their entries."""
        b, node = self.b, operators.embed.embedding
        embed.lists(b, node.vocab, positions=operators.embed.position is not None)
        norm = RowNorm.of(b, operators.norm.norm, operators.norm.wide)
        norm.load()
        b.rows, narrow = rows, self._row(node.columns)
        for first in range(0, self.sequence, rows):
            b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.ROWS, amount=-first))
            block = RowBlock(0, min(rows, self.sequence - first))
            b.block = block.part(0, block.rows)
            residual = embed.new_residual(b, node.columns)
            embed.embed(b, node, operators.embed.position, residual, entries=(first, self.sequence + first))
            self._spill_residual("embedded", residual)
            self._norm(operators.norm, norm, residual, block, norm_rows, NARROW, WIDE, first)
        # Layers are a loop: no turn's loads shall wait for as many stores as the first one's for these.
        b.add(Unit.LOAD, f"{operators.norm.norm.name}: stores are done", region=embed.TOKENS, bytes=self.config.dim,
              row=residual, block_stride=1, rows=1)
        b.rows, b.block = self.sequence, None
        self._reserve(NARROW, narrow)
        self._reserve(WIDE, 2 * narrow)
        return self._done()

    def project_heads(self, operator: Attend, mapping: PhaseMapping) -> list[Item]:
        """Queries, keys and values of all rows, by head."""
        b, node, dim = self.b, operator.attention, self.config.dim
        layout, ring, depth = HeadLayout.of(node, self.config, self.sequence), self._ring(mapping), operator.query.depth
        self._reserve(NARROW, self._row(depth))
        b.reserve(HEADS, layout.size)
        b.rows, count, order = mapping.rows, mapping.together, in_order(depth, dim)
        spans = [self._operand(NARROW, len(order), RowBlock(i, 1)) for i in range(count)]
        linears, gates = (operator.key, operator.value, operator.query), self._gates(node)

        def load(block: RowBlock) -> Writes:
            return self._load(NARROW, spans[block.first // mapping.rows % count], block)

        with row_blocks(b, self.sequence, mapping.rows, count, {
                NARROW: self._row(depth), stored(HEADS): layout.row}, "queries, keys and values", load) as blocks:
            for block, span in zip(blocks, spans, strict=True):
                self._enter(block)
                project_heads(b, ring, node, linears, layout, gates, block, Span(span, b.rows, order),
                              load(block.following) if count > 1 else [])
                self._late(load(block.following) if count == 1 else [])
        return self._done()

    def attention(self, operator: Attend, mapping: SequenceMapping) -> list[Item]:
        """Contexts of all heads."""
        node = operator.attention
        layout = HeadLayout.of(node, self.config, self.sequence)
        self.b.reserve(HEADS, layout.size)
        self._reserve(CONTEXT, layout.row * node.heads)
        leaving = LeavingHeads.of(self.b, node, self.heads)
        if self.pruning and node.layer is not None and self.pruning.adds(node.layer):
            attend_choosing(self.b, node, mapping, self.sequence, self.pruning, node.layer, leaving)
        else:
            (attend_online if node.block else attend_sequence)(self.b, node, mapping, self.sequence, leaving)
        return self._done()

    def project_contexts(self, layer: LayerOperators, mapping: PhaseMapping) -> list[Item]:
        """The output projection, added to the rows, and the norm behind it; of the chosen rows, where others leave."""
        b, linear, node, ring = self.b, layer.output.linear, layer.attend.attention, self._ring(mapping)
        listed = self.sequence if node.layer in self._pruning else 0
        lanes = by_heads(np.arange(node.heads), node.head_dim, self.config.dim)
        narrow, order = self._row(linear.columns), in_order(linear.columns, self.config.dim)
        for region, size in ((CONTEXT, len(lanes)), (WIDE, 2 * narrow), (INNER_NARROW, narrow),
                             (INNER_WIDE, 2 * narrow)):
            self._reserve(region, size)
        b.rows, count = mapping.rows, mapping.together
        spans = [self._operand(CONTEXT, len(lanes), RowBlock(i, 1)) for i in range(count)]
        residuals = [embed.new_residual(b, linear.columns) for _ in spans]
        gates = self._gates(node)

        def load(block: RowBlock) -> Writes:
            number = block.first // mapping.rows % count
            return [*load_rows(b, f"{WIDE}: rows", WIDE, 2 * narrow, residuals[number], block, PIECES, listed),
                    *self._load(CONTEXT, spans[number], block, listed)]

        with row_blocks(b, self.sequence, mapping.rows, count, {
                CONTEXT: 0 if listed else len(lanes), WIDE: 0 if listed else 2 * narrow,
                stored(INNER_NARROW): narrow, stored(INNER_WIDE): 2 * narrow}, f"{linear.name}", load) as blocks:
            factors = RowNorm.of(b, layer.attention_norm.norm, layer.attention_norm.wide)

            for block, span, residual in zip(blocks, spans, residuals, strict=True):
                self._enter(block)
                ahead = [*(load(block.following) if count > 1 else []), *([] if block.first else [factors.load])]
                tiles = tiles_of_left(b, ring, node, linear, span, order, gates, ahead) if gates else between(
                    linear_tiles(b, ring, linear, [Span(span, b.rows, lanes)], order), self._groups(linear.columns),
                    ahead)
                for tile in tiles:
                    add_to_residual(b, linear, tile, residual)
                self._spill_residual(layer.output.add.name, residual)
                self._norm(layer.attention_norm, factors, residual, block, mapping.norm_rows, INNER_NARROW, INNER_WIDE)
                self._late(load(block.following) if count == 1 else [])
        return self._done()

    def mlp(self, layer: LayerOperators, mapping: PhaseMapping) -> list[Item]:
        """Both products of the MLP, added to the rows, and the norm behind them, a block a turn.

        What it begins with is loaded in the turn before, once the mesh needs it no more.
        """
        b, up, down, ring = self.b, layer.inner.up, layer.down.linear, self._ring(mapping)
        narrow, lanes = self._row(down.columns), in_order(up.depth, self.config.dim)
        for region, size in ((INNER_NARROW, 1), (INNER_WIDE, 2), (NARROW, 1), (WIDE, 2)):
            self._reserve(region, size * narrow)
        b.rows = mapping.rows
        at = self._operand(INNER_NARROW, len(lanes), RowBlock(0, mapping.rows))
        norm = RowNorm.of(b, layer.output_norm.norm, layer.output_norm.wide)
        mlp.load_table(b, layer.inner.activation)
        with row_blocks(b, self.sequence, mapping.rows, mapping.together, {
                INNER_NARROW: narrow, INNER_WIDE: 2 * narrow, stored(NARROW): narrow, stored(WIDE): 2 * narrow},
                f"{up.name} and {down.name}", lambda block: self._load(INNER_NARROW, at, block)) as blocks:
            for block in blocks:
                self._enter(block)
                residual = embed.new_residual(b, down.columns)
                ahead = load_rows(b, f"{INNER_WIDE}: rows", INNER_WIDE, 2 * narrow, residual, block, PIECES)
                inner = mlp.activated_rows(b, ring, Span(at, b.rows, lanes), up, layer.inner.activation, [
                    *ahead, *([] if block.first else [norm.load])])
                tiles = linear_tiles(b, ring, down, [inner], in_order(down.columns, self.config.dim))
                for tile in between(tiles, self._groups(down.columns), self._load(INNER_NARROW, at, block.following)):
                    add_to_residual(b, down, tile, residual)
                self._spill_residual(layer.down.add.name, residual)
                self._norm(layer.output_norm, norm, residual, block, mapping.norm_rows, NARROW, WIDE)
        return self._done()

    def classify(self, operators: EncoderOperators, mapping: PhaseMapping) -> list[Item]:
        """Logits of the first row."""
        b, pooler, head = self.b, operators.pooler, operators.classifier
        if pooler is None or head is None:
            return []
        ring, block = self._ring(mapping), RowBlock(0, 1)
        b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.ROWS), SetDisplacement(NARROW, 0))
        b.rows, b.block = 1, Length(1)
        lanes = in_order(pooler.up.depth, self.config.dim)
        at = self._operand(NARROW, len(lanes), block)
        self._late(self._load(NARROW, at, block))
        pooled = mlp.inner_rows(b, ring, Span(at, 1, lanes), pooler.up, pooler.activation, None, None)
        groups = self._groups(head.columns)
        b.reserve(ANSWERS, 2 * groups * self.config.dim)
        planes = At(Buffer(f"{head.name} logits", 2 * groups, Bank.STATE))
        for tile in linear_tiles(b, ring, head, [pooled], in_order(head.columns, self.config.dim)):
            store(b, head, tile, planes, 2, RequantFlag.WIDE)
        b.add(Unit.STORE, f"{head.name}: logits", region=ANSWERS, bytes=2 * groups * self.config.dim, row=planes,
              row_stride=1, block_stride=1, rows=1)
        b.rows, b.block = self.sequence, None
        return self._done()

    # -- parts of them

    def _enter(self, block: RowBlock) -> None:
        """What follows is of this block's rows."""
        self.b.block, self.b.loaded = block.part(0, block.rows), block.part(0, 1)

    @staticmethod
    def _late(writes: Writes) -> None:
        """Loads into buffers that were in use until now: a block has those of the block before."""
        for write in writes:
            write()

    def _spill_residual(self, name: str, residual: At) -> None:
        """A block's int16 planes through DRAM, where operators are not fused."""
        spill(self.b, name, residual, residual.buffer.rows // self.b.rows, self.b.rows)

    def _operand(self, region: str, lanes: int, block: RowBlock) -> At:
        """Room for a block's int8 rows, for the mesh."""
        return At(Buffer(f"{region} {block.first}", lanes // self.config.dim * self.b.rows, Bank.OPERAND))

    def _load(self, region: str, at: At, block: RowBlock, listed: int = 0) -> Writes:
        """What loads a block's int8 rows; ``listed``: as of :func:`load_rows`."""
        size = at.buffer.rows // self.b.rows * self.config.dim
        return load_rows(self.b, f"{region}: rows", region, size, at, block, PIECES // 2, listed)

    def _norm(self, norms: Normalize, norm: RowNorm, residual: At, block: RowBlock, step: int, narrow: str, wide: str,
              first: int = 0) -> None:
        """Normalise a block at both widths, a few rows at a time, and store them; ``first``: its row in DRAM."""
        b, columns = self.b, norms.norm.columns
        size = self._row(columns)
        for i in range(0, block.rows, step):
            count = min(step, block.rows - i)
            m, rows = block.part(i, count), residual + i
            stage = At(Buffer(f"{norms.norm.name} rows", self._groups(columns) * count, Bank.STATE))
            norm.sums(rows, m)
            norm.scale(rows, m, stage, count)
            parts = [(narrow, size, stage, count)]
            if norms.wide:
                norm.scale_wide(rows, m)
                parts.append((wide, 2 * size, rows, b.rows))
            for region, bytes_, at, stride in parts:
                store_rows(b, f"{norms.norm.name}: {region} rows", region, bytes_, at, stride,
                           first + block.first + i, m)
