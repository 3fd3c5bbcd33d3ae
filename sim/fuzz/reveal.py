"""Commands that show what no store shows: weights, tables, contexts, lists, keys, importance, maxima, predicates.

Each puts a fixed pattern through the hidden state and stores the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import (
    INDEX_BITS,
    NUM_PREDICATES,
    ArgmaxFlag,
    Command,
    KeysFlag,
    ListFlag,
    MatrixFlag,
    MoveFlag,
    NormFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Unit,
    VOp,
)
from gemmule.numerics import BYTE_TABLE_ENTRIES, IMPORTANCE_MAX, KEY_BITS, WORD_TABLE_ENTRIES
from gemmule.sim.fuzz.draw import run_reach
from gemmule.sim.fuzz.vector import word_table_rows

__all__ = ["INT8", "INT32", "Reveal", "line"]

INT32 = [MoveFlag.ACCUMULATOR]
INT8 = [MoveFlag.ACCUMULATOR, MoveFlag.NARROW]
IMPORTANCE_BITS = IMPORTANCE_MAX.bit_length()
_WORDS, _BYTES = WORD_TABLE_ENTRIES, BYTE_TABLE_ENTRIES
_WORD_PIECE = 256


def line(unit: Unit, address: int, row: int, size: int, flags: Iterable[MoveFlag] = ()) -> Command:
    """A move of ``size`` bytes in one DRAM row to or from consecutive rows."""
    return Command.make(unit, flags=flags, offset=address, bytes=size, row=row, row_stride=1, block_stride=1, rows=1)


class Reveal:
    """Patterns and results of these commands, from DRAM address ``first`` (a multiple of 64) to ``end``.

    They overwrite ``used`` rows of scratchpad and accumulator, from 0 on.
    """

    def __init__(self, config: Config, first: int) -> None:
        self.config, self.end = config, first
        dim = config.dim
        self.columns = max(8, dim)
        """Width of the pattern of scores: whole groups, room for every magnitude."""
        groups = self.columns // dim
        self.stat_rows = min(
            config.stat_rows, (config.spm_rows - 2) // (2 + 2 * groups), config.acc_rows // (2 * groups))
        """Rows of a context that are shown: all, where the memories have room."""
        self.reach = run_reach(config)
        # Results take turns in some rows, so that one is stored while the next one is made.
        self._first = self._next = 2 * self.stat_rows + 2
        largest = max(2 * self.stat_rows * groups, 2 * self.reach // dim + 1)
        self._last = self._first + max(min(5 * largest, config.spm_rows // 2 - self._first), largest)
        self.used = max(dim, _BYTES // dim, 2 * _WORD_PIECE // dim, self._last)
        self.patterns: dict[str, int] = {}
        for name, size in (("eye", dim * dim), ("ramp", _BYTES), ("scores", 4 * self.columns), ("words", 2 * dim),
                           ("scales", 2 * dim), ("ladder", 4 * _WORDS), ("floor", 2 * dim), ("middle", 2 * dim),
                           ("indices", 2 * self.reach), ("above", 2 * self.reach)):
            self.patterns[name] = self._take(size)
        self._weights, self._context = list(self._show_weights()), list(self._show_contexts())
        self._byte, self._word = list(self._show_table()), list(self._show_words())
        self._select = list(self._show_select())
        # Stores to where random bytes stand.
        self._predicates = [replace(self._result(0, dim), predicate=i) for i in range(1, NUM_PREDICATES)]

    def _take(self, size: int) -> int:
        at, self.end = self.end, self.end + size + -size % 64
        return at

    def commands(self, *, table: bool, words: bool) -> list[Command]:
        """Those of the tables only when a program has loaded them."""
        return [*self._predicates, *self._weights, *(self._byte if table else []), *(self._word if words else []),
                *self._context, *self._select]

    def fill(self) -> Iterator[Command]:
        """Commands that put mostly small numbers into both ends of the lists."""
        reach, entries = self.reach, self.config.list_entries
        for pattern, flags in zip(("indices", "above"), self._halves):
            yield line(Unit.LOAD, self.patterns[pattern], 0, 2 * reach)
            for dst in (0, entries - reach):
                yield Command.make(Unit.SELECT, op=SOp.LIST_LOAD, flags=flags, dst=dst, n=reach)

    @property
    def _halves(self) -> tuple[list[ListFlag], ...]:
        """Flags of the commands that bring or show an entry's lower bits, and those above them."""
        return ([], [ListFlag.HIGH])[:1 + (self.config.index_bits > INDEX_BITS[0])]

    def write(self, dram: np.ndarray, random: np.random.Generator) -> None:
        """Put the patterns into the DRAM."""
        dim, columns = self.config.dim, self.columns
        # Many magnitudes: whatever the exponent of a statistic, some column shows its mantissa.
        steps = random.integers(8, 16, columns) * random.choice([-1, 1], columns)
        values: dict[str, np.ndarray] = {
            "eye": np.eye(dim, dtype=np.uint8), "ramp": np.arange(_BYTES, dtype=np.uint8),
            "scores": (steps << np.minimum(4 * (np.arange(columns) % 8), 27)).astype("<i4"),
            "words": _planes(steps[:dim] << 3 * (np.arange(dim) % 4)), "scales": _planes(steps[:dim] << 9),
            "ladder": np.minimum(np.arange(_WORDS) * 128 - 32768, 32767).astype("<i4"),
            "floor": _planes(np.full(dim, -32768)), "middle": _planes(random.integers(-9000, 9000, dim)),
            "indices": np.where(random.random(self.reach) < 0.1, random.choice([65535, 65534, 32768], self.reach),
                                random.integers(0, 48, self.reach)).astype("<u2"),
            "above": (random.integers(0, 1 << 16, self.reach) * (random.random(self.reach) < 0.2)).astype("<u2"),
        }
        for name, value in values.items():
            data = value.reshape(-1).view(np.uint8)
            dram[self.patterns[name]:self.patterns[name] + len(data)] = data

    def _place(self, rows: int) -> int:
        """Where the next result stands."""
        if self._next + rows > self._last:
            self._next = self._first
        self._next += rows
        return self._next - rows

    def _result(self, row: int, size: int, flags: Iterable[MoveFlag] = ()) -> Command:
        return line(Unit.STORE, self._take(size), row, size, flags)

    def _show_weights(self) -> Iterator[Command]:
        dim = self.config.dim
        yield Command.make(Unit.LOAD, offset=self.patterns["eye"], bytes=dim * dim, rows=1, block_stride=1)
        yield Command.make(Unit.MATRIX, flags=[MatrixFlag.REUSE], a_stride=1, c_stride=1, m=dim, n=dim, k=dim)
        yield self._result(0, 4 * dim * dim, INT32)

    def _show_table(self) -> Iterator[Command]:
        yield line(Unit.LOAD, self.patterns["ramp"], 0, _BYTES, INT8)
        yield Command.make(Unit.VECTOR, op=VOp.REQUANT, flags=[RequantFlag.LOOKUP], src0_stride=1, dst_stride=1,
                           m=1, n=_BYTES, mult=1)
        yield self._result(0, _BYTES)

    def _show_words(self) -> Iterator[Command]:
        if word_table_rows(self.config.dim) > self.config.spm_rows:
            return
        for at in range(0, _WORDS, _WORD_PIECE):
            n = min(_WORD_PIECE, _WORDS - at)
            yield line(Unit.LOAD, self.patterns["ladder"] + 4 * at, 0, 4 * n, INT32)
            yield Command.make(Unit.VECTOR, op=VOp.REQUANT, flags=[RequantFlag.LOOKUP, RequantFlag.WIDE], src0_stride=1,
                               dst_stride=2, m=1, n=n, mult=1)
            yield self._result(0, 2 * max(n, self.config.dim))

    def _show_contexts(self) -> Iterator[Command]:
        dim, m, n = self.config.dim, self.stat_rows, self.columns
        move: dict[str, Any] = {"rows": m, "row_stride": 1, "block_stride": m}
        yield Command.make(Unit.LOAD, flags=[*INT32, MoveFlag.BROADCAST], offset=self.patterns["scores"],
                           bytes=4 * n, **move)
        yield Command.make(Unit.LOAD, flags=[MoveFlag.BROADCAST], offset=self.patterns["words"], bytes=2 * dim, **move)
        yield line(Unit.LOAD, self.patterns["scales"], 2 * m, 2 * dim)
        norm: dict[str, Any] = {"n": dim, "src0_stride": 2 * m, "src1": 2 * m}
        row: tuple[VOp, list[Any], dict[str, Any], int] = (
            VOp.REQUANT, [RequantFlag.ROW, RequantFlag.WIDE],
            {"n": n, "src0_stride": m, "dst_stride": 2 * m, "mult": 1 << 15}, 2 * m * n)
        # EXP takes the maximum and the sum, and overwrites the reciprocal, which then shows the sum.
        readers = [
            row, (VOp.NORM_APPLY, [], {**norm, "dst_stride": m, "shift": 12}, m * dim),
            (VOp.NORM_APPLY, [NormFlag.MEAN, NormFlag.WIDE], {**norm, "dst_stride": 2 * m, "shift": 10}, 2 * m * dim),
            (VOp.SOFTMAX_EXP, [SoftmaxFlag.CONTINUE], {"n": n, "src0_stride": m, "dst_stride": m, "mult": 1}, m * n),
            row,
        ]
        for context in range(self.config.stat_contexts):
            # Shifted by the rise, some score of the pattern is left with a few bits.
            yield Command.make(Unit.VECTOR, op=VOp.RESCALE, context=context, src0_stride=m, dst=m * n // dim,
                               dst_stride=m, m=m, n=n)
            yield self._result(m * n // dim, m * n, INT8)
            for op, flags, values, size in readers:
                dst = self._place(size // dim)
                yield Command.make(Unit.VECTOR, op=op, flags=flags, context=context, dst=dst, m=m, **values)
                yield self._result(dst, size)

    def _show_select(self) -> Iterator[Command]:
        """Lists; running maxima against two values; the mask; keys and importance by what TOP_K makes of them.

        Keys beyond the reach are not shown.
        """
        config, reach, m = self.config, self.reach, min(self.stat_rows, self.reach)
        ends = (0, config.select_keys - reach)
        for first in (0, config.list_entries - reach):
            yield from self._show_list(first, reach)
        move: dict[str, Any] = {"rows": m, "row_stride": 1, "block_stride": m, "bytes": 2 * config.dim}
        for name in ("floor", "middle"):
            yield Command.make(Unit.LOAD, flags=[MoveFlag.BROADCAST], offset=self.patterns[name], **move)
            yield self._command(SOp.ARGMAX, [ArgmaxFlag.CONTINUE], src0_stride=2 * m, m=m, n=config.dim,
                                first=40_000 << config.index_bits - INDEX_BITS[0])
            yield from self._show_list(0, m)
        n = min(reach, _BYTES)
        rows = -(-n // config.dim)
        src, dst = self._place(rows), self._place(rows)
        yield line(Unit.LOAD, self.patterns["ramp"], src, n)
        yield self._command(SOp.PACK, src0=src, src0_stride=1, m=1, n=n, dst=dst)
        yield self._result(dst, rows * config.dim)
        yield from self._show_keys(reach)
        for _ in range(2):  # committed importance, then with the shadow added to it
            for first in ends:
                for shift in (0, IMPORTANCE_BITS - KEY_BITS):  # its low bits, then its high ones
                    yield self._command(SOp.KEYS, [KeysFlag.FROM_IMPORTANCE], first=first, n=reach, shift=shift)
                    yield from self._show_keys(reach // 2)
                yield self._command(SOp.COMMIT, first=first, n=reach)

    def _show_keys(self, most: int) -> Iterator[Command]:
        """The ids of the largest keys, then of the largest ones among them, and so on."""
        n = self.reach
        for k in (most, max(1, most // 4), max(1, most // 16)):
            yield self._command(SOp.TOP_K, n=n, k=k)
            yield from self._show_list(0, k)
            n = k

    @staticmethod
    def _command(op: SOp, flags: Iterable[int] = (), **values: Any) -> Command:
        return Command.make(Unit.SELECT, op=op, flags=flags, **values)

    def _show_list(self, first: int, n: int) -> Iterator[Command]:
        rows = -(-2 * n // self.config.dim)
        for flags in self._halves:
            dst = self._place(rows)
            yield self._command(SOp.LIST_STORE, flags, first=first, n=n, dst=dst)
            yield self._result(dst, rows * self.config.dim)


def _planes(values: np.ndarray) -> np.ndarray:
    """int16 values as a row of low bytes and a row of high bytes."""
    return np.stack((values & 255, values >> 8 & 255)).astype(np.uint8)
