"""The general program of a network: any rows, layers and answers, from the weights and cache of the plain one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.batch import contexts
from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import CACHE, new_region
from gemmule.compiler.kernels.head.answers import FOUND, HIDDEN, AnswerLayout
from gemmule.compiler.kernels.head.ids import HALF_BYTES, joined
from gemmule.compiler.kernels.head.launch_words import launch_commands
from gemmule.compiler.kernels.head.lent import LENT, Lent
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.passes.roll import LayerStrides
from gemmule.compiler.program import Program, ReadDram, Registers
from gemmule.isa import MAX_LENGTH, Command
from gemmule.numerics import join_planes

__all__ = ["GENERAL", "Answers", "GeneralProgram"]

GENERAL = "general"
"""Region of the program's image."""
MOST_WORD = (1 << 31) - 1
"""Largest displacement that a word says."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a launch of the general program gives back, of how many rows."""

    rows: int
    """That are answered, the last ones; 0: the head does not run. Of a batch: all or none."""
    logits: bool = False
    top: bool = False
    scale: tuple[int, int] | None = None
    """Multiplier and shift of logits to exponents, where their sums are wanted."""
    hidden: int | None = None
    """The first slot of those that the residual stream behind the last layer goes to."""


@dataclass(frozen=True, kw_only=True)
class GeneralProgram(Program):
    """One program for 1 .. ``max_rows`` new rows of each sequence, through layers that the launch chooses."""

    max_rows: int
    batch: int
    max_positions: int
    layout: KvLayout
    answers: AnswerLayout
    slots: int
    """Rows of the residual stream that there is room for."""
    hidden_row: int
    """Bytes of such a row, which are those of an embedding."""
    vocab: int
    ranges: LayerStrides
    registers_of: Mapping[str, int]
    """Base register by region."""
    own: Lent | None = None
    """Where its hidden rows go, if it borrows them in later passes; None: behind the embeddings, in whose place they
    are taken."""
    scattered: bool = False
    """New rows are stored by list, to any rows of the cache."""

    def check_top(self, count: int) -> None:
        """Raises ValueError: it does not find so many of a row's largest logits."""
        if count > self.answers.top:
            raise ValueError(f"the largest logits of a row are at most {self.answers.top}, not {count}: take fewer, "
                             "or logits")

    def registers(self, rows: Sequence[int], cached: Sequence[int], layers: tuple[int, int],
                  wanted: Answers) -> Registers:
        """Registers of a pass over ``rows`` new rows of each sequence behind ``cached`` ones.

        ``layers``: the first one, and how many.

        Raises:
            CompileError: sizes out of range.
        """
        first, count = layers
        if not 0 <= first <= first + count <= self.ranges.layers:
            raise CompileError(f"layers must lie within 0 to {self.ranges.layers}, not {first} to {first + count}: "
                               "choose others")
        every = self.batch * self.max_rows if self.batch > 1 else rows[0]
        if not 0 <= wanted.rows <= every:
            raise CompileError(f"answered rows must be from 0 to {every}, not {wanted.rows}")
        answered = wanted.rows if self.batch == 1 else every if wanted.rows else 0
        address, whole = self.symbols[CACHE]
        size = self.layout.size if self.batch > 1 else whole
        windows = {}
        for sequence, context in enumerate(cached if new_region(0) in self.registers_of else ()):
            at = sequence * size + (0 if self.scattered else context * self.layout.row)
            windows[self.registers_of[new_region(sequence)]] = (address + at, whole - at)
        region, slot = self._slot(wanted.hidden or 0)
        table, room = self.symbols[region]
        if wanted.hidden is not None and not 0 <= wanted.hidden <= self.slots - every:
            raise CompileError(f"hidden rows must lie in slots 0 to {self.slots - 1}, not from {wanted.hidden} on")
        windows[self.registers_of[HIDDEN]] = (table + slot, room - slot)
        made = self.place(windows=windows, lengths={
            **({LengthReg.ROWS: rows[0], LengthReg.CONTEXT: cached[0], LengthReg.TOTAL: cached[0] + rows[0],
                LengthReg.ROW: 0 if self.scattered else cached[0]} if self.batch == 1 else {}),
            LengthReg.WANTED: answered, LengthReg.FIRST_WANTED: 0 if self.batch > 1 else rows[0] - max(answered, 1),
            LengthReg.POINTER: first * self.ranges.scalings, LengthReg.LAYERS: count})
        made.first = tuple(self._first(cached, first, answered, wanted, every))
        return made

    def _slot(self, number: int) -> tuple[str, int]:
        """Region and offset of a hidden row."""
        return (LENT, self.own.slot(number)) if self.own else ("embedding", (self.vocab + number) * self.hidden_row)

    def _first(self, cached: Sequence[int], first: int, answered: int, wanted: Answers,
               every: int) -> list[Command]:
        stored = wanted.logits or wanted.top or wanted.scale is not None
        mult, shift = wanted.scale or (0, 0)
        halves = [answered if part else 0 for part in (stored, wanted.top, wanted.scale is not None)]
        halves += [every if wanted.hidden is not None else 0, mult, shift]
        moves = [first * stride for stride in self.ranges.strides.values()]
        if max(moves, default=0) > MOST_WORD:
            raise CompileError(f"the first of some layers must be within {MOST_WORD} bytes, not {max(moves)}: begin "
                               "with an earlier one")
        batch = contexts(self.config, cached) if self.batch > 1 else []
        return [*batch, *launch_commands(self.config, self.batch, halves, moves)]

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        most, layers = self.max_positions - 1, self.ranges.layers
        ends = sorted({min(end, most) for end in (0, 1, 65, most)})
        if self.batch > 1:
            turns = [[ends[(i + j) % len(ends)] for j in range(self.batch)] for i in range(len(ends))]
            sizes = [([1] * self.batch, cached) for cached in (*turns, *([end] * self.batch for end in ends))]
        else:
            sizes = [([rows], [min(end, self.max_positions - rows)]) for rows in sorted({1, self.max_rows})
                     for end in ends]
        found = []
        for rows, cached in sizes:
            every = self.batch * self.max_rows if self.batch > 1 else rows[0]
            whole = Answers(rows=every, logits=True, top=True, scale=(MAX_LENGTH, 16), hidden=0)
            for part, wanted in (
                    ((0, layers), whole), ((layers, 0), whole), ((0, layers), Answers(rows=every)),
                    ((layers - 1, 1), Answers(rows=0, hidden=self.slots - every)), ((0, 1), Answers(rows=0)),
                    ((0, layers), Answers(rows=1, top=True)), ((0, 0), Answers(rows=1, scale=(1, 0)))):
                found.append(self.registers(rows, cached, part, wanted))
                if self.scattered:
                    found.append(self.registers(rows, cached, part, wanted))
                    found[-1].lengths[LengthReg.ROW] = cached[0]
        return found

    # -- what it gave back, of the device's answered rows

    def read_tokens(self, read_dram: ReadDram, rows: int) -> np.ndarray:
        """Greedy tokens, int64 [rows]."""
        layout = self.answers
        return joined(self.read(read_dram, FOUND, plane * layout.token_pitch, HALF_BYTES * rows)
                      for plane in range(layout.planes))

    def read_logits(self, read_dram: ReadDram, rows: int) -> np.ndarray:
        """int16 [rows, vocab]"""
        layout = self.answers
        raw = self.read(read_dram, FOUND, layout.logits, rows * layout.pitch)
        planes = raw.reshape(rows, -1, 2, layout.dim)
        return join_planes(planes[:, :, 0], planes[:, :, 1]).reshape(rows, -1)[:, :layout.columns].astype(np.int16)

    def read_logits_of(self, read_dram: ReadDram, tokens: np.ndarray) -> np.ndarray:
        """Logits of some tokens of each row  # int64 [rows, any] of the same."""
        found, layout = np.zeros_like(tokens), self.answers
        for row, column in np.ndindex(*tokens.shape):
            group, lane = divmod(int(tokens[row, column]), layout.dim)
            at = layout.logits + row * layout.pitch + 2 * group * layout.dim + lane
            low, high = (int(self.read(read_dram, FOUND, at + plane * layout.dim, 1)[0]) for plane in range(2))
            found[row, column] = low | (high ^ 128) - 128 << 8
        return found

    def read_top(self, read_dram: ReadDram, rows: int) -> np.ndarray:
        """Tokens of the largest logits, in rising order  # int64 [rows, top]."""
        layout = self.answers
        raw = self.read(read_dram, FOUND, layout.tops, rows * layout.top_pitch).reshape(rows, layout.planes, -1)
        return joined(raw[:, plane, :HALF_BYTES * layout.top] for plane in range(layout.planes))

    def read_totals(self, read_dram: ReadDram, rows: int) -> np.ndarray:
        """Sums of the exponents' weights, int64 [rows]."""
        layout = self.answers
        low, high = (self.read(read_dram, FOUND, layout.sums + 4 * layout.rows * plane, 4 * rows).view("<i4")
                     .astype(np.int64) for plane in range(2))
        return low + (high << 8)

    def read_hidden(self, read_dram: ReadDram, slots: np.ndarray, columns: int) -> np.ndarray:
        """Rows of the residual stream, int16 [rows, columns]."""
        rows = [self.read(read_dram, *self._slot(int(slot)), self.hidden_row) for slot in slots]
        planes = np.stack(rows).reshape(len(rows), -1, 2, self.config.dim)
        return join_planes(planes[:, :, 0], planes[:, :, 1]).reshape(len(rows), -1)[:, :columns].astype(np.int16)
