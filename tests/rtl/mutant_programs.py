"""Short programs that use each mode on purpose, for the mutants; the rest comes from the fuzz generator."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gemmule.config import Config
from gemmule.isa import Command, MatrixFlag, MoveFlag, SelectFlag, SOp, Unit, VectorFlag, VOp, encode_program
from gemmule.sim.fuzz import FuzzCase

__all__ = ["crowd", "directed", "selections"]

M, V, F = MatrixFlag, VectorFlag, MoveFlag
UNITS = tuple(Unit)
ONES = 61440
"""From here on the DRAM holds bytes of 255."""
make = Command.make


def _case(name: str, commands: list[Command], size: int = 1 << 16) -> FuzzCase:
    dram = np.random.default_rng(7).integers(0, 256, size, dtype=np.uint8)
    dram[ONES:] = 255
    registers = np.zeros(32, dtype=np.int64), np.full(32, size, dtype=np.int64), np.zeros(16, dtype=np.int64)
    return FuzzCase(name, 7, encode_program(commands), size // 2, dram, *registers)


def crowd(config: Config) -> list[FuzzCase]:
    """Many short commands of one unit, back to back."""
    bank = config.spm_bank_rows
    matrix = [
        make(Unit.MATRIX, a_row=0, a_stride=1, b_row=bank, b_stride=config.dim, c_row=i, c_stride=1,
             m=1, n=1, k=config.dim * 2)
        for i in range(24)
    ]
    one = [replace(c, fields={**c.fields, "k_cap": 1}) for c in matrix]
    # All stand in the queue when the load ends, so that they issue faster than they would be fetched.
    kept = [make(Unit.LOAD, offset=0, bytes=bank * config.dim, row=2 * bank, row_stride=1, block_stride=1, rows=1),
            replace(one[0], waits={Unit.LOAD: 1})] + [replace(c, flags=frozenset({int(M.REUSE)})) for c in one[1:]]
    store = [make(Unit.STORE, offset=64 * i, row=i, row_stride=1, block_stride=1, rows=1, bytes=config.bus_bytes)
             for i in range(24)]
    return [_case("matrix", matrix), _case("one tile", one), _case("reuse", kept), _case("store", store)]


def _in_turn(commands: list[Command]) -> list[Command]:
    """Each command waits for all before it."""
    seen: set[Unit] = set()
    out = []
    for command in commands:
        out.append(replace(command, waits={unit: 1 for unit in UNITS if unit in seen}))
        seen.add(command.unit)
    return out


def directed(config: Config) -> list[FuzzCase]:
    """One program for the modes of each unit, step by step, and one that lets commands of a unit overlap."""
    dim, bank, acc = config.dim, config.spm_bank_rows, config.acc_bank_rows
    fill = [make(Unit.LOAD, offset=0, bytes=bank * dim, row=0, row_stride=1, block_stride=1, rows=1),
            make(Unit.LOAD, offset=5000, bytes=bank * dim, row=bank, row_stride=1, block_stride=1, rows=1),
            make(Unit.LOAD, offset=9000, bytes=4 * dim * acc, row=0, row_stride=1, block_stride=1, rows=1,
                 flags=[F.ACCUMULATOR])]
    dump = [make(Unit.STORE, offset=16384 + i * bank * dim, bytes=bank * dim, row=i * bank, row_stride=1,
                 block_stride=1, rows=1) for i in range(3)]
    results = make(Unit.STORE, offset=24576, bytes=4 * dim * acc * 2, row=0, row_stride=1, block_stride=1, rows=1,
                   flags=[F.ACCUMULATOR])

    tile = {"a_row": 3, "a_stride": 11, "b_row": bank, "b_stride": 3 * dim, "c_stride": 7, "m": 5, "n": dim,
            "k": 2 * dim}
    kinds: list[tuple[list[int], dict[str, int]]] = [
        ([], {}), ([], {"b_row": 4 * dim, "k": 3 * dim}), ([M.B_INT4, M.GROUP_SCALES], {}), ([M.REUSE], {"k": dim}),
        ([M.A_TRANSPOSED], {}), ([M.OUTPUT_STATIONARY], {"n": 2 * dim}), ([M.OUTPUT_STATIONARY, M.ACCUMULATE], {}),
        ([M.B_INT4, M.B_TRANSPOSED], {}), ([M.A_UNSIGNED], {"m": 1}),
    ]
    products = [make(Unit.MATRIX, flags=flags, c_row=14 * i % (2 * acc - 14), **(tile | change))
                for i, (flags, change) in enumerate(kinds)]

    move = {"rows": 3, "row_stride": 5, "block_stride": 1, "bytes": 2 * dim + 1, "stride": 3 * dim + 1, "offset": 1234}
    aligned = {"rows": 3, "row_stride": 4, "block_stride": 1, "bytes": 3 * dim, "stride": 4 * dim, "offset": 4096}
    moves = [
        make(Unit.LOAD, row=2 * bank, **move), make(Unit.LOAD, row=2 * bank + 30, flags=[F.ZERO], **move),
        make(Unit.LOAD, row=2 * bank + 60, flags=[F.BROADCAST], **(aligned | {"bytes": 3 * config.burst_bytes // 2,
             "row_stride": 2 * config.burst_bytes // dim})),
        make(Unit.LOAD, row=4, flags=[F.ACCUMULATOR, F.ADD], **(move | {"bytes": 8 * dim})),
        make(Unit.LOAD, row=4, flags=[F.ACCUMULATOR, F.NARROW, F.ADD], **move),
        make(Unit.STORE, row=2 * bank, **(move | {"offset": 30001})),
        make(Unit.STORE, row=0, flags=[F.ACCUMULATOR, F.NARROW], **(move | {"offset": 31001})),
    ]
    overlap = [*fill, make(Unit.LOAD, row=2 * bank, flags=[F.ZERO], **aligned),
               make(Unit.LOAD, row=2 * bank + 40, **aligned),
               make(Unit.LOAD, row=2 * bank + 80, flags=[F.BROADCAST], **aligned),
               make(Unit.LOAD, row=2 * bank + 120, **(aligned | {"rows": 0})), *products,
               make(Unit.MATRIX, flags=[M.OUTPUT_STATIONARY], c_row=0, **(tile | {"n": 2 * dim})),
               make(Unit.STORE, offset=16384, bytes=dim, row=bank, row_stride=1, block_stride=1, rows=1,
                    waits={Unit.MATRIX: 2})]  # wants the bank of B

    vector = {"src0": 2, "src0_stride": 8, "src1": bank + 9, "dst": 2 * bank, "dst_stride": 16, "m": 5, "n": 2 * dim,
              "mult": 3, "shift": 24}
    scaled: list[tuple[int, list[int], dict[str, int]]] = [
        (VOp.REQUANT, [V.BIAS], {}), (VOp.REQUANT, [V.BIAS, V.COLUMN], {}), (VOp.REQUANT, [V.CLAMP], {"aux": 0x14F0}),
        (VOp.REQUANT, [V.RESIDUAL], {}),
        (VOp.REQUANT, [V.RESIDUAL, V.RESCALE], {"aux": 20000, "shift2": 16}),
        (VOp.ADD, [], {"aux": 7, "shift": 4}), (VOp.ADD, [V.WIDE], {"aux": 7, "shift": 4}),
        (VOp.ADD, [], {"aux": 7, "shift": 4, "src1": 60}), (VOp.ROPE, [V.BIAS], {"aux": 70, "shift2": 14}),
    ]
    lanes = [make(Unit.VECTOR, op=op, flags=flags, **(vector | {"dst": 2 * bank + 40 * (i % 5)} | change))
             for i, (op, flags, change) in enumerate(scaled)]
    return [
        _case("matrix modes", _in_turn([*fill, *products, results])),
        _case("moves", _in_turn([*fill, *moves, *dump, results])),
        _case("vector modes", _in_turn([*fill, *lanes, *dump])), _case("overlap", overlap),
    ]


def selections(config: Config) -> FuzzCase:
    """Equal maxima, one after the other; positions DIM .. as important as can be, those before them less.

    The best position of each of two keys is stored: with one bit of the importance, which tells them apart only beyond
    32 bits, and with so many that all saturate.
    """
    dim, rows = config.dim, config.spm_rows - 8
    select, both = partial(make, Unit.SELECT, src0=0, src0_stride=0), {"n": 2 * dim, "first": 0}
    importance = partial(select, op=SOp.IMPORTANCE, flags=[SelectFlag.WIDE], m=rows, n=dim)
    rounds = -(-(1 << 32) // (rows * 65535))  # until 32 bits are full
    commands = [
        make(Unit.LOAD, offset=ONES, bytes=dim, rows=rows, row=0, row_stride=1, block_stride=1),
        select(op=SOp.COMMIT, flags=[SelectFlag.CLEAR], **both, waits={Unit.LOAD: 1}),
        select(op=SOp.ARGMAX, m=1, n=dim, first=3, dst=2),
        select(op=SOp.ARGMAX, m=1, n=dim, first=9, dst=2, flags=[SelectFlag.CONTINUE]),
        *(importance(first=0) for _ in range(rounds * 3 // 4)), *(importance(first=dim) for _ in range(rounds + 2)),
        select(op=SOp.COMMIT, **both), importance(first=dim), select(op=SOp.COMMIT, **both),
    ]
    for entry, shift in enumerate((31, 4)):
        commands += [
            select(op=SOp.KEYS, flags=[SelectFlag.FROM_IMPORTANCE], shift=shift, **both),
            select(op=SOp.TOP_K, n=2 * dim, k=1, dst=entry),
        ]
    commands += [
        select(op=SOp.LIST_STORE, n=3, first=0, dst=rows),
        make(Unit.STORE, offset=16384, bytes=2 * dim, rows=1, row=rows, row_stride=1, block_stride=1,
             waits={Unit.SELECT: 1}),
    ]
    return _case("selections", commands)
