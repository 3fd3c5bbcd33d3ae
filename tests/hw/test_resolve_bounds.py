"""Every rule of resolving, exactly at its bound and one beyond, with hulls counted by hand."""

import random

import pytest

from gemmule.config import Config, load_config
from gemmule.hw.legal import Legal
from gemmule.hw.resolve import Resolve
from gemmule.hw.testing import run_bench
from gemmule.isa import NUM_LENGTHS, Command, Dyn, SOp, Unit, VOp, encode, legal_flags
from gemmule.isa import MatrixFlag as M
from gemmule.isa import MoveFlag as L
from gemmule.isa import SelectFlag as S
from gemmule.isa import VectorFlag as V
from gemmule.resolve import FAULTS

TINY = load_config("tiny").model_copy(update={"select_keys": 128, "list_entries": 256})
"""DIM 4, 4 scratchpad banks of 256 rows, 4 accumulator banks of 64 rows."""
ONE_BANK = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=1, acc_kib=4, acc_banks=1, preload=4, stat_rows=16,
                  select_keys=128, list_entries=256)
SPM, ACC = 1024, 256
KEYS, ENTRIES = 128, 256
FAR = {"a_row": 0, "b_row": 512, "a_stride": 8, "b_stride": 8, "c_stride": 8}


def fault_of(commands: list[tuple[Command, str]], config: Config, *, limit: int = 4096, base: int = 0,
             lengths: list[int] | None = None) -> None:
    """Asserts the fault of every command."""
    dut = Resolve(config=config)

    async def bench(ctx):
        ctx.set(dut.lengths, lengths or [65535] * NUM_LENGTHS)
        ctx.set(dut.base, base)
        ctx.set(dut.limit, limit)
        for command, fault in commands:
            ctx.set(dut.word, encode(command))
            assert FAULTS[ctx.get(dut.fault)] == fault, command

    run_bench(dut, bench)


def move(unit: Unit = Unit.LOAD, *flags: int, **fields: int) -> Command:
    return Command.make(unit, flags=flags, **({"rows": 3, "bytes": 8, "row_stride": 10, "block_stride": 100} | fields))


def matrix(*flags: int, **fields: int) -> Command:
    return Command.make(Unit.MATRIX, flags=flags, **({"m": 6, "n": 7, "k": 11} | FAR | fields))


def vector(op: VOp, *flags: int, **fields: int) -> Command:
    values = {"m": 5, "n": 7, "src0": 0, "src0_stride": 21, "src1": 0, "dst": 0, "dst_stride": 31, "aux": 0}
    return Command.make(Unit.VECTOR, op=op, flags=flags, **(values | fields))


def select(op: SOp, *flags: int, **fields: int) -> Command:
    """5 rows of 11 columns (3 groups of 4), 21 apart."""
    values = {"m": 5, "n": 11, "k": 3, "src0": 0, "src0_stride": 21, "dst": 0, "first": 0, "number": 1}
    return Command.make(Unit.SELECT, op=op, flags=flags, **(values | fields))


