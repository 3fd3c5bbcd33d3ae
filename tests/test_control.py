"""Control commands: encoding, listing, and what they mean, against an interpreter written from the rules."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmule.config import Config, load_config
from gemmule.control import (
    MAX_COMMANDS,
    MAX_DEPTH,
    Local,
    Sequence,
    begin,
    execute,
    new_local,
    parameter_read,
    params,
    repeat,
    set_displacement,
    set_length,
    take,
)
from gemmule.isa import (
    BODY,
    CONTROL,
    CONTROL_BODY,
    MAX_LENGTH,
    NUM_BASES,
    NUM_LENGTHS,
    PARAMS_WORDS,
    Command,
    COp,
    Dyn,
    IsaError,
    Length,
    Source,
    Unit,
    control_columns,
    decode,
    decode_table,
    disassemble,
    encode,
    encode_program,
    signed_field,
    table_row,
)
from gemmule.resolve import FAULTS, TERMS, config_vector
from gemmule.sim.stream import Streams
from gemmule.sim.timing.engine import count_commands
from gemmule.terms import OUT
from gemmule.timing import Timing

from .nests import Nests, interpret

CONFIG = load_config("tiny")
WORDS = CONFIG.parameter_words
SPACE = 1 << CONFIG.address_bits
NOTHING = Command.make(Unit.LOAD)
"""Of length zero."""


def new_launch(config: Config, program: list[Command], lengths: list[int]) -> Local:
    local = new_local(config)
    zeros = np.zeros(NUM_BASES, dtype=np.int64)
    begin(local, zeros + 4096, zeros + 1000, np.array(lengths, dtype=np.int64), len(program))
    return local


def after(*commands: Command, lengths: dict[int, int] | None = None) -> tuple[Local, str]:
    """Registers behind a program of control commands, and how its last one ends."""
    values = [0] * NUM_LENGTHS
    for register, value in (lengths or {}).items():
        values[register] = value
    local, fault = new_launch(CONFIG, list(commands), values), 0
    for row in decode_table(encode_program(commands)):
        assert not fault
        take(local)
        fault = execute(row, local, config_vector(CONFIG))
    return local, FAULTS[fault]


# Encoding and listing -----------------------------------------------------------------------------


@st.composite
def control_commands(draw: st.DrawFn) -> Command:
    op = draw(st.sampled_from(COp))
    fields = {}
    for name, bits in CONTROL_BODY[op]:
        low, high = (-1 << bits - 1, (1 << bits - 1) - 1) if signed_field(name) else (0, (1 << bits) - 1)
        fields[name] = draw(st.sampled_from((low, high, 0)) | st.integers(low, high))
    return Command(CONTROL, fields, op)


@given(control_commands())
def test_round_trip(command: Command) -> None:
    assert decode(encode(command)) == command
    row = decode_table(encode_program([command]))[0]
    assert {name: row[i] for name, i in control_columns(COp(command.op)).items()} == command.fields
    assert (row == table_row(command)).all()


def test_fields_stand_where_the_page_says() -> None:
    assert all(sum(bits for _, bits in body) <= 192 for body in CONTROL_BODY.values())
    word = encode(set_length(3, Source.HALF, 2, index=12, amount=-1, modulus=64))
    assert word & 7 == CONTROL == len(Unit)
    body = word >> 64
    assert body == 0 | 3 << 1 | 4 << 6 | 2 << 9 | 12 << 14 | (1 << 48) - 1 << 30 | 64 << 78
    assert encode(params(7, 1, -2)) >> 64 == 7 | 1 << 16 | (1 << 32) - 2 << 48
    assert encode(repeat(12, Length(100, 3, 5), shift=6)) >> 64 == 12 | 3 << 24 | 5 << 28 | 6 << 44 | 100 << 48


def test_control_commands_beside_others_in_a_table() -> None:
    program = [NOTHING, repeat(2, 3), Command.make(Unit.MATRIX, a_row=5, m=3), set_length(1, amount=-5), NOTHING]
    assert (decode_table(encode_program(program)) == np.array([table_row(command) for command in program])).all()


@pytest.mark.parametrize(("command", "message"), [
    (set_length(32), "target_reg must be from 0 to 31, not 32"),
    (set_length(1, amount=1 << 48), f"amount must be from 0 to {(1 << 48) - 1}, not {1 << 48}"),
    (set_length(1, amount=(-1 << 47) - 1), f"amount must be from 0 to {(1 << 48) - 1}, not {(-1 << 47) - 1}"),
    (params(0, 1 << 32), "word0 must be"), (repeat(1 << 24, 1), "body must be"), (repeat(1, 1 << 16), "times_cap"),
    (params(0, 1, 2, 3, 4, 5, 6), "unknown field 'word5'"),
])
def test_fields_that_do_not_fit(command: Command, message: str) -> None:
    with pytest.raises(IsaError) as error:
        encode(command)
    assert message in str(error.value)


def test_unit_numbers_beyond_control_are_refused() -> None:
    for unit in (6, 7):
        with pytest.raises(IsaError, match=f"unit must be from 0 to 5, not {unit}"):
            decode(unit)
    assert BODY.keys() == set(Unit)


@pytest.mark.parametrize(("command", "line"), [
    (set_length(3, Source.HALF, 2, index=12, amount=1, modulus=64),
     "control.set          len3 = half[12+len2] + 1 mod 64"),
    (set_length(1), "control.set          len1 = 0"),
    (set_length(1, Source.LENGTH, 2, amount=-7, note="back"), "control.set          len1 = len2 - 7  # back"),
    (set_displacement(31, Source.WORD, index=5), "control.set          displacement31 = word[5]"),
    (set_displacement(3, Source.DISPLACEMENT, 4, amount=64), "control.set          displacement3 = displacement4 + 64"),
    (params(10, 1, -2), "control.params       word[10] = 1, -2, 0, 0, 0"),
    (repeat(12, 3), "control.repeat       next 12, 3 times"),
    (repeat(12, Length(100, 3), shift=6), "control.repeat       next 12, len3-0 >> 6 <= 100 times"),
])
def test_listing(command: Command, line: str) -> None:
    assert disassemble(command) == line
    assert disassemble(decode(encode(command))) == line.partition("  #")[0]


# Registers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "value"), [
    (set_length(1), 0), (set_length(1, amount=70000), 65535), (set_length(1, amount=-1), 0),
    (set_length(1, amount=(1 << 47) - 1), 65535), (set_length(1, amount=-1 << 47), 0),
    (set_length(1, Source.LENGTH, 0), 65535), (set_length(1, Source.LENGTH, 2, amount=5), 105),
    (set_length(2, Source.LENGTH, 2, amount=-100), 0),
    (set_length(1, amount=63, modulus=64), 63), (set_length(1, amount=64, modulus=64), 0),
    (set_length(1, amount=200, modulus=64), 136), (set_length(1, amount=-1, modulus=64), 63),
    (set_length(1, amount=-65, modulus=64), 0),  # once, then limited
    (set_length(1, amount=65535 + 65535, modulus=65535), 65535),
    (set_length(1, Source.WORD, index=0), 0), (set_length(1, Source.WORD, index=1, amount=1 << 31), 0),
    (set_length(1, Source.WORD, index=2), 65535), (set_length(1, Source.WORD, index=3, amount=1), 0),
    (set_length(1, Source.HALF, index=0), 0x8765), (set_length(1, Source.HALF, index=1), 0xFEDC),
    (set_length(1, Source.HALF, index=4), 0xFFFF), (set_length(1, Source.HALF, index=5), 0x7FFF),
    (set_length(1, Source.HALF, index=7), 0xFFFF),
    (set_length(1, Source.HALF, 3, index=2), 0x7FFF),  # LEN[3] = 3
    (set_length(1, Source.WORD, 3, index=1), 300),
])
def test_lengths(command: Command, value: int) -> None:
    words = params(0, 0xFEDC8765 - (1 << 32), -1 << 31, (1 << 31) - 1, -1, 300)
    local, fault = after(words, command, lengths={2: 100, 3: 3})
    assert (local.lengths[command.fields["target_reg"]], fault) == (value, "none")
    assert not local.displacements.any()


@pytest.mark.parametrize(("commands", "value"), [
    ([set_displacement(3, amount=64)], 64), ([set_displacement(3, amount=-1)], SPACE - 1),
    ([set_displacement(3, amount=SPACE)], 0), ([set_displacement(3, amount=-1 << 47)], 0),
    ([set_displacement(3, amount=64), set_displacement(3, Source.DISPLACEMENT, 3, amount=-65)], SPACE - 1),
    ([set_displacement(31, amount=5), set_displacement(3, Source.DISPLACEMENT, 31, amount=1)], 6),
    ([set_displacement(3, Source.LENGTH, 0)], 65535), ([params(0, -64), set_displacement(3, Source.WORD)], SPACE - 64),
    ([params(0, -64), set_displacement(3, Source.HALF)], 65472),
])
def test_displacements(commands: list[Command], value: int) -> None:
    local, fault = after(*commands)
    assert (local.displacements[3], fault) == (value, "none")
    assert (local.bases == 4096 + local.displacements).all()
    assert (local.limits == 1000 - local.displacements).all(), "below 0 where the displacement is beyond the limit"


def test_a_launch_begins_with_the_hosts_registers_and_old_parameters() -> None:
    local, _ = after(params(2, 1, 2, 3, 4, 5), set_length(1, amount=9), set_displacement(1, amount=9))
    assert local.written.nonzero()[0].tolist() == [2, 3, 4, 5, 6]
    zeros = np.zeros(NUM_BASES, dtype=np.int64)
    begin(local, zeros, zeros, np.arange(NUM_LENGTHS), 7)
    assert local.lengths.tolist() == list(range(NUM_LENGTHS))
    assert not local.displacements.any()
    assert local.words[:8].tolist() == [0, 0, 1, 2, 3, 4, 5, 0]
    assert not local.written.any()
    assert local.sequence.tolist() == [0, 7, 0, 0]


REPEAT, SET, PARAMS = repeat(1, 1), set_length(1), params(0)


@pytest.mark.parametrize(("command", "fault"), [
    *((replace(good, **change), "illegal") for good in (REPEAT, SET, PARAMS) for change in (
        {"waits": {Unit.LOAD: 1}}, {"waits": {Unit.SELECT: 63}}, {"flags": frozenset({0})}, {"flags": frozenset({7})},
        {"dyn": (Dyn.DST, 0, 0)}, {"dyn": (Dyn.NONE, 1, 0)}, {"dyn": (Dyn.NONE, 0, 1)}, {"predicate": 1})),
    *((Command(CONTROL, {}, op), "illegal") for op in (3, 4, 31)),
    (set_length(0), "illegal"), (set_length(16), "illegal"), (set_length(15), "none"),
    (replace(SET, fields={"target_reg": 1, "source": 5}), "illegal"),
    (replace(SET, fields={"target_reg": 1, "source": 7}), "illegal"),
    *((set_length(1, source, 16), "none" if source == Source.DISPLACEMENT else "illegal") for source in Source),
    (set_displacement(0), "none"), (set_displacement(31), "none"),
    (replace(SET, fields={"target": 1, "modulus": 1}), "illegal"),
    (set_length(1, Source.WORD, index=WORDS - 1), "none"), (set_length(1, Source.WORD, index=WORDS), "rows"),
    (set_length(1, Source.HALF, index=2 * WORDS - 1), "none"), (set_length(1, Source.HALF, index=2 * WORDS), "rows"),
    (set_length(1, Source.WORD, 2, index=WORDS - 6), "rows"), (set_length(1, Source.WORD, 2, index=WORDS - 8), "none"),
    (set_length(0, Source.WORD, index=WORDS), "illegal"),  # what is illegal is that first
    (params(WORDS - PARAMS_WORDS, 1), "none"), (params(WORDS - PARAMS_WORDS + 1, 1), "rows"), (params(65535), "rows"),
    (repeat(0, 1), "illegal"), (repeat(2, 1), "illegal"), (repeat(2, 0), "illegal"),
    (repeat((1 << 24) - 1, 1), "illegal"),
])
def test_what_faults(command: Command, fault: str) -> None:
    """Before one more command; one that faults changes nothing."""
    local = new_launch(CONFIG, [command, NOTHING], [7] * NUM_LENGTHS)
    take(local)
    before = [part.copy() for part in local]
    assert FAULTS[execute(table_row(command), local, config_vector(CONFIG))] == fault
    same = all((a == b).all() for a, b in zip(before, local))
    assert same or fault == "none"


def test_which_parameter_a_set_reads() -> None:
    local = new_launch(CONFIG, [], [0, 0, 9, *[0] * 13])
    for command, word in (
        (set_length(1, Source.WORD, index=5), 5), (set_length(1, Source.WORD, 2, index=5), 14),
        (set_length(1, Source.HALF, index=5), 2), (set_length(1, Source.HALF, 2, index=5), 7),
        (set_length(1, Source.LENGTH, 2, index=5), -1), (params(5), -1), (repeat(5, 1), -1),
        (set_length(1, Source.WORD, 16), -1), (set_length(1, Source.WORD, 2, index=65535), 65544),
    ):
        assert parameter_read(table_row(command), local) == word, disassemble(command)


# Bodies -------------------------------------------------------------------------------------------


def places(program: list[Command], lengths: list[int] | None = None) -> tuple[list[int], str]:
    """The commands of a launch by place, and its fault."""
    none = np.zeros(NUM_BASES, dtype=np.int64)
    registers = none, none, np.array(lengths or [0] * NUM_LENGTHS, dtype=np.int64)
    stream = Streams(CONFIG).follow(decode_table(encode_program(program)), *registers)
    fault = FAULTS[stream.resolved[stream.good, OUT["fault"]]] if stream.good < stream.count else "none"
    return stream.places.tolist(), fault


@pytest.mark.parametrize(("program", "expected"), [
    ([repeat(1, 3), NOTHING], [0, 1, 1, 1]), ([repeat(1, 1), NOTHING, NOTHING], [0, 1, 2]),
    ([repeat(2, 0), NOTHING, NOTHING, NOTHING], [0, 3]), ([repeat(1, 0), NOTHING], [0]),
    ([repeat(2, 0), params(600), repeat(9, 9), NOTHING], [0, 3]),  # what is not run is not looked at
    ([repeat(3, 2), repeat(1, 2), NOTHING, NOTHING], [0, 1, 2, 2, 3, 1, 2, 2, 3]),
    ([repeat(3, 2), repeat(1, 0), NOTHING, NOTHING], [0, 1, 3, 1, 3]),
    ([repeat(3, 0), repeat(1, 2), NOTHING, NOTHING, NOTHING], [0, 4]),
    ([repeat(3, 1), NOTHING, NOTHING, SET, repeat(1, 2), NOTHING], [0, 1, 2, 3, 4, 5, 5]),
])
def test_bodies(program: list[Command], expected: list[int]) -> None:
    assert places(program) == (expected, "none")


@pytest.mark.parametrize(("length", "offset", "shift", "cap", "times"), [
    (0, 0, 0, 9, 0), (1, 0, 0, 9, 1), (5, 5, 0, 9, 0), (5, 6, 0, 9, 0), (6, 5, 4, 9, 1), (64, 0, 6, 9, 1),
    (65, 0, 6, 9, 2), (65535, 0, 15, 9, 2), (65535, 65534, 15, 9, 1), (32768, 0, 15, 9, 1), (32769, 0, 15, 9, 2),
    (65535, 0, 0, 40, 40), (65535, 0, 0, 0, 0),
])
def test_how_often(length: int, offset: int, shift: int, cap: int, times: int) -> None:
    program = [repeat(1, Length(cap, 3, offset), shift=shift), NOTHING]
    assert places(program, [0, 0, 0, length, *[0] * 12]) == ([0] + [1] * times, "none")
    again = [repeat(1, Length(cap, 0, offset), shift=shift), NOTHING]  # register 0 reads 65535
    assert len(places(again)[0]) == 1 + min(-(-(MAX_LENGTH - offset) >> shift), cap)


def test_how_often_is_decided_once() -> None:
    """A body may change its own count's register; the next REPEAT that reads it sees that."""
    program = [set_length(1, amount=3), repeat(1, Length(9, 1)), set_length(1, Source.LENGTH, 1, amount=-1),
               repeat(1, Length(9, 1)), NOTHING, set_length(2, amount=2), repeat(1, Length(9, 2)), NOTHING]
    assert places(program) == ([0, 1, 2, 2, 2, 3, 5, 6, 7, 7], "none")


