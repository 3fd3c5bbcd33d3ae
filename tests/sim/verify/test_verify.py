"""The verifier accepts ordered programs and names the pair of every planted race."""

import time

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.isa import (
    AddFlag,
    Command,
    IsaError,
    Length,
    MatrixFlag,
    MoveFlag,
    ProductFlag,
    RequantFlag,
    SOp,
    Unit,
    VOp,
    encode_program,
)
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import ProgramError, verify

CONFIG = load_config("tiny")
BANK = CONFIG.spm_bank_rows
C = Command.make


def check(commands, *, limit=1 << 16, lengths=None):
    registers = np.zeros(16, dtype=np.int64)
    registers[:len(lengths or [])] = lengths or []
    verify(commands, CONFIG, np.arange(32) * 4096, np.full(32, limit), registers)


def load(row, *, waits=None, **fields):
    values = {"bytes": 4, "stride": 4, "row_stride": 1, "block_stride": 1, "rows": 4, **fields}
    return C(Unit.LOAD, row=row, waits=waits, **values)


def store(row, *, waits=None, **fields):
    values = {"bytes": 4, "stride": 4, "row_stride": 1, "block_stride": 1, "rows": 4, **fields}
    return C(Unit.STORE, row=row, waits=waits, **values)


def matrix(a, b, c, *, waits=None, flags=(), m=4, n=4, k=4, c_stride=4):
    return C(Unit.MATRIX, a_row=a, a_stride=4, b_row=b, b_stride=4, c_row=c, c_stride=c_stride, m=m, n=n,
             k=k, waits=waits, flags=flags)


def requant(src, dst, *, waits=None, flags=(), m=4, n=4, **fields):
    return C(Unit.VECTOR, op=VOp.REQUANT, src0=src, src0_stride=4, dst=dst, dst_stride=8, m=m, n=n,
             waits=waits, flags=flags, **fields)


GEMM = [
    load(0), load(BANK, offset=64), matrix(0, BANK, 0, waits={Unit.LOAD: 1}),
    requant(0, 2 * BANK, waits={Unit.MATRIX: 1}), store(2 * BANK, waits={Unit.VECTOR: 1}, offset=256),
]


def without(commands, index):
    command = commands[index]
    return [*commands[:index], C(command.unit, op=command.op, flags=command.flags, **command.fields),
            *commands[index + 1:]]


def test_ordered_program_passes():
    check(GEMM)
    check(encode_program(GEMM))


@pytest.mark.parametrize(("dropped", "message"), [
    (2, r"command 2 \(matrix.*may run before command 1 \(load.*scratchpad rows 256..259.*wait for load:1"),
    (3, r"command 3 .*may run before command 2 .*accumulator rows 0..3 \(2 writes C, 3 reads src0\)"),
    (4, r"command 4 .*may run before command 3 .*scratchpad rows 512..515.*wait for vector:1"),
])
def test_each_wait_is_needed(dropped, message):
    with pytest.raises(ProgramError, match=message):
        check(without(GEMM, dropped))


def test_a_wait_for_the_wrong_distance_is_a_race():
    late = GEMM[2]
    commands = [*GEMM[:2], C(late.unit, waits={Unit.LOAD: 2}, **late.fields)]
    with pytest.raises(ProgramError, match=r"before command 1 .*load:1"):
        check(commands)


def test_waits_are_transitive():
    # The store waits for the vector command only; that one waited for matrix, which waited for both loads:
    # a load over A after the store's wait is safe, and is not when the load waits for nothing.
    check([*GEMM, load(0, waits={Unit.STORE: 1})])
    check([*GEMM, load(0, waits={Unit.VECTOR: 1})])
    with pytest.raises(ProgramError, match=r"command 5 \(load.*before command 2 \(matrix"):
        check([*GEMM, load(0)])


def test_own_units_earlier_waits_count():
    check([load(0), matrix(0, BANK, 0, waits={Unit.LOAD: 1}), matrix(0, BANK, 64)])


def test_write_after_read_between_units():
    with pytest.raises(ProgramError, match=r"0 reads rows, 1 writes rows"):
        check([store(0), load(0, offset=4096)])
    check([store(0), load(0, offset=4096, waits={Unit.STORE: 1})])


