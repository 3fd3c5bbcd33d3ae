"""Launches by hand: every cycle below is worked out on paper from docs/timing.md."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.csr import COUNTERS
from gemmule.isa import (
    AddFlag,
    ColumnFlag,
    Command,
    IsaError,
    MatrixFlag,
    MoveFlag,
    ProductFlag,
    RequantFlag,
    Unit,
    VOp,
    encode_program,
)
from gemmule.sim.result import Difference, split_counters
from gemmule.sim.roofline import roofline_cycles
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import verify

from .timing.hand import TIMING, TINY, load, matrix, model_of, timed

PIPELINE = [
    Command.make(Unit.LOAD, offset=0, stride=64, bytes=40, row=0, row_stride=10, block_stride=1, rows=4),
    matrix(0, 16, 4, waits={Unit.LOAD: 1}),
    Command.make(Unit.VECTOR, op=VOp.REQUANT, waits={Unit.MATRIX: 1}, src0=0, src0_stride=4,
                 dst=300, dst_stride=4, m=4, n=4, mult=1, shift=3),
    Command.make(Unit.STORE, waits={Unit.VECTOR: 1}, offset=4096, stride=64, bytes=4, row=300,
                 row_stride=1, block_stride=1, rows=4),
]


def test_load_matrix_vector_store() -> None:
    """Fetch: requests in 1 and 2; bank 0 closed: 1 + 28 + 60 = 89, beats 89..104 and 105..120.
    Command 0 ends with beat 96: queue 97, decode 98, unit queue and issue 99. Requests 100..103, data from
    160, 170, 180, 190 (10 beats each): last beat 199, write 200. Matrix 201: s = 201 + 1 + 4, e = 210, + 8.
    Vector 219: last read 219 + 1 + 4 - 1 = 223, + 9. Store 233: burst 0 read 234, sent 236, row closed:
    236 + 28 + 60 = 324, answered 325; burst 1 sent 237, answered 326; two outstanding, so bursts 2 and 3 are
    sent in 326 and 327 and answered in 387 and 388.
    """
    result = timed(*PIPELINE)
    assert result.issue.tolist() == [99, 201, 219, 233]
    assert result.finish.tolist() == [200, 218, 232, 388]
    assert result.cycles == 390
    assert result.dram_bytes == {"program": 128, "load": 160, "store": 16}
    assert result.dram_bursts == {"program": 2, "load": 4, "store": 4}
    # in flight 99..200, 40 beats
    assert result.counters["load"] == {"busy": 40, "dram": 62, "empty": 288, "waiting": 0, "ports": 0}
    # visible in 123, issued in 233, finished in 388, 4 beats
    assert result.counters["store"] == {"busy": 4, "dram": 152, "empty": 123 + 1, "waiting": 110, "ports": 0}
    # visible at 107, issued in 201, finished in 218
    assert result.counters["matrix"] == {"busy": 18, "dram": 0, "empty": 107 + 171, "waiting": 94, "ports": 0}
    assert sum(result.counters["vector"].values()) == 390


def test_matrix_commands_overlap_and_ports_hold() -> None:
    """Command 0: s = 99 + 5 = 104, two tiles of slot 4: preload_free 108, e 112, finish 120. Command 1 issues
    in 107, one before preload_free: s = 112, e 120, finish 128. Command 2 swaps the banks of A and B and waits
    for matrix.A's release at 120: s 125, e 129, finish 137. The empty vector command waits for the second
    matrix command: visible 129, + 2.
    """
    result = timed(
        matrix(0, 256, 8), matrix(8, 264, 8), matrix(256, 0, 4),
        Command.make(Unit.VECTOR, op=VOp.PRODUCT, m=3, n=0, waits={Unit.MATRIX: 2}))
    assert result.issue.tolist() == [99, 107, 120, 129]
    assert result.finish.tolist() == [120, 128, 137, 131]
    assert result.cycles == 139
    # busy 99..137; the queue is empty before 99 and after 137
    assert result.counters["matrix"] == {"busy": 39, "dram": 0, "empty": 100, "waiting": 0, "ports": 0}


OS = MatrixFlag.OUTPUT_STATIONARY


def test_output_stationary_commands_overlap_and_a_new_dataflow_waits() -> None:
    """Commands 1, 2 and 3 are visible in 107, 115 and 123. Command 0: s = 99 + 2, two tiles of 4: e 109,
    finish 109 + 8 + 4. Command 1 issues with B of command 0 held: s = 109, e 117, finish 129. Command 2: s = 117,
    e 125, finish 137. Command 3 is weight-stationary: alone, 138, s 143, e 147, finish 155.
    """
    wide = [replace(matrix(0, 256, 8), flags=frozenset({int(OS)})) for _ in range(3)]
    result = timed(*wide, matrix(0, 256, 4))
    assert result.issue.tolist() == [99, 107, 115, 138]
    assert result.finish.tolist() == [121, 129, 137, 155]


@pytest.mark.parametrize(("flags", "m", "n", "b_row", "finish"), [
    ((), 6, 8, 256, 99 + 5 + 4 * 6 + 8),
    ((MatrixFlag.B_INT4,), 6, 8, 256, 99 + 5 + 4 * 6 + 8),
    ((MatrixFlag.B_INT4, MatrixFlag.GROUP_SCALES), 6, 8, 256, 99 + 6 + 4 * 6 + 8),
    ((MatrixFlag.A_TRANSPOSED,), 6, 8, 256, 99 + 5 + 4 * 8 + 8),
    ((), 6, 8, 32, 99 + 5 + 3 * (6 + 4) + 6 + 8),  # A and B in one bank: preload and stream in turn
    ((), 2, 8, 256, 99 + 5 + 4 * 4 + 8),  # preload is longer
    ((), 1, 8, 32, 99 + 5 + 3 * (2 + 4) + 2 + 8),  # matrix_rmw is longer
    ((MatrixFlag.REUSE,), 6, 4, 256, 99 + 2 + 6 + 8),
    ((MatrixFlag.REUSE,), 1, 4, 0, 99 + 2 + 2 + 8),
    ((OS,), 6, 8, 256, 99 + 2 + 8 * 4 + 8 + 4),
    ((OS, MatrixFlag.A_TRANSPOSED), 1, 8, 256, 99 + 2 + 4 * 4 + 8 + 4),
])
def test_matrix_modes(flags: tuple[int, ...], m: int, n: int, b_row: int, finish: int) -> None:
    """One command in 99, K = N, tiles of 4 x 4, four items to preload."""
    result = timed(Command.make(
        Unit.MATRIX, flags=flags, a_row=0, a_stride=8, b_row=b_row, b_stride=8, c_row=0, c_stride=8, m=m, n=n, k=n))
    assert (result.fault, result.finish.tolist()) == (0, [finish])


@pytest.mark.parametrize(("op", "flags", "src1", "reads"), [
    (VOp.ADD, (), 256, 2 * 3), (VOp.ADD, (), 128, 2 * 3 * 2), (VOp.PRODUCT, (), 128, 2 * 3 * 2),
    (VOp.PRODUCT, (), 256, 2 * 3), (VOp.PRODUCT, (ProductFlag.WIDE,), 256, 2 * 3 * 2),
    (VOp.PRODUCT, (ProductFlag.WIDE,), 128, 2 * 3 * 4),
    (VOp.ADD, (AddFlag.WIDE,), 256, 2 * 3 * 2), (VOp.ADD, (AddFlag.WIDE,), 128, 2 * 3 * 2),
    (VOp.REQUANT, (RequantFlag.BIAS,), 256, 2 * (4 + 3)),
    (VOp.REQUANT, (RequantFlag.BIAS, RequantFlag.COLUMN, RequantFlag.WIDE), 256, 2 * (7 + 3 * 2)),
    (VOp.ROPE, (ColumnFlag.COLUMN, ColumnFlag.BIAS), 256, 2 * (7 + 3 * 4)),
])
def test_vector_reads(op: VOp, flags: tuple[int, ...], src1: int, reads: int) -> None:
    """Issued in 99, read from 100 on, written 9 after the last read."""
    result = timed(Command.make(
        Unit.VECTOR, op=op, flags=flags, src0=0, src0_stride=3, src1=src1, aux=3, dst=512, dst_stride=6, m=3, n=8))
    assert (result.fault, result.finish.tolist()) == (0, [99 + reads + 9])


def test_unaligned_rows_write_late_and_catch_up() -> None:
    """Bytes 3..7: beats 160 and 161; the second completes both chunks, written in 162 and 163. A second row on a bus
    boundary (64..68, requested in 101) has beats 162 and 163 and is written a cycle late, in 164 and 165. Bytes
    125..133 are cut at 128: beat 160 completes nothing, 161 one chunk (162), 162 two (163, 164).
    """
    assert timed(load(3, 5, 1)).finish.tolist() == [163]
    assert timed(load(3, 5, 2, stride=61)).finish.tolist() == [165]
    result = timed(load(125, 9, 1))
    assert result.finish.tolist() == [164]
    assert (result.dram_bytes["load"], result.dram_bursts["load"]) == (3 * 4, 2)
    assert timed(load(3, 6, 1)).finish.tolist() == [163]  # a beat more than chunks: 161 and 162 complete one each


def test_broadcast_and_zero_loads_run_alone() -> None:
    """The broadcast of 68 bytes to two rows: 16 beats from 160 on, written 161..192; the last beat is requested in 193
    and comes in 253, written 254 and 255. ZERO, alone, in 256: 2 chunks of 3 rows from 258 on. The plain load waits
    for it: 264, request 265, beat 325.
    """
    result = timed(load(0, 68, 2, MoveFlag.BROADCAST), load(0, 6, 3, MoveFlag.ZERO), load(0, 4, 1))
    assert result.issue.tolist() == [99, 256, 264]
    assert result.finish.tolist() == [255, 263, 326]
    assert result.counters["load"]["busy"] == 17 + 6 + 1
    assert result.dram_bytes["load"] == 18 * 4
    assert result.dram_bursts["load"] == 3


def test_unaligned_store_and_slow_bus() -> None:
    """Bytes 4099..4103 are two beats: read 100 and 101, sent 103 and 104, closed row: 104 + 28 + 60, answered 194.
    With three cycles a beat the command arrives with beat 89 + 7 * 3: issue 113, sent 118, answered 206 + 6.
    """
    store = Command.make(Unit.STORE, offset=4099, bytes=5, row=0, row_stride=1, block_stride=1, rows=1)
    result = timed(store)
    assert (result.issue.tolist(), result.finish.tolist()) == ([99], [194])
    assert result.dram_bytes == {"program": 32, "load": 0, "store": 8}
    slow = TINY.model_copy(update={"dram": TINY.dram.model_copy(update={"beat_cycles": 3})})
    assert timed(store, config=slow).finish.tolist() == [212]
    # request 114, beats 174 and 177
    assert timed(load(0, 8, 1), config=slow).finish.tolist() == [178]


def test_counters_stand_in_the_order_of_the_registers() -> None:
    result = timed(*PIPELINE)
    assert tuple(result.registers) == COUNTERS
    assert result.registers["store_bursts"] == 4
    assert split_counters(list(result.registers.values())) == (
        result.counters, result.dram_bytes, result.dram_bursts)
    wrong = result.registers | {"load_bursts": 5}
    counters, size, bursts = split_counters(list(wrong.values()))
    seen = replace(result, counters=counters, dram_bytes=size, dram_bursts=bursts)
    assert result.first_difference(seen) == Difference(-1, "", "load_bursts", 4, 5)
    assert result.first_difference(replace(result, counters={})) is None


def test_fetch_goes_on_after_a_fault() -> None:
    """Requests in 1 .. 16 fill the queue of 32. The first command enters the queue in 97 and the decode register in 98,
    which makes room for one command; a burst of two does not fit before the launch ends in 100.
    """
    broken = replace(PIPELINE[1], op=1)
    result = timed(*[broken] * 40)
    assert (result.cycles, result.fault_index) == (100, 0)
    assert (result.dram_bursts["program"], result.dram_bytes["program"]) == (16, 16 * 64)


def test_serial_divider_bounds_statistics() -> None:
    """NORM_STAT, 3 rows of 2 groups: first sum 99 + 4 + 12 = 115, then three quotients of 36 on one divider:
    223. SOFTMAX_EXP 224: last write 224 + 6 + 9 = 239, first sum 238, three quotients of 19: 295.
    """
    common = {"m": 3, "n": 8, "src0_stride": 8, "dst_stride": 4}
    result = timed(
        Command.make(Unit.VECTOR, op=VOp.NORM_STAT, src0=0, **common),
        Command.make(Unit.VECTOR, op=VOp.SOFTMAX_EXP, src0=0, dst=512, **common))
    assert result.issue.tolist() == [99, 224]
    assert result.finish.tolist() == [223, 295]
    assert result.cycles == 297


def test_a_fault_stops_dispatch_and_later_effects() -> None:
    """Command 1 is in the queue in 105 and in the decode register in 106; the load ends in 200."""
    broken = replace(PIPELINE[1], op=1)
    model = model_of([PIPELINE[0], broken, *PIPELINE[2:]])
    model.memory.spm[300:304] = 7
    result = model.run()
    assert (result.cycles, result.fault, result.fault_index) == (202, 1, 1)
    assert result.issue.tolist() == [99, -1, -1, -1]
    assert result.finish.tolist() == [200, -1, -1, -1]
    assert result.summary()["fault"] == "illegal"
    assert not model.memory.dram[4096:4352].any()
    lone = timed(broken)  # one burst of 8 beats, queue 97, decode register 98
    assert lone.cycles == 100


def test_timing_alone_gives_the_same_result() -> None:
    model = model_of(PIPELINE)
    before = model.memory.spm.copy()
    timing_only = model.run(timing_only=True)
    np.testing.assert_array_equal(model.memory.spm, before)
    assert timing_only.first_difference(model.run()) is None
    assert json.loads(json.dumps(timing_only.summary()))["cycles"] == 390


def test_first_difference_names_the_earliest_cycle() -> None:
    expected = model_of(PIPELINE).run(timing_only=True)
    slow = model_of(PIPELINE, replace(TIMING, matrix_drain=9)).run(timing_only=True)
    assert expected.first_difference(slow) == Difference(1, "matrix", "finish", 218, 219)
    assert str(expected.first_difference(slow)) == "command 1 (matrix): finish expected 218, seen 219"
    late = model_of(PIPELINE, replace(TIMING, done=3)).run(timing_only=True)
    assert expected.first_difference(late) == Difference(-1, "", "cycles", 390, 391)


def test_state_persists_between_launches() -> None:
    model = model_of([matrix(0, 16, 4), replace(matrix(0, 16, 4), flags=frozenset({2}))])
    model.memory.spm[0:4], model.memory.spm[16:20] = 2, 3
    model.run()
    assert (model.memory.acc[0:4] == 2 * 4 * 2 * 3).all()
    model.load_program(encode_program([replace(matrix(0, 16, 4), flags=frozenset({2}))]), 0)
    model.run()
    assert (model.memory.acc[0:4] == 3 * 4 * 2 * 3).all()


@pytest.mark.parametrize(("address", "size", "message"), [
    (16, 32, "multiples of 32, not 16 and 32"), (32, 33, "multiples of 32, not 32 and 33"), (-32, 32, "not at -32"),
    ((1 << 32) - 32, 64, "of 64 bytes must lie within the 4294967296 bytes of the address space, not at 4294967264")])
def test_a_program_lies_within_the_address_space(address: int, size: int, message: str) -> None:
    """Fetch would go on from address 0: model, verifier and the RTL's driver refuse it, and take the last place."""
    model, registers = model_of([]), [np.zeros(size, dtype=np.int64) for size in (32, 32, 16)]
    image = encode_program([Command.make(Unit.LOAD)] * 2)[:size] + bytes(max(0, size - 64))
    with pytest.raises(IsaError, match=message):
        model.load_program(image, address)
    if size % 32 == 0:
        with pytest.raises(IsaError, match=message):
            verify(image, TINY, *registers, address)
    last = (1 << 32) - 32
    verify(image[:32], TINY, *registers, last)
    model.load_program(image[:32], last)
    assert model.run(timing_only=True).fault == 0


def test_roofline() -> None:
    # 140 of every 3900 cycles refresh: 16 * (1 - 140 / 3900) bytes a cycle
    base = load_config("base")
    assert roofline_cycles(16 * 3760, base) == pytest.approx(3900)
    slow = base.model_copy(update={"dram": base.dram.model_copy(update={"beat_cycles": 3})})
    assert roofline_cycles(16 * 3760, slow) == pytest.approx(3 * 3900)


def test_addresses_outside_the_model_are_named() -> None:
    model = Simulator(TINY, TIMING, dram_bytes=1024)
    model.limits[:] = 1 << 20
    model.load_program(encode_program(PIPELINE), 0)
    assert model.run(timing_only=True).cycles == 390
    with pytest.raises(ValueError, match="must lie below 1024, not 4292"):
        model.run()