def nested(depth: int, times: int = 1) -> list[Command]:
    """Bodies within each other around one command, each with one more command behind the one inside."""
    program = [NOTHING]
    for i in range(depth):
        program = [repeat(len(program) + (i > 0), times), *program, *([NOTHING] if i else [])]
    return program


def test_depth() -> None:
    assert places(nested(MAX_DEPTH))[1] == "none"
    found, fault = places(nested(MAX_DEPTH + 1))
    assert fault == "illegal"
    assert found == [0, 1, 2, 3, 4]
    empty = nested(MAX_DEPTH)
    at = MAX_DEPTH
    fifth = [*(replace(c, fields=c.fields | {"body": c.fields["body"] + 2}) for c in empty[:at]), repeat(1, 0), NOTHING,
             *empty[at:]]
    assert places(fifth)[1] == "illegal", "also one that would not run its body"


@pytest.mark.parametrize(("program", "last"), [
    ([repeat(2, 2), NOTHING, repeat(1, 1), NOTHING], 2),  # REPEAT as the last command of a body
    ([repeat(2, 1), NOTHING, repeat(1, 0), NOTHING], 2),  # of its last turn, and it would run nothing
    ([repeat(2, 1), repeat(1, 1), NOTHING, NOTHING], 1),  # two bodies that end together
    ([repeat(2, 1), repeat(2, 1), NOTHING, NOTHING, NOTHING], 1),  # one that ends behind the other
    ([repeat(1, 1)], 0), ([NOTHING, repeat(2, 1), NOTHING], 1),
])
def test_bodies_that_do_not_fit(program: list[Command], last: int) -> None:
    found, fault = places(program)
    assert (found, fault) == (list(range(last + 1)), "illegal")


