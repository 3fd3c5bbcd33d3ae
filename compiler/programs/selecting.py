"""The programs that choose rows of a cache and copy them to a second one, beside the program whose cache it is.

A *selecting pass* runs the last rows of a text again over the whole cache. For each layer and KV head it writes a list
of the rows that they attend to most (:mod:`gemmule.compiler.kernels.attention.selecting`). A gather then copies these
rows to the *kept* cache. Both caches are laid out alike, so every program of the network runs on either. Rows that the
text gains meanwhile stand in the kept cache; a copy brings them back to the whole one before the next choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Graph, Network, Rows
from gemmule.compiler.kernels.attention.block import BlockMapping
from gemmule.compiler.kernels.attention.chosen.chunks import CHUNK_ROWS, ChunkingMapping, chunk_constants, most_chunked
from gemmule.compiler.kernels.attention.halves.packing import NIBBLES, PAIRS, nibble_tables
from gemmule.compiler.kernels.attention.halves.sorting import BOTH_MARKS, SortingMapping, sorted_words
from gemmule.compiler.kernels.attention.importance.heavy import (
    COUNTING,
    SUM_BYTES,
    HeavyMapping,
    counting_bytes,
    heavy_words,
    sums_pitch,
)
from gemmule.compiler.kernels.attention.selecting import SelectingMapping, chosen_words, most_chosen
from gemmule.compiler.kernels.attention.shared import CACHE, NEW_SUMS, SUMS
from gemmule.compiler.kernels.contents import Contents
from gemmule.compiler.layout import Region
from gemmule.compiler.passes.fit import run_fitting
from gemmule.compiler.passes.fuse import Operator, fuse, nodes_of
from gemmule.compiler.passes.map import Choice, choices, default_rows, most_rows
from gemmule.compiler.passes.pipeline import run
from gemmule.compiler.program import ReadDram, Registers, Step
from gemmule.compiler.programs.halves.packed_program import PackedProgram
from gemmule.compiler.programs.halves.packing import PACK, PackEntry, PackProgram
from gemmule.compiler.programs.linker import Linker
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.moves import COPY, GATHER, CopyEntry, CopyProgram, GatherEntry, GatherProgram
from gemmule.compiler.programs.pass_entry import PassEntry
from gemmule.config import Config
from gemmule.numerics import MOST_GUARDED

__all__ = ["KEPT", "Selection", "SelectingProgram", "compile_selection", "selecting_rows"]

KEPT = "kept cache"
"""Region of the chosen rows."""


@dataclass(frozen=True, kw_only=True)
class SelectingProgram(ModelProgram):
    """Passes over exactly ``max_rows`` rows behind a cache, of which no answer is wanted but lists of rows."""

    def choosing(self, rows: Rows, cached: int, kept: int, pairs: int = 0, behind: int = 0) -> Step:
        """A pass over ``rows`` behind ``cached`` ones, after which lists have ``kept`` of all these; of them the least
        important ones, ``pairs`` pairs, are of 4 bits.

        ``behind``: so many more rows of the cache, which come later than those of the pass, are among those that are
        chosen; where probabilities are counted, and these rows' are not yet.

        Raises:
            CompileError: sizes out of range.
        """
        return Step(self.choosing_registers(len(rows), cached, kept, pairs, behind), tuple(self.inputs(rows)))

    def counting(self, rows: Rows, cached: int) -> Step:
        """A pass over ``rows`` behind ``cached`` ones that adds their probabilities to the sums and chooses nothing.

        Raises:
            CompileError: sizes out of range, or a program that does not count.
        """
        return Step(self.counting_registers(len(rows), cached), tuple(self.inputs(rows)))

    def counting_registers(self, rows: int, cached: int) -> Registers:
        """:meth:`counting` without the rows."""
        if not self.counts:
            raise CompileError("running sums need a program that counts probabilities: compile with heavy=True")
        made = self._selecting_registers(rows, cached)
        made.first = (heavy_words(self.config, 0, 0),)
        return made

    def choosing_registers(self, rows: int, cached: int, kept: int, pairs: int = 0, behind: int = 0) -> Registers:
        """:meth:`choosing` without the rows."""
        made = self._selecting_registers(rows, cached)
        last = self._attention.last if self.counts else 0
        if not 0 <= behind <= last:
            raise CompileError(f"rows that are not counted must be from 0 to {last}, as many as always stay, not "
                               f"{behind}")
        every = cached + rows + behind - self.graph.prefix
        if not self.least <= kept <= every:
            raise CompileError(f"rows to keep must be from {self.least} (those that always are) to {every} (those that "
                               f"are cached), not {kept}")
        if not 0 <= 2 * pairs <= (kept if self.sorts else 0) or pairs % PAIRS:
            raise CompileError(f"pairs of rows of 4 bits must be a multiple of {PAIRS} from 0 to "
                               f"{kept // 2 if self.sorts else 0}, not {pairs}")
        made.first = (sorted_words(self.config, kept, pairs) if self.sorts else
                      heavy_words(self.config, kept, every) if self.counts else chosen_words(self.config, kept),)
        return made

    def _selecting_registers(self, rows: int, cached: int) -> Registers:
        """Of a pass over so many rows; new ones' sums stand behind those of the cached ones."""
        if rows != self.max_rows:
            raise CompileError(f"a selecting pass takes {self.max_rows} rows, not {rows}")
        made = super().registers(rows, cached, 0)
        if self.counts:
            (address, size), first = self.symbols[SUMS], SUM_BYTES * (cached - self.graph.prefix)
            made.bases[self.registers_of[NEW_SUMS]] = address + first
            made.limits[self.registers_of[NEW_SUMS]] = size - first
        return made

    @property
    def _attention(self) -> SelectingMapping:
        attention = self.choice.mappings[0].attention
        assert isinstance(attention, SelectingMapping)
        return attention

    @property
    def sorts(self) -> bool:
        """Whether some of the rows that stay can be of 4 bits."""
        return isinstance(self._attention, SortingMapping)

    @property
    def counts(self) -> bool:
        """Whether rows are chosen by the running sums of probabilities."""
        return isinstance(self._attention, HeavyMapping)

    def running_sums(self, read_dram: ReadDram, rows: int) -> np.ndarray:
        """The sums of the first ``rows`` rows behind the prefix, int32 [layers, KV heads, rows].

        Raises:
            CompileError: the program does not count.
        """
        if not self.counts:
            raise CompileError("running sums need a program that counts probabilities: compile with heavy=True")
        heads = self.graph.attentions[0].kv_heads
        found = self.read(read_dram, SUMS).view("<i4").reshape(-1, heads, sums_pitch(self._attention) // SUM_BYTES)
        return found[:, :, :rows]

    @property
    def least(self) -> int:
        """Rows that are always kept."""
        return self._attention.first + self._attention.last

    def extremes(self) -> list[Registers]:
        most, rows, prefix = self.max_positions - self.max_rows, self.max_rows, self.graph.prefix
        least = prefix + max(0, self.least - rows)
        sizes = [(cached, kept) for cached in sorted({min(max(least, end), most) for end in (0, 1, 65, most)})
                 for kept in sorted({self.least, cached + rows - prefix})]
        counting = [self.counting_registers(rows, cached) for cached in (prefix, most)] if self.counts else []
        return [*counting, *(self.choosing_registers(rows, cached, kept, pairs) for cached, kept in sizes
                             for pairs in ({0, kept // 2 // PAIRS * PAIRS} if self.sorts else {0}))]


class _SelectingEntry(PassEntry[SelectingProgram]):
    """All layers, without the head."""

    def fuse(self) -> Sequence[Operator]:
        operators = fuse(self.network.graph)
        last = max(i for i, operator in enumerate(operators) if nodes_of(operator)[-1].layer is not None)
        return operators[:last + 1]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What it takes to have a second cache of chosen rows."""

    select: SelectingProgram
    copy: CopyProgram
    gather: GatherProgram
    pack: PackProgram | None = None
    """Where some of the rows can be of 4 bits."""

    @property
    def displacement(self) -> int:
        """Bytes from the whole cache to the kept one."""
        return self.select.symbols[KEPT][0] - self.select.symbols[CACHE][0]

    def window(self, kept: bool, row: int) -> Region:
        """One of the caches from a row on."""
        address, size = self.select.symbols[KEPT if kept else CACHE]
        at = row * self.select.layout.row
        return address + at, size - at

    def gathering(self, rows: int, pairs: int = 0) -> Step:
        """The chosen rows, ``rows`` a list, to the first places behind the prefix of the kept cache, and ``pairs``."""
        stand = self.pack.halves.stand(pairs) if self.pack else 0
        to = self.window(True, self.select.graph.prefix + stand)
        return Step(self.gather.between(self.window(False, 0), to, rows))

    def packing(self, pairs: int) -> Step:
        """The rows of 4 bits, ``pairs`` pairs a list, to the first places behind the prefix.

        Raises:
            CompileError: there is no program for it.
        """
        if self.pack is None:
            raise CompileError("rows of 4 bits need the programs that make them: compile with packed=True")
        return Step(self.pack.between(self.window(False, 0), self.window(True, self.select.graph.prefix), pairs))

    def copying(self, to_kept: bool, source: int, target: int, rows: int) -> Step:
        """Rows from ``source`` on of one cache to ``target`` of the other one."""
        return Step(self.copy.between(self.window(not to_kept, source), self.window(to_kept, target), rows))

    def fill(self, dram: np.ndarray, network: Network) -> None:
        """Images, and the constant rows of the kept cache, into DRAM (uint8, from their ``base_address`` on)."""
        base, put = self.select.base_address, self.select.put
        for region, image in (("program", self.select.image), (COPY, self.copy.image), (GATHER, self.gather.image)):
            put(dram, region, np.frombuffer(image, dtype=np.uint8))
        attention = self.select.choice.mappings[0].attention
        if isinstance(attention, ChunkingMapping):
            put(dram, CHUNK_ROWS, np.concatenate(chunk_constants(
                self.select.config, attention, self.select.graph.prefix)))
        if self.pack:
            put(dram, PACK, np.frombuffer(self.pack.image, dtype=np.uint8))
            put(dram, NIBBLES, nibble_tables())
            put(dram, BOTH_MARKS, np.repeat(np.arange(2, dtype=np.uint8), self.select.config.dim))
        if self.select.counts:
            put(dram, COUNTING, counting_bytes(self.select.config, network.graph.attentions[0], self.select.max_rows))
        for address, rows in self.select.prefix_rows(network):
            at = address + self.displacement - base
            dram[at:at + len(rows)] = rows


def selecting_rows(graph: Graph, config: Config, counts: int = 0) -> int:
    """Rows of a selecting pass where nobody asks for a number: those of a pass that decodes.

    ``counts``: so many rows are counted together; then the most that divide them.
    """
    if not counts:
        return default_rows(graph, config)
    return 1 << min(most_rows(graph, config).bit_length() - 1, (counts & -counts).bit_length() - 1)


def compile_selection(network: Network, program: ModelProgram, *, rows: int, first: int, last: int, base_address: int,
                      heavy: bool = False, page: int = 0, kind: type[SelectingProgram] = SelectingProgram) -> Selection:
    """Compile a selecting pass over ``rows`` rows, and what moves rows, beside ``program``. Where its passes take rows
    of 4 bits, the selecting pass chooses these too.

    ``first``, ``last``: rows that are always kept, the oldest and the newest ones. ``heavy``: rows are chosen by
    probabilities that passes go on summing. ``page``: rows of the chunks that a program of this ``kind`` chooses; 0: it
    chooses single rows.

    Raises:
        CompileError: it does not fit, or cannot share weights and cache; the message says what to change.
    """
    config, graph = program.config, program.graph
    if program.batch > 1 or program.pool or graph.attentions[0].block:
        raise CompileError("rows are chosen of the cache of one text, which stands in order, by exact attention")
    if not (0 <= first <= MOST_GUARDED and 0 <= last <= MOST_GUARDED):
        raise CompileError(f"rows that are always kept must be from 0 to {MOST_GUARDED}, not {first} and {last}")
    context = most_chunked(config, program.max_positions, rows, page) if page else most_chosen(
        config, program.max_positions)
    halves = program.halves if isinstance(program, PackedProgram) else None
    if halves and PAIRS % (config.dim // 2):
        raise CompileError(f"rows of 4 bits need a device of at most {2 * PAIRS} lanes, not {config.dim}: use another "
                           "configuration")
    if page and halves:
        raise CompileError("rows of 4 bits are chosen one by one, not in chunks: leave one out")
    if halves and heavy:
        raise CompileError("rows of 4 bits are those of least importance to the last rows: leave them out, or choose "
                           "by these rows")
    if not page:  # a second half of a list may begin at any of the entries
        context = min(context, (config.list_entries - 2 * rows) * 2 // (3 if halves else 2))
    made = HeavyMapping if heavy else SortingMapping if halves else SelectingMapping
    entry = _SelectingEntry(
        kind, network, config, rows=rows, batch=1, context=context, tokens=True, answered=False,
        among=_selecting(program, rows, context, first, last, made, page), cache=program.layout,
        contents=Contents(program.constants, config.dim))
    run_fitting(entry)
    copy = CopyEntry(config, program.layout, 1, program.max_positions)
    gather = GatherEntry(config, program.layout, 1, entry.context)  # its lists stand where the selecting pass puts them
    linker = Linker(config, {name: program.symbols[name] for name in (*program.constants, CACHE)})
    linker.add(entry)
    run(copy, "lower", "waits")
    linker.add(copy)
    run(gather, "lower", "waits")
    linker.add(gather)
    pack = PackEntry(config, program.layout, entry.context, halves) if halves else None
    if pack:
        run(pack, "lower", "waits")
        linker.add(pack)
    linker.share(entry.lowered)
    linker.reserve(KEPT, program.layout.size)
    table = linker.table(base_address)
    return Selection(select=linker.link(entry, table), copy=linker.link(copy, table), gather=linker.link(gather, table),
                     pack=linker.link(pack, table) if pack else None)


def _selecting(program: ModelProgram, rows: int, context: int, first: int, last: int, kind: type[SelectingMapping],
               page: int) -> list[Choice]:
    """Mappings of blocks, as mappings that choose.

    Raises:
        CompileError: there is none.
    """
    found = []
    for choice in choices(program.graph, program.config, rows=rows, batch=1, context=context, tokens=True,
                          cache=program.layout):
        made = tuple(replace(mapping, attention=_choosing(mapping.attention, first, last, kind, page))
                     for mapping in choice.mappings if isinstance(mapping.attention, BlockMapping))
        made = tuple(mapping for mapping in made if not isinstance(mapping.attention, ChunkingMapping)
                     or mapping.attention.cuts(program.config.dim))
        if made:
            found.append(replace(choice, mappings=made))
    if not found and page:
        raise CompileError(f"chunks must be rows of a block, a multiple of {max(1, program.config.dim // 2)}, not "
                           f"{page}: take other chunks")
    if not found:
        raise CompileError(f"attention over {context} positions must go block by block, and no mapping of {rows} rows "
                           "does: use fewer rows")
    return found


def _choosing(blocks: BlockMapping, first: int, last: int, kind: type[SelectingMapping],
              page: int) -> SelectingMapping:
    made = kind(
        context=blocks.context, cache=blocks.cache, block=blocks.block, blocks=blocks.blocks, pair=blocks.pair,
        kept=blocks.context if blocks.keep else 0, joined=blocks.joined, pipelined=False, first=first, last=last)
    if page:
        return ChunkingMapping(**vars(made), page=page)
    return made