# name: (command without the field, field of the first row, rows of the memory, last row - first row)
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
    "requant wide": (vector, VOp.REQUANT, (V.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "requant residual": (vector, VOp.REQUANT, (V.RESIDUAL,), {}, "dst", SPM, 31 + 4 + 15),
    "requant columns": (vector, VOp.REQUANT, (V.COLUMN,), {}, "src1", SPM, 2 * 3 - 1),
    "requant bias": (vector, VOp.REQUANT, (V.BIAS,), {}, "src1", SPM, 2 * 4 - 1),
    "requant columns, bias": (vector, VOp.REQUANT, (V.COLUMN, V.BIAS), {}, "src1", SPM, 2 * 7 - 1),
    "rope columns, bias": (vector, VOp.ROPE, (V.COLUMN, V.BIAS), {}, "src1", SPM, 2 * 7 - 1),
    "rope angles": (vector, VOp.ROPE, (), {"period": 2}, "aux", SPM, 5 * 16 - 1),
    "rope result": (vector, VOp.ROPE, (), {}, "dst", SPM, 31 + 4),
    "rescale sums": (vector, VOp.RESCALE, (), {}, "src0", ACC, 21 + 4),
    "rescale result": (vector, VOp.RESCALE, (), {}, "dst", ACC, 31 + 4),
    "gelu sums": (vector, VOp.I_GELU, (), {}, "src0", ACC, 21 + 4),
    "gelu columns, bias": (vector, VOp.I_GELU, (V.COLUMN, V.BIAS), {}, "src1", SPM, 2 * 7 - 1),
    "gelu result": (vector, VOp.I_GELU, (), {}, "dst", SPM, 31 + 4),
    "product src0": (vector, VOp.PRODUCT, (), {}, "src0", SPM, 21 + 4),
    "product src1": (vector, VOp.PRODUCT, (), {"aux": 9}, "src1", SPM, 9 + 4),
    "product result": (vector, VOp.PRODUCT, (), {}, "dst", SPM, 31 + 4),
    "add src0": (vector, VOp.ADD, (), {}, "src0", SPM, 21 + 4),
    "add src1": (vector, VOp.ADD, (), {"aux": 9}, "src1", SPM, 21 + 4),
    "add result": (vector, VOp.ADD, (), {}, "dst", SPM, 31 + 4),
    "add wide": (vector, VOp.ADD, (V.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "norm statistics": (vector, VOp.NORM_STAT, (), {}, "src0", SPM, 21 + 4 + 10),
    "norm gamma": (vector, VOp.NORM_APPLY, (), {}, "src1", SPM, 2 * 2 - 1),
    "norm result": (vector, VOp.NORM_APPLY, (), {}, "dst", SPM, 31 + 4),
    "softmax maximum": (vector, VOp.SOFTMAX_MAX, (), {}, "src0", ACC, 21 + 4),
    "softmax result": (vector, VOp.SOFTMAX_EXP, (), {}, "dst", SPM, 31 + 4),
    "table": (vector, VOp.TABLE, (), {}, "src0", SPM, 63),
    "word table": (vector, VOp.WORD_TABLE, (), {}, "src0", SPM, 2 * 129 - 1),  # 513 bytes are 129 rows
    "layer norm bias": (vector, VOp.NORM_APPLY, (V.MEAN, V.BIAS), {}, "src1", SPM, 2 * (2 + 4) - 1),
    "norm wide": (vector, VOp.NORM_APPLY, (V.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "softmax wide": (vector, VOp.SOFTMAX_EXP, (V.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "softmax, more": (vector, VOp.SOFTMAX_EXP, (V.MORE,), {}, "dst", SPM, 31 + 4),
    "online softmax sums": (vector, VOp.SOFTMAX_NORM, (), {}, "src0", ACC, 21 + 4),
    "online softmax result": (vector, VOp.SOFTMAX_NORM, (V.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "tree of the maximum": (vector, VOp.SOFTMAX_MAX, (V.TREE,), {}, "src1", SPM, 4),
    "tree": (vector, VOp.SOFTMAX_NORM, (V.TREE,), {}, "src1", SPM, 4),
    "absolute maximum": (vector, VOp.ABSMAX, (), {}, "src0", ACC, 21 + 4),
    # 3 column groups, 21 apart
    "argmax": (select, SOp.ARGMAX, (), {}, "src0", SPM, 2 * 21 + 4 + 10),
    "keys": (select, SOp.KEYS, (), {}, "src0", SPM, 2 * 21 + 10),
    "importance": (select, SOp.IMPORTANCE, (), {}, "src0", SPM, 2 * 21 + 4),
    "importance wide": (select, SOp.IMPORTANCE, (S.WIDE,), {}, "src0", SPM, 2 * 21 + 4 + 10),
    "compare": (select, SOp.COMPARE, (), {}, "src0", SPM, 2 * 21 + 4),
    "compare wide": (select, SOp.COMPARE, (S.WIDE, S.INVERT), {}, "src0", SPM, 2 * 21 + 4 + 10),
    "list load": (select, SOp.LIST_LOAD, (), {}, "src0", SPM, 5),  # 11 entries, two a row
    "list store": (select, SOp.LIST_STORE, (), {}, "dst", SPM, 5),
    # entries of other memories
    "index list of a load": (move, Unit.LOAD, (L.INDEXED,), {}, "list", ENTRIES, 2),
    "index list of a store": (move, Unit.STORE, (L.INDEXED,), {}, "list", ENTRIES, 2),
    "argmax ids": (select, SOp.ARGMAX, (), {}, "dst", ENTRIES, 4),
    "keys made": (select, SOp.KEYS, (), {}, "dst", KEYS, 10),
    "keys of importance": (select, SOp.KEYS, (S.FROM_IMPORTANCE,), {"src0": 65535}, "dst", KEYS, 10),
    "importance read": (select, SOp.KEYS, (S.FROM_IMPORTANCE,), {}, "first", KEYS, 10),
    "ids of keys": (select, SOp.KEYS, (), {}, "first", 65536, 10),
    "survivors": (select, SOp.TOP_K, (), {}, "dst", ENTRIES, 2),
    "survivors, all": (select, SOp.TOP_K, (), {"k": 99}, "dst", ENTRIES, 10),
    "importance added": (select, SOp.IMPORTANCE, (), {}, "first", KEYS, 10),
    "commit": (select, SOp.COMMIT, (S.CLEAR,), {"src0": 65535}, "first", KEYS, 10),
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
    """LEN[2] = 7 times a stride of 100 on top of the first row; other operands stay."""
    lengths = [65535, 0, 7] + [0] * 13
    commands = []
    for make, kind, field, which, rows, span in (
        (move, Unit.LOAD, "row", Dyn.DST, SPM, 120), (move, Unit.STORE, "row", Dyn.SRC0, SPM, 120),
        (matrix, None, "a_row", Dyn.SRC0, SPM, 21), (matrix, None, "b_row", Dyn.SRC1, SPM, 18),
        (vector, VOp.PRODUCT, "src0", Dyn.SRC0, SPM, 25), (vector, VOp.PRODUCT, "src1", Dyn.SRC1, SPM, 4),
        (vector, VOp.PRODUCT, "dst", Dyn.DST, SPM, 35),
        (select, SOp.IMPORTANCE, "src0", Dyn.SRC0, SPM, 46), (select, SOp.LIST_STORE, "dst", Dyn.DST, SPM, 5),
    ):
        for more, fault in ((0, "none"), (1, "rows")):
            head = () if kind is None else (kind,)
            command = make(*head, **{field: rows - 1 - span - 700 + more})
            commands.append((Command(command.unit, command.fields, command.op, dyn=(which, 2, 100)), fault))
    # nothing of a matrix command's result moves
    moved = matrix(c_row=ACC - 14)
    commands.append((Command(moved.unit, moved.fields, dyn=(Dyn.DST, 2, 1023)), "none"))
    fault_of(commands, TINY, lengths=lengths)


def test_other_rules_of_rows() -> None:
    row_max, contexts = TINY.stat_rows, TINY.stat_contexts
    commands = [
        (vector(op, *flags, m=m, context=context, n=4, src0_stride=0, dst_stride=0), fault)
        for op, flags in ((VOp.REQUANT, (V.ROW,)), (VOp.NORM_STAT, ()), (VOp.NORM_APPLY, ()), (VOp.SOFTMAX_MAX, ()),
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
        (select(SOp.COMPARE, number=0), "illegal"),
        (select(SOp.COMPARE, number=0, m=0), "illegal"),
        (select(SOp.ARGMAX, number=0), "none"),
    ]
    fault_of(commands, TINY)
    bitmaps = TINY.model_copy(update={"stat_rows": 64})  # of 8 * 4 columns
    for op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM):
        fault_of([(vector(op, V.TREE, m=32, n=32), "none"), (vector(op, V.TREE, m=33, n=32), "rows"),
                  (vector(op, V.CAUSAL, m=33, n=32), "none")], bitmaps)
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
    commands += [(vector(VOp.ROPE, V.WIDE, m=0), "illegal"), (select(SOp.TOP_K, S.WIDE, n=0), "illegal")]
    commands += [(select(op, src0=65535, dst=65535, first=65535, n=0), "none") for op in SOp]
    # rows count for three operations, k for one
    far = {"src0": 65535, "dst": 65535, "first": 65535}
    rows = (SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE)
    commands += [(select(op, m=0, **far), "none" if op in rows else "rows") for op in SOp]
    commands += [(select(op, k=0, **far), "none" if op is SOp.TOP_K else "rows") for op in SOp]
    fault_of(commands, TINY)


def test_claims_by_hand() -> None:
    """Scratchpad reads 0..3, scratchpad writes 4..7, accumulator reads 8..11, accumulator writes 12..15."""
    dut = Resolve(config=TINY)
    wanted = [
        (move(Unit.LOAD, row=200), (0x30, 0, 0), 0),  # rows 200 .. 320
        (move(Unit.STORE, row=200), (0x03, 0, 0), 0),
        (move(Unit.LOAD, L.ACCUMULATOR, row=60), (0x3000, 0, 0), 0),  # 8 bytes are one block: 60 .. 80
        (move(Unit.LOAD, L.ACCUMULATOR, L.ADD, row=60), (0x3300, 0, 0), 0),
        (move(Unit.STORE, L.ACCUMULATOR, L.NARROW, row=60), (0x0700, 0, 0), 0),  # two blocks: 60 .. 180
        (matrix(a_row=250, b_row=512, c_row=63), (0x3, 0x4, 0x3300), 0),
        (matrix(a_row=250, b_row=252), (0x3, 0x3, 0x1100), 1),
        (matrix(M.REUSE, n=4, k=4, a_row=5, b_row=5), (0x1, 0, 0x1100), 0),
        (vector(VOp.REQUANT, V.BIAS, src1=768, dst=300), (0x100, 0x8, 0x20), 0),
        (vector(VOp.REQUANT, V.RESIDUAL, V.BIAS, src1=768, dst=256), (0x100, 0xA, 0x20), 0),
        (vector(VOp.ADD, src1=240), (0x1, 0x3, 0x10), 1),
        (vector(VOp.ADD, src1=256), (0x1, 0x2, 0x10), 0),
        (vector(VOp.ROPE, aux=512, dst=10), (0x100, 0x4, 0x10), 0),
        (vector(VOp.WORD_TABLE, src0=255, m=0, n=0), (0x7, 0, 0), 0),  # 255 .. 512
        (vector(VOp.NORM_APPLY, V.BIAS, V.WIDE, src1=256, dst=220), (0x1, 0x2, 0x30), 0),
        (vector(VOp.SOFTMAX_NORM, V.TREE, src1=253, dst=10), (0x100, 0x3, 0x10), 0),
        (vector(VOp.SOFTMAX_MAX, V.TREE, src1=253), (0x100, 0x3, 0), 0),
        (vector(VOp.ABSMAX, src0=60), (0x300, 0, 0), 0),
        (vector(VOp.RESCALE, src0=60, dst=128), (0x300, 0, 0x4000), 0),
        (vector(VOp.RESCALE, src0=0, dst=33), (0x100, 0, 0x3000), 0),  # rows 33 .. 68
        (vector(VOp.I_GELU, V.COLUMN, src1=768, dst=300), (0x100, 0x8, 0x20), 0),
        (move(Unit.LOAD, L.INDEXED, row=200), (0x30, 0, 0), 0),
        (select(SOp.ARGMAX, src0=200), (0x3, 0, 0), 0),  # 200 .. 256
        (select(SOp.IMPORTANCE, src0=209), (0x1, 0, 0), 0),  # .. 255
        (select(SOp.KEYS, src0=768), (0x8, 0, 0), 0),
        (select(SOp.KEYS, S.FROM_IMPORTANCE, src0=768), (0, 0, 0), 0),
        (select(SOp.TOP_K), (0, 0, 0), 0),
        (select(SOp.COMMIT), (0, 0, 0), 0),
        (select(SOp.LIST_LOAD, src0=507), (0x6, 0, 0), 0),  # .. 512
        (select(SOp.LIST_STORE, dst=507), (0, 0x60, 0), 0),
    ]

    async def bench(ctx):
        ctx.set(dut.lengths, [65535] * NUM_LENGTHS)
        ctx.set(dut.limit, 4096)
        for command, claims, apart in wanted:
            ctx.set(dut.word, encode(command))
            assert ctx.get(dut.fault) == 0, command
            assert tuple(ctx.get(dut.claims)) == claims, command
            assert ctx.get(dut.vector.apart if command.unit is Unit.VECTOR else dut.matrix.apart) == apart, command

    run_bench(dut, bench)


def test_columns_behind_a_piece_of_a_row() -> None:
    """A softmax row of LEN[2] = 100 columns: 100 - 70 stand behind the piece; none without a register."""
    dut = Resolve(config=TINY)
    wanted = [
        (vector(VOp.SOFTMAX_MAX, aux=2 | 70 << 4), 30), (vector(VOp.SOFTMAX_EXP, aux=2 | 100 << 4), 0),
        (vector(VOp.SOFTMAX_NORM, aux=2 | 99 << 4), 1), (vector(VOp.SOFTMAX_NORM, aux=2 | 101 << 4), 0),
        (vector(VOp.SOFTMAX_MAX, aux=0 | 70 << 4), 0), (vector(VOp.REQUANT, aux=2 | 70 << 4), 0),
    ]

    async def bench(ctx):
        ctx.set(dut.lengths, [65535, 0, 100, *[0] * 13])
        for command, after in wanted:
            ctx.set(dut.word, encode(command))
            assert (ctx.get(dut.fault), ctx.get(dut.vector.after)) == (0, after), command

    run_bench(dut, bench)


def test_flags_of_every_operation() -> None:
    """All flags of all known operations; other operations and units with a few."""
    dut = Legal()
    rng = random.Random(4)
    print("seed 4")
    legal = 0

    async def bench(ctx):
        nonlocal legal
        for unit in range(8):
            for op in range(32):
                known = op < {0: 1, 1: 1, 2: 1, 3: len(VOp), 4: len(SOp)}.get(unit, 0)
                ctx.set(dut.unit, unit)
                ctx.set(dut.op, op)
                for flags in range(256) if known else (0, rng.randrange(256)):
                    ctx.set(dut.flags, flags)
                    want = known and legal_flags(unit, op, flags)
                    assert ctx.get(dut.known) == want, (unit, op, flags)
                    legal += want

    run_bench(dut, bench)
    # load: into the scratchpad {plain, ZERO, BROADCAST, INDEXED}, into the accumulator 2 (NARROW) *
    # (ADD 2 * {plain, BROADCAST, INDEXED} + ZERO); store: 3 * 2
    # matrix: A_UNSIGNED and ACCUMULATE are free, the others allow 4 (OS) + 1 (REUSE) + 10
    moves = 4 + 2 * (2 * 3 + 1) + 3 * 2
    requant, rope, add, norm_stat, norm_apply = 256 - 32, 4, 8, 3, 8
    gelu = 4
    visible = 3  # all, CAUSAL, TREE
    softmax = visible * 4 + visible * 16 + visible * 2
    plain = 5  # PRODUCT, TABLE, ABSMAX, WORD_TABLE, RESCALE
    selects = 2 + 2 + 1 + 2 + 4 + 4 + 1 + 1
    assert legal == moves + 4 * 15 + requant + rope + add + norm_stat + norm_apply + gelu + softmax + plain + selects


def test_comparison_modes() -> None:
    """What is illegal without them, and exponentials that no device has; every other field may be anything."""
    illegal = ([(vector(VOp.I_GELU), False), (vector(VOp.I_GELU, V.COLUMN, V.BIAS, m=0), False),
                (vector(VOp.NORM_STAT, V.MEAN, V.ROUND), False), (vector(VOp.NORM_STAT, V.MEAN), True)]
               + [(vector(op, period=period), period == 0) for op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
                  for period in (0, 1, 2)]
               + [(vector(VOp.SOFTMAX_MAX, V.ONLINE, period=7), True), (vector(VOp.RESCALE, period=7), True),
                  (vector(VOp.NORM_STAT, period=7), True)])
    without = TINY.model_copy(update={"comparison_modes": False})
    never = [(vector(op, period=period, m=m), "illegal") for op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
             for period in range(3, 8) for m in (0, 5)]
    fault_of([(command, "none") for command, _ in illegal] + never, TINY)
    fault_of([(command, "none" if legal else "illegal") for command, legal in illegal] + never, without)