def compare(config: Config, program: list[Command], lengths: list[int], words: dict[int, int]) -> int:
    """Command by command, with all registers; the commands of the launch."""
    expected = interpret(program, config, lengths, words, most=4000)
    local, vector, table = new_launch(config, program, lengths), config_vector(config), decode_table(
        encode_program(program))
    for word, value in words.items():
        local.words[word] = value
    for number, step in enumerate(expected.steps):
        assert local.sequence[Sequence.LEFT] > 0
        assert (local.sequence[Sequence.PLACE], tuple(local.lengths[1:]), tuple(local.displacements)) == (
            step.place, step.state.lengths[1:], step.state.displacements), number
        assert (local.bases == 4096 + local.displacements).all()
        assert (local.limits == 1000 - local.displacements).all()
        row = table[step.place]
        take(local)
        fault = execute(row, local, vector) if program[step.place].unit == CONTROL else 0
        assert FAULTS[fault] == (step.fault or "none"), number
    if expected.whole and not expected.steps[-1].fault:
        assert local.sequence[Sequence.LEFT] == local.sequence[Sequence.DEPTH] == 0
    assert {i: int(word) for i, word in enumerate(local.words) if word} == {
        i: word for i, word in expected.words.items() if word}
    return len(expected.steps)


@pytest.mark.parametrize("wild", [False, True])
def test_random_nests(wild: bool) -> None:
    config = load_config({"name": "small", "parameter_words": 16, "address_bits": 16, "spm_kib": 8, "acc_kib": 8,
                          "dim": 8, "bus_bytes": 8})
    deepest = total = faults = 0
    for seed in range(150):
        rng = random.Random(seed)
        nests = Nests(rng, config, lambda: NOTHING, wild=wild)
        program = nests.commands(rng.choice((5, 20, 80, 200)))
        lengths = [0, *(rng.choice((0, 1, 7, 40, 65535)) for _ in range(15))]
        total += compare(config, program, lengths, {0: rng.randint(-9, 99), 15: rng.randint(-9, 99)})
        run = interpret(program, config, lengths, most=4000)
        faults += bool(run.steps[-1].fault)
        deepest = max(deepest, len(run.steps))
    assert total > 3000
    assert deepest > 300
    assert faults > 20 if wild else faults < 150


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_control_commands(data: st.DataObject) -> None:
    """Also fields that fault; REPEAT with bodies that often fit."""
    def small(command: Command) -> Command:
        if command.op == COp.REPEAT:
            return repeat(data.draw(st.integers(0, 6)), data.draw(st.integers(0, 3)))
        return command

    program = [small(command) for command in data.draw(st.lists(control_commands(), min_size=1, max_size=12))]
    lengths = data.draw(st.lists(st.sampled_from((0, 1, 9, 65535)), min_size=16, max_size=16))
    compare(CONFIG, program, lengths, {})


