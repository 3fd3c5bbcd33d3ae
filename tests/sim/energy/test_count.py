"""Events of launches, counted again: by hand, by the verifier's accesses, and by the gates of ``tiny``."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.energy.programs import directed, held_out, mixed
from gemmule.config import load_config
from gemmule.isa import Command, CompareFlag, SOp, Unit, VOp, encode_program
from gemmule.sim.energy.table import EVENTS
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator

TINY = load_config("tiny")
RECORD = Path(__file__).resolve().parents[3] / "docs" / "results" / "energy.json"


def run(case: Launch) -> Result:
    model = Simulator(TINY, dram_bytes=len(case.dram))
    model.load(case)
    return model.run()


def launch(*commands: Command) -> Launch:
    registers = np.zeros(32, dtype=np.int64), np.full(32, 8192, dtype=np.int64), np.zeros(16, dtype=np.int64)
    return Launch("hand", 0, encode_program(commands), 4096, np.zeros(8192, dtype=np.uint8), *registers)


def test_a_product_by_hand() -> None:
    """10 x 6 by 6 x 7 on an array of 4 x 4: 2 column groups, 2 tiles of depth."""
    events = run(launch(Command.make(Unit.MATRIX, m=10, n=7, k=6, a_row=0, a_stride=10, b_row=256, b_stride=6,
                                     c_row=0, c_stride=10))).events
    assert events["mac_int8"] == 10 * 6 * 7
    assert events["weight"] == 2 * 2 * 16
    assert events["sum"] == 10 * 2 * 2 * 4
    assert events["spm_read"] == 2 * (10 * 2) + 6 * 2, "A for each column group, B once"
    assert (events["acc_write"], events["acc_read"]) == (10 * 2 * 2, 10 * 2), "a sum is added to behind the first tile"
    assert (events["command"], events["dram_read_bit"], events["mac_int4"]) == (1, 8 * 32, 0)


def test_vector_and_select_by_hand() -> None:
    events = run(launch(
        Command.make(Unit.VECTOR, op=VOp.REQUANT, m=3, n=6, src0=0, src0_stride=3, dst=0, dst_stride=3, mult=1),
        Command.make(Unit.SELECT, op=SOp.ARGMAX, m=3, n=6, src0=256, src0_stride=6))).events
    assert events["scale"] == 3 * 8, "whole lanes"
    assert (events["acc_read"], events["spm_write"]) == (6, 6)
    assert (events["scan"], events["spm_read"]) == (18, 12)


def test_loads_of_sums_write_a_row_in_pieces() -> None:
    from gemmule.isa import MoveFlag

    each = {"row": 0, "rows": 2, "bytes": 16, "stride": 16, "row_stride": 1, "block_stride": 1}
    events = run(launch(Command.make(Unit.LOAD, flags=[MoveFlag.ACCUMULATOR], **each),
                        Command.make(Unit.LOAD, flags=[MoveFlag.ACCUMULATOR, MoveFlag.ZERO], **each))).events
    assert events["acc_write"] == 2 * 4 + 2, "a beat of 4 bytes each; zeros row by row"
    assert events["load_byte"] == 32


def test_what_a_predicate_skips_does_nothing() -> None:
    compare = Command.make(Unit.SELECT, op=SOp.COMPARE, m=1, n=4, number=1, aux=1)
    never = run(launch(compare, Command.make(Unit.MATRIX, m=4, n=4, k=4, predicate=1, b_row=256,
                                             waits={Unit.SELECT: 1}))).events
    inverted = Command.make(Unit.SELECT, op=SOp.COMPARE, m=1, n=4, number=1, aux=1, flags=[CompareFlag.INVERT])
    done = run(launch(inverted, Command.make(Unit.MATRIX, m=4, n=4, k=4, predicate=1, b_row=256,
                                             waits={Unit.SELECT: 1}))).events
    assert (never["mac_int8"], done["mac_int8"]) == (0, 64)
    assert never["command"] == done["command"] == 2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_counters_and_events_agree(seed: int) -> None:
    result = run(generate(TINY, seed, 40, brief=True))
    events = result.events
    assert tuple(events) == tuple(EVENTS)
    assert events["cycle"] == result.cycles
    assert events["command"] == len(result.issue)
    assert events["dram_read_bit"] == 8 * (result.dram_bytes["program"] + result.dram_bytes["load"])
    assert events["dram_write_bit"] == 8 * result.dram_bytes["store"]


def test_rows_are_those_that_the_gates_touched() -> None:
    """Reads and writes of both memories in every program that ran on the gates of ``tiny``, one by one.

    Gates count a row that is read twice running as one read; some random moves begin within a row.
    """
    record = json.loads(RECORD.read_text())
    counted = {case.name: run(case).events for case in (*directed(TINY), *mixed(TINY), *held_out(TINY))}
    assert record["accesses"].keys() == counted.keys()
    pairs = {(name, access): (count, counted[name][access]) for name, seen in record["accesses"].items()
             for access, count in seen.items()}
    differ = {key: both for key, both in pairs.items() if both[0] != both[1]}
    assert len(differ) <= len(pairs) // 20
    assert {name for name, _ in differ if not name.startswith(("random", "decoder"))} == {"matrix int4 16x4x4"}
    assert all(seen < told for (name, _), (seen, told) in differ.items() if not name.startswith("random"))
    seen, told = (sum(both[i] for both in pairs.values()) for i in (0, 1))
    assert told > 80_000
    assert told == pytest.approx(seen, rel=0.01)
