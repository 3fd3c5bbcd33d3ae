"""What stands around a random program: where its data lie, its fill, and the dump that shows all it changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, Command, MoveFlag, SOp, Unit
from gemmule.sim.fuzz.corners import corner_bytes
from gemmule.sim.fuzz.draw import HOLLOW, SKIPPED, Draw
from gemmule.sim.fuzz.reveal import INT8, INT32, Reveal, line

__all__ = ["Frame"]

SOURCE, TARGET = 1 << 17, 1 << 16
"""Bytes of random data that loads read, and above them those that stores write; fewer in a small address space."""
SMALL = 1 << 18
"""Bytes of an address space that programs fill to its end."""
BROKEN, BACK = 40, 8
"""Most commands that a fault comes with; that set displacements back."""
_PIECE = 1 << 12
"""Most bytes of one load or store of the fill and the dump."""


@dataclass(frozen=True)
class Frame:
    """DRAM addresses of a program for ``config`` with ``commands`` random commands.

    The order in DRAM: source, target, dump of scratchpad and accumulator, patterns that make hidden state visible, its
    dump, program.
    """

    config: Config
    commands: int

    @property
    def source(self) -> int:
        """Bytes of random data that loads read; stores go above."""
        return min(SOURCE, 1 << self.config.address_bits - 2)

    @property
    def target(self) -> int:
        """Bytes that stores write."""
        return min(TARGET, 1 << self.config.address_bits - 3)

    @property
    def scratchpad(self) -> int:
        """Where the dump begins: of the scratchpad, then of the accumulator."""
        return self.source + self.target

    @property
    def accumulator(self) -> int:
        return self.scratchpad + self.config.spm_kib * 1024

    @cached_property
    def reveal(self) -> Reveal:
        return Reveal(self.config, self.accumulator + self.config.acc_kib * 1024)

    @property
    def program(self) -> int:
        return self.reveal.end + -self.reveal.end % COMMAND_BYTES

    @property
    def end(self) -> int:
        """Bytes of DRAM: all of a small address space."""
        if (space := 1 << self.config.address_bits) <= SMALL:
            return space
        end = self.program + 2 * self.config.burst_bytes + (self.commands + self.around) * COMMAND_BYTES
        return end + -end % 4096

    @property
    def most(self) -> int:
        """Random commands for which the address space has room."""
        room = (1 << self.config.address_bits) - self.program - 2 * self.config.burst_bytes
        return room // COMMAND_BYTES - self.around

    @cached_property
    def around(self) -> int:
        """Commands beside the random ones, at most: fill and dump, runs of empty and of skipped ones, a fault.

        Before a few of them a displacement is set back.
        """
        config = self.config
        memories = ((config.spm_banks, config.spm_bank_rows, config.dim),
                    (config.acc_banks, config.acc_bank_rows, 4 * config.dim))
        moved = sum(banks * (1 + len(list(_pieces(rows, width)))) for banks, rows, width in memories)
        hidden = len(list(self.reveal.fill())) + len(self.reveal.commands(table=True, words=True))
        return 2 * moved + hidden + HOLLOW + SKIPPED + BROKEN + BACK

    def memory(self, random: np.random.Generator) -> np.ndarray:
        """Random DRAM content; source values are small in some programs, so that sums do not saturate, or extreme."""
        dram = random.integers(0, 256, self.end, dtype=np.uint8)
        taste = random.random()
        if taste < 0.4:
            dram[:self.source] = random.integers(-9, 10, self.source).astype(np.int8).view(np.uint8)
        elif taste < 0.7:
            dram[:self.source] = corner_bytes(random, self.source)
        self.reveal.write(dram, random)
        return dram

    def fill(self, draw: Draw) -> Iterator[Command]:
        """Lists; the banks' first rows, in some programs for a small memory all rows: scratchpad, accumulator."""
        config, whole = self.config, self.config.spm_kib <= 32 and (draw.chance(0.2) or draw.wish is SOp.IMPORTANCE)
        yield from self.reveal.fill()
        for banks, bank_rows, inside in (
            (config.spm_banks, config.spm_bank_rows, True), (config.acc_banks, config.acc_bank_rows, False),
        ):
            rows = bank_rows if whole else min(bank_rows, 4 * config.dim)
            for bank in range(banks):
                flags: list[MoveFlag] = [] if inside else draw.choice([INT32, INT8])
                width = 4 * config.dim if flags == INT32 else config.dim
                for first, count in _pieces(rows, width):
                    address = draw.integer(0, self.source - count * width)
                    # Mostly whole words, as they lie in DRAM.
                    address -= address % 4 if draw.chance(0.7) else 0
                    yield line(Unit.LOAD, address, bank * bank_rows + first, count * width, flags)

    def dump_upper(self) -> list[Command]:
        """Stores of the upper halves of scratchpad and accumulator; the lower halves remain in use meanwhile."""
        spm, acc = self.config.spm_rows, self.config.acc_rows
        return [*self._stores(False, spm // 2, spm), *self._stores(True, acc // 2, acc)]

    def dump_lower(self, *, table: bool, words: bool) -> Iterator[Command]:
        """Stores of the lower halves, and commands that show the hidden state.

        What these overwrite is stored first; the rest is stored while they run.
        """
        spm, acc = self.config.spm_rows // 2, self.config.acc_rows // 2
        first_spm, first_acc = min(self.reveal.used, spm), min(self.reveal.used, acc)
        yield from self._stores(False, 0, first_spm)
        yield from self._stores(True, 0, first_acc)
        rest = [*self._stores(False, first_spm, spm), *self._stores(True, first_acc, acc)]
        hidden = self.reveal.commands(table=table, words=words)
        for i, command in enumerate(hidden):
            yield command
            yield from rest[i * len(rest) // len(hidden):(i + 1) * len(rest) // len(hidden)]

    def _stores(self, accumulator: bool, low: int, high: int) -> Iterator[Command]:
        """Stores of rows low .. high - 1 to their place in the dump."""
        address, flags, width = self.scratchpad, list[MoveFlag](), self.config.dim
        if accumulator:
            address, flags, width = self.accumulator, INT32, 4 * self.config.dim
        for at, count in _pieces(high - low, width):
            yield line(Unit.STORE, address + (low + at) * width, low + at, count * width, flags)


def _pieces(rows: int, width: int) -> Iterator[tuple[int, int]]:
    """(first row, rows) of moves that stay within a command's ``bytes``."""
    most = _PIECE // width
    for first in range(0, rows, most):
        yield first, min(most, rows - first)
