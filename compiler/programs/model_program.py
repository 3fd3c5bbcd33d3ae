"""A compiled network: the DRAM around its program, and the inputs and registers of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Graph, Network, Position, Rows
from gemmule.compiler.kernels.attention.batch import contexts
from gemmule.compiler.kernels.attention.cache_list import CACHE_ROWS
from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import CACHE, MASKS, NEW, new_region
from gemmule.compiler.kernels.contents import Constant
from gemmule.compiler.kernels.embed import POSITIONS, TOKENS
from gemmule.compiler.kernels.head.lent import BORROWED, LENT, Lent
from gemmule.compiler.kernels.head.logits import ANSWERS
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.layout import Region
from gemmule.compiler.passes.map import Choice
from gemmule.compiler.program import Program, ReadDram, Registers, Step
from gemmule.compiler.programs.commit import COMMIT, CommitProgram
from gemmule.compiler.programs.general_program import GENERAL, Answers, GeneralProgram
from gemmule.compiler.programs.moves import COPY, GATHER, Moves
from gemmule.isa import COMMAND_BYTES, Command, MoveFlag, Unit
from gemmule.numerics import join_planes
from gemmule.timing import ceil_div

__all__ = ["ModelProgram", "Places"]

Places = np.ndarray | Sequence[np.ndarray]
"""Rows of a pool for the cached and new positions of a sequence, or of each of a batch, int [positions]."""


@dataclass(frozen=True, kw_only=True)
class ModelProgram(Program):
    """One program for 1 .. ``max_rows`` new rows of one sequence behind a cache; together up to ``max_positions``.

    Of a batch each sequence has a cache of its own and as many new rows: those that a pass lacks are computed all the
    same, seen by nobody and overwritten by the next pass.
    """

    commit: CommitProgram | None
    """Keeps an accepted path in the cache; None where its rows go by list."""
    graph: Graph
    max_rows: int
    """Of a sequence."""
    batch: int
    """Sequences of a pass."""
    max_positions: int
    share: int
    """Heads that share a KV head."""
    layout: KvLayout
    """Of a sequence's cache."""
    tokens: bool
    """The device gives back greedy tokens, not logits."""
    pool: int
    """Rows of the cache where a list names each position's; 0: they stand in order."""
    silent: int
    """Commands of a launch without answers; those behind are the head's."""
    scores: str
    """What becomes of attention's scores: ``kept`` in the accumulator, ``kept in part``, ``computed twice``, ``through
    DRAM``, or by blocks ``seen once``."""
    choice: Choice
    """The mapping that it was compiled with."""
    registers_of: Mapping[str, int]
    """Base register by region."""
    constants: Mapping[str, tuple[tuple[int, Constant], ...]]
    """Contents by region, (offset, content)."""
    least_cached: int = 0
    """Cached rows below which another program takes its passes; it could."""
    general: GeneralProgram | None = None
    """Hidden rows, some of the layers, other answers; None where it was not compiled."""
    moves: Moves | None = None
    """What moves rows of the caches, compiled with it."""
    lends: Lent | None = None
    """Rows of its residual stream that each pass leaves for another network."""
    borrows: Lent | None = None
    """Rows of another network's that its passes read."""

    @property
    def text_positions(self) -> int:
        """Positions of a text at most, constant ones included; a cache may have more rows."""
        return min(self.max_positions, self.graph.whole_positions)

    def image_of(self, registers: Registers) -> bytes:
        """Without wanted answers the head is not part of the program, so its weights are not loaded."""
        image = super().image_of(registers)
        return image if registers.lengths[LengthReg.WANTED] else image[:self.silent * COMMAND_BYTES]

    def registers(self, rows: int, context: int, wanted: int | None = None) -> Registers:
        """Registers of a pass over ``rows`` new rows behind ``context`` cached ones.

        ``wanted``: of how many of the last rows the answers are wanted, by default all; with 0 the head does not run.
        Of a batch: of every sequence.

        Raises:
            CompileError: sizes out of range.
        """
        count = rows if wanted is None else wanted
        if self.batch > 1:
            return self.registers_of_batch([rows] * self.batch, [context] * self.batch, count > 0)
        self._check(rows, context)
        if not 0 <= count <= rows:
            raise CompileError(f"wanted rows must be from 0 to {rows}, not {count}")
        address, size = self.symbols[CACHE]
        stored = 0 if self.pool else context * self.layout.row
        return self.place(
            windows=({self.registers_of[NEW]: (address + stored, size - stored)} if NEW in self.registers_of else {})
                    | self._lent_window(context),
            lengths={LengthReg.ROWS: rows, LengthReg.CONTEXT: context, LengthReg.TOTAL: context + rows,
                     LengthReg.ROW: context, LengthReg.WANTED: count,
                     LengthReg.FIRST_WANTED: rows - max(count, 1)})

    def _lent_window(self, context: int) -> dict[int, Region]:
        """From where on a pass leaves rows for another network."""
        if self.lends is None:
            return {}
        (address, size), first = self.symbols[LENT], context * self.lends.row
        return {self.registers_of[LENT]: (address + first, size - first)}

    def _check(self, rows: int, context: int) -> None:
        if not 1 <= rows <= self.max_rows:
            raise CompileError(f"a launch takes 1 to {self.max_rows} rows, not {rows}: launch again")
        if not 0 <= context <= self.max_positions - rows:
            raise CompileError(
                f"cached and new rows must be at most {self.max_positions}, not {context} + {rows}: shorten the "
                "context")

    def registers_of_batch(self, rows: Sequence[int], cached: Sequence[int], wanted: bool) -> Registers:
        """Registers of a pass over new rows of each sequence behind its cached ones, all answers ``wanted`` or none.

        Raises:
            CompileError: sizes out of range.
        """
        for count, context in zip(rows, cached, strict=True):
            self._check(count, context)
        address, size = self.symbols[CACHE][0], self.layout.size
        stored = [sequence * size + context * self.layout.row for sequence, context in enumerate(cached)]
        windows = {self.registers_of[new_region(i)]: (address + at, self.batch * size - at)
                   for i, at in enumerate(stored)}
        every = self.batch * self.max_rows
        made = self.place(windows=windows, lengths={LengthReg.WANTED: every if wanted else 0})
        made.first = tuple(contexts(self.config, cached))
        return made

    def step(self, rows: Rows, wanted: int, cached: Sequence[int] | None = None,
             places: Places | None = None) -> Step:
        """A pass over new rows of each sequence; of the last ``wanted`` the answers, of a batch of all rows or of none.

        ``cached``: rows of each sequence before them, by default as many as the first one's position says. ``places``:
        rows of the pool for all positions, cached and new, int [positions]; by default the first ones in order.

        Raises:
            CompileError: sizes out of range, unknown tokens, or rows of other sequences than the program's.
        """
        if rows.hidden is not None:
            raise CompileError("hidden rows need the general program: compile with general=True")
        if self.batch == 1:
            context = int(rows.positions[0]) if cached is None else cached[0]
            listed = self._listed(context + len(rows), places) if self.pool else ()
            return Step(self.registers(len(rows), context, wanted), (*self.inputs(rows), *listed))
        self.slots(rows)
        counts = np.bincount(rows.sequences)
        firsts = cached or [int(rows.positions[rows.sequences == i][0]) for i in range(self.batch)]
        return Step(self.registers_of_batch(counts.tolist(), firsts, wanted > 0), tuple(self.inputs(rows)))

    def general_step(self, rows: Rows, cached: Sequence[int], layers: tuple[int, int], wanted: Answers) -> Step:
        """A pass of the general program over new rows behind ``cached`` ones of each sequence.

        Raises:
            CompileError: as of :meth:`step`; layers, slots or answers out of range; compiled without ``general``.
        """
        if self.general is None:
            raise CompileError("hidden rows, some of the layers and other answers than tokens need the general "
                               "program: compile with general=True")
        self.slots(rows)
        counts = np.bincount(rows.sequences).tolist()
        for count, context in zip(counts, cached, strict=True):
            self._check(count, context)
        return Step(self.general.registers(counts, cached, layers, wanted), tuple(self.inputs(rows)))

    def _listed(self, total: int, places: Places | None) -> Iterator[tuple[int, np.ndarray]]:
        """What the host writes of the cache's rows."""
        rows = np.arange(total) if places is None else np.asarray(places, dtype=np.int64)
        if len(rows) != total or rows.min() < 0 or rows.max() >= self.pool or len(np.unique(rows)) != total:
            raise CompileError(f"cache rows must be {total} different ones from 0 to {self.pool - 1}, not "
                               f"{len(rows)} from {rows.min(initial=0)} to {rows.max(initial=0)}")
        yield self.symbols[CACHE_ROWS][0], rows.astype("<u2").view(np.uint8)

    def slots(self, rows: Rows) -> np.ndarray:
        """The device's row of each row  # int64 [rows].

        Raises:
            CompileError: rows of other sequences than the program's, or too many of one.
        """
        counts = np.bincount(rows.sequences, minlength=self.batch)
        if len(counts) > self.batch or not counts.all() or (np.diff(rows.sequences) < 0).any():
            raise CompileError(
                "a pass takes rows of one sequence: launch for each" if self.batch == 1 else
                f"a pass takes rows of each of {self.batch} sequences, one behind the other, not of "
                f"{sorted(set(rows.sequences.tolist()))}")
        if counts.max() > self.max_rows:
            raise CompileError(f"a launch takes 1 to {self.max_rows} rows, not {counts.max()}: launch again")
        inside = np.concatenate([np.arange(count) for count in counts])
        return rows.sequences * self.max_rows + inside

    def gathered(self, rows: Rows, commands: Sequence[Command] | None = None) -> dict[int, np.ndarray]:
        """Row numbers of the gathers of a pass, by the command's place among the first ones, which no loop repeats.

        ``commands``: of the general program, by default those of the plain one.
        """
        lists = [*self._ids(rows), *([rows.lent] if self.borrows else [])]
        found, slots = {}, np.zeros((len(lists), self.batch * self.max_rows), dtype=np.int64)
        slots[:, self.slots(rows)] = lists
        used = len(rows) if self.batch == 1 else slots.shape[1]
        for at, command in enumerate(commands or self.commands):
            entry = command.fields.get("list", 0)
            if command.unit is Unit.LOAD and MoveFlag.INDEXED in command.flags and entry < slots.size:
                found[at] = slots[entry // slots.shape[1], :used]
        return found

    def gathered_by(self, rows: Rows, step: Step) -> dict[int, np.ndarray]:
        """Row numbers of the gathers of a pass that a step launches, where timing needs them all."""
        return self.gathered(rows)

    def scattered(self, rows: Rows, cached: Sequence[int]) -> np.ndarray | None:
        """Rows of the cache to which a pass stores its new ones; None: those behind ``cached``  # int64 [rows]."""
        return None

    def _ids(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Row of the table of embeddings, and of that of positions. Hidden rows stand behind the embeddings, and a
        learned position is not added again.
        """
        if rows.hidden is None:
            return rows.tokens, rows.positions
        inside = rows.hidden >= 0
        tokens = np.where(inside, self.graph.vocab + rows.hidden, rows.tokens)
        learned = any(isinstance(node, Position) for node in self.graph.nodes)
        return tokens, np.where(inside, self.graph.positions, rows.positions) if learned else rows.positions

    def inputs(self, rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
        """(address, bytes) that the host writes before a pass.

        Raises:
            CompileError: rows of other sequences than the program's, unknown tokens, or positions beyond the network's.
        """
        slots, (tokens, positions) = self.slots(rows), self._ids(rows)
        if rows.tokens.max() >= self.graph.vocab:
            raise CompileError(f"tokens must be from 0 to {self.graph.vocab - 1}, not {rows.tokens.max()}")
        if rows.positions.max() >= self.graph.positions:
            raise CompileError(f"positions must be from 0 to {self.graph.positions - 1}, not {rows.positions.max()}")
        if self.borrows is not None and rows.lent.max() >= self.borrows.rows:
            raise CompileError(f"borrowed rows must be from 0 to {self.borrows.rows - 1}, not {rows.lent.max()}")
        for region, values in ((TOKENS, tokens), (POSITIONS, positions), (BORROWED, rows.lent)):
            if region in self.symbols:
                placed = np.zeros(int(slots[-1]) + 1 if self.batch == 1 else self.batch * self.max_rows, dtype=np.int64)
                placed[slots] = values
                yield from self.id_inputs(region, placed)
        if MASKS in self.symbols:
            masks = [self._bitmaps(rows.mask[np.ix_(own, own)])
                     for own in (np.flatnonzero(rows.sequences == i) for i in range(self.batch))]
            yield self.symbols[MASKS][0], np.concatenate(masks).reshape(-1)

    def _bitmaps(self, mask: np.ndarray) -> np.ndarray:
        """uint8 [share * rows, dim] of a sequence: row i sees new row j; heads that share a KV head have the same."""
        count, every = len(mask), self.share * self.max_rows
        # The rows of a piece count from its last ``m`` columns; a batch has all of them.
        first = 0 if self.share == 1 else every - (count if self.batch == 1 else self.max_rows)
        bits = np.zeros((self.share, self.max_rows, 8 * self.config.dim), dtype=np.uint8)
        bits[:, :count, :first] = 1  # cached rows, where the piece has them
        bits[:, :count, first:first + count] = mask
        return np.packbits(bits.reshape(every, -1), axis=1, bitorder="little")

    def fill(self, network: Network) -> np.ndarray:
        """DRAM content (uint8, from ``base_address`` on) of a network with this graph.

        Raises:
            CompileError: the network has a shape and no numbers.
        """
        if network.alike:
            raise CompileError("a network by shape has no weights: run its program for its time alone")
        dram = np.zeros(self.size, dtype=np.uint8)
        images = [("program", self.image), *([(COMMIT, self.commit.image)] if self.commit else [])]
        images += [(GENERAL, self.general.image)] if self.general else []
        images += [(COPY, self.moves.copy.image), (GATHER, self.moves.gather.image)] if self.moves else []
        for region, image in images:
            self.put(dram, region, np.frombuffer(image, dtype=np.uint8))
        for region, contents in self.constants.items():
            begin = self.symbols[region][0] - self.base_address
            for offset, content in contents:
                dram[begin + offset:begin + offset + content.size] = content.pack(network, self.config)
        for address, rows in self.prefix_rows(network) if self.own_cache else ():
            dram[address - self.base_address:][:len(rows)] = rows
        return dram

    @property
    def own_cache(self) -> bool:
        """Whether it has a cache of its own, not another program's."""
        return self.base_address <= self.symbols[CACHE][0] < self.base_address + self.size

    def prefix_rows(self, network: Network) -> Iterator[tuple[int, np.ndarray]]:
        """Constant rows with which every sequence's cache begins: (address, bytes); of a pool once."""
        for number, node in enumerate(self.graph.attentions if self.graph.prefix else ()):
            parts = (network.tensor(node, role).reshape(node.prefix, node.kv_heads, node.head_dim)
                     for role in ("prefix_key", "prefix_value"))
            for at, content in self.layout.contents(number, *parts):
                for sequence in range(1 if self.pool else self.batch):
                    yield self.symbols[CACHE][0] + sequence * self.layout.size + at, content

    def read_logits(self, read_dram: ReadDram, wanted: int) -> np.ndarray:
        """int16 logits [wanted, vocab] of the last pass; of a batch by the device's rows (:meth:`slots`)."""
        groups = ceil_div(self.graph.vocab, self.config.dim)
        raw = self.read(read_dram, ANSWERS, 0, 2 * wanted * groups * self.config.dim)
        planes = raw.reshape(wanted, groups, 2, self.config.dim)
        return join_planes(planes[:, :, 0], planes[:, :, 1]).reshape(wanted, -1)[:, :self.graph.vocab]

    def logits_of(self, read_dram: ReadDram, rows: Rows, wanted: int) -> np.ndarray:
        """int16 logits [wanted, vocab] of the last ``wanted`` rows of the pass over ``rows``."""
        if self.batch == 1 or not wanted:
            return self.read_logits(read_dram, wanted)
        return self.read_logits(read_dram, self.batch * self.max_rows)[self.slots(rows)[-wanted:]]

    def read_tokens(self, read_dram: ReadDram, wanted: int) -> list[int]:
        """Greedy token of each wanted row; ties go to the lowest index."""
        if not self.tokens:
            return [int(i) for i in np.argmax(self.read_logits(read_dram, wanted), axis=1)] if wanted else []
        return self.read_ids(read_dram, ANSWERS, 0, wanted)

    def tokens_of(self, read_dram: ReadDram, rows: Rows, wanted: int) -> list[int]:
        """Greedy token of each of the last ``wanted`` rows of the pass over ``rows``."""
        if self.batch == 1 or not wanted:
            return self.read_tokens(read_dram, wanted)
        found = self.read_tokens(read_dram, self.batch * self.max_rows)
        return [found[slot] for slot in self.slots(rows)[-wanted:]]

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        most = self.max_positions - 1
        if self.batch > 1:
            ends = [min(end, most) for end in (0, 1, 65, most)]
            turns = [[ends[(i + j) % 4] for j in range(self.batch)] for i in range(4)]
            return [self.registers_of_batch([1] * self.batch, cached, wanted)
                    for cached in (*turns, *([context] * self.batch for context in ends)) for wanted in (True, False)]
        sizes = {(rows, min(context, self.max_positions - rows))
                 for rows in (1, self.max_rows) for context in (0, 1, 65, most)}
        return [self.registers(rows, context, wanted) for rows, context in sorted(sizes) for wanted in (rows, 0)]
