"""Lower: operators to commands on virtual buffers, by the kernels, in an order right one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Add, Attention, Borrowed, Linear, Network, Norm, Rope
from gemmule.compiler.kernels import embed, mlp
from gemmule.compiler.kernels.attention.block import BlockAttention, BlockMapping
from gemmule.compiler.kernels.attention.cache_list import CacheLists, list_cache_rows
from gemmule.compiler.kernels.attention.chosen.chunks import ChunkingAttention, ChunkingMapping, chunk_words
from gemmule.compiler.kernels.attention.chosen.pages import PagesAttention, Paging
from gemmule.compiler.kernels.attention.chosen.pages_mapping import PagesMapping, page_words
from gemmule.compiler.kernels.attention.halves.packed import PackedAttention, PackedMapping, packed_words
from gemmule.compiler.kernels.attention.halves.progressive import ProgressiveAttention, ProgressiveMapping
from gemmule.compiler.kernels.attention.halves.sorting import SortingAttention, SortingMapping, sorted_words
from gemmule.compiler.kernels.attention.importance.heavy import HeavyAttention, HeavyMapping, heavy_words
from gemmule.compiler.kernels.attention.online import OnlineAttention, OnlineMapping
from gemmule.compiler.kernels.attention.selecting import SelectingAttention, SelectingMapping, chosen_words
from gemmule.compiler.kernels.attention.shared import (
    AttentionKernel,
    AttentionMapping,
    attention_rows,
    load_masks,
    load_nobody,
)
from gemmule.compiler.kernels.attention.split import SplitAttention, SplitMapping
from gemmule.compiler.kernels.attention.standard import StandardAttention, StandardMapping
from gemmule.compiler.kernels.attention.texts.branches import BranchesAttention, BranchesMapping, list_places
from gemmule.compiler.kernels.attention.values import ValuesAttention, ValuesMapping
from gemmule.compiler.kernels.attention.whole import WholeAttention, WholeMapping
from gemmule.compiler.kernels.contents import Contents
from gemmule.compiler.kernels.epilogue import Heads, add_to_residual, store_heads
from gemmule.compiler.kernels.head import logits
from gemmule.compiler.kernels.head.answers import AnswerLayout, General, begin_answers, head_answers
from gemmule.compiler.kernels.head.exponents import exponent_sums
from gemmule.compiler.kernels.head.greedy import next_turn
from gemmule.compiler.kernels.head.lent import Lent, borrow, lend
from gemmule.compiler.kernels.head.top import largest
from gemmule.compiler.kernels.head_norm import HeadNorm
from gemmule.compiler.kernels.layout import Span, by_heads, in_order
from gemmule.compiler.kernels.linear import Ring, linear_tiles
from gemmule.compiler.kernels.nonzero import nonzero_tiles
from gemmule.compiler.kernels.norm import normalize_rows
from gemmule.compiler.kernels.spill import spill
from gemmule.compiler.kernels.virtual import At, Buffer, Builder, Item, LengthReg
from gemmule.compiler.kernels.widen import load_diagonals
from gemmule.compiler.passes.entry import Lowered, Part
from gemmule.compiler.passes.fuse import (
    Attend,
    Borrow,
    Embed,
    Head,
    Inner,
    Normalize,
    Operator,
    Project,
    Remember,
    nodes_of,
)
from gemmule.compiler.passes.map import DecoderMapping
from gemmule.config import Config
from gemmule.isa import MAX_LENGTH, Command, Length

__all__ = ["lower"]


WRITTEN = 2
"""Layers that tell how far each region moves from layer to layer."""


def lower(network: Network, config: Config, operators: Sequence[Operator], mapping: DecoderMapping,
          general: General | None = None, looped: bool = False, contents: Contents | None = None,
          lends: Lent | None = None, borrows: Lent | None = None) -> Lowered:
    """Commands on virtual buffers for every operator.

    ``general``: of the general program. ``looped``: of a turn of a greedy loop. ``contents``: where a program beside
    this one has its constants. ``lends``, ``borrows``: where rows for another network stand, and those of another one.

    Raises:
        CompileError: it cannot be cut so.
    """
    return _Lowering(network, config, mapping, general, looped, contents, lends, borrows).run(operators)


def _layer(operator: Operator) -> int | None:
    return nodes_of(operator)[-1].layer


class _Lowering:
    def __init__(self, network: Network, config: Config, mapping: DecoderMapping, general: General | None,
                 looped: bool, contents: Contents | None, lends: Lent | None, borrows: Lent | None) -> None:
        self.b = Builder(config, network, mapping.rows, mapping.batch, looped=looped, fused=mapping.fused,
                         contents=contents)
        self.once: list[Item] = []
        self.general = general
        self.mapping, self.config = mapping, config
        self.ring = Ring(mapping.ring_slots, mapping.ring_rows, config.preload, mapping.acc_rows,
                         mapping.parameter_rows)
        self.residual: At | None = None
        self.lends, self.borrows = lends, borrows
        self.borrowed: dict[str, At] = {}
        """int16 planes of another network's rows, by node name."""
        self.values: dict[str, list[Span]] = {}
        """int8 values by node name."""
        self.angles: At | None = None
        self.diagonals: At | None = None
        """Where heads are normed."""
        self.masks: At | None = None
        self.nobody: At | None = None
        self.paging: Paging | None = None
        self.cached: tuple[Buffer, ...] = ()
        self.lists: CacheLists | None = None
        self.layers = 0

    def run(self, operators: Sequence[Operator]) -> Lowered:
        """All operators, layers apart."""
        self._begin(operators)
        parts: list[tuple[int | None, list[Item]]] = []
        lent: list[Part] = []
        once = self.b.network.alike and self.mapping.rolled
        copies = max(0, self.b.network.graph.layers - WRITTEN) if once else 0
        for layer, group in ((layer, list(group)) for layer, group in groupby(operators, _layer)):
            self.ring.rewind()  # so that equal layers use the same buffers
            self.b.spilled = 0
            if once and layer is not None and layer >= WRITTEN:
                continue
            sizes = dict(self.b.sizes)
            if self.general and layer is None and any(done is not None for done, _ in parts):
                self._answers(self.general, group)
            else:
                for operator in group:
                    self._operator(operator)
            if layer == WRITTEN - 1:
                self.b.leave_room(sizes, copies)
            whole = not any(isinstance(operator, Remember) for operator in group)
            parts.append((layer if whole else None, self.b.items))
            self.b.items = []
            if self.lends and layer is not None and (layer + 1) % self.lends.every == 0:
                lend(self.b, self.lends, len(lent), self._residual())
                lent.append(self.b.items)
                self.b.items = []
        if self.b.looped:
            next_turn(self.b, self.mapping.attention.layout(
                self.b.network.graph, self.config, self.b.batch, self.b.each).row, totals=self.mapping.attention.totals)
            parts.insert(1 + max(i for i, (layer, _) in enumerate(parts) if layer is not None), (None, self.b.items))
        layers = [items for layer, items in parts if layer is not None]
        first = next((i for i, (layer, _) in enumerate(parts) if layer is not None), len(parts))
        return Lowered(
            before=[[item for _, items in parts[:first] for item in items]], layers=[[layer] for layer in layers],
            behind=[[item for _, items in parts[first + len(layers):] for item in items]], once=self.once,
            sizes=self.b.sizes, constants=self.b.constants, moved=self.b.moved, batch=self.b.batch,
            launch=self._launch(), lent=lent, every=self.lends.every if self.lends else 0,
            rolled=self.mapping.rolled, copies=copies, turns=MAX_LENGTH if self.b.looped else 1)

    def _launch(self) -> tuple[Command, ...]:
        """What a launch says itself."""
        match self.mapping.attention:
            case SortingMapping():
                return (sorted_words(self.config, 0, 0),)
            case ChunkingMapping(page=page):
                return (chunk_words(self.config, 0, 0, page),)
            case HeavyMapping():
                return (heavy_words(self.config, 0, 0),)
            case SelectingMapping():
                return (chosen_words(self.config, 0),)
            case PackedMapping():
                return (packed_words(self.config, 0),)
            case PagesMapping():
                return page_words(self.config, self.b.rows, ())
        return ()

    def _operator(self, operator: Operator) -> None:
        match operator:
            case Embed():
                self.residual = embed.new_residual(self.b, operator.embedding.columns)
                embed.embed(self.b, operator.embedding, operator.position, self.residual,
                            self.general.slots if self.general else 0)
                self._spill_residual("embedded")
            case Borrow():
                self._borrow(operator.borrowed)
            case Normalize():
                rows = self.borrowed.get(operator.norm.x) or self._residual()
                self.values[operator.norm.name] = [normalize_rows(self.b, operator.norm, rows)]
                self._spill(operator.norm.name)
            case Attend():
                self._attend(operator)
                self._spill(operator.attention.name)
            case Remember():
                self._remember(operator)
            case Inner():
                self.values[(operator.product or operator.activation).name] = [mlp.inner_rows(
                    self.b, self.ring, self._one(operator.up.x), operator.up, operator.activation, operator.gate,
                    operator.product)]
            case Project():
                self._project(operator)
            case Head():
                write = logits.tokens if self.mapping.tokens else logits.logits
                write(self.b, self.ring, operator.linear, self._one(operator.linear.x))

    def _borrow(self, node: Borrowed) -> None:
        if self.borrows is None or self.b.batch > 1 or self.b.looped:
            raise CompileError(f"{node.name}: rows of another network need one whose program lends them, and passes of "
                               "one sequence: compile with borrow=")
        self.borrowed[node.name] = rows = borrow(self.b, node, self.borrows, 2 * self.b.rows)
        if any(isinstance(reader, Add) for reader in self.b.network.graph.readers(node.name)):
            self.residual = rows  # a stream that begins with it, up to the embeddings

    def _spill(self, name: str) -> None:
        """An int8 value through DRAM, where operators are not fused."""
        for span in self.values[name]:
            parts = [(0, self.b.m)] if span.pitch is None else [
                (i * span.pitch, self.b.m_each) for i in range(self.b.batch)]
            for row, m in parts:
                spill(self.b, name, span.at + row, span.groups(self.config.dim), span.stride, m)

    def _spill_residual(self, name: str) -> None:
        """The residual stream's int16 planes, likewise."""
        at = self._residual()
        spill(self.b, name, at, at.buffer.rows // self.b.rows, self.b.rows)

    def _answers(self, general: General, operators: Sequence[Operator]) -> None:
        """What the general program gives back: the last norm and the head run where rows are answered."""
        b, head = self.b, next(operator for operator in operators if isinstance(operator, Head)).linear
        layout = AnswerLayout.of(self.config, b.rows, head.columns, general.top)
        begin_answers(b, self._residual(), head.depth)
        with b.loop(Length(1, LengthReg.WANTED), 0, "head", local=True):
            for operator in operators:
                if isinstance(operator, Head):
                    head_answers(b, self.ring, operator.linear, self._one(operator.linear.x), layout)
                else:
                    self._operator(operator)
        exponent_sums(b, layout)
        largest(b, layout)

    def _begin(self, operators: Sequence[Operator]) -> None:
        """Index lists, angles, bitmaps and the buffers for blocks of the cache."""
        attends = [operator for operator in operators if isinstance(operator, Attend | Remember)]
        ropes = [operator.key_rope for operator in attends if operator.key_rope]
        learned = any(isinstance(operator, Embed) and operator.position for operator in operators)
        rows = attention_rows(attends[0].attention, self.b.rows) if attends else 0
        if attends and isinstance(self.mapping.attention, BlockMapping | OnlineMapping | SplitMapping):
            self.nobody = load_nobody(self.b, rows)  # runs alone, so it comes first
        ids = next(operator.embedding.vocab for operator in operators if isinstance(operator, Embed))
        ids += self.general.slots if self.general else 0
        embed.lists(self.b, ids, positions=(bool(ropes) or learned) and not self.b.looped,
                    borrowed=any(isinstance(operator, Borrow) for operator in operators))
        if attends:
            node = attends[0].attention
            if isinstance(self.mapping.attention, PagesMapping):
                self.paging = Paging(self.b, node, self.mapping.attention)
            else:
                self.masks = load_masks(self.b, rows, self.mapping.attention.beyond(node, self.b.each))
            match self.mapping.attention:
                case BranchesMapping():
                    list_places(self.b)
                case BlockMapping(pool=pool) as blocks if pool:
                    self.lists = CacheLists.of(self.b, blocks.context, blocks.turn)
                case AttentionMapping(pool=pool, context=context) if pool:
                    list_cache_rows(self.b, context)
            self.cached = self.mapping.attention.buffers(node, self.config.dim, self.config.preload)
        if any(operator.key_norm for operator in attends):
            self.diagonals = load_diagonals(self.b)
        if self.b.looped:
            self.once, self.b.items = self.b.items, []
        if ropes:
            self.angles = embed.load_angles(self.b, ropes[0])

    def _residual(self) -> At:
        if self.residual is None:
            raise CompileError("a network must begin with an embedding")
        return self.residual

    def _one(self, name: str) -> Span:
        spans = self.values.get(name, [])
        if len(spans) != 1:
            raise CompileError(f"{name} must be an int8 value in one piece here")
        return spans[0]

    def _attend(self, operator: Attend) -> None:
        node, kernel = operator.attention, self._kernel(operator.attention)
        kernel.begin()
        # Keys and values first: they leave for the cache while queries are computed.
        self._new_rows(kernel, operator)
        self._by_heads(operator.query, operator.query_norm, operator.query_rope, Heads(
            range(node.heads), node.head_dim, kernel.place_query, kernel.all, kernel.query_pitch))
        kernel.write()
        self.values[node.name] = kernel.spans()

    def _remember(self, operator: Remember) -> None:
        self._new_rows(self._kernel(operator.attention), operator)

    def _new_rows(self, kernel: AttentionKernel, operator: Attend | Remember) -> None:
        """Keys and values, to the cache too."""
        node = operator.attention
        for part, (linear, norm, rope) in enumerate((
                (operator.key, operator.key_norm, operator.key_rope), (operator.value, None, None))):
            self._by_heads(linear, norm, rope, Heads(
                range(node.kv_heads), node.head_dim, partial(kernel.place_new, part), kernel.new_stride,
                kernel.new_pitch, kernel.new_dyn))
        kernel.store_new()

    def _by_heads(self, linear: Linear, norm: Norm | None, rope: Rope | None, heads: Heads) -> None:
        """A product whose columns are heads."""
        lanes = by_heads(np.array(heads.order), heads.head_dim, self.config.dim)
        if norm and self.angles and self.diagonals:
            made = HeadNorm(self.b, linear, norm, heads, self.angles, self.diagonals)
            made.write(linear_tiles(self.b, self.ring, linear, [self._one(linear.x)], lanes))
            return
        for tile in linear_tiles(self.b, self.ring, linear, [self._one(linear.x)], lanes):
            store_heads(self.b, linear, tile, heads, rope, self.angles if rope else None)

    def _kernel(self, node: Attention) -> AttentionKernel:
        masks = self.masks
        self.layers += 1
        if isinstance(self.mapping.attention, PagesMapping) and self.paging:
            return PagesAttention(self.b, node, self.mapping.attention, self.layers - 1, self.paging, self.cached)
        if masks is None:
            raise CompileError(f"{node.name}: no bitmaps")
        if isinstance(self.mapping.attention, WholeMapping):
            return WholeAttention(self.b, node, self.mapping.attention, self.layers - 1, masks, self.cached)
        if self.nobody is None:
            raise CompileError(f"{node.name}: no bitmaps that see nothing")
        match self.mapping.attention:
            case SortingMapping() as blocks:
                return SortingAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached)
            case ChunkingMapping() as blocks:
                return ChunkingAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached)
            case HeavyMapping() as blocks:
                return HeavyAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached)
            case SelectingMapping() as blocks:
                return SelectingAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached)
            case BranchesMapping() as blocks:
                return BranchesAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached)
            case ValuesMapping() as blocks:
                return ValuesAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached)
            case ProgressiveMapping() as blocks:
                return ProgressiveAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached)
            case PackedMapping() as blocks:
                return PackedAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached)
            case StandardMapping() as blocks:
                return StandardAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached)
            case BlockMapping() as blocks:
                return BlockAttention(self.b, node, blocks, self.layers - 1, masks, self.nobody, self.cached,
                                      self.lists)
            case SplitMapping() as split:
                return SplitAttention(self.b, node, split, self.layers - 1, masks, self.nobody, self.cached)
            case OnlineMapping() as online:
                return OnlineAttention(self.b, node, online, self.layers - 1, masks, self.nobody, self.cached)
        raise TypeError(f"no attention of {type(self.mapping.attention).__name__}")

    def _project(self, operator: Project) -> None:
        b, linear, dim = self.b, operator.linear, self.config.dim
        lanes = in_order(linear.columns, dim)
        every = any(isinstance(node, Add) and node.rescale for node in b.network.graph.nodes)
        tiles = (nonzero_tiles(b, self.ring, linear, self._one(linear.x), lanes) if linear.listed else
                 linear_tiles(b, self.ring, linear, self.values[linear.x], lanes, high=operator.high))
        for tile in tiles:
            if operator.high and operator.high_add and tile.high:
                acc, parameters = tile.high
                add_to_residual(b, operator.high, replace(tile, acc=acc, parameters=parameters), self._residual(),
                                operator.high_add.rescale if every else None)
                add_to_residual(b, linear, tile, self._residual())
            else:
                add_to_residual(b, linear, tile, self._residual(), operator.add.rescale if every else None)
        self._spill_residual(operator.add.name)
