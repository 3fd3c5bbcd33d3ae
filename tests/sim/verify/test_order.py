"""The compiled walk finds the same races as the slow one, in random programs whose waits were changed."""

import random
import re
from functools import partial

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.control import begin, new_local, params
from gemmule.isa import (
    CONTROL,
    HEADER,
    NUM_BASES,
    NUM_LENGTHS,
    Command,
    Length,
    Unit,
    VOp,
    decode_table,
    encode_program,
)
from gemmule.resolve import config_vector
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.verify.order import walk
from gemmule.sim.verify.state import FINE, FULL, new_state
from gemmule.sim.verify.verify import ProgramError, verify
from gemmule.terms import OUT_FIELDS

from ...nests import Nests, interpret, unrolled
from .reference import first_race

SEED = 3
TINY = load_config("tiny")
WAIT_BITS = dict(HEADER)["wait_load"]
FIRST_WAIT = 8
"""Place of the first wait in a command's word."""
CONFIGS = {name: load_config(f"examples/configs/{name}.yaml") for name in ("dim2", "one_bank")} | {
    "tiny": TINY}


def without_some_waits(image: bytes, rng: np.random.Generator) -> bytes:
    """Up to three waits shortened or dropped: some program races then."""
    words = np.frombuffer(image, dtype="<u8").reshape(-1, 4).copy()
    waits = [(i, u) for i, row in enumerate(decode_table(image)) for u in range(len(Unit)) if row[2 + u]]
    for i, u in rng.choice(waits, int(rng.integers(1, 4)), replace=False):
        shift = np.uint64(FIRST_WAIT + WAIT_BITS * u)
        had = int(words[i, 0] >> shift) & (1 << WAIT_BITS) - 1
        less = int(rng.integers(0, had))
        words[i, 0] = (int(words[i, 0]) & ~((1 << WAIT_BITS) - 1 << int(shift))) | less << int(shift)
    return words.tobytes()


@pytest.mark.parametrize("name", CONFIGS)
def test_same_races(name: str) -> None:
    config, rng, races = CONFIGS[name], np.random.default_rng(SEED), 0
    for seed in range(3):
        case = generate(config, seed, 60)
        registers = case.bases, case.limits, case.lengths
        assert first_race(case.image, config, *registers) is None
        for _ in range(8):
            image = without_some_waits(case.image, rng)
            expected = first_race(image, config, *registers)
            try:
                verify(image, config, *registers, case.program)
                seen = None
            except ProgramError as error:
                seen = tuple(map(int, re.findall(r"command (\d+) ", str(error))[:2]))
            assert seen == expected
            races += expected is not None
    assert races >= 5


def small_command(rng: random.Random) -> Command:
    """A move, product or scaling of few rows of two banks, with waits that are mostly enough."""
    bank, move = TINY.spm_bank_rows, {"bytes": 4, "stride": 4, "row_stride": 1, "block_stride": 1}
    unit = rng.choice((Unit.LOAD, Unit.STORE, Unit.MATRIX, Unit.VECTOR))
    waits = {u: rng.choice((1, 1, 1, 2, 5)) for u in Unit if rng.random() < 0.8}
    row, rows = rng.choice((0, 6, bank, bank + 5)), Length(4, rng.randint(1, 3)) if rng.random() < 0.5 else 4
    if unit <= Unit.STORE:
        return Command.make(unit, waits=waits, base=rng.randint(0, 3), offset=4 * rng.randint(0, 40), row=row,
                            rows=rows, **move)
    if unit is Unit.MATRIX:
        return Command.make(unit, waits=waits, a_row=row, a_stride=4, b_row=2 * bank, b_stride=4,
                            c_row=rng.choice((0, 2, 4)), c_stride=4, m=rows, n=4, k=4)
    return Command.make(unit, op=VOp.REQUANT, waits=waits, src0=0, src0_stride=4, dst=row, dst_stride=4, m=rows, n=4)


def refused(program: list[Command], *registers: np.ndarray) -> list[tuple[int, int]]:
    """Numbers and places of the commands that the verifier names."""
    try:
        verify(program, TINY, *registers)
    except ProgramError as error:
        named = re.findall(r"command (\d+)(?: at (\d+))? \(", str(error))
        return [(int(number), int(place or number)) for number, place in named]
    return []


def test_same_races_between_turns() -> None:
    """A program with bodies races where the same commands in a row do, with the registers of their turn in them."""
    bases = np.arange(NUM_BASES, dtype=np.int64) * 4096
    limits, none = np.full(NUM_BASES, 1 << 16), np.zeros(NUM_LENGTHS, dtype=np.int64)
    words = TINY.parameter_words
    brought = [params(0), params(5), params(words - 5)]  # whatever SET reads
    races = same_place = fine = 0
    for seed in range(250):
        rng = random.Random(seed)
        nests = Nests(rng, TINY, partial(small_command, rng), bytes=4)
        program = [*brought, *nests.commands(rng.choice((8, 15, 30)))]
        lengths = np.array([0, 4, 2, 3, *(rng.choice((0, 1, 7, 65535)) for _ in range(12))])
        run = interpret(program, TINY, lengths.tolist(), most=150)
        if not run.whole:
            continue
        real = [number for number, step in enumerate(run.steps) if program[step.place].unit != CONTROL]
        expected = first_race(encode_program(unrolled(program, run)[0]), TINY, bases, limits, none)
        seen = refused(program, bases, limits, lengths)
        if expected is None:
            assert seen == [], seed
            fine += len(run.steps) > 20
        else:
            b, a = (real[i] for i in expected)
            assert seen == [(b, run.steps[b].place), (a, run.steps[a].place)], seed
            races += 1
            same_place += run.steps[a].place >= run.steps[b].place
    assert races > 40
    assert same_place > 4, "races of a turn with one before"
    assert fine > 10


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