def test_memory_races():
    with pytest.raises(ProgramError, match=r"DRAM bytes 4096..4111"):
        check([store(0, base=1), load(BANK, offset=4096)])
    check([store(0, stride=8), load(BANK, offset=4, stride=8)])  # interleaved: no byte in common


def test_exact_rows_not_hulls():
    check([load(0, row_stride=2), store(1, row_stride=2, offset=4096)])
    with pytest.raises(ProgramError, match="scratchpad rows 2..2"):
        check([load(0, row_stride=2), store(2, rows=1, offset=4096)])


def test_loads_and_stores_are_in_order_among_themselves():
    check([load(0), load(2)])
    check([store(0), store(4)])


def test_accumulation_is_in_order_only_on_equal_blocks():
    add = [MatrixFlag.ACCUMULATE]
    check([matrix(0, BANK, 0), matrix(4, BANK, 0, flags=add)])
    with pytest.raises(ProgramError, match="accumulator rows 2..3.*matrix:1"):
        check([matrix(0, BANK, 0), matrix(4, BANK, 2, flags=add)])
    check([matrix(0, BANK, 0), matrix(4, BANK, 2, flags=add, waits={Unit.MATRIX: 1})])
    with pytest.raises(ProgramError, match="accumulator"):
        check([matrix(0, BANK, 0, n=8), matrix(4, BANK, 0, n=8, c_stride=5)])


def test_wide_planes_count():
    wide = requant(0, 2 * BANK, flags=[RequantFlag.WIDE])
    with pytest.raises(ProgramError, match="scratchpad rows 516..519"):
        check([wide, store(2 * BANK + 4)])
    check([wide, store(2 * BANK + 8)])


def test_column_parameters_and_angles_count():
    with pytest.raises(ProgramError, match="parameters"):
        check([load(8, rows=1), requant(0, 2 * BANK, flags=[RequantFlag.COLUMN], src1=6)])
    check([load(9, rows=1), requant(0, 2 * BANK, flags=[RequantFlag.COLUMN], src1=6)])
    rope = C(Unit.VECTOR, op=VOp.ROPE, src0=0, src0_stride=4, aux=BANK, dst=0, dst_stride=4, m=2, n=4,
             period=1)
    with pytest.raises(ProgramError, match="angles"):
        check([load(BANK + 15, rows=1), rope])
    check([load(BANK + 16, rows=1), rope])


def test_zero_length_commands_touch_nothing_and_wait_for_their_unit():
    lengths = [0, 0]
    check([load(0), matrix(0, BANK, 0, m=Length(4, 1)), store(8, offset=512)], lengths=lengths)
    # An empty load issues with its unit idle: who waits for it has waited for the loads before it.
    check([load(0), load(64, rows=Length(4, 1)), matrix(0, BANK, 0, waits={Unit.LOAD: 1})], lengths=lengths)
    check([load(0), load(64, rows=4), matrix(0, BANK, 0, waits={Unit.LOAD: 2})], lengths=lengths)


