"""Every rule of resolving, exactly at its bound and one beyond, with hulls counted by hand."""

import random

import pytest

from gemmule.config import Config, load_config
from gemmule.hw.legal import Legal
from gemmule.hw.resolve import Resolve
from gemmule.hw.testing import run_bench
from gemmule.isa import NUM_LENGTHS, Command, Dyn, Unit, VOp, encode, legal_flags
from gemmule.isa import MatrixFlag as M
from gemmule.isa import MoveFlag as L
from gemmule.isa import VectorFlag as V
from gemmule.resolve import FAULTS

TINY = load_config("tiny")  # DIM 4, 4 scratchpad banks of 256 rows, 4 accumulator banks of 64 rows
ONE_BANK = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=1, acc_kib=4, acc_banks=1, preload=4, stat_rows=16)
SPM, ACC = 1024, 256
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
    "product src0": (vector, VOp.PRODUCT, (), {}, "src0", SPM, 21 + 4),
    "product src1": (vector, VOp.PRODUCT, (), {"aux": 9}, "src1", SPM, 9 + 4),
    "product result": (vector, VOp.PRODUCT, (), {}, "dst", SPM, 31 + 4),
    "add src0": (vector, VOp.ADD, (), {}, "src0", SPM, 21 + 4),
    "add src1": (vector, VOp.ADD, (), {"aux": 9}, "src1", SPM, 21 + 4),
    "add result": (vector, VOp.ADD, (), {}, "dst", SPM, 31 + 4),
    "add wide": (vector, VOp.ADD, (V.WIDE,), {}, "dst", SPM, 31 + 4 + 15),
    "rms statistics": (vector, VOp.RMS_STAT, (), {}, "src0", SPM, 21 + 4 + 10),
    "rms gamma": (vector, VOp.RMS_APPLY, (), {}, "src1", SPM, 2 * 2 - 1),
    "rms result": (vector, VOp.RMS_APPLY, (), {}, "dst", SPM, 31 + 4),
    "softmax maximum": (vector, VOp.SOFTMAX_MAX, (), {}, "src0", ACC, 21 + 4),
    "softmax result": (vector, VOp.SOFTMAX_EXP, (), {}, "dst", SPM, 31 + 4),
    "table": (vector, VOp.TABLE, (), {}, "src0", SPM, 63),
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
        for op, flags in ((VOp.REQUANT, (V.ROW,)), (VOp.RMS_STAT, ()), (VOp.RMS_APPLY, ()), (VOp.SOFTMAX_MAX, ()),
                          (VOp.SOFTMAX_EXP, ()))
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
    fault_of(commands, TINY)
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
    commands += [(vector(VOp.ROPE, V.WIDE, m=0), "illegal"), (Command.make(Unit.SELECT), "illegal")]
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
                known = unit < 3 and op == 0 or unit == 3 and op < len(VOp)
                ctx.set(dut.unit, unit)
                ctx.set(dut.op, op)
                for flags in range(256) if known else (0, rng.randrange(256)):
                    ctx.set(dut.flags, flags)
                    want = known and legal_flags(unit, op, flags)
                    assert ctx.get(dut.known) == want, (unit, op, flags)
                    legal += want

    run_bench(dut, bench)
    # matrix: A_UNSIGNED and ACCUMULATE are free, the others allow 4 (OS) + 1 (REUSE) + 10
    requant, rope, softmax, add, plain = 256 - 32, 4, 2 * 2, 8, 4
    assert legal == 13 + 3 + 4 * 15 + requant + rope + softmax + add + plain
