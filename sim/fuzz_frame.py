"""What stands around a random program: where its data lie, its fill, and the dump that shows all it changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, Command, MatrixFlag, MoveFlag, Unit, VectorFlag, VOp
from gemmule.sim.fuzz_commands import Draw

__all__ = ["COMMANDS", "SOURCE", "TARGET", "Frame"]

SOURCE = 1 << 17
"""Bytes of random data that loads read; stores go above."""
TARGET = 1 << 16
_PIECE = 1 << 12
"""Most bytes of one load or store of the fill and the dump."""
COMMANDS = 1024
"""More than the fill and the dump ever take."""
_INT32 = [MoveFlag.ACCUMULATOR]
_INT8 = [MoveFlag.ACCUMULATOR, MoveFlag.NARROW]


@dataclass(frozen=True)
class Frame:
    """DRAM addresses of a program for ``config`` with ``commands`` random commands.

    The order in DRAM: source, target, dump of scratchpad and accumulator, dump of hidden state, patterns that make
    hidden state visible, program.
    """

    config: Config
    commands: int

    @property
    def accumulator(self) -> int:
        return SOURCE + TARGET + self.config.spm_kib * 1024

    @property
    def hidden(self) -> int:
        return self.accumulator + self.config.acc_kib * 1024

    @property
    def columns(self) -> int:
        """Width of the pattern of scores: whole groups, room for every magnitude."""
        return max(8, self.config.dim)

    @property
    def stat_rows(self) -> int:
        """Rows of a context that the dump shows: all, where the memories have room."""
        config, groups = self.config, self.columns // self.config.dim
        return min(config.stat_rows, (config.spm_rows - 2) // (2 + 2 * groups), config.acc_rows // groups)

    @property
    def _used(self) -> int:
        """Rows of either memory, from 0 on, that the commands which show the hidden state overwrite."""
        dim, m = self.config.dim, self.stat_rows
        return max(dim, 256 // dim, 2 * m + 2 + 2 * m * (self.columns // dim))

    @property
    def patterns(self) -> int:
        """An identity matrix, the bytes 0 .. 255, a row of scores, a row of int16 (low plane, high plane), scales."""
        dim = self.config.dim
        context = self.stat_rows * (3 * self.columns + dim)
        end = self.hidden + 4 * dim * dim + 256 + self.config.stat_contexts * context
        return end + -end % 64

    def _pattern_parts(self) -> tuple[int, int, int, int]:
        """Addresses of the bytes, scores, int16 row and scales (all on a bus boundary)."""
        dim = self.config.dim
        table = self.patterns + max(dim * dim, 64)
        scores = table + 256
        words = scores + 4 * self.columns + -4 * self.columns % 64
        return table, scores, words, words + max(2 * dim, 64)

    @property
    def program(self) -> int:
        end = self._pattern_parts()[3] + 2 * self.config.dim
        return end + -end % COMMAND_BYTES

    @property
    def end(self) -> int:
        """Bytes of DRAM."""
        end = self.program + (self.commands + COMMANDS) * COMMAND_BYTES
        return end + -end % 4096

    def memory(self, random: np.random.Generator) -> np.ndarray:
        """Random DRAM content; source values are small in half of the programs, so that sums do not saturate."""
        dim, dram = self.config.dim, random.integers(0, 256, self.end, dtype=np.uint8)
        if random.random() < 0.5:
            dram[:SOURCE] = random.integers(-9, 10, SOURCE).astype(np.int8).view(np.uint8)
        table, scores, words, scales = self._pattern_parts()
        dram[self.patterns:self.patterns + dim * dim] = np.eye(dim, dtype=np.uint8).reshape(-1)
        dram[table:table + 256] = np.arange(256)
        # Many magnitudes: whatever the exponent of a statistic, some column shows its mantissa.
        steps = random.integers(8, 16, self.columns) * random.choice([-1, 1], self.columns)
        values = (steps << 4 * (np.arange(self.columns) % 7)).astype(np.int32)
        dram[scores:scores + 4 * self.columns] = values.view(np.uint8)
        for address, numbers in ((words, steps[:dim] << 3 * (np.arange(dim) % 4)), (scales, steps[:dim] << 9)):
            planes = numbers & 255, numbers >> 8 & 255
            dram[address:address + 2 * dim] = np.concatenate(planes).astype(np.uint8)
        return dram

    def fill(self, draw: Draw) -> Iterator[Command]:
        """Loads of the banks' first rows, in some programs for a small memory of all rows: scratchpad, accumulator."""
        config, whole = self.config, self.config.spm_kib <= 32 and draw.chance(0.2)
        for banks, bank_rows, inside in (
            (config.spm_banks, config.spm_bank_rows, True), (config.acc_banks, config.acc_bank_rows, False),
        ):
            rows = bank_rows if whole else min(bank_rows, 4 * config.dim)
            for bank in range(banks):
                flags = [] if inside else draw.choice([_INT32, _INT8])
                width = 4 * config.dim if flags == _INT32 else config.dim
                for first, count in _pieces(rows, width):
                    yield _line(Unit.LOAD, draw.integer(0, SOURCE - count * width), bank * bank_rows + first,
                                count * width, flags)

    def dump_upper(self) -> list[Command]:
        """Stores of the upper halves of scratchpad and accumulator; the lower halves remain in use meanwhile."""
        spm, acc = self.config.spm_rows, self.config.acc_rows
        return [*self._stores(False, spm // 2, spm), *self._stores(True, acc // 2, acc)]

    def dump_lower(self, table: bool) -> Iterator[Command]:
        """Stores of the lower halves, and commands that show the hidden state.

        What these overwrite is stored first; the rest is stored while they run.
        """
        spm, acc = self.config.spm_rows // 2, self.config.acc_rows // 2
        first_spm, first_acc = min(self._used, spm), min(self._used, acc)
        yield from self._stores(False, 0, first_spm)
        yield from self._stores(True, 0, first_acc)
        rest = [*self._stores(False, first_spm, spm), *self._stores(True, first_acc, acc)]
        hidden = list(self._hidden(table))
        for i, command in enumerate(hidden):
            yield command
            yield from rest[i * len(rest) // len(hidden):(i + 1) * len(rest) // len(hidden)]

    def _stores(self, accumulator: bool, low: int, high: int) -> Iterator[Command]:
        """Stores of rows low .. high - 1 to their place in the dump."""
        address, flags, width = SOURCE + TARGET, list[MoveFlag](), self.config.dim
        if accumulator:
            address, flags, width = self.accumulator, _INT32, 4 * self.config.dim
        for at, count in _pieces(high - low, width):
            yield _line(Unit.STORE, address + (low + at) * width, low + at, count * width, flags)

    def _hidden(self, table: bool) -> Iterator[Command]:
        """Commands whose results depend on the hidden state, and stores of these: the weights in the mesh, the byte
        table (once a program has loaded one) and every context."""
        dim, address = self.config.dim, self.hidden
        ramp, scores, words, scales = self._pattern_parts()
        yield Command.make(Unit.LOAD, offset=self.patterns, bytes=dim * dim, rows=1, block_stride=1)
        yield Command.make(Unit.MATRIX, flags=[MatrixFlag.REUSE], a_stride=1, c_stride=1, m=dim, n=dim, k=dim)
        yield _line(Unit.STORE, address, 0, 4 * dim * dim, _INT32)
        address += 4 * dim * dim
        if table:
            yield _line(Unit.LOAD, ramp, 0, 256, _INT8)
            yield Command.make(Unit.VECTOR, op=VOp.REQUANT, flags=[VectorFlag.LOOKUP], src0_stride=1, dst_stride=1,
                               m=1, n=256, mult=1)
            yield _line(Unit.STORE, address, 0, 256, [])
        address += 256
        m, n = self.stat_rows, self.columns
        move: dict[str, Any] = {"rows": m, "row_stride": 1, "block_stride": m}
        yield Command.make(Unit.LOAD, flags=[*_INT32, MoveFlag.BROADCAST], offset=scores, bytes=4 * n, **move)
        yield Command.make(Unit.LOAD, flags=[MoveFlag.BROADCAST], offset=words, bytes=2 * dim, **move)
        yield _line(Unit.LOAD, scales, 2 * m, 2 * dim, [])
        result = 2 * m + 2
        # EXP last: it takes the maximum and overwrites the reciprocal.
        readers: list[tuple[VOp, list[VectorFlag], dict[str, Any], int]] = [
            (VOp.REQUANT, [VectorFlag.ROW, VectorFlag.WIDE],
             {"n": n, "src0_stride": m, "dst_stride": 2 * m, "mult": 1 << 15}, 2 * m * n),
            (VOp.RMS_APPLY, [],
             {"n": dim, "src0_stride": 2 * m, "src1": 2 * m, "dst_stride": m, "shift": 12}, m * dim),
            (VOp.SOFTMAX_EXP, [], {"n": n, "src0_stride": m, "dst_stride": m, "mult": 1}, m * n),
        ]
        for context in range(self.config.stat_contexts):
            for op, flags, values, size in readers:
                yield Command.make(Unit.VECTOR, op=op, flags=flags, context=context, dst=result, m=m, **values)
                yield _line(Unit.STORE, address, result, size, [])
                address += size


def _pieces(rows: int, width: int) -> Iterator[tuple[int, int]]:
    """(first row, rows) of moves that stay within a command's ``bytes``."""
    most = _PIECE // width
    for first in range(0, rows, most):
        yield first, min(most, rows - first)


def _line(unit: Unit, address: int, row: int, size: int, flags: list[MoveFlag]) -> Command:
    """A move of ``size`` bytes in one DRAM row to or from consecutive rows."""
    return Command.make(unit, flags=flags, offset=address, bytes=size, row=row, row_stride=1, block_stride=1, rows=1)