@pytest.mark.parametrize(("commands", "message"), [
    ([load(0, rows=4000)], "command 0 .* faults: rows"),
    ([load(0, offset=1 << 16)], "command 0 .* faults: limit"),
    ([load(0, bytes=6, flags=[MoveFlag.ACCUMULATOR])], "command 0 .* faults: align"),
    ([load(0, offset=2, flags=[MoveFlag.BROADCAST])], "command 0 .* faults: align"),
    ([load(0, flags=[MoveFlag.ADD])], "command 0 .* faults: illegal"),
    ([C(Unit.SELECT, op=9)], "command 0 .* faults: illegal"),
    ([C(Unit.SELECT, op=SOp.COMPARE, m=1, n=1)], "command 0 .* faults: illegal"),
    ([load(0, flags=[MoveFlag.INDEXED], list=2045)], "command 0 .* faults: rows"),
    ([load(0, flags=[MoveFlag.INDEXED], stride=4096, last_index=15, offset=4093)], "command 0 .* faults: limit"),
    ([store(0, flags=[MoveFlag.INDEXED], stride=3, last_index=1)], "writes some DRAM bytes twice"),
    ([matrix(0, 8, 0, flags=[MatrixFlag.OUTPUT_STATIONARY])], "command 0 .* faults: rows"),
    ([matrix(0, 8, 0, flags=[MatrixFlag.REUSE], k=5)], "command 0 .* faults: rows"),
    ([load(0, row_stride=0, flags=[MoveFlag.ACCUMULATOR, MoveFlag.ADD])], "writes some accumulator rows twice"),
    ([store(0, stride=3)], "writes some DRAM bytes twice"),
    ([C(Unit.VECTOR, op=VOp.ADD, src0=0, src0_stride=4, src1=20, dst=18, dst_stride=4, m=4, n=4)],
     "writes scratchpad rows 20..21 that it also reads as src1"),
    ([matrix(0, BANK, 0, n=8, c_stride=3)], "writes some accumulator rows twice"),
    ([load(0, row_stride=0)], "writes some scratchpad rows twice"),
    ([requant(0, BANK, flags=[RequantFlag.COLUMN], src1=BANK + 2)], "also reads as parameters"),
])
def test_single_commands(commands, message):
    with pytest.raises(ProgramError, match=message):
        check(commands)


ACC, ADD, NARROW = MoveFlag.ACCUMULATOR, MoveFlag.ADD, MoveFlag.NARROW
OS = MatrixFlag.OUTPUT_STATIONARY


def test_operands_may_share_a_bank():
    check([matrix(0, 8, 0)])
    check([matrix(0, 0, 0)])
    pair = {"src0": 0, "src0_stride": 4, "src1": 20, "m": 4, "n": 4}
    check([C(Unit.VECTOR, op=VOp.ADD, dst=0, dst_stride=4, **pair),  # in place of either operand
           C(Unit.VECTOR, op=VOp.ADD, dst=20, dst_stride=4, **pair),
           C(Unit.VECTOR, op=VOp.PRODUCT, dst=40, dst_stride=4, aux=4, **pair),
           C(Unit.VECTOR, op=VOp.ADD, dst=0, dst_stride=9, **pair)])  # one column group: strides mean nothing
    with pytest.raises(ProgramError, match="also reads as src0"):
        check([C(Unit.VECTOR, op=VOp.ADD, dst=0, dst_stride=9, **(pair | {"n": 8, "src1": 50}))])
    check([C(Unit.VECTOR, op=VOp.NORM_APPLY, src0=0, src0_stride=8, src1=20, dst=40, dst_stride=4, m=4, n=4)])


@pytest.mark.parametrize(("flags", "size", "last"), [([ACC], 32, 10), ([ACC, NARROW], 8, 10), ([ACC, NARROW], 32, 46)])
def test_accumulator_moves_name_accumulator_rows(flags, size, last):
    """int32 rows are four times as wide in DRAM; 32 bytes of int8 are 8 blocks: row 1 + 3 + 7 * 6."""
    move = load(1, bytes=size, stride=64, block_stride=6, flags=flags)
    for free in (5, last + 1):
        check([move, requant(free, 2 * BANK, m=2)])
    for taken in (1, 4, 7, last):
        with pytest.raises(ProgramError, match=f"accumulator rows {taken}..{taken} .0 writes rows, 1 reads src0"):
            check([move, requant(taken, 2 * BANK, m=1)])
    check([load(1), C(Unit.STORE, flags=flags, **move.fields | {"offset": 4096})])  # the same rows of the scratchpad
    with pytest.raises(ProgramError, match="0 writes C, 1 reads rows"):
        check([matrix(0, BANK, last), C(Unit.STORE, flags=flags, **move.fields)])


def test_a_load_that_adds_needs_no_wait_for_loads_of_its_rows():
    """They write in order, and a sum that is written in the cycle in which it is read again is forwarded."""
    wide = {"bytes": 16, "stride": 16}
    plain, add = load(0, flags=[ACC], **wide), load(2, flags=[ACC, ADD], **wide)
    check([add, plain, add, add])
    with pytest.raises(ProgramError, match="accumulator rows 2..5 .0 writes C, 1 writes rows"):
        check([matrix(0, BANK, 2), add])


