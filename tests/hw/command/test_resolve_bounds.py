"""Every rule of resolving, exactly at its bound and one beyond, with hulls counted by hand."""

from dataclasses import replace

import pytest

from gemmule.config import Config
from gemmule.isa import AddFlag as A
from gemmule.isa import ColumnFlag as C
from gemmule.isa import CommitFlag, CompareFlag, Dyn, ImportanceFlag, KeysFlag, SOp, TopKFlag, Unit, VOp
from gemmule.isa import MatrixFlag as M
from gemmule.isa import MoveFlag as L
from gemmule.isa import NormFlag as N
from gemmule.isa import ProductFlag as P
from gemmule.isa import RequantFlag as R
from gemmule.isa import SoftmaxFlag as S

from .resolve_commands import ACC, ENTRIES, KEYS, ONE_BANK, SPM, TINY, fault_of, matrix, move, select, vector

# name: (command without the field, field of the first row, rows of the memory, last row - first row)
IDS = 1 << TINY.index_bits
"""Ids that a list entry holds."""

HULLS = {
    # 3 rows, 10 apart; 8 bytes are 2 blocks of 4 lanes, 100 apart; as int32 they are half a row
    "load": (move, Unit.LOAD, (), {}, "row", SPM, 2 * 10 + 100),
    "store": (move, Unit.STORE, (), {}, "row", SPM, 2 * 10 + 100),
    "load int32": (move, Unit.LOAD, (L.ACCUMULATOR,), {"bytes": 16}, "row", ACC, 2 * 10),
    "load int32, next block": (move, Unit.LOAD, (L.ACCUMULATOR,), {"bytes": 20}, "row", ACC, 2 * 10 + 100),
    "load added": (move, Unit.LOAD, (L.ACCUMULATOR, L.ADD), {"bytes": 20}, "row", ACC, 2 * 10 + 100),
    "load narrow": (move, Unit.LOAD, (L.ACCUMULATOR, L.NARROW), {}, "row", ACC, 2 * 10 + 100),
    "store int32": (move, Unit.STORE, (L.ACCUMULATOR,), {"bytes": 20}, "row", ACC, 2 * 10 + 100),
    "store narrow": (move, Unit.STORE, (L.ACCUMULATOR, L.NARROW), {"bytes": 5}, "row", ACC, 2 * 10 + 100),
    "load zeros": (move, Unit.LOAD, (L.ZERO,), {}, "row", SPM, 2 * 10 + 100),
    "broadcast": (move, Unit.LOAD, (L.BROADCAST,), {}, "row", SPM, 2 * 10 + 100),
    # K = 11 are 3 blocks of 4, M = 6 are 2, N = 7 are 2; strides 8
    "A": (matrix, None, (), {}, "a_row", SPM, 2 * 8 + 5),
    "A transposed": (matrix, None, (M.A_TRANSPOSED,), {}, "a_row", SPM, 1 * 8 + 10),
    "B": (matrix, None, (), {"a_row": 0}, "b_row", SPM, 1 * 8 + 10),
    "B transposed": (matrix, None, (M.B_TRANSPOSED,), {}, "b_row", SPM, 2 * 8 + 6),
    "B int4": (matrix, None, (M.B_INT4,), {}, "b_row", SPM, 1 * 8 + 5),
    "B int4 transposed": (matrix, None, (M.B_INT4, M.B_TRANSPOSED), {}, "b_row", SPM, 2 * 8 + 3),
    # behind 3 * 2 rows of weights: one scale row per K block, or per two, or one for all
    "B scales": (matrix, None, (M.B_INT4, M.GROUP_SCALES), {}, "b_row", SPM, 1 * 8 + 6 + 2),
    "B scales by 2": (matrix, None, (M.B_INT4, M.GROUP_SCALES), {"group": 1}, "b_row", SPM, 1 * 8 + 6 + 1),
    "B scales by many": (matrix, None, (M.B_INT4, M.GROUP_SCALES), {"group": 15}, "b_row", SPM, 1 * 8 + 6),
    "C": (matrix, None, (), {}, "c_row", ACC, 1 * 8 + 5),
    "C of reuse": (matrix, None, (M.REUSE,), {"n": 4, "k": 4}, "c_row", ACC, 5),
    # 2 column groups, 5 rows
    "requant sums": (vector, VOp.REQUANT, (), {}, "src0", ACC, 21 + 4),
    "requant result": (vector, VOp.REQUANT, (), {}, "dst", SPM, 31 + 4),
    "requant wide": (vector, VOp.REQUANT, (R.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "requant residual": (vector, VOp.REQUANT, (R.RESIDUAL,), {}, "dst", SPM, 31 + 4 + 15),
    "requant columns": (vector, VOp.REQUANT, (R.COLUMN,), {}, "src1", SPM, 2 * 3 - 1),
    "requant bias": (vector, VOp.REQUANT, (R.BIAS,), {}, "src1", SPM, 2 * 4 - 1),
    "requant columns, bias": (vector, VOp.REQUANT, (R.COLUMN, R.BIAS), {}, "src1", SPM, 2 * 7 - 1),
    "rope columns, bias": (vector, VOp.ROPE, (C.COLUMN, C.BIAS), {}, "src1", SPM, 2 * 7 - 1),
    "rope angles": (vector, VOp.ROPE, (), {"period": 2}, "aux", SPM, 5 * 16 - 1),
    "rope result": (vector, VOp.ROPE, (), {}, "dst", SPM, 31 + 4),
    "rescale sums": (vector, VOp.RESCALE, (), {}, "src0", ACC, 21 + 4),
    "rescale result": (vector, VOp.RESCALE, (), {}, "dst", ACC, 31 + 4),
    "gelu sums": (vector, VOp.I_GELU, (), {}, "src0", ACC, 21 + 4),
    "gelu columns, bias": (vector, VOp.I_GELU, (C.COLUMN, C.BIAS), {}, "src1", SPM, 2 * 7 - 1),
    "gelu result": (vector, VOp.I_GELU, (), {}, "dst", SPM, 31 + 4),
    "product src0": (vector, VOp.PRODUCT, (), {}, "src0", SPM, 21 + 4),
    "product src1": (vector, VOp.PRODUCT, (), {"aux": 9}, "src1", SPM, 9 + 4),
    "product result": (vector, VOp.PRODUCT, (), {}, "dst", SPM, 31 + 4),
    "product of words src0": (vector, VOp.PRODUCT, (P.WIDE,), {}, "src0", SPM, 21 + 4 + 10),
    "product of words src1": (vector, VOp.PRODUCT, (P.WIDE,), {"aux": 9}, "src1", SPM, 9 + 4 + 4),
    "product of words result": (vector, VOp.PRODUCT, (P.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "add src0": (vector, VOp.ADD, (), {}, "src0", SPM, 21 + 4),
    "add src1": (vector, VOp.ADD, (), {"aux": 9}, "src1", SPM, 21 + 4),
    "add result": (vector, VOp.ADD, (), {}, "dst", SPM, 31 + 4),
    "add wide": (vector, VOp.ADD, (A.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "norm statistics": (vector, VOp.NORM_STAT, (), {}, "src0", SPM, 21 + 4 + 10),
    "norm gamma": (vector, VOp.NORM_APPLY, (), {}, "src1", SPM, 2 * 2 - 1),
    "norm result": (vector, VOp.NORM_APPLY, (), {}, "dst", SPM, 31 + 4),
    "softmax maximum": (vector, VOp.SOFTMAX_MAX, (), {}, "src0", ACC, 21 + 4),
    "softmax result": (vector, VOp.SOFTMAX_EXP, (), {}, "dst", SPM, 31 + 4),
    "table": (vector, VOp.TABLE, (), {}, "src0", SPM, 63),
    "word table": (vector, VOp.WORD_TABLE, (), {}, "src0", SPM, 2 * 129 - 1),  # 513 bytes are 129 rows
    "layer norm bias": (vector, VOp.NORM_APPLY, (N.MEAN, N.BIAS), {}, "src1", SPM, 2 * (2 + 4) - 1),
    "norm wide": (vector, VOp.NORM_APPLY, (N.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "softmax wide": (vector, VOp.SOFTMAX_EXP, (S.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "softmax, more": (vector, VOp.SOFTMAX_EXP, (S.MORE,), {}, "dst", SPM, 31 + 4),
    "online softmax sums": (vector, VOp.SOFTMAX_NORM, (), {}, "src0", ACC, 21 + 4),
    "online softmax result": (vector, VOp.SOFTMAX_NORM, (S.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "tree of the maximum": (vector, VOp.SOFTMAX_MAX, (S.TREE,), {}, "src1", SPM, 4),
    "tree": (vector, VOp.SOFTMAX_NORM, (S.TREE,), {}, "src1", SPM, 4),
    "absolute maximum": (vector, VOp.ABSMAX, (), {}, "src0", ACC, 21 + 4),
    # 3 column groups, 21 apart
    "argmax": (select, SOp.ARGMAX, (), {}, "src0", SPM, 2 * 21 + 4 + 10),
    "keys": (select, SOp.KEYS, (), {}, "src0", SPM, 2 * 21 + 10),
    "importance": (select, SOp.IMPORTANCE, (), {}, "src0", SPM, 2 * 21 + 4),
    "importance wide": (select, SOp.IMPORTANCE, (ImportanceFlag.WIDE,), {}, "src0", SPM, 2 * 21 + 4 + 10),
    "compare": (select, SOp.COMPARE, (), {}, "src0", SPM, 2 * 21 + 4),
    "compare wide": (select, SOp.COMPARE, (CompareFlag.WIDE, CompareFlag.INVERT), {}, "src0", SPM, 2 * 21 + 4 + 10),
    "list load": (select, SOp.LIST_LOAD, (), {}, "src0", SPM, 5),  # 11 entries, two a row
    "list store": (select, SOp.LIST_STORE, (), {}, "dst", SPM, 5),
    "pack": (select, SOp.PACK, (), {}, "src0", SPM, 2 * 21 + 4),
    "packed": (select, SOp.PACK, (), {}, "dst", SPM, 2 * 21 + 4),
    # entries of other memories
    "index list of a load": (move, Unit.LOAD, (L.INDEXED,), {}, "list", ENTRIES, 2),
    "index list of a store": (move, Unit.STORE, (L.INDEXED,), {}, "list", ENTRIES, 2),
    "argmax ids": (select, SOp.ARGMAX, (), {}, "dst", ENTRIES, 4),
    "keys made": (select, SOp.KEYS, (), {}, "dst", KEYS, 10),
    "keys of importance": (select, SOp.KEYS, (KeysFlag.FROM_IMPORTANCE,), {"src0": 65535}, "dst", KEYS, 10),
    "importance read": (select, SOp.KEYS, (KeysFlag.FROM_IMPORTANCE,), {}, "first", KEYS, 10),
    "ids of keys": (select, SOp.KEYS, (), {}, "first", IDS, 10),
    "survivors": (select, SOp.TOP_K, (), {}, "dst", ENTRIES, 2),
    "survivors, all": (select, SOp.TOP_K, (), {"k": 99}, "dst", ENTRIES, 10),
    "all keys": (select, SOp.TOP_K, (TopKFlag.NONZERO,), {}, "dst", ENTRIES, 10),
    "importance added": (select, SOp.IMPORTANCE, (), {}, "first", KEYS, 10),
    "commit": (select, SOp.COMMIT, (CommitFlag.CLEAR,), {"src0": 65535}, "first", KEYS, 10),
    "kept importance": (select, SOp.COMMIT, (CommitFlag.FROM_KEYS,), {"src0": 65535}, "first", KEYS, 10),
    "list filled": (select, SOp.LIST_LOAD, (), {}, "dst", ENTRIES, 10),
    "list read": (select, SOp.LIST_STORE, (), {"src0": 65535}, "first", ENTRIES, 10),
}


@pytest.mark.parametrize("config", [TINY, ONE_BANK], ids=["four banks", "one bank"])
def test_last_row_of_every_operand(config: Config) -> None:
    """The last row of a memory is legal, the next is not; B moves by whole preload items."""
    commands = []
    for name, (make, kind, flags, fields, field, rows, span) in HULLS.items():
        first = rows - 1 - span
        if field == "b_row" and config.preload > 1:
            first -= first % config.preload
        head = flags if kind is None else (kind, *flags)
        commands.append((make(*head, **fields, **{field: first}), "none"))
        step = config.preload if field == "b_row" else 1
        commands.append((make(*head, **fields, **{field: first + step}), "rows"))
        assert name
    fault_of(commands, config)


def test_dynamic_rows_move_the_hull() -> None:
    """LEN[2] = 7 times a stride on top of the first row or entry; other operands stay."""
    lengths = [65535, 0, 7] + [0] * 13
    commands = []
    indexed = {"flags": frozenset({int(L.INDEXED)})}
    for make, kind, field, which, rows, span, more in (
        (move, Unit.LOAD, "row", Dyn.DST, SPM, 120, {}), (move, Unit.STORE, "row", Dyn.SRC0, SPM, 120, {}),
        (move, Unit.LOAD, "list", Dyn.SRC1, ENTRIES, 2, indexed),
        (move, Unit.STORE, "list", Dyn.SRC1, ENTRIES, 2, indexed),
        (matrix, None, "a_row", Dyn.SRC0, SPM, 21, {}), (matrix, None, "b_row", Dyn.SRC1, SPM, 18, {}),
        (matrix, None, "c_row", Dyn.DST, ACC, 13, {}),
        (vector, VOp.PRODUCT, "src0", Dyn.SRC0, SPM, 25, {}), (vector, VOp.PRODUCT, "src1", Dyn.SRC1, SPM, 4, {}),
        (vector, VOp.PRODUCT, "dst", Dyn.DST, SPM, 35, {}),
        (select, SOp.IMPORTANCE, "src0", Dyn.SRC0, SPM, 46, {}),
        (select, SOp.IMPORTANCE, "first", Dyn.SRC1, KEYS, 10, {}),
        (select, SOp.KEYS, "first", Dyn.SRC1, IDS, 10, {}),
        (select, SOp.LIST_STORE, "first", Dyn.SRC1, ENTRIES, 10, {}),
        (select, SOp.LIST_STORE, "dst", Dyn.DST, SPM, 5, {}),
        (select, SOp.PACK, "dst", Dyn.DST, SPM, 46, {}),
    ):
        stride = 100 if rows >= SPM else 16
        for beyond, fault in ((0, "none"), (1, "rows")):
            head = () if kind is None else (kind,)
            command = make(*head, **{field: rows - 1 - span - 7 * stride + beyond})
            commands.append((replace(command, dyn=(which, 2, stride), **more), fault))
    # what a load calls its destination is none of a store's
    commands.append((replace(move(Unit.STORE, row=SPM - 121), dyn=(Dyn.DST, 2, 1023)), "none"))
    fault_of(commands, TINY, lengths=lengths)


def test_other_rules_of_rows() -> None:
    row_max, contexts = TINY.stat_rows, TINY.stat_contexts
    commands = [
        (vector(op, *flags, m=m, context=context, n=4, src0_stride=0, dst_stride=0), fault)
        for op, flags in ((VOp.REQUANT, (R.ROW,)), (VOp.NORM_STAT, ()), (VOp.NORM_APPLY, ()), (VOp.SOFTMAX_MAX, ()),
                          (VOp.SOFTMAX_EXP, ()), (VOp.SOFTMAX_NORM, ()), (VOp.RESCALE, ()))
        for m, context, fault in ((row_max, contexts - 1, "none"), (row_max + 1, 0, "rows"), (1, contexts, "rows"))
    ]
    commands += [
        (vector(VOp.REQUANT, m=row_max + 1, context=15), "none"),  # without ROW there is no context
        # weights to reuse fill at most the mesh; where B would stand does not matter
        (matrix(M.REUSE, n=4, k=4, b_row=65535, b_stride=65535), "none"),
        (matrix(M.REUSE, n=5, k=4), "rows"),
        (matrix(M.REUSE, n=4, k=5), "rows"),
        # output-stationary operands: last row of A in bank 1, first row of B in bank 2, or both in bank 1
        (matrix(M.OUTPUT_STATIONARY, a_row=511 - 21, b_row=512), "none"),
        (matrix(M.OUTPUT_STATIONARY, a_row=512 - 21, b_row=512), "rows"),
        (matrix(a_row=512 - 21, b_row=512), "none"),
    ]
    commands += [
        # the absolute maximum leaves its reciprocal in the next context
        (vector(VOp.ABSMAX, m=row_max, context=contexts - 2), "none"),
        (vector(VOp.ABSMAX, context=contexts - 1), "rows"),
        (vector(VOp.ABSMAX, m=row_max + 1), "rows"),
        # running maxima by row; other operations count no rows, or any number
        (select(SOp.ARGMAX, m=row_max), "none"),
        (select(SOp.ARGMAX, m=row_max + 1), "rows"),
        (select(SOp.IMPORTANCE, m=row_max + 1), "none"),
        (select(SOp.COMPARE, m=row_max + 1, n=65535, src0_stride=0), "none"),
        (select(SOp.TOP_K, n=KEYS), "none"),
        (select(SOp.TOP_K, n=KEYS + 1), "rows"),
        (select(SOp.PACK, n=KEYS, src0_stride=0), "none"), (select(SOp.PACK, n=KEYS + 1, src0_stride=0), "rows"),
        (select(SOp.COMPARE, number=0), "illegal"),
        (select(SOp.COMPARE, number=0, m=0), "illegal"),
        (select(SOp.ARGMAX, number=0), "none"),
    ]
    fault_of(commands, TINY)
    bitmaps = TINY.model_copy(update={"stat_rows": 64})  # of 8 * 4 columns
    for op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM):
        fault_of([(vector(op, S.TREE, m=32, n=32), "none"), (vector(op, S.TREE, m=33, n=32), "rows"),
                  (vector(op, S.CAUSAL, m=33, n=32), "none")], bitmaps)
    for unaligned, fault in ((0, "none"), (1, "rows"), (2, "rows"), (3, "rows")):
        aligned_4 = [
            (matrix(b_row=512 + unaligned), fault), (matrix(b_stride=16 + unaligned), fault),
            (matrix(M.REUSE, n=1, k=1, b_row=unaligned, b_stride=unaligned), "none"),
            (matrix(a_row=unaligned, a_stride=16 + unaligned, c_row=unaligned, c_stride=unaligned), "none"),
        ]
        fault_of(aligned_4, ONE_BANK)
    fault_of([(matrix(M.OUTPUT_STATIONARY), "rows")], ONE_BANK)


def test_limit_is_exact() -> None:
    far = 16 + 2 * 64 + 8
    fields = {"offset": 16, "stride": 64}
    for limit, fault in ((far, "none"), (far - 1, "limit")):
        fault_of([
            (move(Unit.LOAD, **fields), fault), (move(Unit.STORE, **fields), fault),
            (move(Unit.LOAD, L.ACCUMULATOR, **fields), fault),
            (move(Unit.LOAD, row=SPM - 120, **fields), "rows"),  # comes first
            (move(Unit.LOAD, L.ACCUMULATOR, bytes=9, **fields), "limit"),  # before align
            (move(Unit.LOAD, L.ZERO, **fields), "none"),  # reads no DRAM
        ], TINY, limit=limit)
    # one row of a broadcast; nothing is lost in the sum
    fault_of([(move(Unit.LOAD, L.BROADCAST, **fields), "none")], TINY, limit=24)
    fault_of([(move(Unit.LOAD, L.BROADCAST, **fields), "limit")], TINY, limit=23)
    # the last number that a list may name counts, not the number of rows
    for limit, fault in ((16 + 9 * 64 + 8, "none"), (16 + 9 * 64 + 7, "limit")):
        fault_of([(move(unit, L.INDEXED, last_index=9, **fields), fault) for unit in (Unit.LOAD, Unit.STORE)]
                 + [(move(Unit.LOAD, L.INDEXED, last_index=0, **fields), "none"),
                    (move(Unit.LOAD, L.INDEXED, last_index=9, list=ENTRIES - 2, **fields), "rows")], TINY, limit=limit)
    fault_of([(move(Unit.LOAD, L.INDEXED, last_index=65535, stride=(1 << 24) - 1), "limit")], TINY, limit=(1 << 32) - 1)
    huge = {"offset": (1 << 32) - 16, "stride": (1 << 24) - 1, "rows": 300, "row_stride": 0}
    fault_of([(move(Unit.LOAD, **huge), "limit")], TINY, limit=(1 << 32) - 1)


@pytest.mark.parametrize("bits", [16, 32, 48])
def test_address_space_ends(bits: int) -> None:
    """The last byte may be moved, none behind it: an address does not wrap, whatever the limit."""
    config, top = TINY.model_copy(update={"address_bits": bits}), 1 << bits
    room = 16 + 2 * 64 + 8
    fields = {"offset": 16, "stride": 64}
    for base, fault in ((top - room, "none"), (top - room + 1, "limit"), (top - 1, "limit")):
        fault_of([
            (move(Unit.LOAD, **fields), fault), (move(Unit.STORE, **fields), fault),
            (move(Unit.LOAD, L.ZERO, **fields), "none"),
            (move(Unit.LOAD, L.INDEXED, last_index=2, **fields), fault),
        ], config, limit=top - 1, base=base)
    fault_of([(move(Unit.LOAD, offset=(1 << 32) - 8, rows=1, stride=0), "limit" if bits <= 32 else "none")],
             config, limit=top - 1, base=1)
    for far in range(bits + 1, 32):  # an offset that the address space does not have
        fault_of([(move(Unit.LOAD, offset=1 << far | 16, stride=64), "limit")], config, limit=top - 1, base=1)


def test_alignment_is_exact() -> None:
    """Sizes of int32, and the address of a broadcast; every other address may be any byte."""
    odd = {"offset": 3, "stride": 5}
    commands = [(move(unit, bytes=7, **odd), "none") for unit in (Unit.LOAD, Unit.STORE)]
    for count in range(1, 9):
        commands += [
            (move(unit, L.ACCUMULATOR, bytes=count, **odd), "align" if count % 4 else "none")
            for unit in (Unit.LOAD, Unit.STORE)]
        commands += [
            (move(unit, L.ACCUMULATOR, L.NARROW, bytes=count, **odd), "none") for unit in (Unit.LOAD, Unit.STORE)]
    fault_of(commands, TINY)
    for base in range(5):  # the sum of base and offset counts
        fault_of([(move(Unit.LOAD, L.BROADCAST, offset=7, stride=5), "none" if base == 1 else "align")],
                 TINY, base=base)


def test_zero_lengths_are_not_checked() -> None:
    out = {"row": 65535, "offset": 1 << 31, "base": 3}
    commands = [(move(unit, **(out | zero)), "none") for unit in (Unit.LOAD, Unit.STORE)
                for zero in ({"rows": 0}, {"bytes": 0})]
    commands += [(matrix(a_row=65535, b_row=65535, c_row=65535, **{name: 0}), "none") for name in "mnk"]
    commands += [(vector(VOp.ADD, src0=65535, **{name: 0}), "none") for name in "mn"]
    commands += [(vector(VOp.TABLE, src0=1024 - 63, m=0, n=0), "rows")]  # always 256 bytes
    commands += [(vector(VOp.WORD_TABLE, src0=1024 - 257, m=0, n=0), "rows")]  # always 2 * 513 bytes
    commands += [(vector(VOp.ROPE, R.WIDE, m=0), "illegal"), (select(SOp.TOP_K, CommitFlag.CLEAR, n=0), "illegal")]
    commands += [(select(op, src0=65535, dst=65535, first=65535, n=0), "none") for op in SOp]
    # rows count for four operations, k for one
    far = {"src0": 65535, "dst": 65535, "first": 65535}
    rows = (SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE, SOp.PACK)
    commands += [(select(op, m=0, **far), "none" if op in rows else "rows") for op in SOp]
    commands += [(select(op, k=0, **far), "none" if op is SOp.TOP_K else "rows") for op in SOp]
    fault_of(commands, TINY)


def test_long_rows_are_exact() -> None:
    """A row's bytes have more bits than a length: 1 << 16 more bytes are 1 << 14 more blocks."""
    fields = {"rows": 1, "row": 0, "row_stride": 0, "block_stride": 1}
    fault_of([
        (move(bytes=4 * SPM, **fields), "none"), (move(bytes=4 * SPM + 1, **fields), "rows"),
        (move(bytes=(1 << 16) + 8, **fields), "rows"), (move(bytes=(1 << 19) + 8, **fields), "rows"),
    ], TINY, limit=1 << 20)
