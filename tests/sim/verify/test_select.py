"""Ordering of the select unit's users: lists, predicates and the commands that they guard."""

from dataclasses import replace

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.isa import Command, ImportanceFlag, MatrixFlag, MoveFlag, RequantFlag, SoftmaxFlag, SOp, Unit, VOp
from gemmule.sim.verify.verify import ProgramError, verify

CONFIG = load_config("tiny")
BANK = CONFIG.spm_bank_rows
C = Command.make
OS = MatrixFlag.OUTPUT_STATIONARY


def check(commands, *, limit=1 << 16):
    verify(commands, CONFIG, np.arange(32) * 4096, np.full(32, limit), np.zeros(16, dtype=np.int64))


def move(unit, row, **fields):
    values = {"bytes": 4, "stride": 4, "row_stride": 1, "block_stride": 1, "rows": 4, **fields}
    return C(unit, row=row, **values)


def load(row, **fields):
    return move(Unit.LOAD, row, **fields)


def store(row, **fields):
    return move(Unit.STORE, row, **fields)


def matrix(a, b, c, **fields):
    return C(Unit.MATRIX, **{"a_row": a, "a_stride": 4, "b_row": b, "b_stride": 4, "c_row": c, "c_stride": 4, "m": 4,
                             "n": 4, "k": 4} | fields)


def select(op, *, waits=None, flags=(), m=1, n=4, **fields):
    return C(Unit.SELECT, op=op, waits=waits, flags=flags, m=m, n=n, **fields)


def guarded(*commands):
    """Commands, or pairs of a command and its predicate."""
    pairs = [command if isinstance(command, tuple) else (command, 0) for command in commands]
    return [replace(command, predicate=predicate) for command, predicate in pairs]


def test_the_select_unit_runs_one_command_at_a_time():
    check([select(SOp.KEYS, src0=0, src0_stride=2), select(SOp.TOP_K, k=2), select(SOp.LIST_STORE, n=2, dst=100),
           select(SOp.LIST_LOAD, src0=100, dst=7), select(SOp.COMMIT), select(SOp.IMPORTANCE, src0=100)])


WIDE = ImportanceFlag.WIDE


@pytest.mark.parametrize(("op", "flags", "taken", "free"), [
    (SOp.ARGMAX, (), (10, 12, 20, 30, 42), (9, 13, 33, 43)), (SOp.KEYS, (), (10, 20, 30, 40), (9, 11, 21, 41)),
    (SOp.IMPORTANCE, (), (10, 12, 30, 32), (9, 13, 20, 29, 33)),
    (SOp.IMPORTANCE, (WIDE,), (10, 20, 30, 42), (9, 13, 43)), (SOp.COMPARE, (), (10, 32), (20, 33)),
    (SOp.COMPARE, (WIDE,), (10, 22, 30, 42), (13, 43)), (SOp.LIST_LOAD, (), (10, 12), (9, 13)),
], ids=str)
def test_rows_that_select_commands_read(op, flags, taken, free):
    """Three rows (KEYS: one) of two groups 20 rows apart, with planes at half of that; 6 list entries in 3 rows."""
    command = select(op, flags=flags, m=3, n=6, src0=10, src0_stride=20, number=1)
    for row in taken:
        with pytest.raises(ProgramError, match=f"scratchpad rows {row}..{row} .0 writes rows, 1 reads src0.*load:1"):
            check([load(row, rows=1), command])
    for row in free:
        check([load(row, rows=1), command])


def test_list_store_writes_whole_rows():
    command = select(SOp.LIST_STORE, n=5, dst=10)
    check([store(9, rows=1), store(13, rows=1), command])
    for row in (10, 12):
        with pytest.raises(ProgramError, match=f"scratchpad rows {row}..{row} .0 reads rows, 1 writes dst"):
            check([store(row, rows=1), command])


INDEXED = [MoveFlag.INDEXED]


