"""Launches by hand: every cycle below is worked out on paper from docs/timing.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.isa import TABLE_FIELDS, Command, Unit, VOp, decode, decode_table, encode_program
from gemmule.sim.result import Difference
from gemmule.sim.roofline import roofline_cycles
from gemmule.sim.run import Model
from gemmule.timing import Timing

TINY = load_config("tiny")  # DIM 4, bus 4, bursts of 64 bytes = 16 beats = 2 commands
# written out, so that the numbers below do not move when the RTL's latencies do
TIMING = Timing(
    fetch_start=1, done=2, load_first=1, load_write=1, load_zero=2, store_first=1, store_send=2, store_zero=2,
    matrix_first=1, matrix_zero=2, matrix_rmw=2, matrix_commands=8, store_commands=8, matrix_drain=8,
    vector_first=1, vector_write=9, vector_stat=12, vector_zero=2, rms_serial=36, softmax_serial=19)


def model_of(program: list[Command], timing: Timing = TIMING) -> Model:
    model = Model(TINY, timing)
    model.limits[:] = 1 << 20
    model.load_program(encode_program(program), 0)
    return model


def matrix(a: int, b: int, n: int, **waits: dict) -> Command:
    return Command.make(
        Unit.MATRIX, a_row=a, a_stride=4, b_row=b, b_stride=4, c_row=0, c_stride=4, m=4, n=n, k=4, **waits)


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
    result = model_of(PIPELINE).run()
    assert result.issue.tolist() == [99, 201, 219, 233]
    assert result.finish.tolist() == [200, 218, 232, 388]
    assert result.cycles == 390
    assert result.dram_bytes == {"program": 128, "load": 160, "store": 16}
    assert result.dram_bursts == {"program": 2, "load": 4, "store": 4}
    assert result.counters["load"] == {"busy": 102, "empty": 288, "waiting": 0, "ports": 0}
    # visible at 107, issued in 201, finished in 218
    assert result.counters["matrix"] == {"busy": 18, "empty": 107 + 171, "waiting": 94, "ports": 0}
    assert sum(result.counters["vector"].values()) == 390


def test_matrix_commands_overlap_and_ports_hold() -> None:
    """Command 0: s = 99 + 5 = 104, two tiles of slot 4: preload_free 108, e 112, finish 120. Command 1 issues
    at preload_free 108: s = max(113, 112), e 121, finish 129. Command 2 swaps the banks of A and B and waits
    for matrix.A's release at 121: s 126, e 130, finish 138. The empty vector command waits for the second
    matrix command: visible 130, + 2.
    """
    result = model_of([
        matrix(0, 256, 8), matrix(8, 264, 8), matrix(256, 0, 4),
        Command.make(Unit.VECTOR, op=VOp.PRODUCT, m=3, n=0, waits={Unit.MATRIX: 2}),
    ]).run()
    assert result.issue.tolist() == [99, 108, 121, 130]
    assert result.finish.tolist() == [120, 129, 138, 132]
    assert result.cycles == 140
    # busy 99..138; the queue is empty before 99 and after 138
    assert result.counters["matrix"] == {"busy": 40, "empty": 100, "waiting": 0, "ports": 0}


def test_serial_divider_bounds_statistics() -> None:
    """RMS_STAT, 3 rows of 2 groups: first sum 99 + 4 + 12 = 115, then three quotients of 36 on one divider:
    223. SOFTMAX_EXP 224: last write 224 + 6 + 9 = 239, first sum 238, three quotients of 19: 295.
    """
    common = {"m": 3, "n": 8, "src0_stride": 8, "dst_stride": 4}
    result = model_of([
        Command.make(Unit.VECTOR, op=VOp.RMS_STAT, src0=0, **common),
        Command.make(Unit.VECTOR, op=VOp.SOFTMAX_EXP, src0=0, dst=512, **common),
    ]).run()
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
    lone = model_of([broken]).run()  # one burst of 8 beats, queue 97, decode register 98
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


def test_table_equals_command_by_command_decoding(case: Callable, configs: dict[str, Config]) -> None:
    for i, config in enumerate(configs.values()):
        image = case(8 + i, config)[1]
        for at, row in enumerate(decode_table(image)):
            command = decode(int.from_bytes(image[32 * at:32 * at + 32], "little"))
            found = dict(zip(TABLE_FIELDS, row.tolist()))
            assert {name: found[name] for name in command.fields} == command.fields
            assert (found["unit"], found["op"]) == (command.unit, command.op)


def test_roofline() -> None:
    # 140 of every 3900 cycles refresh: 16 * (1 - 140 / 3900) bytes a cycle
    assert roofline_cycles(16 * 3760, load_config("base")) == pytest.approx(3900)


def test_addresses_outside_the_model_are_named() -> None:
    model = Model(TINY, TIMING, dram_bytes=1024)
    model.limits[:] = 1 << 20
    model.load_program(encode_program(PIPELINE), 0)
    assert model.run(timing_only=True).cycles == 390
    with pytest.raises(ValueError, match="must lie below 1024, not 4292"):
        model.run()
