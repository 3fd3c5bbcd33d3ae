"""The directed checks without a simulator: what they try, and that the model can run what they stand on."""

import itertools
import random
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.csr import Status
from gemmule.isa import COMMAND_BYTES, CONTROL, TABLE_FIELDS, COp, Unit, decode, decode_table, legal_flags
from gemmule.numerics.ibert import i_gelu_unit
from gemmule.operations import OPERATIONS
from gemmule.resolve import FAULTS
from gemmule.sim.mutants import bodies, corners, counts, crossings, fields, functions, singles, sums
from gemmule.sim.mutants.addresses import address_checks
from gemmule.sim.mutants.bus import bus_checks
from gemmule.sim.mutants.leaps import leap_checks
from gemmule.sim.mutants.registers import register_checks
from gemmule.sim.mutants.setup import Setup, launch_of, launch_on, wanted
from gemmule.sim.mutants.watchdog import watchdog_checks

TINY = load_config("tiny")


@pytest.fixture(scope="module")
def setup():
    return Setup.make(TINY, 1, 10)


class Device:
    """Registers that answer single commands as the model, but for one."""

    def __init__(self, faults, wrong):
        self.answers = [Status.DONE | int(fault) << 8 for fault in faults]
        self.answers[wrong] ^= 1 << 8

    def load(self, launch):
        pass

    def run(self):
        return SimpleNamespace(cycles=100)

    def steps(self, steps):
        assert all(values[0] >= 100 for what, *values in steps if what == "wait"), "a launch takes as long"
        assert sum(what == "read" for what, *_ in steps) == len(self.answers)
        return self.answers


def test_every_operation_meets_every_set_of_flags_of_its_kind():
    found = singles.legality(TINY)
    table = decode_table(found.launch.dram.tobytes())
    tried = set(_each(table))
    kinds = {}
    for unit, op in OPERATIONS:
        kinds.setdefault(tuple(legal_flags(unit, op, flags) for flags in range(256)), set()).add((unit, op))
    assert all(any((unit, op, flags) in tried for unit, op in same) for same in kinds.values() for flags in range(256))
    assert {(unit, op) for unit, op, _ in tried} == {(unit, op) for unit in range(8) for op in range(32)}
    for (unit, op, flags), fault in zip(_each(table), found.faults, strict=True):
        if not legal_flags(unit, op, flags):
            assert FAULTS[fault] == "illegal"


def _each(table):
    """(unit, op, flags) of every command."""
    columns = [TABLE_FIELDS.index(name) for name in ("unit", "op", "flags")]
    return [tuple(map(int, row)) for row in table[:, columns]]


def test_single_commands_fault_in_every_way_and_at_the_brink(monkeypatch):
    monkeypatch.setattr(singles, "SPARSE", 600)
    faults = Counter(FAULTS[fault] for each in singles.sparse(TINY, 1) for fault in each.faults)
    assert set(faults) >= {"none", "rows", "limit"}
    assert min(faults["none"], faults["rows"]) > 100


def test_a_single_command_that_is_answered_otherwise_is_named():
    found = singles.legality(TINY)
    wrong = 300
    seen = found.run(Device(found.faults, wrong))
    word = found.launch.dram[wrong * COMMAND_BYTES:][:COMMAND_BYTES][::-1].tobytes().hex()
    assert seen.startswith(f"single command {word}: expected fault ")


@pytest.mark.parametrize("which", range(len(corners.WRITTEN)))
def test_programs_by_hand_are_legal(which):
    assert corners.written(TINY, 1, which).image


def test_bits_of_no_field_are_set_and_mean_nothing(setup):
    launch = corners.spare(setup.program.launch)
    assert launch.image != setup.program.launch.image
    assert (decode_table(launch.image) == decode_table(setup.program.launch.image)).all()


def test_waits_are_tried_for_every_pair_of_units(setup, monkeypatch):
    for name, value in {"FEW": range(2, 4), "MAX_LENGTH": 9, "MANY": 7, "NEAR": 20, "FAULT_INDEX": 1500}.items():
        monkeypatch.setattr(counts, name, value)
    launches, record = [], Setup.record
    monkeypatch.setattr(Setup, "record", lambda self, launch: launches.append(launch) or record(self, launch))
    counts.many(setup)  # which looks at the number of the fault
    table = decode_table(launches[0].image)
    waits = table[:, TABLE_FIELDS.index("wait_load"):][:, :len(Unit)]
    pairs = {(int(row[0]), int(unit)) for row, found in zip(table, waits, strict=True) for unit in found.nonzero()[0]}
    assert pairs == {(a, b) for a in Unit for b in Unit if a is not b}
    ran = Counter(counts._counted([decode(int.from_bytes(launches[0].image[at:at + COMMAND_BYTES], "little"))
                                   for at in range(0, len(launches[0].image), COMMAND_BYTES)]))
    assert ran.total() == 1500 + 1
    assert ran[Unit.STORE] == 2 * 128 + 20 > 128 + 20 < ran[Unit.VECTOR] < 128 + 40


def test_waits_of_every_distance_are_tried_for_every_pair_of_units(setup):
    commands = list(counts.distances(TINY, 1))
    assert setup.record(launch_of("distances", commands, size=1 << 18)).expected.fault == 0
    tried = {(command.unit, *wait) for command in commands for wait in command.waits.items()}
    assert {(unit, other) for unit, other, _ in tried} == {(a, b) for a in Unit for b in Unit if a is not b}
    assert {distance for *_, distance in tried} == set(range(1, counts.FARTHEST))


