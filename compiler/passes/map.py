"""Map: sizes of what streams and of attention's blocks, in the order of preference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby, product

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention, Graph, Linear, Pages
from gemmule.compiler.kernels.attention.block import BlockMapping
from gemmule.compiler.kernels.attention.chosen.pages_mapping import PagesMapping
from gemmule.compiler.kernels.attention.halves.packed import PackedMapping
from gemmule.compiler.kernels.attention.halves.packing import Packing
from gemmule.compiler.kernels.attention.halves.progressive import ProgressiveMapping
from gemmule.compiler.kernels.attention.kv_layout import KvLayout, attention_of
from gemmule.compiler.kernels.attention.online import OnlineMapping
from gemmule.compiler.kernels.attention.shared import AttentionMapping, attention_rows
from gemmule.compiler.kernels.attention.split import SplitMapping
from gemmule.compiler.kernels.attention.standard import StandardMapping
from gemmule.compiler.kernels.attention.texts.branches import BranchesMapping
from gemmule.compiler.kernels.attention.values import ValuesMapping
from gemmule.compiler.kernels.attention.whole import WholeMapping
from gemmule.compiler.layout import WeightFormat
from gemmule.config import Config
from gemmule.timing import ceil_div

__all__ = ["MOST_SEQUENCES", "Choice", "DecoderMapping", "choices", "default_rows", "mappings", "most_rows"]

BLOCKS = (128, 64, 32, 16, 8, 4)
"""Cached positions of a block."""
CHUNK_BYTES = 32 * 1024
"""A slot of the weight ring takes this at most: longer loads gain nothing."""
MOST_ROWS = 16
MOST_UNROLLED = 16
"""Layers whose commands stand one by one, where contexts are small enough to stay in the scratchpad."""
MOST_SEQUENCES = 16
"""Of a batch: each has a base register of its own."""
MOST_LISTED = 32
"""Of a batch whose caches go by list: the list says where new rows go."""
LONG_LOAD = 4096
"""Bytes of a block from which on it is loaded by itself; shorter ones come in pairs, which halves the loads."""
MOST_BLOCK = 1024
"""Keys of a block of online attention at most: a command counts up to 4095 columns behind it."""
TURN = 256
"""Positions of a turn at most: offsets of length registers reach no further."""
ALL, SOME, NONE = range(3)
"""Of the scores of a cache, those that stay in the accumulator."""
MANY, SHORT = 128, 64
"""Positions for which it pays to keep some, and of the shortest block that does; one block a turn does not."""


@dataclass(frozen=True, kw_only=True)
class DecoderMapping:
    """How a network is cut for a device."""

    rows: int
    """Most new rows of a launch."""
    batch: int
    """Sequences that they are of, as many of each."""
    ring_slots: int
    ring_rows: int
    """Scratchpad rows of a slot of the weight ring."""
    acc_rows: int
    """Accumulator rows that a product's tile may take."""
    parameter_rows: int
    """Rows of column parameters that are loaded together, about."""
    attention: AttentionMapping
    rolled: bool
    """Equal layers become one body; else loads run ahead from layer to layer."""
    tokens: bool
    """Greedy tokens instead of logits."""
    fused: bool = True
    """Values stay on the device between operators; else each goes through DRAM, as of a kernel an operator."""

    @property
    def each(self) -> int:
        """New rows of a sequence."""
        return self.rows // self.batch


@dataclass(frozen=True)
class Choice:
    """Mappings that differ only in how long the weight ring is, the longest first: the first that fits counts."""

    mappings: tuple[DecoderMapping, ...]
    apart: bool
    """Every class of buffers has banks of its own."""


def choices(graph: Graph, config: Config, *, rows: int, batch: int, context: int, tokens: bool,
            pool: int = 0, fused: bool = True, standard: bool = False, cache: KvLayout | None = None,
            pages: Pages | None = None, values: int = 0, packed: Packing | None = None,
            branches: bool = False) -> list[Choice]:
    """All choices by preference: banks by class first.

    Raises:
        CompileError: as :func:`mappings`.
    """
    every = mappings(graph, config, rows=rows, batch=batch, context=context, tokens=tokens, pool=pool, fused=fused,
                     standard=standard, cache=cache, pages=pages, values=values, packed=packed, branches=branches)
    found = [tuple(alike) for _, alike in groupby(every, lambda mapping: (mapping.attention, mapping.ring_rows))]
    return [Choice(alike, apart) for apart in (True, False) for alike in found]