def test_zero_reads_no_memory_and_broadcast_one_row():
    out = store(0, base=1, rows=1)
    check([out, load(BANK, offset=4096, flags=[MoveFlag.ZERO])])
    check([out, load(BANK, offset=4092, flags=[MoveFlag.BROADCAST])])
    with pytest.raises(ProgramError, match="DRAM bytes 4096..4099"):
        check([out, load(BANK, offset=4092)])
    check([load(0, offset=(1 << 16) - 4, flags=[MoveFlag.BROADCAST])])  # only the first row counts for the limit
    check([load(0, offset=1 << 20, flags=[MoveFlag.ZERO])])


def test_unaligned_moves_meet_in_single_bytes():
    check([store(0, base=1, offset=3, rows=1), load(BANK, offset=4099 + 4, rows=1)])
    with pytest.raises(ProgramError, match="DRAM bytes 4102..4102"):
        check([store(0, base=1, offset=3, rows=1), load(BANK, offset=4099 + 3, rows=1)])


def test_matrix_operand_rows():
    flag = MatrixFlag
    for flags, k, last in (((), 7, 7), ((flag.A_TRANSPOSED,), 9, 9), ((flag.A_TRANSPOSED, OS), 9, 9)):
        # A: rows m of two blocks of k, or rows k of one block of m
        a = {"m": 3, "n": 4, "k": k}
        end = last if flags else 7  # a_stride 4: rows 0..2 and 4..6
        check([load(end, rows=1), matrix(0, BANK, 0, flags=flags, **a)])
        with pytest.raises(ProgramError, match="1 reads A"):
            check([load(end - 1, rows=1), matrix(0, BANK, 0, flags=flags, **a)])
    for flags, count in (([flag.B_INT4], 4), ([flag.B_INT4, flag.B_TRANSPOSED], 3)):  # k = 7, n = 6
        b = C(Unit.MATRIX, a_row=0, b_row=BANK, b_stride=16, c_row=0, c_stride=1, m=1, n=6, k=7, flags=flags)
        check([load(BANK + count, rows=16 - count), b])
        with pytest.raises(ProgramError, match="1 reads B"):
            check([load(BANK + 16 + count - 1, rows=1), b])


def test_group_scales_stand_behind_the_weights():
    """K = 13: 4 tiles, 7 rows of weights, then from row 8 on one scale row for two tiles."""
    b = C(Unit.MATRIX, a_row=0, b_row=BANK, b_stride=12, c_row=0, c_stride=1, m=1, n=5, k=13, group=1,
          flags=[MatrixFlag.B_INT4, MatrixFlag.GROUP_SCALES])
    for free in (7, 10, 19, 22):
        check([load(BANK + free, rows=1), b])
    for row, what in ((6, "B"), (8, "scales"), (9, "scales"), (12, "B"), (21, "scales")):
        with pytest.raises(ProgramError, match=f"1 reads {what}"):
            check([load(BANK + row, rows=1), b])


def test_reuse_reads_no_weights_and_needs_no_wait():
    reuse = [MatrixFlag.REUSE]
    check([matrix(0, BANK, 0), load(BANK, waits={Unit.MATRIX: 1}), matrix(4, BANK, 8, flags=reuse)])
    with pytest.raises(ProgramError, match="1 reads A"):
        check([load(4), matrix(4, BANK, 8, flags=reuse)])
    check([matrix(0, BANK, 0), matrix(4, BANK, 0, flags=[*reuse, MatrixFlag.ACCUMULATE])])


