"""Short programs that use each mode on purpose, for the mutants; statistics and selections stand in another file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from gemmule.config import Config, load_config
from gemmule.isa import (
    AddFlag,
    ColumnFlag,
    Command,
    Dyn,
    MatrixFlag,
    MoveFlag,
    ProductFlag,
    RequantFlag,
    SOp,
    Unit,
    VOp,
    encode_program,
)
from gemmule.sim.launch import Launch

RQ, CF, AD, PR = RequantFlag, ColumnFlag, AddFlag, ProductFlag

__all__ = [
    "DEEP", "DUMP", "LINE", "ONES", "RESULTS", "SMALL", "case_of", "crowd", "directed", "dump", "fill", "in_turn",
]

SMALL = load_config({
    "name": "mutant4", "dim": 4, "bus_bytes": 4, "spm_kib": 4, "spm_banks": 4, "acc_kib": 4, "acc_banks": 4,
    "preload": 4, "burst_bytes": 64, "read_bursts": 8, "read_beats": 90, "write_bursts": 16, "unit_queue": 16,
    "stat_rows": 16,
    "dividers": 1, "vector_passes": 2,
})
"""DIM / preload is 1, so that the read-modify-write latency sets the slot of a one-row tile; both limits of reads in
flight bind."""
DEEP = load_config({
    "name": "mutant16", "dim": 16, "bus_bytes": 8, "spm_kib": 16, "spm_banks": 4, "acc_kib": 16, "acc_banks": 2,
    "preload": 4, "burst_bytes": 64, "read_bursts": 8, "write_bursts": 4, "unit_queue": 16, "stat_rows": 16,
    "dividers": 1, "dram": {"beat_cycles": 3, "latency": 4, "row_miss": 4},
})
"""The drain is many times the shortest slot, so that the limit of matrix commands in flight binds; the preload
is longer than it, so that it sets the slot; beats take three cycles, and commands wait for the registers."""
M, F = MatrixFlag, MoveFlag
UNITS = tuple(Unit)
ONES = 61440
"""From here on the DRAM holds bytes of 255."""
DUMP, RESULTS = 16384, 24576
LINE = {"row_stride": 1, "block_stride": 1, "rows": 1}
make = Command.make


def case_of(name: str, commands: list[Command], patches: Mapping[int, np.ndarray] | None = None) -> Launch:
    """A launch: random DRAM but for ``patches`` (by address) and the ones, every length register i holds 3 i."""
    size = 1 << 16
    dram = np.random.default_rng(7).integers(0, 256, size, dtype=np.uint8)
    dram[ONES:] = 255
    for address, data in (patches or {}).items():
        dram[address:address + data.nbytes] = data.reshape(-1).view(np.uint8)
    registers = np.zeros(32, dtype=np.int64), np.full(32, size, dtype=np.int64), np.arange(16, dtype=np.int64) * 3
    return Launch(name, 7, encode_program(commands), size // 2, dram, *registers)


def crowd(config: Config) -> list[Launch]:
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
    # Behind the fault resolve and fetch fill up while the load goes on; an odd number of commands, so that one place
    # more in resolve is a burst more.
    fault = [kept[0], make(Unit.SELECT, op=31), *store * 4]
    return [case_of("matrix", matrix), case_of("one tile", one), case_of("reuse", kept), case_of("store", store),
            case_of("behind a fault", fault)]


def in_turn(commands: list[Command]) -> list[Command]:
    """Each command waits for all before it."""
    seen: set[Unit] = set()
    out = []
    for command in commands:
        out.append(replace(command, waits={unit: 1 for unit in UNITS if unit in seen}))
        seen.add(command.unit)
    return out


def fill(config: Config) -> list[Command]:
    """Random bytes in the first two banks of the scratchpad and in the first one of the accumulator."""
    dim, bank, acc = config.dim, config.spm_bank_rows, config.acc_bank_rows
    return [
        make(Unit.LOAD, offset=0, bytes=bank * dim, row=0, **LINE),
        make(Unit.LOAD, offset=5000, bytes=bank * dim, row=bank, **LINE),
        make(Unit.LOAD, offset=9000, bytes=4 * dim * acc, row=0, flags=[F.ACCUMULATOR], **LINE),
    ]


def dump(config: Config) -> list[Command]:
    """Three banks of the scratchpad to ``DUMP``, two of the accumulator to ``RESULTS``."""
    size = config.spm_bank_rows * config.dim
    return [
        *(make(Unit.STORE, offset=DUMP + i * size, bytes=size, row=i * config.spm_bank_rows, **LINE) for i in range(3)),
        make(Unit.STORE, offset=RESULTS, bytes=8 * config.dim * config.acc_bank_rows, row=0, flags=[F.ACCUMULATOR],
             **LINE),
    ]


def _contended(config: Config) -> list[Launch]:
    """Two commands, of which the second one waits for a port of the first one; a program for each stream."""
    dim, bank, acc = config.dim, config.spm_bank_rows, config.acc_bank_rows
    wide = {"m": 16, "n": 4 * dim}
    scaled = partial(make, Unit.VECTOR, src0_stride=16, dst=2 * bank, dst_stride=16, **wide)
    store = partial(make, Unit.STORE, offset=DUMP, bytes=4 * dim, **LINE)
    load = make(Unit.LOAD, offset=0, bytes=4 * dim, row=2 * bank, **LINE)
    pairs = {
        "matrix.C": (
            make(Unit.MATRIX, a_row=0, a_stride=16, b_row=bank, b_stride=16, c_row=0, c_stride=16, k=4 * dim, **wide),
            store(row=0, flags=[F.ACCUMULATOR])),
        "vector.r0": (scaled(src0=acc), store(row=acc, flags=[F.ACCUMULATOR])),
        "vector.r1": (scaled(src0=acc, src1=3 * bank, flags=[RQ.COLUMN]), store(row=3 * bank)),
        "vector.r1, high plane": (
            scaled(op=VOp.PRODUCT, flags=[PR.WIDE], src0=0, src1=3 * bank - 20, aux=48, n=dim), store(row=3 * bank)),
        "vector.r0, high plane": (
            scaled(op=VOp.PRODUCT, flags=[PR.WIDE], src0=bank - 20, src0_stride=48, src1=3 * bank, aux=32, n=dim),
            store(row=bank)),
        "vector.w": (scaled(src0=acc), load),
        "vector.w, accumulator": (
            make(Unit.VECTOR, op=VOp.RESCALE, src0=0, src0_stride=16, dst=acc, dst_stride=16, m=16, n=3 * dim),
            make(Unit.LOAD, offset=0, bytes=4 * dim, row=acc, flags=[F.ACCUMULATOR], **LINE)),
        "select.r": (make(Unit.SELECT, op=SOp.ARGMAX, src0=0, src0_stride=32, **wide), store(row=0)),
        "select.w": (make(Unit.SELECT, op=SOp.LIST_STORE, dst=2 * bank, n=64), load),
    }
    return [case_of(f"port of {stream}", [*pair]) for stream, pair in pairs.items()]


def directed(config: Config) -> list[Launch]:
    """Modes of each unit, step by step; commands of a unit that overlap; units that want the same port."""
    dim, bank, acc = config.dim, config.spm_bank_rows, config.acc_bank_rows
    stored, results = dump(config)[:-1], dump(config)[-1]
    tile = {"a_row": 3, "a_stride": 11, "b_row": bank, "b_stride": 3 * dim, "c_stride": 7, "m": 5, "n": dim,
            "k": 2 * dim}
    kinds: list[tuple[list[int], dict[str, int]]] = [
        ([], {}), ([], {"b_row": 4 * dim, "k": 3 * dim}), ([M.B_INT4, M.GROUP_SCALES], {}), ([M.REUSE], {"k": dim}),
        ([M.A_TRANSPOSED], {}), ([M.OUTPUT_STATIONARY], {"n": 2 * dim}), ([M.OUTPUT_STATIONARY, M.ACCUMULATE], {}),
        ([M.B_INT4, M.B_TRANSPOSED], {}), ([M.A_UNSIGNED], {"m": 1}), ([M.ACCUMULATE], {"c_row": 0}),
    ]
    products = [make(Unit.MATRIX, flags=flags, **({"c_row": 14 * i % (2 * acc - 14)} | tile | change))
                for i, (flags, change) in enumerate(kinds)]
    # Weights that do not fill the mesh, and stay there.
    odd = tile | {"n": dim - 1, "k": dim - 1}
    kept = [make(Unit.MATRIX, flags=flags, c_row=14 * i, **(odd | change))
            for i, (flags, change) in enumerate((
                ([], {}), ([M.OUTPUT_STATIONARY], {"b_row": bank + 8 * dim}), ([M.REUSE], {"n": dim, "k": dim})))]

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
    close = {"rows": 5, "row_stride": 7, "block_stride": 1, "bytes": 6 * dim, "stride": 6 * dim, "offset": 1232}
    ragged, gather = {"bytes": 6 * dim - 2, "stride": 6 * dim - 2}, {"list": 0, "last_index": 9}
    joined = [
        make(Unit.SELECT, op=SOp.LIST_LOAD, src0=0, src0_stride=1, dst=0, n=5),
        make(Unit.LOAD, row=2 * bank, **close), make(Unit.LOAD, row=2 * bank + 40, **(close | {"offset": 1235})),
        make(Unit.LOAD, row=2 * bank + 80, **(close | ragged)),
        make(Unit.LOAD, row=2 * bank + 120, flags=[F.INDEXED], **(close | gather)),
        make(Unit.LOAD, row=2 * bank + 160, flags=[F.BROADCAST], **close),
        make(Unit.LOAD, row=4, flags=[F.ACCUMULATOR], **close),
        *(make(Unit.STORE, row=2 * bank, flags=flags, **(close | change | {"offset": 30000 + 300 * i}))
          for i, (flags, change) in enumerate((([], {}), ([], ragged), ([F.INDEXED], gather)))),
        make(Unit.STORE, row=2 * bank, **(close | {"offset": 31003})),
    ]
    overlap = [*fill(config), make(Unit.LOAD, row=2 * bank, flags=[F.ZERO], **aligned),
               make(Unit.LOAD, row=2 * bank + 40, **aligned),
               make(Unit.LOAD, row=2 * bank + 80, flags=[F.BROADCAST], **aligned),
               make(Unit.LOAD, row=2 * bank + 120, **(aligned | {"rows": 0})), *products,
               make(Unit.MATRIX, flags=[M.OUTPUT_STATIONARY], c_row=0, **(tile | {"n": 2 * dim})),
               make(Unit.STORE, offset=16384, bytes=dim, row=bank, row_stride=1, block_stride=1, rows=1,
                    waits={Unit.MATRIX: 2})]  # wants the bank of B

    addition = [  # the store waits for the port by which the load reads what it adds to
        make(Unit.LOAD, offset=0, bytes=8 * dim, row=3 * acc, flags=[F.ACCUMULATOR, F.ADD], **LINE),
        make(Unit.STORE, offset=DUMP, bytes=8 * dim, row=3 * acc, flags=[F.ACCUMULATOR], **LINE),
    ]

    vector = {"src0": 2, "src0_stride": 8, "src1": bank + 9, "dst_stride": 14, "m": 5, "n": 2 * dim, "mult": 3,
              "shift": 24}
    scaled: list[tuple[int, list[int], dict[str, int]]] = [
        (VOp.REQUANT, [RQ.BIAS], {}), (VOp.REQUANT, [RQ.BIAS, RQ.COLUMN], {}),
        (VOp.REQUANT, [RQ.CLAMP], {"aux": 0x14F0}),
        (VOp.REQUANT, [RQ.RESIDUAL], {}),
        (VOp.REQUANT, [RQ.RESIDUAL, RQ.RESCALE], {"aux": 20000, "shift2": 16}),
        (VOp.ADD, [], {"aux": 7, "shift": 4}), (VOp.ADD, [AD.WIDE], {"aux": 7, "shift": 4}),
        (VOp.ADD, [], {"aux": 7, "shift": 4, "src1": 60}), (VOp.ROPE, [CF.BIAS], {"aux": 70, "shift2": 14}),
    ]
    lanes = [make(Unit.VECTOR, op=op, flags=flags, dst=2 * bank + 28 * i, **(vector | change))
             for i, (op, flags, change) in enumerate(scaled)]
    pairs: list[tuple[list[int], dict[str, int]]] = [
        ([], {"aux": 9, "shift": 8}), ([PR.WIDE], {"aux": 13}), ([PR.WIDE], {"aux": 12}),
        ([PR.WIDE], {"aux": 16, "src1": 60}), ([PR.WIDE], {"aux": 10, "shift": 9}),
        ([PR.WIDE], {"aux": 11, "src1": 60, "scale_reg": 5}),
    ]
    words = [make(Unit.VECTOR, op=VOp.PRODUCT, flags=flags, dst=2 * bank + 28 * i, **(
        vector | {"src0_stride": 12, "shift": 17} | change)) for i, (flags, change) in enumerate(pairs)]
    registers = [  # register i holds 3 i
        *(make(Unit.VECTOR, op=op, flags=flags, scale_reg=register, dst=2 * bank + 28 * i, **vector)
          for i, (op, flags, register) in enumerate((
              (VOp.REQUANT, [], 9), (VOp.REQUANT, [RQ.RESIDUAL, RQ.RESCALE], 9), (VOp.ADD, [], 1)))),
        make(Unit.MATRIX, dyn=(Dyn.DST, 2, 3), c_row=acc, **tile),
        make(Unit.SELECT, op=SOp.LIST_LOAD, src0=8, n=40),
        make(Unit.LOAD, flags=[F.INDEXED], dyn=(Dyn.SRC1, 3, 1), list=2, last_index=60000, row=2 * bank + 100,
             **(move | {"stride": 1})),
        make(Unit.SELECT, op=SOp.LIST_STORE, dyn=(Dyn.SRC1, 4, 1), first=3, n=9, dst=2 * bank + 140),
    ]
    return [
        case_of("matrix modes", in_turn([*fill(config), *products, results])),
        case_of("weights kept", in_turn([*fill(config), *kept, results])),
        case_of("moves", in_turn([*fill(config), *moves, *stored, results])),
        case_of("joined rows", in_turn([*fill(config), *joined, *stored, results])),
        case_of("vector modes", in_turn([*fill(config), *lanes, *stored])),
        case_of("products of words", in_turn([*fill(config), *words, *stored])),
        case_of("by register", in_turn([*fill(config), *registers, *stored, results])),
        case_of("overlap", overlap), case_of("addition", addition), *_contended(config),
    ]
