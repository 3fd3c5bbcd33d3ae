"""What random commands are drawn with: numbers, rows and lengths of a program's taste."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.control import Local
from gemmule.isa import MAX_LENGTH, NUM_BASES, Command, Dyn, Length, SOp, Unit, VOp, legal_flags
from gemmule.operations import needs

__all__ = ["FAR", "HOLLOW", "NEAR", "SKIPPED", "TARGETS", "Draw", "Note", "Straight", "run_reach", "sets_of"]

# Operations that touch much wait for more, so others are taken before them; some are set up for others anyway.
_SHARES = {
    VOp.REQUANT: 10.0, VOp.ROPE: 10.0, VOp.NORM_APPLY: 6.0, VOp.PRODUCT: 6.0, VOp.ADD: 6.0, VOp.SOFTMAX_EXP: 7.0,
    VOp.SOFTMAX_NORM: 8.0, VOp.TABLE: 1.3, VOp.WORD_TABLE: 1.3, VOp.NORM_STAT: 2.5, VOp.I_GELU: 6.0,
    VOp.RESCALE: 7.5,
}
Note = tuple[str, int, int]
"""What a command sets up: kind of state, its number, rows; of a context that it sets back, 0 rows."""
FAR = (13, 14)
"""Base registers that may point beyond the DRAM: for commands that never run."""
NEAR = tuple(base for base in range(1, 16) if base not in FAR)
"""Base registers of loads."""
TARGETS = tuple(range(16, NUM_BASES))
"""Base registers of stores, and of a few loads."""
HOLLOW = 48
"""Commands of a run of empty ones: they pass faster than fetch brings them."""
SKIPPED = 40
"""Commands that a predicate skips, before all others of a program."""


@cache
def _legal_sets(unit: Unit, op: int, features: frozenset[str]) -> tuple[frozenset[int], ...]:
    return tuple(frozenset(bit for bit in range(8) if flags >> bit & 1) for flags in range(256)
                 if legal_flags(unit, op, flags) and needs(unit, op, flags) <= features)


def sets_of(config: Config, unit: Unit, op: int = 0) -> tuple[frozenset[int], ...]:
    """Every set of flags that an operation may have on this configuration."""
    return _legal_sets(unit, op, config.features)


def run_reach(config: Config) -> int:
    """Entries at either end of keys, importance and lists in which random commands work."""
    return min(config.select_keys, config.list_entries, max(64, 4 * config.dim))


class Draw:
    """Random numbers of a program's taste; knows which contexts, tables and predicates have been set up so far.

    ``bases`` and ``lengths`` are those that the next command sees (:meth:`follow`).
    """

    def __init__(self, config: Config, random: np.random.Generator, bases: np.ndarray, lengths: np.ndarray) -> None:
        self.config, self.random, self.bases, self.lengths = config, random, bases, lengths
        self.contexts: dict[tuple[str, int], int] = {}
        self.table = self.words = False
        self.judged: list[int] = []
        """Predicates that some command has set."""
        self.hollow = 0
        self.sealed = False
        """Rows are drawn from the lower half of the memories."""
        slow = config.dram.beat_cycles > 1
        # Large memories take longer to dump; larger products keep the balance.
        self.roomy = 2 if slow or config.spm_bank_rows >= 128 * config.dim else 1
        # Programs differ in what they are made of, and in how many banks they crowd into.
        moves = 0.45 if slow else 1.0  # the other units are to keep up
        self.weights = random.dirichlet([10.0 * moves, 6.0 * moves, 17.0, 24.0, 9.0])
        self.vector_ops = [op for op in VOp if sets_of(config, Unit.VECTOR, op)]
        self.ops = random.dirichlet([_SHARES.get(op, 4.0) for op in self.vector_ops])
        self.select_ops = random.dirichlet(
            [4.0 if op in (SOp.COMPARE, SOp.LIST_LOAD, SOp.LIST_STORE) else 3.0 for op in SOp])
        self.guard = float(random.choice([0.0, 0.3, 0.5]))
        self.banks = int(random.integers(min(3, config.spm_banks), config.spm_banks + 1))
        self.near = float(random.choice([0.1, 0.4, 0.7]))
        self.share = float(random.choice([0.1, 0.2, 0.5]))
        self.output = float(random.choice([0.1, 0.2, 0.5]))
        self.reuse = float(random.choice([0.1, 0.2]))
        # Units mostly work in a bank each, and take turns: what one has written another reads later.
        self.tidy = float(random.choice([0.5, 0.95, 1.0]))
        self.period = int(random.choice([12, 24, 48]))
        self.unit, self.taken = Unit.LOAD, 0
        self.long_cycles = int(random.choice([0, 0, 0, 4096, 16_000]))
        """Cycles of their unit that very long commands may still take."""
        self.flat = self.chance(0.15)
        """Scores of softmax are mostly equal."""
        self.wish: VOp | SOp | None = self.choice([None] * 3 + [VOp.NORM_STAT, VOp.SOFTMAX_EXP, SOp.IMPORTANCE])
        """An operation whose sum is to grow beyond all others, near the program's end."""
        self.due = 0
        """Commands before that."""
        if self.wish is not None:
            self.long_cycles, self.flat = 16_000, self.flat or self.wish is VOp.SOFTMAX_EXP
        self.asked = 0
        """Cycles that the command drawn last takes of these; not 0: it is taken whatever it waits for."""
        self.storm: list[Command] = []
        """Commands that come next of the select unit."""
        self.control = self.chance(0.85)
        """The program has control commands."""
        self.fresh: tuple[int, ...] = ()
        """Length registers that SET wrote lately, or that the body around writes."""
        self.moved: tuple[int, ...] = ()
        """The same of base registers."""

    def follow(self, local: Local) -> None:
        """Draw for these registers from now on."""
        self.bases, self.lengths = local.bases, local.lengths

    def save(self) -> dict[str, Any]:
        """What :meth:`restore` takes, where commands were drawn in vain."""
        return self.__dict__ | {
            "contexts": dict(self.contexts), "judged": list(self.judged), "storm": list(self.storm)}

    def restore(self, saved: dict[str, Any]) -> None:
        """As it was when this was saved."""
        self.__dict__.update(saved)

    def integer(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def choice(self, values: Sequence[Any]) -> Any:
        return values[self.integer(0, len(values) - 1)]

    @property
    def wished(self) -> VOp | SOp | None:
        """The operation that is now to be drawn."""
        return self.wish if self.sealed and self.taken >= self.due else None

    def size(self, groups: int) -> int:
        """A length in rows or columns: often ragged, sometimes whole, seldom zero."""
        dim = self.config.dim
        if self.hollow or self.chance(0.05):
            return 0
        whole = dim * self.integer(1, groups)
        return whole if self.chance(0.4) else self.integer(1, whole)

    def long(self, most: int, cycles: float, share: float = 0.2) -> int:
        """A very long length, up to ``most``, of which each takes so many cycles; 0 where none is wanted or affordable.

        Next to a power of two, the longest one, or any.
        """
        if self.wish is not None and share < 1.0:  # which needs them all
            return 0
        most = min(most, int(self.long_cycles / cycles), MAX_LENGTH)
        if most <= 4 * self.config.dim or self.hollow or not self.chance(share):
            return 0
        near = (1 << self.integer(min(5, most.bit_length()), most.bit_length())) + self.integer(-1, 1)
        value: int = min(most, self.choice([near, most, self.integer(4 * self.config.dim, most)]))
        value = most if share == 1.0 else value
        self.asked = max(1, int(value * cycles))
        return value

    def register(self, share: float = 0.4) -> int:
        """A length register, with chance ``share`` one that was written lately."""
        return int(self.choice(self.fresh)) if self.fresh and self.chance(share) else self.integer(1, 15)

    def base(self, registers: Sequence[int]) -> int:
        """One of these base registers, now and then one that was moved lately."""
        moved = [register for register in self.moved if register in registers]
        return int(self.choice(moved if moved and self.chance(0.6) else registers))

    def length(self, value: int) -> Length:
        """A length field that resolves to ``value``, through a register when one fits.

        Through one that was written lately it may be less, but never more, whatever is written there.
        """
        if self.fresh and value and self.chance(0.4):
            reg = int(self.choice(self.fresh))
            return Length(value, reg, self.integer(0, min(255, max(0, int(self.lengths[reg]) - value))))
        if self.chance(0.4):
            return Length(value)
        reg = self.integer(1, 15)
        have = int(self.lengths[reg])
        if have < value:
            return Length(value)
        if 0 <= have - value < 256 and self.chance(0.6):
            return Length(min(MAX_LENGTH, value + self.integer(0, 40)), reg, have - value)
        return Length(value, reg, self.integer(0, min(255, have - value)))

    def dynamic(self, which: Dyn, values: dict[str, Any], name: str) -> tuple[Dyn, int, int]:
        """Move a part of the row into register times stride, if it fits."""
        fits = [reg for reg in range(1, 16) if 0 < self.lengths[reg] <= values[name]]
        reg = self.choice(fits) if fits and self.chance(0.7) else self.integer(1, 15)
        reg = self.choice(self.fresh) if self.fresh and self.chance(0.3) else reg
        stride = self.integer(1, 9)
        have = int(self.lengths[reg])
        stride = min(stride, values[name] // have) if have else stride
        if self.chance(0.3) or not stride:
            return (Dyn.NONE, self.integer(0, 15), self.integer(0, 1023))
        values[name] -= have * stride
        return (which, reg, stride)

    def row(self, space: str = "spm", bank: int | None = None) -> int:
        """A row, often near a bank's start, in the bank of the unit's turn or in any that this program likes."""
        config = self.config
        rows = config.spm_bank_rows if space == "spm" else config.acc_bank_rows
        banks = self.banks if space == "spm" else config.acc_banks
        if self.sealed:
            rows, banks = (rows, banks // 2) if banks > 1 else (rows // 2, 1)
        if bank is None:
            turn = (self.unit + self.taken // self.period) % banks
            bank = turn if self.chance(self.tidy) else self.integer(0, banks - 1)
        reach = min(rows - 1, 3 * config.dim) if self.chance(self.near) else rows - 1
        return bank * rows + self.integer(0, reach)

    def partner(self, row: int, share: float) -> int:
        """A scratchpad row in the bank of ``row``, with chance ``share``, or in another one."""
        bank = row // self.config.spm_bank_rows
        if self.banks == 1 or self.chance(share):
            return self.row(bank=bank)
        # A tidy unit shares the bank before its own, which nobody writes while the turn lasts.
        away = self.banks - 1 if self.chance(self.tidy) else self.integer(1, self.banks - 1)
        return self.row(bank=(bank + away) % self.banks)

    def stride(self, rows: int, *, planes: int = 1) -> int:
        """Distance of column groups: mostly without overlap."""
        if self.chance(0.08):
            return planes << max(rows - 1, 1).bit_length() + self.integer(0, 4)
        slack = self.choice([0, 0, 1, self.config.dim, 7])
        return planes * (rows + slack) + (self.integer(0, 1) if planes == 1 and self.chance(0.3) else 0)

    def run(self, size: int, count: int) -> int:
        """Where ``count`` entries of a memory of ``size`` begin: near its first ones, or near its last ones."""
        at = self.integer(0, max(0, run_reach(self.config) - count))
        return at if self.chance(0.75) else max(0, size - count - at)

    def predicate(self) -> int:
        """Mostly 0; else one that has been set, if there is one."""
        if self.hollow or not self.chance(self.guard if self.judged else 0.02):
            return 0
        return int(self.choice(self.judged)) if self.judged and self.chance(0.97) else self.integer(1, 3)

    def accept(self, notes: Sequence[Note]) -> None:
        """A command with these notes has become part of the program."""
        self.hollow = max(0, self.hollow - 1)
        self.long_cycles -= self.asked
        self.wish = None if self.asked else self.wish
        self.taken += 1
        for kind, number, rows in notes:
            if kind == "table":
                self.table = True
            elif kind == "words":
                self.words = True
            elif kind == "predicate":
                self.judged.append(number)
            elif rows:
                self.contexts[kind, number] = max(rows, self.contexts.get((kind, number), 0))
            else:
                self.contexts.pop((kind, number), None)


class Straight(Draw):
    """Without control commands: command i of the launch stands at place i of its image."""

    def __init__(self, config: Config, random: np.random.Generator, bases: np.ndarray, lengths: np.ndarray) -> None:
        super().__init__(config, random, bases, lengths)
        self.control = False
