"""Checks of claims: one unit holds a bank several times, and at any time another one comes for that bank or another.

Random programs seldom have many commands of one unit under way when another unit wants one certain bank, or products
of no rows between those of another dataflow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import Command, MatrixFlag, MoveFlag, SOp, Unit, VOp
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.setup import Setup, launch_on
from gemmule.timing import Timing

__all__ = ["crossing_checks"]

BUSY = 150
"""Column groups of the command that all others wait for: until they are fetched."""
SOON = 40
"""The same of one that three others wait for."""
LONG = 16
"""Column groups of a command that holds a bank alone, and rows of a store: longer than the delay of a short one."""
LATER = 60
"""Column groups of the command that delays the other unit, at most."""
TURNS = 4
"""Times that every pair of banks is tried, each with another delay; in every other one some hold another bank."""
ASTRAY = 0.3
"""Chance of it."""
FAR = 1 << 15
"""Bytes from what is loaded to what is stored."""
make = Command.make
_A, _ADD = MoveFlag.ACCUMULATOR, MoveFlag.ADD


@dataclass(frozen=True)
class Use:
    """Commands of one unit that hold a bank of a memory."""

    memory: str
    most: int
    """That may be under way at once, or one more."""
    at: Callable[[int], Command]
    """One of them, by the first row of the bank."""


def uses(config: Config) -> list[Use]:
    """One for each kind of port that a stream of a unit holds."""
    dim, loads, products = config.dim, config.load_commands + 1, Timing.of(config).matrix_commands + 1
    move: dict[str, Any] = {"rows": 1, "block_stride": 1}
    long: dict[str, Any] = {"m": 2, "n": LONG * dim, "mult": 1, "shift": 8, "src0_stride": 2, "dst_stride": 2}
    tile: dict[str, Any] = {"m": 1, "n": dim, "k": dim}
    again = tile | {"flags": [MatrixFlag.REUSE]}
    return [
        Use("spm", loads, lambda at: make(Unit.LOAD, bytes=dim, row=at, **move)),
        Use("acc", loads, lambda at: make(Unit.LOAD, flags=[_A], bytes=4 * dim, row=at, **move)),
        Use("acc", loads, lambda at: make(Unit.LOAD, flags=[_A, _ADD], bytes=4 * dim, row=at, **move)),
        Use("spm", 2, lambda at: make(Unit.STORE, bytes=LONG * dim, row=at, offset=FAR, **move)),
        Use("acc", 2, lambda at: make(Unit.STORE, flags=[_A], bytes=LONG * dim, row=at, offset=FAR, **move)),
        Use("spm", products, lambda at: make(Unit.MATRIX, a_row=at, b_row=at, **again)),
        Use("spm", 3, lambda at: make(Unit.MATRIX, b_row=at, **tile)),
        Use("acc", products, lambda at: make(Unit.MATRIX, c_row=at, **again)),
        Use("acc", 1, lambda at: make(Unit.VECTOR, op=VOp.REQUANT, src0=at, **long)),
        Use("spm", 1, lambda at: make(Unit.VECTOR, op=VOp.REQUANT, dst=at, **long)),
        Use("acc", 1, lambda at: make(Unit.VECTOR, op=VOp.RESCALE, src0=at, dst=at, **long)),
        Use("spm", 1, lambda at: make(Unit.SELECT, op=SOp.ARGMAX, m=2, n=LONG * dim, src0=at, src0_stride=2)),
    ]


def crossings(config: Config, seed: int) -> Iterator[Command]:
    """A long command of the vector unit; behind it, all at once, commands that hold a bank; some cycles later the one
    that wants a bank."""
    draw, every = random.Random(seed), uses(config)
    banks = {"spm": config.spm_banks, "acc": config.acc_banks}
    rows = {"spm": config.spm_bank_rows, "acc": config.acc_bank_rows}

    def free(memory: str, *taken: tuple[Use, int]) -> int:
        """First row of a bank that none of these needs, if there is one."""
        others = {bank for use, bank in taken if use.memory == memory}
        return rows[memory] * max(set(range(banks[memory])) - others, default=0)

    yield make(Unit.MATRIX, m=1, n=config.dim, k=config.dim)
    for hold, want in product(every, every):
        holder, comer = hold.at(0).unit, want.at(0).unit
        if holder is comer:
            continue
        delayer = Unit.VECTOR if holder is Unit.SELECT else Unit.SELECT
        for bank, other, turn in product(range(banks[hold.memory]), range(banks[want.memory]), range(TURNS)):
            spm, acc = (free(memory, (hold, bank), (want, other)) for memory in ("spm", "acc"))
            groups = draw.randrange(LATER)
            busy: dict[str, Any] = {"m": 1, "src0": acc, "dst": spm, "mult": 1, "shift": 8}
            yield make(Unit.VECTOR, op=VOp.REQUANT, n=BUSY * config.dim, **busy)
            if delayer is Unit.SELECT:
                yield make(delayer, op=SOp.ARGMAX, m=1, n=groups * config.dim, src0=spm, waits={Unit.VECTOR: 1})
            else:
                yield make(delayer, op=VOp.REQUANT, n=groups * config.dim, **busy)
            yield _waits(want.at(rows[want.memory] * other), delayer, 1)
            behind = (delayer, comer).count(Unit.VECTOR)  # commands of the vector unit behind the long one
            for i in range(hold.most):
                astray = turn % 2 and draw.random() < ASTRAY
                at = draw.randrange(banks[hold.memory]) if astray else bank
                yield _waits(hold.at(rows[hold.memory] * at), Unit.VECTOR, 1 + behind if i == 0 else 0)


def changes(config: Config) -> Iterator[Command]:
    """Three products at once, of either dataflow, each of no rows or on a predicate that is 0 or neither: which of them
    waits for those before it."""
    kinds = list(product(((), (MatrixFlag.OUTPUT_STATIONARY,)), (0, 1), (0, 1)))
    for kind in product(kinds, repeat=3):
        yield make(Unit.VECTOR, op=VOp.REQUANT, m=1, n=SOON * config.dim, src0=0, dst=0, mult=1, shift=8)
        for i, (flags, rows, predicate) in enumerate(kind):
            command = make(Unit.MATRIX, flags=flags, m=rows, n=config.dim, k=config.dim,
                           b_row=config.spm_bank_rows, predicate=predicate)
            yield _waits(command, Unit.VECTOR, int(i == 0))


def _waits(command: Command, unit: Unit, distance: int) -> Command:
    """The command behind an earlier one of another unit."""
    return command if command.unit is unit or not distance else replace(command, waits={unit: distance})


def crossing_checks(setup: Setup, seed: int) -> list[Check]:
    def check(name: str, commands: Iterator[Command]) -> Check:
        recorded = setup.record(launch_on(np.zeros(0, dtype=np.uint8), name, list(commands), 2 * FAR))
        return Check(name, lambda rtl: recorded.exact(rtl) or setup.recovered(rtl))

    return [check("crossings", crossings(setup.config, seed)), check("changes of the dataflow", changes(setup.config))]
