"""Predicates of the heads that are there, in phases of layers before which some have left.

Flags of the heads that stay stand in DRAM, a row for each head. A phase loads them, and COMPARE makes a predicate of a
head's flags ahead of its commands. Predicates take turns: while one head is computed, the operands of the next are
loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

import numpy as np

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder
from gemmule.config import Config
from gemmule.isa import CONTROL, NUM_PREDICATES, Command, SOp, Unit

__all__ = ["HEADS_LEFT", "HeadGates", "flags_offset", "skipped_commands"]

HEADS_LEFT = "heads left"
"""Region of flags: DIM bytes a head, 1 where it stays, for each choice."""


def flags_offset(config: Config, heads: int, choice: int) -> int:
    """Bytes before a choice's flags."""
    return choice * heads * config.dim


class HeadGates:
    """Of a phase behind a choice among heads: what lets commands of a head run only where it is left."""

    def __init__(self, b: Builder, node: Attention, choice: int) -> None:
        """Loads the flags of a choice, to rows beside weights: where vectors are read, COMPARE would wait for norms."""
        size = flags_offset(b.config, node.heads, 1)
        self.b, self.name, self._turn = b, node.name, count()
        self.flags = At(Buffer(f"{node.name}: heads that are left", node.heads, Bank.STREAM))
        b.reserve(HEADS_LEFT, (choice + 1) * size)
        b.add(Unit.LOAD, f"{node.name}: heads that are left", region=HEADS_LEFT, offset=choice * size, bytes=size,
              row=self.flags, block_stride=1, rows=1)

    def predicate(self, head: int) -> int:
        """The predicate of a head, until as many other heads as there are predicates have got theirs."""
        number = 1 + next(self._turn) % (NUM_PREDICATES - 1)
        self.b.add(Unit.SELECT, f"{self.name}: is head {head} left", op=SOp.COMPARE, src0=self.flags + head,
                   src0_stride=1, m=1, n=self.b.config.dim, aux=1, number=number)
        return number

    @contextmanager
    def head(self, number: int) -> Iterator[None]:
        """What is appended inside runs only where the head is left."""
        with self.b.when(self.predicate(number)):
            yield


def skipped_commands(commands: Sequence[Command], bases: Mapping[int, str], size: int,
                     kept: Sequence[int]) -> np.ndarray:
    """Commands that a predicate skips where the first heads are those that stay  # bool [commands].

    ``bases``: regions by base register; ``size``: bytes of a choice's flags; ``kept``: heads that each choice leaves.
    """
    found, there = np.zeros(len(commands), dtype=np.bool_), [True] * NUM_PREDICATES
    first = left = 0  # row of the first head's flags, and heads that are left in this phase
    for at, command in enumerate(commands):
        fields = command.fields
        if command.unit is Unit.LOAD and bases[fields["base"]] == HEADS_LEFT:
            first, left = fields["row"], kept[fields.get("offset", 0) // size]
        elif command.unit is Unit.SELECT and command.op == SOp.COMPARE:
            there[fields["number"]] = fields["src0"] - first < left
        found[at] = command.unit != CONTROL and not there[command.predicate]
    return found
