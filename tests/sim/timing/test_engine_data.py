"""Newer commands by hand, and what depends on data: select, predicates, gathers; paper and docs/timing.md."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.isa import (
    ColumnFlag,
    Command,
    CommitFlag,
    CompareFlag,
    ImportanceFlag,
    KeysFlag,
    MatrixFlag,
    MoveFlag,
    NormFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    TopKFlag,
    Unit,
    VOp,
)
from gemmule.sim.errors import SimulationError
from gemmule.sim.simulator import Simulator
from gemmule.sim.timing.units import parameters

from .hand import TIMING, TINY, load, matrix, model_of, timed

OS = MatrixFlag.OUTPUT_STATIONARY


@pytest.mark.parametrize(("op", "flags", "finish"), [
    (VOp.NORM_APPLY, (NormFlag.BIAS, NormFlag.MEAN), 99 + 2 * (2 + 4 + 3 * 2) + 9),
    (VOp.SOFTMAX_NORM, (), 99 + 3 * 2 + 12), (VOp.SOFTMAX_NORM, (SoftmaxFlag.WIDE,), 99 + 3 * 2 * 2 + 12),
    (VOp.SOFTMAX_EXP, (SoftmaxFlag.MORE,), 99 + 3 * 2 + 12),
    (VOp.SOFTMAX_EXP, (SoftmaxFlag.WIDE,), 99 + 2 * 2 + 12 + 3 * 19),
    (VOp.REQUANT, (RequantFlag.WIDE, RequantFlag.LOOKUP), 99 + 2 * 3 * 2 + 12),
    (VOp.REQUANT, (RequantFlag.WIDE, RequantFlag.LOOKUP, RequantFlag.RESIDUAL), 99 + 2 * 3 * 2 + 9),
    (VOp.ABSMAX, (), 99 + 2 + 12 + 3 * 19), (VOp.NORM_STAT, (NormFlag.MEAN,), 99 + 2 * 2 + 12 + 4 + 3 * 36),
    (VOp.WORD_TABLE, (), 99 + 2 * 129 + 9),
    (VOp.NORM_STAT, (NormFlag.MEAN, NormFlag.ROUND), 99 + 2 * 2 + 12 + 4 + 3 * 36),
    (VOp.SOFTMAX_MAX, (SoftmaxFlag.ONLINE, SoftmaxFlag.CONTINUE), 99 + 3 * 2 + 12),
    (VOp.SOFTMAX_EXP, (SoftmaxFlag.ONLINE, SoftmaxFlag.CONTINUE), 99 + 2 + 12 + 3 * 19),
    (VOp.RESCALE, (), 99 + 2 * 3 + 5), (VOp.I_GELU, (), 99 + 2 * 3 + 12),
    (VOp.I_GELU, (ColumnFlag.COLUMN, ColumnFlag.BIAS), 99 + 2 * (3 + 4 + 3) + 12),
])
def test_vector_finish(op: VOp, flags: tuple[int, ...], finish: int) -> None:
    """3 rows of 2 groups; late results 12 after the last read; the sums of 3 rows in turn on one divider."""
    result = timed(Command.make(
        Unit.VECTOR, op=op, flags=flags, src0=0, src0_stride=6, src1=256, dst=128 if op == VOp.RESCALE else 512,
        dst_stride=6, m=3, n=8))
    assert (result.fault, result.finish.tolist()) == (0, [finish])


@pytest.mark.parametrize(("op", "flags", "finish"), [
    (VOp.REQUANT, (RequantFlag.BIAS,), 99 + 4 * (4 + 3) + 9),
    (VOp.ROPE, (), 99 + 4 * 3 * 4 + 9), (VOp.NORM_APPLY, (), 99 + 4 * (2 + 3 * 2) + 9),
    (VOp.SOFTMAX_MAX, (), 99 + 3 * 4 + 12), (VOp.ABSMAX, (), 99 + 4 + 12 + 3 * 19),
    (VOp.TABLE, (), 99 + 64 + 9), (VOp.WORD_TABLE, (), 99 + 2 * 129 + 9),
])
def test_two_passes(op: VOp, flags: tuple[int, ...], finish: int) -> None:
    """3 rows of 2 groups in 2 parts each, parameters read for every part; tables are filled by the row."""
    result = timed(Command.make(
        Unit.VECTOR, op=op, flags=flags, src0=0, src0_stride=6, src1=256, dst=512, dst_stride=6, m=3, n=8),
        config=TINY.model_copy(update={"vector_passes": 2}))
    assert (result.fault, result.finish.tolist()) == (0, [finish])


def test_exponentials_take_the_same_time() -> None:
    """2 rows of 2 groups: late after 4 reads; or the first sum after 2, then two turns of one divider."""
    for op, finish in ((VOp.SOFTMAX_EXP, 99 + 2 + 12 + 2 * 19), (VOp.SOFTMAX_NORM, 99 + 4 + 12)):
        for kind in (0, 1, 2):
            command = Command.make(
                Unit.VECTOR, op=op, src0=0, src0_stride=2, dst=512, dst_stride=2, m=2, n=8, period=kind)
            assert timed(command).finish.tolist() == [finish]


def test_rescale_holds_the_port_that_it_writes() -> None:
    """8 rows from bank 2 to bank 0 in 99 + 8 + 5; a load, visible in 107, to bank 0 issues after that."""
    rescale = Command.make(Unit.VECTOR, op=VOp.RESCALE, src0=128, src0_stride=4, dst=0, dst_stride=4, m=4, n=8)
    for row, issue in ((0, 113), (63, 113), (64, 107), (128, 107)):
        after = replace(load(0, 16, 1, MoveFlag.ACCUMULATOR), fields=load(0, 16, 1).fields | {"row": row})
        assert timed(rescale, after).issue.tolist() == [99, issue]


@pytest.mark.parametrize(("op", "flags", "values"), [
    (VOp.I_GELU, (), {}), (VOp.NORM_STAT, (NormFlag.MEAN, NormFlag.ROUND), {}),
    *((op, (), {"period": kind}) for op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM) for kind in (1, 2)),
])
def test_comparison_commands_fault_where_they_are_left_out(
        op: VOp, flags: tuple[int, ...], values: dict[str, int]) -> None:
    """Decoded in 98, as a command that issues in 99; at length zero too."""
    without = TINY.model_copy(update={"comparison_modes": False})
    for m in (0, 2):
        command = Command.make(Unit.VECTOR, op=op, flags=flags, m=m, n=4, **values)
        assert timed(command).fault == 0
        result = timed(command, config=without)
        assert (result.fault, result.issue.tolist()) == (1, [-1])
    for kind in range(3, 8):
        assert timed(Command.make(Unit.VECTOR, op=VOp.SOFTMAX_EXP, period=kind)).fault == 1


@pytest.mark.parametrize(("op", "flags", "finish"), [
    (SOp.ARGMAX, (), 99 + 3 * 2 * 2 + 8), (SOp.KEYS, (), 99 + 2 * 2 + 4),
    (SOp.KEYS, (KeysFlag.FROM_IMPORTANCE,), 99 + 2 + 4), (SOp.TOP_K, (), 99 + 6 * (2 + 4) + 2 + 4),
    (SOp.TOP_K, (TopKFlag.NONZERO,), 99 + 2 * (2 + 4)), (SOp.PACK, (), 99 + 3 * (2 + 1) + 5),
    (SOp.IMPORTANCE, (), 99 + 2 * 3 + 4), (SOp.IMPORTANCE, (ImportanceFlag.WIDE,), 99 + 2 * 3 * 2 + 4),
    (SOp.COMMIT, (CommitFlag.CLEAR,), 99 + 2 + 4),
    (SOp.COMPARE, (), 99 + 3 * 2 + 8), (SOp.COMPARE, (CompareFlag.WIDE,), 99 + 3 * 2 * 2 + 8),
    (SOp.LIST_LOAD, (), 99 + 2 * 3 + 4), (SOp.LIST_STORE, (), 99 + 2 * 3 + 4),
])
def test_select_finish(op: SOp, flags: tuple[int, ...], finish: int) -> None:
    """Issued in 99, first step in 100: 3 rows of 2 groups, or 5 entries in scratchpad rows of 2."""
    result = timed(Command.make(
        Unit.SELECT, op=op, flags=flags, src0=0, src0_stride=6, dst=20 if op == SOp.PACK else 0, m=3, n=5, k=2,
        number=1))
    assert (result.fault, result.finish.tolist()) == (0, [finish])
    busy = finish - 98
    assert result.counters["select"] == {
        "busy": busy, "dram": 0, "empty": result.cycles - busy, "waiting": 0, "ports": 0}


def test_select_issues_after_vector_and_before_load() -> None:
    """The matrix command, four tiles, finishes in 128. The others, visible by then, wait for it and share nothing."""
    wait = {Unit.MATRIX: 1}
    result = timed(
        matrix(0, 256, 16), replace(load(512, 4, 1), waits=wait),
        Command.make(Unit.SELECT, op=SOp.COMMIT, n=4, m=1, waits=wait),
        Command.make(Unit.VECTOR, op=VOp.TABLE, src0=512, waits=wait))
    assert result.issue.tolist() == [99, 131, 130, 129]
    assert result.counters["select"]["ports"] == 1  # 129: another unit issued


def test_skipped_commands_are_of_length_zero() -> None:
    """Command 0, which runs, finishes in 120. Command 1 comes after a predicate: alone, skipped in 121, done in 123.
    Command 2 comes after a predicate too: 124, s 129, two tiles of 4: finish 145. The load is visible in 123.
    """
    program = [
        replace(matrix(0, 256, 8), predicate=1), replace(matrix(8, 264, 8), predicate=2, flags=frozenset({int(OS)})),
        matrix(8, 264, 8), replace(load(0, 64, 4, MoveFlag.ZERO), predicate=3)]
    result = model_of(program).run(timing_only=True, skipped=[False, True, False, True])
    assert result.issue.tolist() == [99, 121, 124, 123]
    assert result.finish.tolist() == [120, 123, 145, 125]
    assert (result.cycles, result.dram_bytes["load"]) == (147, 0)
    assert result.counters["load"]["busy"] + result.counters["load"]["dram"] == 3
    # nothing skipped: a weight-stationary command after an output-stationary one still runs alone
    ran = model_of(program[:3]).run(timing_only=True)
    assert ran.issue.tolist() == [99, 121, 121 + 2 + 2 * 4 + 8 + 4 + 1]


def test_dispatch_follows_the_dataflow_of_skipped_commands() -> None:
    """Command 0 is skipped, so that nothing but its dataflow stands before commands 1 and 2: no change of it."""
    first = replace(matrix(0, 256, 8), predicate=1, flags=frozenset({int(OS)}))
    second = replace(matrix(0, 256, 8), flags=frozenset({int(OS)}))
    result = model_of([first, second, second]).run(timing_only=True, skipped=[True, False, False])
    # 107 + 2 + 8: B and the stream are free in 117; command 2 is visible in 115 and not alone
    assert result.issue.tolist() == [99, 107, 115]


def gather(unit: Unit, offset: int) -> Command:
    return Command.make(unit, flags=[MoveFlag.INDEXED], offset=offset, bytes=4, rows=2, stride=64, row=0, row_stride=1,
                        block_stride=1, last_index=100)


def test_indexed_rows_wait_for_their_index() -> None:
    """Load: requested in 99 + 1 + 3 and 3 later, data 60 later: beats 163, 166. Row 40 is in a closed DRAM row: beat
    103 + 28 + 60 = 191, then 192. Store: read 103 and 106, sent 105 and 108, closed row: answered 105 + 88 + 1, + 1.
    """
    def finish(unit: Unit, offset: int, rows: list[int] | None) -> int:
        indices = {0: np.array(rows)} if rows else None
        return int(model_of([gather(unit, offset)]).run(timing_only=True, indices=indices).finish[0])

    assert finish(Unit.LOAD, 0, None) == 167
    assert finish(Unit.LOAD, 0, [5, 5]) == 167
    assert finish(Unit.LOAD, 0, [40, 0]) == 193
    assert finish(Unit.STORE, 4096, [7, 7]) == 195
    assert finish(Unit.STORE, 512, None) == 108 + 60 + 1  # the row that the program opened


def test_what_timing_is_told_must_fit_the_program() -> None:
    model = model_of([gather(Unit.LOAD, 0), matrix(0, 256, 8)])
    with pytest.raises(SimulationError, match="one entry for each of 2 commands"):
        model.run(timing_only=True, skipped=[True])
    with pytest.raises(SimulationError, match="command 1 cannot be skipped: its predicate is 0"):
        model.run(timing_only=True, skipped=[False, True])
    with pytest.raises(SimulationError, match="indices of command 0 must be 2 row numbers"):
        model.run(timing_only=True, indices={0: np.arange(3)})
    with pytest.raises(SimulationError, match="for timing_only"):
        model.run(skipped=[False, False])
    with pytest.raises(ValueError, match="index_cycles must be at least 1"):
        Simulator(TINY, replace(TIMING, index_cycles=0))
    for name in ("matrix_commands", "store_commands"):
        with pytest.raises(ValueError, match=f"{name} must be at most 16, not 17"):
            Simulator(TINY, replace(TIMING, **{name: 17}))
    for name, most in (("load_commands", 16), ("unit_queue", 16)):  # configurations have no more
        with pytest.raises(ValueError, match=f"{name} must be at most {most}, not 17"):
            parameters(TINY.model_copy(update={name: 17}), TIMING)


@pytest.mark.parametrize(("flags", "skipped"), [((), True), ((CompareFlag.INVERT,), False)])
def test_data_decide_what_is_skipped_and_gathered(flags: tuple[int, ...], skipped: bool) -> None:
    """No byte of row 64 reaches 5, so the predicate is 0, with INVERT 1; the list then names row 40, then 0."""
    program = [
        Command.make(Unit.SELECT, op=SOp.COMPARE, flags=flags, src0=64, src0_stride=1, m=1, n=4, aux=5, number=1),
        replace(gather(Unit.LOAD, 0), waits={Unit.SELECT: 1}, predicate=1)]
    model = model_of(program)
    model.memory.list[0:2] = 40, 0
    model.write_dram(40 * 64, bytes([1, 2, 3, 4]))
    result = model.run()
    told = model_of(program).run(timing_only=True, skipped=[False, skipped], indices={1: np.array([40, 0])})
    assert told.first_difference(result) is None
    assert model.memory.spm[0].tolist() == ([0] * 4 if skipped else [1, 2, 3, 4])
    # 99 + 1 step + 8, visible in 109; then 2 cycles, or a closed DRAM row: 109 + 4 + 88, the second beat and its write
    assert result.finish.tolist() == [108, 111 if skipped else 203]
