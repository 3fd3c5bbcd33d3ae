"""Leaps over a silent memory, on counts in Python: right ones pass, and any bit that one loses is noticed."""

from types import SimpleNamespace

import pytest

from gemmule.config import load_config
from gemmule.control import MAX_COMMANDS
from gemmule.csr import COUNTERS, Csr, counter_offset
from gemmule.hw.tb import LEAP_CYCLES, LEAP_CYCLES_AT, LEAP_UNIT_AT, LEAP_UNIT_BITS
from gemmule.isa import Unit
from gemmule.sim.mutants import leaps
from gemmule.sim.mutants.setup import Setup

SETUP = SimpleNamespace(program=SimpleNamespace(launch=None), recovered=lambda rtl: "")


class Device:
    """Counts that go on while the memory is silent; bit ``lost`` of count ``name`` is always 0."""

    def __init__(self, name="", lost=0):
        self.counts = dict.fromkeys(("cycles", *COUNTERS), 0)
        self.mask = {name: ~(1 << lost)}

    def load(self, launch):
        self.counts = dict.fromkeys(self.counts, 0)

    def write_register(self, offset, value):
        assert offset in (Csr.WATCHDOG, Csr.CONTROL)

    def set_stall(self, chance):
        assert chance in (0, 255)

    def start(self):
        pass

    reset = start

    def go(self, cycles):
        for name, value in self.counts.items():
            if name == "cycles" or name.endswith("_empty"):
                self.counts[name] = (value + cycles) % (1 << (64 if name == "cycles" else 48)) & self.mask.get(name, -1)

    def steps(self, steps):
        places = {int(Csr.CYCLES): "cycles"} | {counter_offset(name): name for name in COUNTERS}
        seen = []
        for what, *values in steps:
            if what == "read":
                name, low = next((places[at], at == values[0]) for at in (values[0], values[0] - 4) if at in places)
                seen.append((self.counts[name] >> (0 if low else 32)) & 0xFFFFFFFF)
            elif what == "wait":
                self.go(values[0])
            elif values[0] == LEAP_CYCLES_AT:
                self.go(values[1] * LEAP_CYCLES)
        return seen


def test_a_device_that_counts_passes():
    assert leaps.silence(SETUP, Device()) == ""


@pytest.mark.parametrize(("name", "bits"), [("cycles", 53), ("load_empty", 48), ("select_empty", 48)])
def test_every_bit_that_is_lost_is_noticed(name, bits):
    for bit in range(21, bits):
        assert leaps.silence(SETUP, Device(name, bit)).startswith(f"{name} after "), bit


def test_limits_have_the_highest_bits_of_the_watchdog():
    limits = [by * LEAP_CYCLES + 2 * leaps.AROUND for by in leaps.LIMITS]
    assert max(limits) < 1 << 32
    assert {bit for bit in range(28, 32) for limit in limits if limit >> bit & 1} == {28, 29, 30, 31}


def test_leaps_over_commands_of_units_have_every_high_bit_and_no_more_than_a_launch():
    every = leaps.unit_leaps(MAX_COMMANDS - 2000)
    assert every[0] == {}
    for unit in Unit:
        values = [leap[unit] for leap in every if unit in leap]
        assert all(any(value >> bit & 1 == wanted for value in values) for bit in range(24) for wanted in (0, 1))
        assert any(value < 1 << 23 < value + 10 for value in values), "the highest bit comes with the rest"
    assert max(sum(leap.values()) for leap in every) < MAX_COMMANDS - 2000


class Counting:
    """Runs as it should, unless bit ``lost`` of what one unit has finished is 0."""

    def __init__(self, expected, unit=None, lost=0):
        self.expected, self.unit, self.lost = expected, unit, lost

    def load(self, launch):
        self.wrong = False

    def start(self):
        pass

    def steps(self, steps):
        for what, *values in steps:
            if what == "write":
                at, value = values
                assert at == LEAP_UNIT_AT
                unit, count = value & (1 << LEAP_UNIT_BITS) - 1, value >> LEAP_UNIT_BITS
                self.wrong |= unit == self.unit and bool(count >> self.lost & 1)

    def finish(self):
        return SimpleNamespace(wrong=self.wrong)


def test_a_count_of_a_unit_that_loses_a_bit_is_noticed():
    setup = Setup.make(load_config("tiny"), 1, 10)
    expected = SimpleNamespace(cycles=100, first_difference=lambda seen: "hangs" if seen.wrong else None)
    setup = SimpleNamespace(config=setup.config, recovered=lambda rtl: "", record=lambda launch: SimpleNamespace(
        launch=launch, expected=expected))
    check = leaps.of_units(setup)
    assert check.run(Counting(expected)) == ""
    for unit in Unit:
        for bit in (0, 17, 22):
            assert "hangs" in check.run(Counting(expected, unit, bit))
