"""The verifier accepts ordered programs and names the pair of every planted race."""

import time

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.isa import Command, IsaError, Length, MatrixFlag, Unit, VectorFlag, VOp, encode_program
from gemmule.sim.run import Model
from gemmule.sim.verify import ProgramError, verify

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
    wide = requant(0, 2 * BANK, flags=[VectorFlag.WIDE])
    with pytest.raises(ProgramError, match="scratchpad rows 516..519"):
        check([wide, store(2 * BANK + 4)])
    check([wide, store(2 * BANK + 8)])


def test_column_parameters_and_angles_count():
    with pytest.raises(ProgramError, match="parameters"):
        check([load(8, rows=1), requant(0, 2 * BANK, flags=[VectorFlag.COLUMN], src1=6)])
    check([load(9, rows=1), requant(0, 2 * BANK, flags=[VectorFlag.COLUMN], src1=6)])
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
    ([load(0, offset=2)], "command 0 .* faults: align"),
    ([C(Unit.SELECT)], "command 0 .* faults: illegal"),
    ([matrix(0, 8, 0)], r"command 0 .* one port for two streams \(claim bit 0\)"),
    ([load(0), matrix(0, BANK, 0, waits={Unit.LOAD: 2})], "waits for load:2, but only 1 such"),
    ([matrix(0, BANK, 0, n=8, c_stride=3)], "writes some accumulator rows twice"),
    ([load(0, row_stride=0)], "writes some scratchpad rows twice"),
    ([requant(0, BANK, flags=[VectorFlag.COLUMN], src1=BANK + 2)], "also reads as parameters"),
])
def test_single_commands(commands, message):
    with pytest.raises(ProgramError, match=message):
        check(commands)


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
    model = Model(config)
    model.bases[:], model.limits[:], model.lengths[:] = registers
    model.load_program(encode_program([load]), 0)
    with pytest.raises(IsaError, match=message):
        model.run()