def test_a_change_of_the_dataflow_runs_alone():
    """Accumulation at another offset needs a wait, but not behind a change: then all earlier sums are done."""
    add = [MatrixFlag.ACCUMULATE]
    check([matrix(0, BANK, 0), matrix(4, BANK, 2, flags=[OS, *add])])
    check([matrix(0, BANK, 0, flags=[OS]), matrix(4, BANK, 2, flags=add)])
    check([matrix(0, BANK, 0, flags=[OS]), matrix(4, BANK, 0, flags=[OS, *add])])
    with pytest.raises(ProgramError, match="matrix:1"):
        check([matrix(0, BANK, 0, flags=[OS]), matrix(4, BANK, 2, flags=[OS, *add])])
    # An empty command changes nothing, though it runs alone itself.
    check([matrix(0, BANK, 0), matrix(0, BANK, 0, flags=[OS], m=0), matrix(4, BANK, 2, flags=add)])
    with pytest.raises(ProgramError, match="command 2 .*before command 1"):
        check([matrix(0, BANK, 0, flags=[OS], m=0), matrix(0, BANK, 0), matrix(4, BANK, 2, flags=add)])
    # Who waits for the first command after a change has waited for all before it.
    check([matrix(0, BANK, 0), matrix(4, BANK, 8, flags=[OS]), requant(0, 2 * BANK, waits={Unit.MATRIX: 1})])
    with pytest.raises(ProgramError, match="command 2 .*before command 1"):
        check([matrix(0, BANK, 8), matrix(0, BANK, 0), requant(0, 2 * BANK, waits={Unit.MATRIX: 2})])


def test_bias_rows_come_after_the_column_rows():
    bias, both = [RequantFlag.BIAS], [RequantFlag.COLUMN, RequantFlag.BIAS]
    for flags, count in ((bias, 4), (both, 7)):  # n = 4: one column group
        check([load(count, rows=1), requant(0, 2 * BANK, flags=flags, src1=0)])
        with pytest.raises(ProgramError, match="parameters"):
            check([load(count - 1, rows=1), requant(0, 2 * BANK, flags=flags, src1=0)])


def test_rescale_writes_the_accumulator():
    """Read from rows 0..3 and 8..11, written to 20..23 and 25..28; in place with the same stride only."""
    rescale = C(Unit.VECTOR, op=VOp.RESCALE, src0=0, src0_stride=8, dst=20, dst_stride=5, m=4, n=8)
    for row, what in ((3, "src0"), (8, "src0"), (20, "dst"), (28, "dst")):
        with pytest.raises(ProgramError, match=f"accumulator rows {row}..{row} .*1 (reads|writes) {what}"):
            check([load(row, rows=1, bytes=16, flags=[ACC]), rescale])
    for row in (4, 12, 24, 29):
        check([load(row, rows=1, bytes=16, flags=[ACC]), rescale])
    check([load(20, rows=9), rescale])  # of the scratchpad
    check([rescale, matrix(0, BANK, 20, flags=[MatrixFlag.ACCUMULATE], waits={Unit.VECTOR: 1})])
    with pytest.raises(ProgramError, match=r"accumulator rows 20..23 .0 writes dst, 1 reads sums.; .*vector:1"):
        check([rescale, matrix(0, BANK, 20, flags=[MatrixFlag.ACCUMULATE])])
    check([C(Unit.VECTOR, op=VOp.RESCALE, **rescale.fields | {"dst": 0, "dst_stride": 8})])
    with pytest.raises(ProgramError, match="writes accumulator rows 0..3 that it also reads as src0"):
        check([C(Unit.VECTOR, op=VOp.RESCALE, **rescale.fields | {"dst": 0})])


def test_column_groups_that_touch_are_not_one():
    """Rows 0..15 as four groups of four, to 0..31 as four groups of two planes: the second group is overwritten."""
    add = C(Unit.VECTOR, op=VOp.ADD, src0=0, src0_stride=4, src1=BANK, dst=0, dst_stride=8, m=4, n=16,
            flags=[AddFlag.WIDE])
    with pytest.raises(ProgramError, match="writes scratchpad rows .* that it also reads as src0"):
        check([add])
    with pytest.raises(ProgramError, match="writes accumulator rows .* that it also reads as src0"):
        check([C(Unit.VECTOR, op=VOp.RESCALE, src0=0, src0_stride=4, dst=0, dst_stride=5, m=4, n=8)])