@pytest.mark.parametrize(("make", "first", "count"), [
    (select(SOp.LIST_LOAD, n=5, dst=20, src0=900), 20, 5),
    (select(SOp.ARGMAX, m=3, dst=20, src0=900, src0_stride=8), 20, 3),
    (select(SOp.TOP_K, n=9, k=4, dst=20), 20, 4), (select(SOp.TOP_K, n=3, k=4, dst=20), 20, 3)], ids=str)
def test_indexed_moves_wait_for_their_list(make, first, count):
    for entry in (first - 4, first + count):
        check([make, load(0, flags=INDEXED, list=entry, stride=8), store(BANK, flags=INDEXED, list=entry, base=1)])
    for entry in (first - 3, first + count - 1):
        for access in (load, store):
            with pytest.raises(ProgramError, match="list entries .*0 writes dst, 1 reads list.*wait for select:1"):
                check([make, access(0, flags=INDEXED, list=entry)])
            check([make, access(0, flags=INDEXED, list=entry, waits={Unit.SELECT: 1})])
            # The list stays as it is until the move has finished.
            with pytest.raises(ProgramError, match="list entries .*0 reads list, 1 writes dst"):
                check([access(0, flags=INDEXED, list=entry), make])
    check([make, load(0, list=first)])  # not indexed


def test_an_indexed_move_may_touch_every_row_up_to_its_limit():
    """4 rows of 4 bytes, 16 apart: with last_index 5 rows 0 .. 5 of them, whatever the list holds."""
    gather = load(BANK, flags=INDEXED, stride=16, last_index=5, offset=4096)
    scatter = store(BANK, flags=INDEXED, stride=16, last_index=5, offset=4096)
    for r in range(6):
        with pytest.raises(ProgramError, match=f"DRAM bytes {4096 + 16 * r}..{4099 + 16 * r}"):
            check([store(0, rows=1, offset=4096 + 16 * r), gather])
        with pytest.raises(ProgramError, match=f"DRAM bytes {4096 + 16 * r}..{4099 + 16 * r}"):
            check([scatter, load(0, rows=1, offset=4096 + 16 * r)])
    check([store(0, rows=1, offset=4096 + 96), store(0, rows=1, offset=4100), gather])
    check([scatter, load(0, rows=1, offset=4096 + 96), load(0, rows=1, offset=4100)])
    with pytest.raises(ProgramError, match="faults: limit"):
        check([gather], limit=4096 + 5 * 16 + 3)
    check([gather], limit=4096 + 5 * 16 + 4)


COMPARE = select(SOp.COMPARE, src0=900, number=2)


def test_a_predicate_is_ordered_like_data():
    message = "both touch predicates 2..2 .0 writes result, 1 reads predicate.*; let 1 wait for select:1"
    with pytest.raises(ProgramError, match=message):
        check(guarded(COMPARE, (load(0), 2)))
    check(guarded(COMPARE, (load(0, waits={Unit.SELECT: 1}), 2)))
    check(guarded(COMPARE, (load(0), 1), (COMPARE, 2)))  # another one; the same unit
    with pytest.raises(ProgramError, match="0 reads predicate, 1 writes result.*load:1"):
        check(guarded((load(0), 2), COMPARE))
    check(guarded((load(0), 2), select(SOp.COMPARE, src0=900, number=2, waits={Unit.LOAD: 1})))
    check(guarded((load(0, rows=0), 2), COMPARE))  # an empty command does nothing anyway


def test_what_a_predicated_command_may_touch_counts():
    with pytest.raises(ProgramError, match="scratchpad rows 0..3 .0 writes rows, 1 reads A"):
        check(guarded((load(0), 1), matrix(0, BANK, 0)))
    with pytest.raises(ProgramError, match="scratchpad rows 0..3 .0 reads A, 1 writes rows"):
        check(guarded((matrix(0, BANK, 0), 1), load(0)))
    check(guarded((load(0), 1), matrix(0, BANK, 0, waits={Unit.LOAD: 1})))
    # Its waits hold whether it runs or not.
    check(guarded(load(0), (store(64, waits={Unit.LOAD: 1}), 1), matrix(0, BANK, 0, waits={Unit.STORE: 1})))


