"""Checks of the vector unit's functions: every value that they tell from others, in every lane."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import Command, MoveFlag, SoftmaxFlag, Unit, VOp
from gemmule.operations import EXPONENTIALS
from gemmule.sim.launch import Launch
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.setup import Setup, launch_on

__all__ = ["function_checks"]

GELU = 2048
"""Integers on either side of 0 for which GELU is not one of its two limits, or more."""
GELU_SHIFTS = 8, 12
"""Results whose low bits show, and whose high bits do."""
FINE = 2200
"""Distances below a row's maximum that are all tried: two octaves."""
COARSE = 33
"""Distances from one to the next beyond them."""
FARTHEST = 24 << 10
"""Distance beyond which every exponential is 0, or nearly."""
RESULTS = 4
"""Bytes of values and results for each byte of values, at most."""
make = Command.make


def _launch(name: str, values: np.ndarray, commands: Iterator[Command]) -> Launch:
    """Commands on 32-bit values at address 0."""
    data = values.astype("<i4").view(np.uint8)
    return launch_on(data, name, list(commands), RESULTS * len(data))


def _batches(config: Config, count: int) -> Iterator[tuple[int, Command]]:
    """Accumulators full of values, a row of the same in every lane: number of the batch, and its load."""
    size = 4 * config.dim * config.acc_rows
    for i in range(-(-count // config.acc_rows)):
        yield i, make(Unit.LOAD, flags=[MoveFlag.ACCUMULATOR], bytes=size, offset=i * size, row=0, block_stride=1,
                      rows=1, waits={Unit.VECTOR: 1})


def gelu(config: Config) -> Launch:
    """I-BERT's GELU of every integer around 0."""
    values = np.repeat(np.arange(-GELU, GELU), config.dim)
    behind = 4 * len(values)

    def commands() -> Iterator[Command]:
        rows = min(config.acc_rows, config.spm_rows)
        for i, load in _batches(config, 2 * GELU):
            yield load
            for j, shift2 in enumerate(GELU_SHIFTS):
                yield make(Unit.VECTOR, op=VOp.I_GELU, m=rows, n=config.dim, src0=0, dst=0, mult=1, shift=0,
                           shift2=shift2, waits={Unit.LOAD: 1, Unit.STORE: 1})
                yield make(Unit.STORE, bytes=rows * config.dim, row=0, block_stride=1, rows=1, waits={Unit.VECTOR: 1},
                           offset=behind + (2 * i + j) * rows * config.dim)

    return _launch("gelu", values, commands())


def softmax(config: Config, groups: int) -> Launch:
    """Every exponential of distances from 0 on, in rows of many column groups, of which the first is the maximum, or of
    one, in which another lane is: the sum's low bits show in the few that they have."""
    rows, dim = config.stat_rows, config.dim
    tiles = config.acc_rows // (rows * groups)  # rows' groups stand one behind the other, a command's rows in each
    distances = np.r_[np.arange(FINE), np.arange(FINE, FARTHEST, COARSE)]
    wide = groups > 1
    batches = -(-len(distances) // (tiles * rows * (groups - wide)))
    below = np.zeros((batches, tiles, groups, rows, dim), dtype=np.int64)
    below[:, :, wide:] = np.resize(distances, (batches, tiles, groups - wide, rows, 1))
    if not wide:
        below[..., np.arange(rows), np.arange(rows) % dim] = 0
    kinds = range(len(EXPONENTIALS) if config.comparison_modes else 1)

    def commands() -> Iterator[Command]:
        size, offset = 2 * dim * rows * groups, 4 * below.size
        for (_, load), tile in product(_batches(config, batches * config.acc_rows), range(tiles)):
            if tile == 0:
                yield load
            row: dict[str, Any] = {"m": rows, "n": groups * dim, "src0": tile * rows * groups, "src0_stride": rows,
                                   "mult": 1, "shift": 0}
            yield make(Unit.VECTOR, op=VOp.SOFTMAX_MAX, waits={Unit.LOAD: 1}, **row)
            for kind, op in product(kinds, (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)):
                yield make(Unit.VECTOR, op=op, flags=[SoftmaxFlag.WIDE], period=kind, dst=0, dst_stride=2 * rows,
                           waits={Unit.STORE: 1}, **row)
                yield make(Unit.STORE, bytes=size, row=0, block_stride=1, rows=1, waits={Unit.VECTOR: 1}, offset=offset)
                offset += size

    return _launch(f"softmax of {'long' if wide else 'short'} rows", -below.ravel(), commands())


def function_checks(setup: Setup) -> list[Check]:
    config = setup.config
    launches = [softmax(config, groups) for groups in (1, config.acc_rows // config.stat_rows)]
    if config.comparison_modes:
        launches.append(gelu(config))
    return [setup.record(launch).check for launch in launches]
