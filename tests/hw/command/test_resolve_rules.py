"""The resolve stage by hand: claims, columns behind a piece, legal flags, comparison modes."""

import random

import pytest

from gemmule.hw.command.legal import Legal
from gemmule.hw.command.resolve import Resolve
from gemmule.isa import MAX_LENGTH, NUM_BASES, KeysFlag, ListFlag, SOp, Unit, VOp, encode, legal_flags
from gemmule.isa import ColumnFlag as C
from gemmule.isa import MatrixFlag as M
from gemmule.isa import MoveFlag as L
from gemmule.isa import NormFlag as N
from gemmule.isa import RequantFlag as R
from gemmule.isa import SoftmaxFlag as S

from ..bench import run_bench
from .resolve_commands import TINY, fault_of, matrix, move, resolved, select, vector


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
        (vector(VOp.REQUANT, R.BIAS, src1=768, dst=300), (0x100, 0x8, 0x20), 0),
        (vector(VOp.REQUANT, R.RESIDUAL, R.BIAS, src1=768, dst=256), (0x100, 0xA, 0x20), 0),
        (vector(VOp.ADD, src1=240), (0x1, 0x3, 0x10), 1),
        (vector(VOp.ADD, src1=256), (0x1, 0x2, 0x10), 0),
        (vector(VOp.ROPE, aux=512, dst=10), (0x100, 0x4, 0x10), 0),
        (vector(VOp.WORD_TABLE, src0=255, m=0, n=0), (0x7, 0, 0), 0),  # 255 .. 512
        (vector(VOp.NORM_APPLY, N.BIAS, N.WIDE, src1=256, dst=220), (0x1, 0x2, 0x30), 0),
        (vector(VOp.SOFTMAX_NORM, S.TREE, src1=253, dst=10), (0x100, 0x3, 0x10), 0),
        (vector(VOp.SOFTMAX_MAX, S.TREE, src1=253), (0x100, 0x3, 0), 0),
        (vector(VOp.ABSMAX, src0=60), (0x300, 0, 0), 0),
        (vector(VOp.RESCALE, src0=60, dst=128), (0x300, 0, 0x4000), 0),
        (vector(VOp.RESCALE, src0=0, dst=33), (0x100, 0, 0x3000), 0),  # rows 33 .. 68
        (vector(VOp.I_GELU, C.COLUMN, src1=768, dst=300), (0x100, 0x8, 0x20), 0),
        (move(Unit.LOAD, L.INDEXED, row=200), (0x30, 0, 0), 0),
        (select(SOp.ARGMAX, src0=200), (0x3, 0, 0), 0),  # 200 .. 256
        (select(SOp.IMPORTANCE, src0=209), (0x1, 0, 0), 0),  # .. 255
        (select(SOp.KEYS, src0=768), (0x8, 0, 0), 0),
        (select(SOp.KEYS, KeysFlag.FROM_IMPORTANCE, src0=768), (0, 0, 0), 0),
        (select(SOp.TOP_K), (0, 0, 0), 0),
        (select(SOp.COMMIT), (0, 0, 0), 0),
        (select(SOp.LIST_LOAD, src0=507), (0x6, 0, 0), 0),  # .. 512
        (select(SOp.LIST_STORE, dst=507), (0, 0x60, 0), 0),
    ]

    async def bench(ctx):
        words = [encode(command) for command, _, _ in wanted]
        async for i in resolved(ctx, dut, words, limits=[4096] * NUM_BASES):
            command, claims, apart = wanted[i]
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
        words = [encode(command) for command, _ in wanted]
        async for i in resolved(ctx, dut, words, lengths=[65535, 0, 100, *[0] * 13]):
            command, after = wanted[i]
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
    product = 2  # alone, WIDE
    plain = 4  # TABLE, ABSMAX, WORD_TABLE, RESCALE
    selects = 2 + 4 + 3 + 2 + 5 + 4 + 2 + 2 + 1
    rows = requant + rope + product + add + norm_stat + norm_apply + gelu + softmax + plain
    assert legal == moves + 4 * 15 + rows + selects


@pytest.mark.parametrize("index_bits", [16, 18])
def test_index_bits(index_bits: int) -> None:
    """What is illegal on a device whose indices have 16 bits, at length zero too; keys reach as far as indices do."""
    wide, most = "none" if index_bits == 18 else "illegal", (1 << index_bits) - 1
    lists = [select(op, ListFlag.HIGH, n=n) for op in (SOp.LIST_LOAD, SOp.LIST_STORE) for n in (0, 5)]
    moves = [move(unit, L.INDEXED, last_index=1 << 16, rows=rows) for unit in (Unit.LOAD, Unit.STORE)
             for rows in (0, 3)]
    fault_of([
        *((command, wide) for command in (*lists, *moves)),
        *((move(unit, L.INDEXED, last_index=MAX_LENGTH), "none") for unit in (Unit.LOAD, Unit.STORE)),
        (move(last_index=1 << 16), "none"), (select(SOp.LIST_LOAD, n=5), "none"), (select(SOp.COMMIT, first=9), "none"),
        (select(SOp.COMMIT, first=1 << 16), "rows"), (select(SOp.LIST_STORE, first=1 << 17), "rows"),
        (select(SOp.KEYS, n=1, first=most), "none"), (select(SOp.KEYS, n=2, first=most), "rows"),
        (select(SOp.ARGMAX, first=(1 << 18) - 1), "none"),
    ], TINY.model_copy(update={"index_bits": index_bits}))


@pytest.mark.parametrize(("feature", "flags"), [
    ("output_stationary", [M.OUTPUT_STATIONARY]), ("transposition", [M.A_TRANSPOSED]),
    ("transposition", [M.B_TRANSPOSED, M.ACCUMULATE]), ("int4", [M.B_INT4]), ("int4", [M.B_INT4, M.GROUP_SCALES])])
def test_features_of_the_matrix_unit(feature: str, flags: list[M]) -> None:
    """A device without a feature refuses its flags, also at length zero; the others stay as they are."""
    apart = {"a_row": 0, "b_row": TINY.spm_rows // 2, "n": 4, "k": 4}
    others = [(matrix(**apart), "none"), (matrix(M.REUSE, M.A_UNSIGNED, **apart), "none")]
    fault_of([(matrix(*flags, **apart), "none"), *others], TINY)
    fault_of([(matrix(*flags, **apart), "illegal"), (matrix(*flags, **apart, m=0), "illegal"), *others],
             TINY.model_copy(update={feature: False}))


def test_comparison_modes() -> None:
    """What is illegal without them, and exponentials that no device has; every other field may be anything."""
    illegal = ([(vector(VOp.I_GELU), False), (vector(VOp.I_GELU, C.COLUMN, C.BIAS, m=0), False),
                (vector(VOp.NORM_STAT, N.MEAN, N.ROUND), False), (vector(VOp.NORM_STAT, N.MEAN), True)]
               + [(vector(op, period=period), period == 0) for op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
                  for period in (0, 1, 2)]
               + [(vector(VOp.SOFTMAX_MAX, S.ONLINE, period=7), True), (vector(VOp.RESCALE, period=7), True),
                  (vector(VOp.NORM_STAT, period=7), True)])
    without = TINY.model_copy(update={"comparison_modes": False})
    never = [(vector(op, period=period, m=m), "illegal") for op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
             for period in range(3, 8) for m in (0, 5)]
    fault_of([(command, "none") for command, _ in illegal] + never, TINY)
    fault_of([(command, "none" if legal else "illegal") for command, legal in illegal] + never, without)