def test_a_matrix_command_after_a_predicated_one_runs_alone():
    """In order accumulation at another offset then needs no wait, but the predicated command itself does."""
    first, other = matrix(0, BANK, 0), matrix(4, BANK, 2, flags=[MatrixFlag.ACCUMULATE])
    last = matrix(4, BANK, 3, flags=[MatrixFlag.ACCUMULATE])
    with pytest.raises(ProgramError, match="command 1 .*before command 0"):
        check([first, other])
    with pytest.raises(ProgramError, match="command 1 .*before command 0"):
        check(guarded(first, (other, 1)))
    check(guarded((first, 1), other))
    check(guarded(first, (matrix(4, BANK, 20), 1), last))
    with pytest.raises(ProgramError, match="command 2 .*before command 1"):
        check(guarded((first, 1), other, last))
    # A predicated change of the dataflow may not take place.
    with pytest.raises(ProgramError, match="command 1 .*before command 0"):
        check(guarded(first, (matrix(4, BANK, 2, flags=[OS]), 1)))
    # After it, the dataflow is that of the command that surely ran.
    with pytest.raises(ProgramError, match="command 3 .*before command 2"):
        check(guarded(first, (matrix(4, BANK, 40, flags=[OS]), 1), matrix(4, BANK, 20),
                      matrix(4, BANK, 22, flags=[MatrixFlag.ACCUMULATE])))


def test_operands_of_norms_tables_and_softmax():
    bias, tree, wide = RequantFlag.BIAS, SoftmaxFlag.TREE, RequantFlag.WIDE
    norm = {"src0": 0, "src0_stride": 8, "src1": 100, "dst": 2 * BANK, "dst_stride": 20, "m": 4, "n": 8}
    soft = {"src0": 0, "src0_stride": 4, "src1": 100, "dst": 2 * BANK, "dst_stride": 20, "m": 4, "n": 8}
    for op, flags, values, taken, free in (
        (VOp.NORM_APPLY, [], norm, (0, 15, 100, 103, 2 * BANK + 3), (16, 104, 2 * BANK + 10)),
        (VOp.NORM_APPLY, [bias, wide], norm, (4, 111, 2 * BANK + 33), (112, 2 * BANK + 34)),
        (VOp.NORM_STAT, [], norm, (0, 15), (16, 100, 2 * BANK)),
        (VOp.SOFTMAX_MAX, [tree], soft, (100, 103), (104, 2 * BANK)),
        (VOp.SOFTMAX_NORM, [wide], soft, (2 * BANK + 10, 2 * BANK + 33), (100, 2 * BANK + 9)),
        (VOp.SOFTMAX_EXP, [tree, wide], soft, (102, 2 * BANK + 13), (104, 2 * BANK + 14)),
        (VOp.ABSMAX, [], soft, (), (100, 2 * BANK)),
        (VOp.WORD_TABLE, [], {"src0": 300}, (300, 300 + 257), (299, 300 + 258)),
    ):
        command = C(Unit.VECTOR, op=op, flags=flags, **values)
        for row in taken:
            with pytest.raises(ProgramError, match=f"scratchpad rows {row}..{row} "):
                check([load(row, rows=1), command])
        for row in free:
            check([load(row, rows=1), command])
    check([C(Unit.VECTOR, op=VOp.NORM_APPLY, flags=[wide], **norm | {"dst": 0, "dst_stride": 8})])  # in place
    with pytest.raises(ProgramError, match="also reads as bitmaps"):
        check([C(Unit.VECTOR, op=VOp.SOFTMAX_EXP, flags=[tree], **soft | {"src1": 2 * BANK + 2})])
