"""Generated programs are legal, varied and the same for the same seed."""

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.isa import COMMAND_BYTES, NUM_LENGTHS, TABLE_FIELDS, Length, decode_table, encode
from gemmule.isa import decode as decode_word
from gemmule.resolve import OUT, resolve
from gemmule.sim.fuzz import generate
from gemmule.sim.fuzz_commands import Draw
from gemmule.sim.fuzz_coverage import Coverage
from gemmule.sim.run import Model
from gemmule.sim.verify import ProgramError, verify

TINY = load_config("tiny")
ODD = Config(name="odd", dim=8, bus_bytes=2, spm_kib=8, spm_banks=2, acc_kib=4, acc_banks=1, preload=4,
             burst_bytes=64, read_bursts=1, load_commands=1, write_bursts=1, unit_queue=5, stat_rows=8,
             dividers=3)
WAIT_COLUMNS = [i for i, name in enumerate(TABLE_FIELDS) if name.startswith("wait_")]


def ran(config, case):
    model = Model(config, dram_bytes=len(case.dram))
    model.memory.write(0, case.dram)
    model.bases[:], model.limits[:], model.lengths[:] = case.bases, case.limits, case.lengths
    model.load_program(case.image, case.program)
    return model.run()


@pytest.mark.parametrize("config", [TINY, ODD, load_config("base")], ids=lambda config: config.name)
@pytest.mark.parametrize("seed", [1, 2])
def test_programs_are_legal(config, seed):
    case = generate(config, seed, 100)
    verify(case.image, config, case.bases, case.limits, case.lengths)
    assert ran(config, case).fault == 0


def test_same_seed_same_program():
    first, second, other = generate(TINY, 7, 60), generate(TINY, 7, 60), generate(TINY, 8, 60)
    assert first.image == second.image
    assert first.image != other.image
    assert np.array_equal(first.dram, second.dram)


def test_coverage_is_complete_over_a_few_programs():
    coverage = Coverage(TINY)
    for seed in range(12):
        case = generate(TINY, seed, 150)
        coverage.add(case, ran(TINY, case))
    assert coverage.missing() == []


def test_coverage_minimum_can_fail():
    coverage = Coverage(TINY)
    case = generate(TINY, 0, 10)
    coverage.add(case, ran(TINY, case))
    assert any("softmax" in what for what in coverage.missing())


def test_most_waits_are_needed():
    """Dropping any wait of a program that was not strengthened breaks it: the waits are minimal."""
    for seed in range(40):
        case = generate(TINY, seed, 60)
        table = decode_table(case.image)
        places = np.argwhere(table[:, WAIT_COLUMNS] > 0)
        needed = 0
        for index, column in places:
            command = bytearray(case.image)
            at = index * COMMAND_BYTES
            word = int.from_bytes(command[at:at + COMMAND_BYTES], "little")
            decoded = decode_word(word)
            decoded.waits.pop(type(decoded.unit)(int(column)))  # type: ignore[attr-defined]
            command[at:at + COMMAND_BYTES] = encode(decoded).to_bytes(COMMAND_BYTES, "little")
            try:
                verify(bytes(command), TINY, case.bases, case.limits, case.lengths)
            except ProgramError:
                needed += 1
        if needed == len(places):
            return
    raise AssertionError("no program had only needed waits")


def test_faulty_programs_fault_where_planted():
    for seed in range(20):
        case = generate(TINY, seed, 30, faults=1.0)
        table = decode_table(case.image)
        faults = resolve(table, case.bases, case.limits, case.lengths, TINY)[:, OUT["fault"]]
        assert case.faulty
        assert np.count_nonzero(faults) == 1
        result = ran(TINY, case)
        assert result.fault_index == int(np.flatnonzero(faults)[0])


def test_length_fields_resolve_to_the_drawn_value():
    random = np.random.default_rng(0)
    lengths = random.integers(0, 60, NUM_LENGTHS)
    draw = Draw(TINY, random, lengths)
    forms = set()
    for _ in range(300):
        value = int(random.integers(0, 40))
        length = draw.length(value)
        assert isinstance(length, Length)
        assert length.resolve(lengths) == value
        forms.add((length.reg > 0, length.offset > 0))
    assert len(forms) == 3
