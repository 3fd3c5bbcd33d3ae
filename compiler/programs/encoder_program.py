"""A compiled encoder: the DRAM around its program, and the inputs, registers and results of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Graph, Network, Rows, TokenPruning
from gemmule.compiler.ir.cache import check_rows
from gemmule.compiler.ir.head_pruning import HeadSchedule
from gemmule.compiler.kernels.attention.choosing import KEPT_ROWS, kept_pitch, kept_words
from gemmule.compiler.kernels.attention.heads.gates import HEADS_LEFT, flags_offset, skipped_commands
from gemmule.compiler.kernels.contents import Constant
from gemmule.compiler.kernels.embed import POSITIONS, TOKENS
from gemmule.compiler.kernels.head.logits import ANSWERS
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.passes.encoder.map import EncoderMapping
from gemmule.compiler.program import Program, ReadDram, Registers, Step
from gemmule.isa import MoveFlag, Unit
from gemmule.numerics import join_planes
from gemmule.timing import ceil_div

__all__ = ["EncoderProgram"]

EMBEDDED = ("embedding", "position")
"""Regions of the tables whose rows an embedding gathers."""


@dataclass(frozen=True, kw_only=True)
class EncoderProgram(Program):
    """One program for sequences of 1 .. ``mapping.sequence`` rows, one a launch."""

    graph: Graph
    mapping: EncoderMapping
    constants: Mapping[str, tuple[tuple[int, Constant], ...]]
    """Contents by region, (offset, content)."""
    pruning: TokenPruning | None = None
    """Rows and heads leave by this schedule."""

    @property
    def max_rows(self) -> int:
        """Most rows of a sequence."""
        return self.mapping.sequence

    @property
    def scores(self) -> str:
        """What becomes of attention's scores, as of :attr:`ModelProgram.scores`."""
        if self.graph.attentions[0].block:
            return "seen once"
        return "through DRAM" if self.mapping.attention.standard else "kept"

    def registers(self, rows: int) -> Registers:
        """Registers of a pass over a sequence.

        Raises:
            CompileError: it is empty or too long.
        """
        if not 1 <= rows <= self.max_rows:
            raise CompileError(f"a sequence must have 1 to {self.max_rows} rows, not {rows}: compile for a longer one")
        left = self.left_by_layer(rows)
        return self._registers(rows, [left[layer] for layer in self._choosing])

    @property
    def _choosing(self) -> tuple[int, ...]:
        """Layers that choose rows."""
        return self.pruning.pruning if self.pruning else ()

    def _registers(self, rows: int, kept: list[int]) -> Registers:
        """``kept``: rows that each choosing layer leaves."""
        made = self.place(windows={}, lengths={LengthReg.ROWS: rows})
        made.first = kept_words(self.config, kept)
        return made

    def left(self, rows: int) -> int:
        """Rows of the output of a sequence of so many."""
        return self.left_by_layer(rows)[-1]

    def left_by_layer(self, rows: int) -> list[int]:
        """Rows that each layer leaves of a sequence of so many."""
        found = self.pruning.rows(rows) if self.pruning else [rows]
        return found + [found[-1]] * (self.graph.layers - len(found))

    def kept_rows(self, read_dram: ReadDram, rows: int) -> list[np.ndarray]:
        """By layer, which rows of the sequence it has left, after a pass over ``rows`` rows  # int64 [left]."""
        found, left, pitch = list[np.ndarray](), np.arange(rows), kept_pitch(self.config, self.max_rows)
        for layer, count in enumerate(self.left_by_layer(rows)):
            if layer in self._choosing:
                at = self._choosing.index(layer) * pitch
                left = left[self.read(read_dram, KEPT_ROWS, at, 2 * count).view("<u2").astype(np.int64)]
            found.append(left)
        return found

    @cached_property
    def heads(self) -> HeadSchedule | None:
        """By which heads leave."""
        found = self.pruning.heads if self.pruning else None
        return found.schedule(self.graph) if found else None

    @property
    def heads_by_layer(self) -> list[int]:
        """Heads that each layer leaves."""
        return list(self.heads.left) if self.heads else [node.heads for node in self.graph.attentions]

    def kept_heads(self, read_dram: ReadDram) -> list[np.ndarray]:
        """By layer, which heads the last pass has left  # int64 [left]."""
        found, left = list[np.ndarray](), np.arange(self.graph.attentions[0].heads)
        heads, dim = len(left), self.config.dim
        for layer in range(self.graph.layers):
            if self.heads and layer in self.heads.choosing:
                at = flags_offset(self.config, heads, self.heads.choices(layer))
                left = np.flatnonzero(self.read(read_dram, HEADS_LEFT, at, heads * dim).reshape(heads, dim)[:, 0])
            found.append(left)
        return found

    def skipped(self) -> np.ndarray:
        """Commands that a predicate skips where the first heads are those that stay  # bool [commands].

        Which stay, data alone decide; all take nearly as long.
        """
        if not self.heads:
            return np.zeros(len(self.commands), dtype=np.bool_)
        kept = [self.heads.left[layer] for layer in self.heads.choosing]
        return skipped_commands(self.commands, self.bases, flags_offset(self.config, self.heads.heads, 1), kept)

    def step(self, rows: Rows) -> Step:
        """A pass over the rows of one sequence.

        Raises:
            CompileError: rows of several sequences, too many, or with tokens, positions or types that there are not.
        """
        return Step(self.registers(len(rows)), tuple(self.inputs(rows)))

    def inputs(self, rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
        """(address, bytes) that the host writes before a pass."""
        if len(np.unique(rows.sequences)) > 1:
            raise CompileError("a pass takes rows of one sequence: launch for each")
        check_rows(rows, self.graph)
        for region, values in ((TOKENS, rows.tokens), (POSITIONS, rows.table_rows(self.graph.positions))):
            if region in self.symbols:
                yield from self.id_inputs(region, values)

    def gathered(self, rows: Rows) -> dict[int, np.ndarray]:
        """Row numbers of the gathers of a pass, by the command's place among the first ones, which no loop repeats.

        Of those of embeddings and positions: which rows a layer leaves, data alone decide; without data, the first.
        """
        numbers = np.zeros(2 * self.max_rows, dtype=np.int64)
        numbers[:len(rows)] = rows.tokens
        numbers[self.max_rows:][:len(rows)] = rows.table_rows(self.graph.positions)
        found = {}
        for at, command in enumerate(self.commands):
            if command.unit is Unit.LOAD and MoveFlag.INDEXED in command.flags and self.bases[
                    command.fields["base"]] in EMBEDDED:
                entry = command.fields.get("list", 0)
                count = min(command.fields["rows_cap"], len(rows) - entry % self.max_rows)
                if count > 0:
                    found[at] = numbers[entry:entry + count]
        return found

    def fill(self, network: Network) -> np.ndarray:
        """DRAM content (uint8, from ``base_address`` on) of a network with this graph."""
        dram = np.zeros(self.size, dtype=np.uint8)
        self.put(dram, "program", np.frombuffer(self.image, dtype=np.uint8))
        for region, contents in self.constants.items():
            begin = self.symbols[region][0] - self.base_address
            for offset, content in contents:
                dram[begin + offset:begin + offset + content.size] = content.pack(network, self.config)
        return dram

    def read_output(self, read_dram: ReadDram, rows: int) -> np.ndarray:
        """int64 values of the graph's output after a pass over ``rows`` rows  # [left(rows), columns], or [1, labels].

        Read with ``read_dram(address, bytes)``.
        """
        columns, dim = self.graph.by_name[self.graph.output].columns, self.config.dim
        groups, region = ceil_div(columns, dim), ANSWERS if ANSWERS in self.symbols else "wide"
        count = 1 if region == ANSWERS else self.left(rows)
        planes = self.read(read_dram, region, 0, 2 * groups * dim * count).reshape(count, groups, 2, dim)
        return join_planes(planes[:, :, 0], planes[:, :, 1]).reshape(count, -1)[:, :columns]

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        mapping, most = self.mapping, self.max_rows
        turns = {part.rows * part.together for part in (mapping.heads, mapping.output, mapping.mlp)}
        turns.add(mapping.attention.queries * mapping.attention.flight)
        block = self.graph.attentions[0].block
        turns |= set(range(block, most, block)) if block else set()
        ends = {1, most, *(min(most, turn + more) for turn in turns for more in (0, 1))}
        launches = [self.registers(rows) for rows in sorted(ends)]
        if self._choosing:
            launches += [self._registers(most, [left] * len(self._choosing)) for left in sorted(ends)]
        return launches