# Number of commands -------------------------------------------------------------------------------


def test_the_last_command_that_a_launch_may_have() -> None:
    """Four bodies of few commands are more than 2^24 of them; counting them takes less than a second or two."""
    times = 90
    program = nested(4, times)
    table = decode_table(encode_program(program))
    none = np.zeros(NUM_BASES, dtype=np.int64)
    registers = none, none, np.zeros(NUM_LENGTHS, dtype=np.int64), config_vector(CONFIG)
    # innermost first: one command; then the REPEAT, its turns, and one command behind them
    inside = times
    for _ in range(3):
        inside = times * (1 + inside + 1)
    count_commands(table, *registers, 0, new_local(CONFIG))  # compiles
    begins = time.perf_counter()
    assert inside + 1 > MAX_COMMANDS
    assert count_commands(table, *registers, 6, new_local(CONFIG)) == MAX_COMMANDS + 1 + 6
    assert time.perf_counter() - begins < 5
    few = nested(4, 9)
    assert count_commands(decode_table(encode_program(few)), *registers, 6, new_local(CONFIG)) == 1 + 9 * (
        2 + 9 * (2 + 9 * (2 + 9)))


@pytest.mark.parametrize(("program", "fault"), [
    ([repeat(1, 100), NOTHING], "illegal"), ([repeat(1, 49), NOTHING], "none"), ([repeat(1, 48), NOTHING], "none"),
    ([repeat(1, 50), NOTHING], "illegal"), ([repeat(1, 49), NOTHING, params(600)], "illegal"),
    ([repeat(1, 100), SET], "illegal"),
])
def test_one_command_too_many(program: list[Command], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 50 instead of 2^24 - 1: number 50 faults, whatever it is."""
    from gemmule.sim.timing import program as module

    monkeypatch.setattr(module, "_MOST", 50)
    table = decode_table(encode_program(program))
    local, vector = new_local(CONFIG), config_vector(CONFIG)
    none = np.zeros(NUM_BASES, dtype=np.int64)
    registers = none, none, np.zeros(NUM_LENGTHS, dtype=np.int64)
    behind = Timing.of(CONFIG).resolve
    module.begin_stream(local, *registers, len(table))
    count = module.count_stream.py_func(table, vector, behind, local)
    stream, resolved = np.zeros((count, 4), dtype=np.int64), np.zeros((count, len(OUT)), dtype=np.int64)
    module.begin_stream(local, *registers, len(table))
    good, end = module.resolve_stream.py_func(
        table, vector, behind, local, stream, resolved, np.zeros(TERMS, dtype=np.int64))
    if fault == "none":
        assert good == end == count <= 50
        return
    assert (good, FAULTS[resolved[good, OUT["fault"]]]) == (50, "illegal")
    assert end == count == min(51 + behind, len(interpret(program, CONFIG, [0] * 16).steps))