def test_operands_of_add():
    add = C(Unit.VECTOR, op=VOp.ADD, src0=0, src0_stride=8, src1=BANK, aux=2, dst=2 * BANK, dst_stride=10, m=4, n=8,
            flags=[AddFlag.WIDE])
    for row, what in ((3, "src0"), (8, "src0"), (BANK + 11, "src1"), (2 * BANK + 5, "dst"), (2 * BANK + 18, "dst")):
        with pytest.raises(ProgramError, match=what):
            check([load(row, rows=1), add])
    for row in (4, 12, BANK + 4, BANK + 12, 2 * BANK + 4, 2 * BANK + 9, 2 * BANK + 19):
        check([load(row, rows=1), add])


def test_operands_of_a_product_of_words():
    """Each operand's high plane is half of its own stride further on: 4, 5 and 6 rows."""
    fields = {"src0": 0, "src0_stride": 8, "src1": BANK, "aux": 11, "m": 4, "n": 8}
    product = C(Unit.VECTOR, op=VOp.PRODUCT, dst=2 * BANK, dst_stride=12, flags=[ProductFlag.WIDE], **fields)
    for row, what in ((4, "src0"), (15, "src0"), (BANK + 8, "src1"), (BANK + 19, "src1"), (2 * BANK + 9, "dst"),
                      (2 * BANK + 21, "dst")):
        with pytest.raises(ProgramError, match=what):
            check([load(row, rows=1), product])
    for row in (16, BANK + 4, BANK + 9, BANK + 15, BANK + 20, 2 * BANK + 4, 2 * BANK + 10, 2 * BANK + 22):
        check([load(row, rows=1), product])
    in_place = {"dst": BANK, "flags": [ProductFlag.WIDE], **fields}
    check([C(Unit.VECTOR, op=VOp.PRODUCT, dst_stride=11, **in_place)])
    with pytest.raises(ProgramError, match="that it also reads as src1"):
        check([C(Unit.VECTOR, op=VOp.PRODUCT, dst_stride=12, **in_place)])


def test_two_thousand_commands_in_a_second():
    random = np.random.default_rng(3)
    commands = []
    for _ in range(400):
        row = int(random.integers(0, 60)) * 4
        waits = {Unit.STORE: 1, Unit.MATRIX: 1} if commands else {}
        commands += [load(row, waits=waits), load(BANK + row),
                     matrix(row, BANK + row, 0, waits={Unit.LOAD: 1}),
                     requant(0, 2 * BANK, waits={Unit.MATRIX: 1}),
                     store(2 * BANK, waits={Unit.VECTOR: 1}, offset=4096)]
    for i in range(8, len(commands), 5):  # the next vector command overwrites what the store reads
        commands[i].waits[Unit.STORE] = 1
    begin = time.perf_counter()
    check(commands)
    assert time.perf_counter() - begin < 5  # about 0.5 s on an idle core


def test_stores_into_the_program_are_refused():
    config = load_config("tiny")
    store = [Command.make(Unit.STORE, row=0, rows=1, bytes=4, row_stride=1, block_stride=1, offset=96)]
    registers = np.zeros(32, dtype=np.int64), np.full(32, 4096, dtype=np.int64), np.zeros(16, dtype=np.int64)
    verify(store, config, *registers, program_address=128)
    with pytest.raises(ProgramError, match="stores into the program at 96..127"):
        verify(store, config, *registers, program_address=96)


@pytest.mark.parametrize(("register", "value", "message"), [
    (1, 1 << 32, "limit register 0 must be from 0 to 4294967295"), (2, 65536, "length register 0 must be"),
    (2, -3, "length register 0 must be from 0 to 65535, not -3"), (0, -1, "base register 0 must be"),
])
def test_registers_that_the_device_cannot_hold(register, value, message):
    """Both back ends and the verifier refuse them in the same words."""
    config = load_config("tiny")
    registers = [np.zeros(32, dtype=np.int64), np.full(32, 4096, dtype=np.int64), np.zeros(16, dtype=np.int64)]
    registers[register][0] = value
    load = Command.make(Unit.LOAD, rows=1, bytes=4)
    with pytest.raises(IsaError, match=message):
        verify([load], config, *registers)
    model = Simulator(config)
    model.bases[:], model.limits[:], model.lengths[:] = registers
    model.load_program(encode_program([load]), 0)
    with pytest.raises(IsaError, match=message):
        model.run()
