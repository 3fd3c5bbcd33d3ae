"""Checks of long fields: a product of many rows, columns or depths, a move of rows far apart, each length and stride in
turn with every high bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import Command, MatrixFlag, MoveFlag, Unit
from gemmule.sim.launch import Launch
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.setup import Setup, launch_on

__all__ = ["field_checks"]

LONG_BITS = 16
"""Of the columns of a product, or of its depth if B is transposed."""
FARTHEST = 21
"""Highest bit of a stride in DRAM."""
SIZE = 1 << 23
"""Bytes of DRAM for it."""
make = Command.make


def _lengths(config: Config, flags: tuple[MatrixFlag, ...]) -> Iterator[tuple[str, int]]:
    """Each length of a product with every bit that fits: rows of the result, and those of B in one block, stand one
    behind the other; other columns and depths all come from one block and go to one."""
    rows, columns = (config.acc_rows - 1).bit_length(), (config.spm_rows - 1).bit_length() - 1
    long, short = ("k", "n") if MatrixFlag.B_TRANSPOSED in flags else ("n", "k")
    for name, bits in (("m", rows), (short, columns), (long, LONG_BITS)):
        yield from ((name, (1 << bit) + more) for bit in range(bits) for more in (0, 1))


def products(config: Config, seed: int) -> Launch:
    """Of random numbers, into every row of the accumulator; then that is stored."""
    draw, data = random.Random(seed), np.random.default_rng(seed).integers(0, 256, config.spm_kib << 10, dtype=np.uint8)
    commands = [make(Unit.LOAD, bytes=len(data), row=0, block_stride=1, rows=1),
                make(Unit.LOAD, flags=[MoveFlag.ACCUMULATOR, MoveFlag.ZERO], bytes=config.acc_kib << 10, row=0,
                     block_stride=1, rows=1)]
    half = config.spm_bank_rows * (config.spm_banks // 2)
    kinds = (), (MatrixFlag.OUTPUT_STATIONARY,), (MatrixFlag.A_TRANSPOSED,), (MatrixFlag.B_TRANSPOSED,)
    for flags, name, length in ((kind, *each) for kind in kinds for each in _lengths(config, kind)):
        few: dict[str, Any] = {other: draw.randint(1, config.dim) for other in "mkn"} | {name: length}
        sums = [MatrixFlag.ACCUMULATE] if name != "n" else []  # columns go to one block: only the last ones stay
        room = config.acc_rows - few["m"] - config.dim
        commands.append(make(
            Unit.MATRIX, flags=[*flags, *sums], a_row=draw.randrange(config.dim),
            a_stride=config.dim if config.dim < few["k"] < half else 0, b_row=half, c_row=draw.randint(0, max(0, room)),
            waits={Unit.LOAD: 1}, **few))
    stored = config.acc_kib << 10
    commands.append(make(Unit.STORE, flags=[MoveFlag.ACCUMULATOR], bytes=stored, row=0, block_stride=1, rows=1,
                         offset=len(data), waits={Unit.MATRIX: 1}))
    return launch_on(data, "long products", commands, len(data) + stored)


def strides(config: Config) -> Launch:
    """Moves of two and three rows, so far apart as one bit of a stride says."""
    commands = [make(Unit.LOAD, bytes=config.spm_kib << 10, row=0, block_stride=1, rows=1)]
    for bit, rows in ((bit, rows) for bit in range(2, FARTHEST + 1) for rows in (2, 3)):
        each: dict[str, Any] = {"bytes": config.dim, "row_stride": 2, "block_stride": 1, "rows": rows,
                                "stride": 1 << bit}
        commands += [make(Unit.STORE, row=8 * bit, offset=SIZE // 8 + 16 * bit, waits={Unit.LOAD: 1}, **each),
                     make(Unit.LOAD, row=8 * bit + 1, offset=SIZE // 8 + 16 * bit, waits={Unit.STORE: 1}, **each)]
    data = (np.arange(config.spm_kib << 10) * 37 >> 3).astype(np.uint8)
    return launch_on(data, "strides in DRAM", commands, SIZE)


def field_checks(setup: Setup, seed: int) -> list[Check]:
    return [setup.record(launch).check for launch in (products(setup.config, seed), strides(setup.config))]
