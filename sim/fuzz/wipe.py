"""A program that gives everything inside the device a known value, whatever stood there before."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import Command, CommitFlag, MoveFlag, SoftmaxFlag, SOp, Unit, VOp, encode_program
from gemmule.sim.launch import Launch

__all__ = ["wipe"]

make = Command.make


def wipe(config: Config, size: int) -> Launch:
    """Zeros in scratchpad, accumulator, weights, tables, importance and lists; keys, mask, running maxima and every row
    of every statistics context set.

    Resets and faults leave memories as they are; a launch after this program does not depend on them.
    ``size``: bytes of the DRAM, whose last part holds the program.
    """
    dim, run = config.dim, config.spm_bank_rows * config.dim // 2  # list entries of a bank
    each: dict[str, Any] = {"row_stride": 1, "block_stride": 1, "rows": 1, "flags": [MoveFlag.ZERO]}
    commands = [
        *(make(Unit.LOAD, row=row, bytes=config.spm_bank_rows * dim, **each)
          for row in range(0, config.spm_rows, config.spm_bank_rows)),
        *(make(Unit.LOAD, row=row, bytes=4 * config.acc_bank_rows * dim,
               **(each | {"flags": [MoveFlag.ACCUMULATOR, MoveFlag.ZERO]}))
          for row in range(0, config.acc_rows, config.acc_bank_rows)),
        make(Unit.MATRIX, b_row=config.spm_bank_rows, m=1, n=dim, k=dim, waits={Unit.LOAD: 1}),
        make(Unit.SELECT, op=SOp.ARGMAX, m=config.stat_rows, n=dim, waits={Unit.LOAD: 1}),
        make(Unit.SELECT, op=SOp.KEYS, n=config.select_keys),
        make(Unit.SELECT, op=SOp.TOP_K, n=config.select_keys, k=1),
        make(Unit.SELECT, op=SOp.COMMIT, n=config.select_keys, flags=[CommitFlag.CLEAR]),
        *(make(Unit.SELECT, op=SOp.LIST_LOAD, n=min(run, config.list_entries - first), dst=first)
          for first in range(0, config.list_entries, run)),
        make(Unit.VECTOR, op=VOp.TABLE, waits={Unit.LOAD: 1, Unit.MATRIX: 1}), make(Unit.VECTOR, op=VOp.WORD_TABLE),
        *(make(Unit.VECTOR, op=op, m=config.stat_rows, n=dim, mult=1, shift=32, context=context, flags=flags)
          for context in range(config.stat_contexts) for op, flags in (
              (VOp.SOFTMAX_MAX, [SoftmaxFlag.ONLINE]), (VOp.SOFTMAX_EXP, [SoftmaxFlag.MORE]), (VOp.SOFTMAX_EXP, []),
              (VOp.NORM_STAT, []))),
        make(Unit.LOAD, row=0, bytes=config.spm_bank_rows * dim, waits={Unit.VECTOR: 1, Unit.SELECT: 1}, **each),
    ]
    image = encode_program(commands)
    program = (size - len(image)) // 4096 * 4096
    registers = np.zeros(32, dtype=np.int64), np.full(32, size, dtype=np.int64), np.zeros(16, dtype=np.int64)
    return Launch("wipe", 0, image, program, np.zeros(size, dtype=np.uint8), *registers)