def mappings(graph: Graph, config: Config, *, rows: int, batch: int, context: int, tokens: bool,
             pool: int = 0, fused: bool = True, standard: bool = False, cache: KvLayout | None = None,
             pages: Pages | None = None, values: int = 0, packed: Packing | None = None,
             branches: bool = False) -> Iterator[DecoderMapping]:
    """Choices: scores kept rather than computed twice, larger blocks, more of them a turn, a larger ring.

    ``rows`` of each of ``batch`` sequences; ``pool``: rows of a cache by list, of all sequences. ``standard``:
    scores and probabilities through DRAM. ``cache``: of a program beside this one, which this one goes on with.
    ``pages``: rows choose what they attend to. ``values``: least 8-bit probability for which a value is loaded; 0: all
    are. ``packed``: the cache may begin with rows of 4 bits, and which of their numbers those are. ``branches``: each
    row sees rows of the cache of its own.

    Raises:
        CompileError: more rows than statistics or bitmaps take, or more sequences than a batch; a cache by list in the
            standard way.
    """
    node = attention_of(graph)
    if rows < 1:
        raise CompileError(f"rows of a launch must be at least 1, not {rows}: use more rows")
    sequences = MOST_LISTED if pool else MOST_SEQUENCES
    if not 1 <= batch <= sequences:
        raise CompileError(f"sequences of a batch must be from 1 to {sequences}, not {batch}: take fewer")
    every, most = attention_rows(node, rows), min(config.stat_rows, 8 * config.dim)
    if every > most:
        raise CompileError(f"rows of a launch times the heads that share a KV head must be from 1 to {most}, not "
                           f"{every}: use fewer rows")
    ways: Iterable[AttentionMapping]
    if pages:
        ways = _pages(node, config, rows, context, pages)
    elif packed:
        ways = _packed(node, config, rows, context, packed, cache)
    elif branches:
        ways = _branches(node, config, rows, context)
    elif values:
        ways = _values(node, config, rows, context, values, cache)
    else:
        ways = _attentions(node, config, rows=rows, batch=batch, context=context, pool=pool, standard=standard,
                           cache=cache)
    for attention in ways:
        in_place = isinstance(attention, WholeMapping) and attention.in_place(node)
        for ring_rows, slots, share in _rings(graph, config, small=not isinstance(attention, WholeMapping)):
            yield DecoderMapping(
                rows=batch * rows, batch=batch, ring_slots=slots, ring_rows=ring_rows,
                acc_rows=max(batch * rows, config.acc_rows // 4),
                parameter_rows=min(1024, config.spm_rows // share), attention=attention,
                rolled=not (in_place and graph.layers <= MOST_UNROLLED), tokens=tokens, fused=fused)


def _attentions(node: Attention, config: Config, *, rows: int, batch: int, context: int, pool: int,
                standard: bool, cache: KvLayout | None) -> Iterator[AttentionMapping]:
    """Those that could fit, of the way that the network and ``standard`` ask for."""
    if not node.block and not standard:
        whole = _whole(node, config, rows, context, pool, cache) if batch == 1 else ()
        return chain((made for made in whole if cache is None or cache.joined == made.joined),
                     () if pool and batch == 1 and cache is None else
                     _blocks(node, config, rows, context, cache=cache, pool=pool),
                     _split(node, config, rows, context, cache) if batch == 1 and cache and not pool else ())
    if pool:
        raise CompileError(f"{'standard' if standard else 'online'} attention takes a cache in order, not by list "
                           "(pages): use exact")
    if not node.block:
        return _blocks(node, config, rows, context, standard)
    if standard or node.block % config.dim or node.block & (node.block - 1) or node.block > MOST_BLOCK:
        raise CompileError(f"online attention must have a block that is a power of two and a multiple of {config.dim} "
                           f"up to {MOST_BLOCK}, and no standard way, not {node.block}")
    return _online(node, node.block, config, rows, context)


def most_rows(graph: Graph, config: Config) -> int:
    """New rows of a launch at most where nobody asks for a number: up to 16 and the positions, a power of two."""
    node = attention_of(graph)
    most = max(1, min(MOST_ROWS, graph.whole_positions,
                      min(config.stat_rows, 8 * config.dim) * node.kv_heads // node.heads))
    return 1 << most.bit_length() - 1


def default_rows(graph: Graph, config: Config) -> int:
    """New rows of a launch where nobody asks for a number.

    Rather half or a quarter of the most, if the scores of the whole context then stay in the accumulator: keys are read
    once. Else half of the most where the heads that share a KV head, whose rows are one product, then still fill the
    mesh.
    """
    node, most = attention_of(graph), most_rows(graph, config)
    for rows in (most, most // 2, most // 4):
        first = next(_blocks(node, config, rows, graph.whole_positions), None) if rows else None
        if first and first.keep:
            return rows
    shared = node.heads // node.kv_heads
    return most // 2 if shared > 1 and shared * (most // 2) > config.dim >= most else most


def _rings(graph: Graph, config: Config, *, small: bool) -> Iterator[tuple[int, int, int]]:
    """(rows of a slot, slots) of the weight ring, and the share of the scratchpad that column parameters may take.

    Slots of whole column groups of most linears first, and as many as run well ahead; ``small``: then any.
    """
    most = min(CHUNK_BYTES // config.dim, config.spm_rows // 4)
    depths = [_depth_rows(node, config) for node in graph.nodes if isinstance(node, Linear)]
    common = max(set(depths), key=depths.count)
    sizes = [(common * count, max(8, min(16, config.spm_rows // (2 * common * count))), least)
             for count, least in ((8, 4), (4, 4), (2, 4), (1, 3)) if common * count <= most]
    sizes += [(most >> halving, 4, 2) for halving in range(12)] if small else []
    for rows, high, low in sizes:
        for share, slots in product((16, 32), range(high, low - 1, -1)):
            if rows >= config.preload and rows * slots <= config.spm_rows:
                yield ceil_div(rows, config.preload) * config.preload, slots, share


def _depth_rows(node: Linear, config: Config) -> int:
    """Scratchpad rows of a column group at whole depth, its scales among them."""
    group = node.group and max(node.group, config.dim)
    return WeightFormat(bits=node.bits, group=group).rows(config, ceil_div(node.depth, config.dim))


def _whole(node: Attention, config: Config, rows: int, context: int, pool: int,
           cache: KvLayout | None) -> Iterator[WholeMapping]:
    """Those whose scores and buffers could fit: all heads in one buffer, else one head in each of several."""
    every = attention_rows(node, rows)
    need = (ceil_div(context, config.dim) + 2 * ceil_div(node.head_dim, config.dim)) * every
    several = ((1, 3), (1, 2)) if node.kv_heads > 1 else ()
    for heads, ring in ((node.kv_heads, 1), *several):
        made = WholeMapping(context=context, pool=pool, cache=cache, heads=heads, ring=ring,
                            pipelined=heads > 1 and config.stat_contexts > 1)
        if need <= config.acc_rows and made.scratchpad_rows(node, config.dim, rows) <= config.spm_rows * 5 // 8:
            yield made


def _blocks(node: Attention, config: Config, rows: int, context: int, standard: bool = False,
            cache: KvLayout | None = None, pool: int = 0) -> Iterator[BlockMapping]:
    """Those whose scores, context and blocks could fit; in the standard way no scores stay.

    First those that keep all scores, then those that keep some, most of them first.
    """
    if not standard:
        yield from _blocks_keeping(ALL, BlockMapping, node, config, rows, context, cache, pool)
        yield from sorted(_blocks_keeping(SOME, BlockMapping, node, config, rows, context, cache, pool),
                          key=lambda made: -made.kept)
    yield from _blocks_keeping(NONE, StandardMapping if standard else BlockMapping, node, config, rows, context, cache,
                               pool)


def _blocks_keeping(kept: int, kind: type[BlockMapping], node: Attention, config: Config, rows: int, context: int,
                    cache: KvLayout | None, pool: int = 0) -> Iterator[BlockMapping]:
    """Those that keep all scores, some or none."""
    head, every = ceil_div(node.head_dim, config.dim), attention_rows(node, rows)
    for block in BLOCKS:
        if block > 64 and block * node.head_dim > LONG_LOAD:
            continue
        for blocks in (2, 1, 4) if kept == NONE else (4, 2, 1):  # loads of keys come closer behind their products
            if block * blocks > TURN:
                continue
            made = kind(
                block=block, blocks=blocks, pair=2 if blocks > 1 and block * node.head_dim < LONG_LOAD else 1,
                kept=context if kept == ALL else 0, pipelined=config.stat_contexts > 1 and node.kv_heads > 1,
                context=context, pool=pool, cache=cache, joined=cache.joined if cache else 0)
            turn = blocks * ceil_div(block, config.dim) * every
            once = (made.moved(node, config.dim, rows) if kept == ALL else turn) + turn
            left = config.acc_rows - once - (1 + made.pipelined) * (ceil_div(rows, config.dim) + head) * every
            if left < 0 or made.ring * head * block * made.pair > config.spm_rows // 4:
                continue
            if kept == SOME:  # a power of two, which leaves some room to sums of linears
                turns = 1 << (left // turn).bit_length() >> 1
                if block < SHORT or blocks < 2 or turns * made.turn < MANY:
                    continue
                made = replace(made, kept=turns * made.turn)
            yield made


def _split(node: Attention, config: Config, rows: int, context: int, cache: KvLayout) -> Iterator[SplitMapping]:
    """In halves of the rows, beside another program."""
    if made := SplitMapping.of(node, config, rows, context, cache):
        yield made


def _pages(node: Attention, config: Config, rows: int, context: int, pages: Pages) -> Iterator[PagesMapping]:
    """Two heads in flight, or one.

    Raises:
        CompileError: the device or the network cannot, or not even one fits.
    """
    fits = False
    for ring in (2, 1) if node.kv_heads > 1 else (1,):
        made = PagesMapping(context=context, pages=pages, ring=ring, prefix=node.prefix)
        try:
            made.check(node, config, rows)
        except CompileError:
            if ring == 1 and not fits:
                raise
            continue
        fits = True
        yield made


def _values(node: Attention, config: Config, rows: int, context: int, least: int,
            cache: KvLayout | None) -> Iterator[BlockMapping]:
    """Blocks, with values by list where that saves time, else with all values; smaller probabilities than ``least``
    count as 0 in both.

    Raises:
        CompileError: the network's attention is online, or the device has too few contexts of statistics.
    """
    if node.block:
        raise CompileError("values by list need exact attention, not online: import the network with --attention exact")
    if least > 1 and config.stat_contexts < 2:
        raise CompileError(f"probabilities below {least} count as 0 with at least 2 stat_contexts, not "
                           f"{config.stat_contexts}: raise it, or use 1, with which zeros alone are left out")
    for blocks in _blocks(node, config, rows, context, cache=cache):
        made = replace(blocks, least=least)
        yield ValuesMapping.of(made, node, config, rows) or made


def _packed(node: Attention, config: Config, rows: int, context: int, packed: Packing,
            cache: KvLayout | None) -> Iterator[BlockMapping]:
    """Blocks of packed rows too.

    Raises:
        CompileError: the network's attention is online.
    """
    if node.block:
        raise CompileError("rows of 4 bits need exact attention, not online: import the network with --attention exact")
    found = False
    for blocks in _blocks(node, config, rows, context, cache=cache):
        if made := (ProgressiveMapping.flat(blocks, config, packed) if packed.halves.lower else
                    PackedMapping.of(blocks, config, packed.halves)):
            found = True
            yield made
    if not found:
        raise CompileError(f"scores of {rows} rows behind {context} positions must stay in the accumulator where lower "
                           "halves of keys are added to them: use fewer rows, or a shorter context")


def _branches(node: Attention, config: Config, rows: int, context: int) -> Iterator[BranchesMapping]:
    """Blocks over which bitmaps reach.

    Raises:
        CompileError: the network's attention is online; bitmaps reach over no block.
    """
    if node.block:
        raise CompileError("rows that see some of the cached ones need exact attention, not online: import the "
                           "network with --attention exact")
    if (every := attention_rows(node, rows)) < BLOCKS[-1]:
        raise CompileError("rows that see some of the cached ones, times the heads that share a KV head, must be at "
                           f"least {BLOCKS[-1]}, not {every}: use more rows")
    for blocks in _blocks(node, config, rows, context):
        if made := BranchesMapping.of(blocks, node, config, rows):
            yield made


def _online(node: Attention, block: int, config: Config, rows: int, context: int) -> Iterator[OnlineMapping]:
    """Those whose scores, contexts and blocks could fit: two blocks in a turn, else one.

    Raises:
        CompileError: not even one does.
    """
    fits = False
    for blocks in (2, 1):
        made = OnlineMapping(context=context, block=block, blocks=blocks, contexts=min(2, config.stat_contexts))
        scores = made.scores_rows(node, config.dim, rows)
        sums = made.contexts * ceil_div(node.head_dim, config.dim) * attention_rows(node, rows)
        if blocks * block <= max(TURN, block) and scores + sums <= config.acc_rows and (
                made.scratchpad_rows(node, config.dim, rows) <= config.spm_rows * 5 // 8):
            fits = True
            yield made
    if not fits:
        raise CompileError(
            f"{rows} rows with a block of {block} keys and values must fit 5/8 of the scratchpad and the accumulator "
            f"of {config.name}: use fewer rows, exact attention, or larger memories (spm_kib, acc_kib)")
