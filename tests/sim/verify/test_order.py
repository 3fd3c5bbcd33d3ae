"""The compiled walk finds the same races as the slow one, in random programs whose waits were changed."""

import re

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.control import begin, new_local
from gemmule.isa import HEADER, NUM_BASES, NUM_LENGTHS, Command, Unit, decode_table, encode_program
from gemmule.resolve import config_vector
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.verify.order import walk
from gemmule.sim.verify.state import FINE, FULL, new_state
from gemmule.sim.verify.verify import ProgramError, verify
from gemmule.terms import OUT_FIELDS

from .reference import first_race

SEED = 3
WAIT_BITS = dict(HEADER)["wait_load"]
FIRST_WAIT = 8
"""Place of the first wait in a command's word."""
CONFIGS = {name: load_config(f"examples/configs/{name}.yaml") for name in ("dim2", "one_bank")} | {
    "tiny": load_config("tiny")}


def without_some_waits(image: bytes, random: np.random.Generator) -> bytes:
    """Up to three waits shortened or dropped: some program races then."""
    words = np.frombuffer(image, dtype="<u8").reshape(-1, 4).copy()
    waits = [(i, u) for i, row in enumerate(decode_table(image)) for u in range(len(Unit)) if row[2 + u]]
    for i, u in random.choice(waits, int(random.integers(1, 4)), replace=False):
        shift = np.uint64(FIRST_WAIT + WAIT_BITS * u)
        had = int(words[i, 0] >> shift) & (1 << WAIT_BITS) - 1
        less = int(random.integers(0, had))
        words[i, 0] = (int(words[i, 0]) & ~((1 << WAIT_BITS) - 1 << int(shift))) | less << int(shift)
    return words.tobytes()


@pytest.mark.parametrize("name", CONFIGS)
def test_same_races(name: str) -> None:
    config, random, races = CONFIGS[name], np.random.default_rng(SEED), 0
    for seed in range(3):
        case = generate(config, seed, 60)
        registers = case.bases, case.limits, case.lengths
        assert first_race(case.image, config, *registers) is None
        for _ in range(8):
            image = without_some_waits(case.image, random)
            expected = first_race(image, config, *registers)
            try:
                verify(image, config, *registers, case.program)
                seen = None
            except ProgramError as error:
                seen = tuple(map(int, re.findall(r"command (\d+) ", str(error))[:2]))
            assert seen == expected
            races += expected is not None
    assert races >= 5


@pytest.mark.parametrize(("ordered", "end"), [(True, FINE), (False, FULL)])
def test_what_is_ordered_is_forgotten(ordered: bool, end: int) -> None:
    """2,000 moves pass with room for 8 DRAM accesses, where each waits for the one before; else the room runs out."""
    config = load_config("tiny")
    move = {"bytes": 4, "row_stride": 1, "block_stride": 1, "rows": 1}
    program = []
    for i in range(1000):
        waits = {Unit.STORE: 1} if ordered and i else {}
        program += [Command.make(Unit.LOAD, offset=4 * i, row=i, waits=waits, **move),
                    Command.make(Unit.STORE, base=1, offset=4 * i, row=i, waits={Unit.LOAD: 1}, **move)]
    bases, limits, lengths = np.zeros(NUM_BASES, np.int64), np.full(NUM_BASES, 1 << 15), np.zeros(NUM_LENGTHS, np.int64)
    bases[1] = 1 << 16
    table = decode_table(encode_program(program))
    out, needed = np.zeros(len(OUT_FIELDS), np.int64), np.zeros(len(Unit), np.int64)
    local = new_local(config)
    begin(local, bases, limits, lengths, len(table))
    at, seen = walk(new_state(config, 8), table, local, config_vector(config), 0, 0, 0, out, needed)
    assert seen == end
    assert (at == len(table)) == ordered
