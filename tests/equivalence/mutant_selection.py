"""Programs for the mutants: select unit, predicates, gathers; statistics, masks and tables of the vector unit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from gemmule.config import Config
from gemmule.isa import (
    AddFlag,
    ArgmaxFlag,
    ColumnFlag,
    Command,
    CommitFlag,
    CompareFlag,
    ImportanceFlag,
    KeysFlag,
    ListFlag,
    MoveFlag,
    NormFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    TopKFlag,
    Unit,
    VOp,
)
from gemmule.sim.launch import Launch

from .mutant_programs import DUMP, LINE, ONES, case_of, dump, fill, in_turn

RQ, CF, AD, NM, SM = RequantFlag, ColumnFlag, AddFlag, NormFlag, SoftmaxFlag
AM, KY, IM, CM, CP = ArgmaxFlag, KeysFlag, ImportanceFlag, CommitFlag, CompareFlag

__all__ = ["chosen", "online", "saturated", "statistics"]

F = MoveFlag
NUMBERS, EXTREMES, SMALL_ROW = 60000, 60064, 60096
"""In the DRAM: row numbers (some come twice, some lie beyond the limit); int32 of which one is the least; the planes of
nine int16 values whose mean is 14 / 9 and whose variance is small."""
PATCHES = {
    NUMBERS: np.array([3, 1, 4, 1, 50, 9, 60, 700], dtype="<u2"),
    EXTREMES: np.array([5, -(1 << 31), 1 << 30, -7], dtype="<i4"),
    SMALL_ROW: np.array([[2, 0, 1, 1], [0] * 4, [0, 3, 2, 0], [0] * 4, [5, 0, 0, 0], [0] * 4], dtype=np.uint8),
}
HELD, SKIPPED, SIGNED = 1, 2, 3
"""Predicates: true, false, true."""
SCORES: dict[str, int] = {
    "src0": 2, "src0_stride": 8, "m": 5, "n": 9, "mult": 1, "shift": 18, "src1": 30, "dst_stride": 10}
"""Five rows within eight octaves of 0."""
make = Command.make


def chosen(config: Config) -> list[Launch]:
    """Every operation of the select unit, INDEXED moves, predicates; what a launch leaves of them for the next one."""
    dim, bank = config.dim, config.spm_bank_rows
    out, numbers, zeros = 2 * bank, 3 * bank, 3 * bank + 16
    select = partial(make, Unit.SELECT)
    gather = partial(make, Unit.LOAD, flags=[F.INDEXED], list=5, rows=8, offset=4096, stride=64, row_stride=3,
                     block_stride=1, bytes=2 * dim + 1)
    scatter = partial(make, Unit.STORE, flags=[F.INDEXED], list=5, rows=8, stride=64, row_stride=3, block_stride=1,
                      bytes=2 * dim)
    two, tie = {"src0": 2, "src0_stride": 12, "n": 3 * dim - 1}, {"src0": zeros, "src0_stride": 12, "n": 2 * dim + 1}
    keep = {"first": 3, "n": 3 * dim - 1}

    def best(dst: int, k: int, **fields: int) -> list[Command]:
        keys = select(op=SOp.KEYS, flags=[KY.FROM_IMPORTANCE], **(keep | fields))
        return [keys, select(op=SOp.TOP_K, n=keep["n"], k=k, dst=dst)]

    add = partial(select, op=SOp.IMPORTANCE, first=3)

    def commit(n: int = keep["n"], flags: Sequence[int] = ()) -> Command:
        return select(op=SOp.COMMIT, first=keep["first"], n=n, flags=flags)

    commands = [
        *fill(config), make(Unit.LOAD, offset=NUMBERS, bytes=16, row=numbers, **LINE),
        make(Unit.LOAD, bytes=64 * dim, row=zeros, flags=[F.ZERO], **LINE),
        select(op=SOp.LIST_LOAD, src0=numbers, dst=5, n=8),
        gather(row=out, last_index=20), gather(row=out + 32, last_index=100),
        gather(row=out + 64, last_index=30, rows=1),
        scatter(row=2, offset=27000, last_index=40), scatter(row=40, offset=31000, last_index=10, rows=1),
        select(op=SOp.ARGMAX, m=3, first=70, dst=20, **two), select(op=SOp.ARGMAX, m=2, first=90, dst=24, **tie),
        select(op=SOp.ARGMAX, m=2, first=99, dst=26, flags=[AM.CONTINUE], **tie),
        select(op=SOp.LIST_LOAD, src0=2, dst=90, n=7), *(
            select(op=SOp.LIST_LOAD, src0=row, dst=90, n=7, flags=[ListFlag.HIGH]) for row in (30, 40)),
        select(op=SOp.ARGMAX, m=3, first=200_000, dst=97, **two),
        select(op=SOp.ARGMAX, m=2, first=(1 << 18) - 3, dst=100, **two),
        select(op=SOp.KEYS, dst=0, first=70_000, **two), select(op=SOp.TOP_K, n=two["n"], k=6, dst=102),
        select(op=SOp.KEYS, dst=0, first=40, **two),
        select(op=SOp.KEYS, dst=two["n"], first=200, **(two | {"src0": 60})),
        select(op=SOp.TOP_K, n=2 * two["n"], k=7, dst=30), select(op=SOp.TOP_K, n=7, k=3, dst=40),
        select(op=SOp.KEYS, dst=0, first=10, **tie), select(op=SOp.TOP_K, n=tie["n"], k=4, dst=44),
        commit(flags=[CM.CLEAR]), add(m=3, **two), commit(), commit(n=5), *best(50, 5),
        add(m=1, flags=[IM.WIDE], **two), commit(), *best(56, 5), add(m=4, flags=[IM.WIDE], **(two | {"src0": 60})),
        commit(flags=[CM.DISCARD]), *best(62, 5), *best(68, 3, aux=1 | 2 << 8),
        commit(flags=[CM.CLEAR]), *best(78, 5), select(op=SOp.COMMIT, n=2 * dim), *_packed(select, out + 100, zeros),
        select(op=SOp.COMPARE, m=2, aux=0, number=HELD, **tie),
        select(op=SOp.COMPARE, m=2, aux=0, number=SKIPPED, flags=[CP.INVERT], **tie),
        select(op=SOp.COMPARE, m=2, aux=65535, number=SIGNED, flags=[CP.WIDE], **tie),
        *(make(Unit.LOAD, offset=3000, bytes=dim, row=out + 90 + i, predicate=i, **LINE) for i in range(4)),
        *_skipped(config), select(op=SOp.LIST_STORE, first=5, n=103, dst=100),
        select(op=SOp.LIST_STORE, first=5, n=103, dst=160, flags=[ListFlag.HIGH]), *dump(config),
    ]
    compares = [c for c in commands if c.op == SOp.COMPARE and c.unit is Unit.SELECT]
    tile = {"b_row": bank, "m": 4, "n": dim, "k": dim, "waits": {Unit.SELECT: 1}}
    apart = [
        *commands[:5], *compares, make(Unit.MATRIX, **tile), make(Unit.MATRIX, predicate=HELD, **tile),
        make(Unit.MATRIX, **tile),
        # The last comparison ends while the load is in flight, whose port is free for what is skipped.
        make(Unit.LOAD, offset=0, bytes=bank * dim, row=out, waits={Unit.SELECT: 1}, **LINE), compares[-1],
        *_skipped(config),
    ]
    after = [make(Unit.LOAD, offset=3000, bytes=dim, row=0, predicate=HELD, **LINE), dump(config)[0]]
    return [case_of("selection", in_turn(commands), PATCHES), case_of("skipped", apart, PATCHES),
            case_of("next launch", in_turn(after), PATCHES)]


def _packed(select: partial[Command], out: int, zeros: int) -> list[Command]:
    """Columns that a selection keeps, and those that are not zero; importance that goes on through two choices."""
    row, n = {"src0": 2, "src0_stride": 12}, 3 * 4 - 1
    keys = partial(select, op=SOp.KEYS, flags=[KY.FROM_IMPORTANCE], n=n)
    pack = partial(select, op=SOp.PACK, n=n, m=3, **row)
    return [
        select(op=SOp.COMMIT, flags=[CM.CLEAR], n=n + 4), select(op=SOp.IMPORTANCE, m=1, n=3, first=1, **row),
        select(op=SOp.IMPORTANCE, m=1, n=2, first=n - 2, **row), select(op=SOp.COMMIT, n=n), keys(first=0),
        select(op=SOp.TOP_K, n=n, k=1, dst=5, flags=[TopKFlag.NONZERO]), pack(dst=out), pack(dst=out + 36),
        select(op=SOp.TOP_K, n=n, k=3, dst=83, flags=[TopKFlag.KEEP]), select(op=SOp.TOP_K, n=n, k=4, dst=71),
        pack(dst=out + 36),
        select(op=SOp.COMMIT, flags=[CM.FROM_KEYS], n=4), select(op=SOp.IMPORTANCE, m=1, n=4, first=0, **row),
        select(op=SOp.COMMIT, n=4), select(op=SOp.KEYS, flags=list(KY), n=4), select(op=SOp.TOP_K, n=4, k=2, dst=87),
    ]


def _skipped(config: Config) -> list[Command]:
    """A command of every unit that does nothing."""
    out, tile = 2 * config.spm_bank_rows, {"m": 4, "n": config.dim}
    skip = {"predicate": SKIPPED, "waits": {Unit.SELECT: 1}}
    return [
        make(Unit.VECTOR, op=VOp.REQUANT, dst=out, **tile, **skip),
        make(Unit.LOAD, offset=3000, bytes=config.dim, row=out, **LINE, **skip),
        make(Unit.STORE, offset=29000, bytes=config.dim, row=out, **LINE, **skip),
        make(Unit.MATRIX, a_row=out, b_row=config.spm_bank_rows, k=config.dim, **tile, **skip),
        make(Unit.SELECT, op=SOp.LIST_STORE, n=6, dst=out, **skip),
    ]


def saturated(config: Config) -> Launch:
    """Equal maxima, one after the other; positions DIM .. as important as can be, those before them less.

    The best position of each of three keys is stored: with one bit of the importance, which tells them apart only
    beyond 32 bits; with so many that all saturate; and with 24 bits.
    """
    dim, rows = config.dim, config.spm_rows - 8
    select, both = partial(make, Unit.SELECT, src0=0, src0_stride=0), {"n": 2 * dim, "first": 0}
    importance = partial(select, op=SOp.IMPORTANCE, flags=[IM.WIDE], m=rows, n=dim)
    rounds = -(-(1 << 32) // (rows * 65535))  # until 32 bits are full
    commands = [
        make(Unit.LOAD, offset=ONES, bytes=dim, rows=rows, row=0, row_stride=1, block_stride=1),
        select(op=SOp.COMMIT, flags=[CM.CLEAR], **both, waits={Unit.LOAD: 1}),
        select(op=SOp.ARGMAX, m=1, n=dim, first=3, dst=3),
        select(op=SOp.ARGMAX, m=1, n=dim, first=9, dst=3, flags=[AM.CONTINUE]),
        *(importance(first=0) for _ in range(rounds * 3 // 4)), *(importance(first=dim) for _ in range(rounds + 2)),
        select(op=SOp.COMMIT, **both), importance(first=dim), select(op=SOp.COMMIT, **both),
    ]
    for entry, shift in enumerate((31, 4, 8)):
        commands += [
            select(op=SOp.KEYS, flags=[KY.FROM_IMPORTANCE], shift=shift, **both),
            select(op=SOp.TOP_K, n=2 * dim, k=1, dst=entry),
        ]
    commands += [
        select(op=SOp.LIST_STORE, n=4, first=0, dst=rows),
        make(Unit.STORE, offset=DUMP, bytes=2 * dim, row=rows, waits={Unit.SELECT: 1}, **LINE),
    ]
    return case_of("saturated", commands)


def _softmax(out: int, **change: int | list[int]) -> list[Command]:
    """Maxima, weights of 8 bits at ``out`` and normalised ones of 16 bits 30 rows further on."""
    vector = partial(make, Unit.VECTOR, **(SCORES | change))
    flags = [*change.get("flags", [])]
    return [vector(op=VOp.SOFTMAX_MAX), vector(op=VOp.SOFTMAX_EXP, dst=out),
            vector(op=VOp.SOFTMAX_NORM, dst=out + 30, flags=[SM.WIDE, *flags])]


def statistics(config: Config) -> list[Launch]:
    """Softmax rows whole, masked and in pieces; norms, largest values and tables, and what they do to stored rows."""
    dim, bank = config.dim, config.spm_bank_rows
    out, least, vector = 2 * bank, 40, partial(make, Unit.VECTOR)
    columns = SCORES["n"]
    masked = [
        *_softmax(out, flags=[SM.CAUSAL], aux=3 | 7 << 4), *_softmax(out + 60, flags=[SM.CAUSAL], context=1),
        *_softmax(out + 120, flags=[SM.TREE], aux=3 | 7 << 4), *_softmax(out + 180, flags=[SM.TREE], context=1),
    ]
    one, two = SCORES | {"n": dim + 1}, SCORES | {"src0": 20, "n": columns - dim - 1}
    pieces = [
        *_softmax(out), vector(op=VOp.SOFTMAX_NORM, dst=out + 60, **SCORES),
        vector(op=VOp.SOFTMAX_EXP, flags=[SM.WIDE], dst=out + 90, **SCORES),
        vector(op=VOp.SOFTMAX_MAX, **one), vector(op=VOp.SOFTMAX_MAX, flags=[SM.CONTINUE], **two),
        vector(op=VOp.SOFTMAX_EXP, flags=[SM.MORE], dst=out + 120, **one),
        vector(op=VOp.SOFTMAX_EXP, flags=[SM.CONTINUE, SM.WIDE], dst=out + 150, **two),
        vector(op=VOp.SOFTMAX_NORM, dst=out + 180, **two),
        vector(op=VOp.REQUANT, flags=[RQ.ROW, RQ.WIDE], dst=out + 210, **(SCORES | {"mult": 50000, "shift": 24})),
    ]
    norm = {"src0": 2, "src0_stride": 12, "m": 3, "n": columns, "mult": 9, "shift": 30, "src1": 60, "dst_stride": 8}
    largest = {"src0": least, "src0_stride": 2, "m": 1, "n": dim, "mult": 40000, "dst_stride": 4}
    look = SCORES | {"src1": 90, "m": 3, "dst_stride": 6}
    rows = [
        make(Unit.LOAD, offset=EXTREMES, bytes=4 * dim, row=least, flags=[F.ACCUMULATOR], **LINE),
        vector(op=VOp.NORM_STAT, flags=[NM.MEAN], **norm),
        vector(op=VOp.NORM_APPLY, flags=[NM.MEAN, NM.BIAS, NM.WIDE], dst=out, **(norm | {"shift": 17})),
        vector(op=VOp.NORM_APPLY, dst=out + 30, **(norm | {"shift": 18})),
        vector(op=VOp.NORM_STAT, context=1, **norm),
        vector(op=VOp.NORM_APPLY, flags=[NM.MEAN], context=1, dst=out + 60, **(norm | {"shift": 18})),
        vector(op=VOp.ABSMAX, context=1, **largest),
        vector(op=VOp.REQUANT, flags=[RQ.ROW, RQ.WIDE], context=1, dst=out + 90, **(largest | {"shift": 20})),
        vector(op=VOp.REQUANT, flags=[RQ.ROW, RQ.WIDE], context=2, dst=out + 100, **(largest | {"shift": 44})),
        vector(op=VOp.WORD_TABLE, src0=0), vector(op=VOp.TABLE, src0=7),
        vector(op=VOp.REQUANT, flags=[RQ.WIDE, RQ.LOOKUP], dst=out + 120, **(look | {"shift": 14})),
        vector(op=VOp.REQUANT, flags=[RQ.WIDE, RQ.LOOKUP], dst=out + 150, **(look | {"shift": 17})),
        vector(op=VOp.REQUANT, flags=[RQ.LOOKUP], dst=out + 180, **(look | {"shift": 24})),
        vector(op=VOp.ADD, flags=[AD.WIDE], dst=out + 210, aux=300, **(look | {"mult": 500, "shift": 3})),
    ]
    return [case_of(name, in_turn([*fill(config), *commands, *dump(config)]), PATCHES)
            for name, commands in (("masks", masked), ("pieces", pieces), ("statistics", rows))]


def online(config: Config) -> list[Launch]:
    """Online softmax in two blocks, of which the second one has larger scores; the comparison modes."""
    dim, bank, acc = config.dim, config.spm_bank_rows, config.acc_bank_rows
    out, least, vector = 2 * bank, 3 * bank, partial(make, Unit.VECTOR)
    one, two = SCORES | {"n": dim + 1}, SCORES | {"src0": 20, "n": SCORES["n"] - dim - 1, "mult": 2}
    sums = SCORES | {"src0": 24}
    blocks = [
        vector(op=VOp.SOFTMAX_MAX, flags=[SM.ONLINE], **one),
        vector(op=VOp.RESCALE, dst=acc, **sums),  # by all that there is
        vector(op=VOp.SOFTMAX_EXP, flags=[SM.ONLINE, SM.MORE], dst=out, **one),
        vector(op=VOp.SOFTMAX_MAX, flags=[SM.ONLINE, SM.CONTINUE], **two),
        vector(op=VOp.RESCALE, dst=acc + 30, **sums), vector(op=VOp.RESCALE, dst=24, **(sums | {"dst_stride": 8})),
        vector(op=VOp.SOFTMAX_EXP, flags=[SM.ONLINE, SM.CONTINUE], dst=out + 30, **two),
        vector(op=VOp.REQUANT, flags=[RQ.ROW, RQ.WIDE], dst=out + 60, **(SCORES | {"mult": 50000, "shift": 24})),
    ]
    kinds = [vector(op=VOp.SOFTMAX_MAX, **SCORES)]
    for i, kind in enumerate((1, 2)):
        kinds += [
            vector(op=VOp.SOFTMAX_EXP, period=kind, flags=[SM.WIDE], dst=out + 60 * i, **SCORES),
            vector(op=VOp.SOFTMAX_NORM, period=kind, flags=[SM.WIDE], dst=out + 60 * i + 30, **SCORES)]
    gelu = SCORES | {"shift": 20, "shift2": 9}
    norm = {"src0": least, "src0_stride": 2, "m": 1, "n": 9, "src1": 60, "dst_stride": 2}
    compared = [
        *kinds, vector(op=VOp.I_GELU, dst=out + 120, **gelu),
        vector(op=VOp.I_GELU, dst=out + 150, **(gelu | {"shift2": 13})),
        vector(op=VOp.I_GELU, flags=[CF.BIAS], dst=out + 180, **(gelu | {"shift": 21})),
        make(Unit.LOAD, offset=SMALL_ROW, bytes=6 * dim, row=least, **LINE),
        vector(op=VOp.NORM_STAT, flags=[NM.MEAN, NM.ROUND], mult=29127, shift=18, **norm),
        vector(op=VOp.NORM_APPLY, flags=[NM.MEAN, NM.WIDE], dst=out + 220, shift=12, **norm),
    ]
    return [case_of(name, in_turn([*fill(config), *commands, *dump(config)]), PATCHES)
            for name, commands in (("online", blocks), ("comparison", compared))]
