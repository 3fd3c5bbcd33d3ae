"""The directed checks without a simulator: what they try, and that the model can run what they stand on."""

from collections import Counter
from types import SimpleNamespace

import pytest

from gemmule.config import load_config
from gemmule.csr import Status
from gemmule.isa import COMMAND_BYTES, TABLE_FIELDS, Unit, decode_table, legal_flags
from gemmule.operations import OPERATIONS
from gemmule.resolve import FAULTS
from gemmule.sim.mutants import corners, counts, singles
from gemmule.sim.mutants.bus import bus_checks
from gemmule.sim.mutants.registers import register_checks
from gemmule.sim.mutants.setup import Setup, wanted
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
    monkeypatch.setattr(counts, "FEW", range(2, 3))
    monkeypatch.setattr(counts, "MANY", ((3, (Unit.MATRIX,)),))
    launches = []
    monkeypatch.setattr(Setup, "record", lambda self, launch: launches.append(launch) or setup.program)
    counts.many(setup)
    table = decode_table(launches[0].image)
    waits = table[:, TABLE_FIELDS.index("wait_load"):][:, :len(Unit)]
    pairs = {(int(row[0]), int(unit)) for row, found in zip(table, waits, strict=True) for unit in found.nonzero()[0]}
    assert pairs == {(a, b) for a in Unit for b in Unit if a is not b}


def test_directed_checks_have_names_of_their_own(setup):
    names = [check.name for group in (register_checks, bus_checks, watchdog_checks) for check in group(setup)]
    assert len(set(names)) == len(names) > 20


def test_what_is_wanted():
    assert wanted("x", 1, 1) == ""
    assert wanted("x", 1, 2) == "x: expected 1, seen 2"