def test_bodies_come_as_often_as_lengths_and_shifts_say(setup):
    commands = list(bodies.turns())
    expected = setup.record(launch_of("turns", commands, size=1 << 17)).expected
    turns = [min(-(-(1 << bit) // (1 << shift)), 3) for bit in range(16) for shift in range(16)]
    assert expected.summary()["commands"]["matrix"] == sum(turns) + sum(1 << bit for bit in range(12))
    assert {1, 2, 3} == set(turns)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_register_that_is_set_is_seen(setup, seed):
    """A body comes once for a value that is not 0; with any SET left out some body comes another number of times."""
    commands = list(bodies.values(TINY, seed))
    sets = [i for i, command in enumerate(commands) if command.unit == CONTROL and command.op == COp.SET]

    def seen(commands):
        return setup.record(launch_of("values", commands, size=1 << 18)).expected.summary()["commands"]["matrix"]

    once = seen(commands)
    assert 200 < once < bodies.VALUES
    rng = random.Random(seed)
    found = [seen([*commands[:i], *commands[i + 1:]]) != once for i in rng.sample(sets, 20)]
    assert sum(found) > 12


def test_bodies_in_bodies_come_as_often_as_all_their_turns(setup):
    expected = setup.record(launch_of("nested", list(bodies.nested(TINY)), size=1 << 20)).expected
    turns = list(itertools.product((1, 2, 3), repeat=4))
    inner, first = TINY.fetch_queue + 2, TINY.fetch_queue
    assert expected.fault == 0
    assert expected.summary()["commands"]["matrix"] == sum(
        a * b * c * (d * n + f + 1) + a * b + a for n, f in ((inner, 0), (3, first)) for a, b, c, d in turns)


def test_every_sum_of_resolve_has_every_bit_alone():
    """Most of them beyond all rows."""
    words = list(sums.products(TINY))
    found = singles.Singles.of(TINY, words, (singles.NONE, singles.NONE, np.zeros(16, dtype=np.int64)))
    faults = Counter(FAULTS[fault] for fault in found.faults)
    assert faults["rows"] > 300
    assert set(faults) <= {"rows", "none", "limit"}
    table = decode_table(found.launch.dram.tobytes())
    at = {name: TABLE_FIELDS.index(name) for name in ("unit", "bytes", "block_stride")}
    spans = {int((row[at["bytes"]] - 1) // TINY.dim * row[at["block_stride"]]) for row in table
             if row[at["unit"]] == Unit.STORE}
    assert {1 << bit for bit in range(33)} <= spans


def test_a_fault_far_into_an_image(setup):
    expected = setup.record(launch_of("far", bodies.far(), size=1 << 21)).expected
    assert (expected.fault_place, FAULTS[expected.fault]) == ((1 << bodies.FAR) - 1, "illegal")


def test_directed_checks_have_names_of_their_own(setup):
    groups = register_checks, bus_checks, address_checks, watchdog_checks, leap_checks
    names = [check.name for group in groups for check in group(setup)]
    assert len(set(names)) == len(names) > 20


def test_what_is_wanted():
    assert wanted("x", 1, 1) == ""
    assert wanted("x", 1, 2) == "x: expected 1, seen 2"


def test_values_of_functions_stand_in_every_lane(setup):
    """GELU's results are those of all integers around 0, the same in every lane."""
    launch = functions.gelu(TINY)
    found = np.frombuffer(setup.record(launch).dram, dtype=np.int8)[4 * 2 * functions.GELU * TINY.dim:]
    results = found[:2 * 2 * functions.GELU * TINY.dim].reshape(-1, 2, TINY.acc_rows, TINY.dim)
    assert (results == results[..., :1]).all()
    x = np.arange(-functions.GELU, functions.GELU).reshape(-1, TINY.acc_rows)
    for i, shift in enumerate(functions.GELU_SHIFTS):
        assert (results[:, i, :, 0] == i_gelu_unit(x, shift)).all()


@pytest.mark.parametrize("groups", [1, TINY.acc_rows // TINY.stat_rows])
def test_exponentials_of_every_distance_from_a_maximum_of_0(setup, groups):
    launch = functions.softmax(TINY, groups)
    below = -launch.dram[:launch.program // functions.RESULTS].view("<i4")
    assert set(below.tolist()) >= {*range(functions.FINE), *range(functions.FINE, functions.FARTHEST, functions.COARSE)}
    assert setup.record(launch).expected.fault == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_long_products_are_legal_and_have_every_bit(setup, seed):
    launch = fields.products(TINY, seed)
    assert setup.record(launch).expected.fault == 0
    table = decode_table(launch.image)
    lengths = {name: set(table[table[:, 0] == Unit.MATRIX, TABLE_FIELDS.index(f"{name}_cap")].tolist())
               for name in "mnk"}
    assert lengths["m"] > {1 << bit for bit in range(8)}
    assert min(lengths["n"], lengths["k"], key=len) > {1 << bit for bit in range(16)}


def test_commands_cross_each_other_in_every_bank(setup):
    """Every unit waits for a bank that another one holds; six products are under way at once."""
    commands = list(crossings.crossings(TINY, 1))
    launch = launch_on(np.zeros(0, dtype=np.uint8), "crossings", commands, 1 << 16)
    expected = setup.record(launch).expected
    assert expected.fault == 0
    products = [i for i, command in enumerate(commands) if command.unit == Unit.MATRIX]
    issue, finish = expected.issue[products], expected.finish[products]
    under_way = [int(((issue <= at) & (finish > at)).sum()) for at in issue[:2000]]
    assert max(under_way) == 6
    assert all(unit["ports"] for unit in expected.summary()["counters"].values())


def test_changes_of_the_dataflow_are_legal(setup):
    launch = launch_on(np.zeros(0, dtype=np.uint8), "changes", list(crossings.changes(TINY)), 1 << 16)
    assert setup.record(launch).expected.fault == 0
