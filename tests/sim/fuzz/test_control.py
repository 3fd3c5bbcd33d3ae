"""Control commands in random programs: what is drawn, what it does turn by turn, how it faults."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.control import begin, execute, new_local, params, repeat, set_displacement, set_length
from gemmule.isa import (
    COMMAND_BYTES,
    CONTROL,
    MAX_LENGTH,
    NUM_BASES,
    NUM_LENGTHS,
    TABLE_FIELDS,
    Command,
    COp,
    Length,
    MoveFlag,
    Source,
    Unit,
    decode_table,
    encode,
    encode_program,
    table_row,
)
from gemmule.isa import decode as decode_word
from gemmule.resolve import FAULTS, OUT, config_vector
from gemmule.sim.fuzz.builder import Builder
from gemmule.sim.fuzz.control import draw_control, draw_repeat, turns_of
from gemmule.sim.fuzz.draw import Draw
from gemmule.sim.fuzz.faults import faulty_controls
from gemmule.sim.fuzz.forms import FORMS, forms_of
from gemmule.sim.fuzz.generate import generate, probe
from gemmule.sim.fuzz.write import Writer, to_the_limit
from gemmule.sim.launch import Launch
from gemmule.sim.simulator import Simulator
from gemmule.sim.stream import stream_of
from gemmule.sim.verify.verify import ProgramError, verify

TINY, BASE = load_config("tiny"), load_config("base")
SPACE16 = load_config("examples/configs/unusual/space16.yaml")
NARROW = load_config("examples/configs/unusual/narrow.yaml")
BROAD = TINY.model_copy(update={"name": "broad", "address_bits": 48})
OP = TABLE_FIELDS.index("op")
REGISTERS = np.zeros(NUM_BASES, dtype=np.int64), np.full(NUM_BASES, 1 << 16), np.arange(NUM_LENGTHS, dtype=np.int64)


def stream(config, case):
    return stream_of(case.image, config, case.bases, case.limits, case.lengths)


def launch(commands, *registers):
    return Launch("forms", 0, encode_program(commands), 0, np.zeros(64, dtype=np.uint8), *(registers or REGISTERS))


def counted(config, commands):
    case = launch(commands)
    return Counter(forms_of(case, stream(config, case), config))


def builder_and_draw(config, seed, commands=100):
    random = np.random.default_rng(seed)
    bases, limits, lengths = np.zeros(32, dtype=np.int64), np.full(32, 1 << 16), random.integers(0, 20, 16)
    draw, builder = Draw(config, random, bases, lengths), Builder(config, bases, limits, lengths, random)
    draw.control = True
    draw.follow(builder.order.local)
    return builder, draw, Writer(builder, draw, commands)


@pytest.mark.parametrize("config", [TINY, SPACE16, NARROW, BROAD], ids=lambda config: config.name)
def test_programs_with_control_commands_are_legal_and_run(config):
    """At least half of them have some, their streams stay within three times their images, and they end well."""
    controlled = 0
    for seed in range(100, 108):
        case = generate(config, seed, 70)
        verify(case.image, config, case.bases, case.limits, case.lengths, case.program)
        found = stream(config, case)
        controlled += bool((found.units == CONTROL).any())
        assert found.good == found.count <= 3 * len(case.image) // COMMAND_BYTES
        model = Simulator(config, dram_bytes=len(case.dram))
        model.load(case)
        assert model.run().fault == 0
    assert controlled >= 5


def test_every_form_comes():
    forms = Counter()
    for seed in range(8):
        case = generate(TINY, seed, 400)
        forms.update(forms_of(case, stream(TINY, case), TINY))
    assert not [name for kind, names in FORMS.items() for name in names if not forms[f"{kind}+{name}"]]


def test_forms_of_set_and_params():
    commands = [
        params(0, -7, 5 << 16 | 3), params(TINY.parameter_words - 5), params(6),
        set_length(1), set_length(2, Source.LENGTH, 0, amount=1), set_length(3, Source.LENGTH, 4, amount=-5),
        set_length(3, Source.WORD, 0), set_length(3, Source.HALF, 5, amount=1, modulus=4, index=-5 & 0),
    ]
    commands[-1] = replace(commands[-1], fields={**commands[-1].fields, "source_reg": 1, "index": 3})
    found = counted(TINY, commands)
    assert found == Counter({
        "params": 3, "params+first": 1, "params+last": 1, "set": 5, "set+length_zero": 1, "set+length_0": 3,
        "set+length_length": 2, "set+register_0": 1, "set+above_65535": 1, "set+below_0": 2, "set+length_word": 1,
        "set+length_half": 1, "set+indexed": 1, "set+odd_half": 1, "set+wraps_down": 1})
    wraps = counted(TINY, [
        set_length(1, amount=-3, modulus=7), set_length(1, amount=3, modulus=7), set_displacement(4, amount=-1),
        set_displacement(4, Source.DISPLACEMENT, 4, amount=1), set_displacement(5, amount=(1 << 32) - 1)])
    assert wraps == Counter({
        "set": 5, "set+length_zero": 2, "set+wraps_up": 1, "set+within_modulus": 1, "set+displacement_zero": 2,
        "set+space_wraps": 2, "set+displacement_displacement": 1})


def test_forms_of_repeat():
    """By what comes: a body within one counts each time, one that comes no time only as such."""
    empty = Command.make(Unit.LOAD)
    long = TINY.fetch_queue + 3
    found = counted(TINY, [
        repeat(long, 2), repeat(1, Length(MAX_LENGTH, 5, 4)), empty, set_length(5, Source.LENGTH, 5, amount=1),
        *[empty] * (long - 3), repeat(1, 0), empty])
    assert found == Counter({
        "repeat": 4, "repeat+depth_1": 1, "repeat+depth_2": 2, "repeat+several": 2, "repeat+once": 1, "repeat+long": 1,
        "repeat+short": 2, "repeat+short_in_long": 2, "repeat+one_command": 2, "repeat+register": 2, "repeat+offset": 2,
        "repeat+changing": 1, "repeat+begins": 1, "repeat+none": 1, "repeat+ends": 1, "set": 2, "set+length_length": 2})
    for more, name in ((-1, "below_window"), (0, "window"), (1, "above_window")):
        body = TINY.fetch_queue + more
        assert counted(TINY, [repeat(body, 1), *[empty] * body])[f"repeat+{name}"] == 1


@pytest.mark.parametrize("config", [TINY, SPACE16, BROAD], ids=lambda config: config.name)
def test_drawn_control_commands_are_legal(config):
    """On any registers, also after one another; displacements stay where moves are within their limits."""
    random, cfg = np.random.default_rng(3), config_vector(config)
    local, targets = new_local(config), Counter()
    bases = random.integers(0, 1 << 12, NUM_BASES)
    begin(local, bases, np.full(NUM_BASES, 1 << 15), random.integers(0, 99, NUM_LENGTHS), 0)
    draw = Draw(config, random, local.bases, local.lengths)
    for _ in range(600):
        for command in draw_control(draw, local):
            encode(command)
            assert execute(table_row(command), local, cfg) == 0, command
            targets[command.op, command.fields.get("target")] += 1
        assert (local.bases == bases + local.displacements).all()
    near = [base for base in range(NUM_BASES) if base not in (13, 14)]
    assert (local.limits[near] >= 0).all()
    assert min(targets[COp.SET, 0], targets[COp.SET, 1], targets[COp.PARAMS, None]) > 80


def test_a_repeat_comes_as_often_as_drawn():
    random = np.random.default_rng(1)
    lengths = random.integers(0, 300, NUM_LENGTHS)
    lengths[3], lengths[4] = 0, MAX_LENGTH
    draw, forms = Draw(TINY, random, np.zeros(32, dtype=np.int64), lengths), set()
    for _ in range(400):
        turns = int(random.choice([0, 1, 2, 7, 40]))
        command = draw_repeat(draw, lengths, turns, (5, 6))
        encode(command)
        assert turns_of(command, lengths) == turns
        forms.add((command.fields["times_reg"] > 0, command.fields["times_shift"] > 0, turns))
    assert len(forms) > 15


def test_a_length_that_was_set_lately_is_never_more_than_drawn():
    builder, draw, _ = builder_and_draw(TINY, 2)
    draw.fresh, fields = (4,), 0
    for value in range(1, 40):
        for _ in range(5):
            length = draw.length(value)
            if length.reg == 4 and length.cap == value:
                fields += 1
                assert all(length.resolve([written] * NUM_LENGTHS) <= value for written in (0, 3, 50, MAX_LENGTH))
    assert fields > 20


def zero_load(row, *, waits=None, dyn=(0, 0, 0)):
    return Command.make(Unit.LOAD, row=row, rows=1, bytes=4, row_stride=1, block_stride=1, flags=[MoveFlag.ZERO],
                        dyn=dyn, waits=waits)


def test_a_body_gets_the_waits_of_its_later_turns():
    """A load of the next row in each turn, and a store of the row two further: they meet in the third turn."""
    builder, _, _ = builder_and_draw(TINY, 0)
    store = Command.make(Unit.STORE, row=2, rows=1, bytes=4, row_stride=1, block_stride=1)
    piece = [repeat(3, 4), store, zero_load(0, dyn=(1, 0, 0)), set_length(5, Source.LENGTH, 5, amount=1)]
    piece[2] = replace(piece[2], dyn=(3, 5, 1))
    builder.control(set_length(5))
    assert builder.repeat(piece, 100) == 13
    assert builder.commands[2].waits == {Unit.LOAD: 1}
    assert builder.commands[3].waits == {Unit.STORE: 1}


def test_turns_that_would_fault_are_cut():
    builder, _, _ = builder_and_draw(TINY, 0)
    builder.control(set_length(5))
    load = replace(zero_load(TINY.spm_rows - 3), dyn=(3, 5, 1))
    assert builder.repeat([repeat(2, 9), load, set_length(5, Source.LENGTH, 5, amount=1)], 100) == 7
    assert builder.commands[1].fields["times_cap"] == 3
    taken = len(builder.commands)
    assert builder.repeat([repeat(1, 2), zero_load(TINY.spm_rows)], 100) == 0
    assert len(builder.commands) == taken
    assert builder.repeat([repeat(1, 500), Command.make(Unit.MATRIX)], 50) == 50


def test_later_turns_keep_what_was_dumped_and_the_program():
    """No turn writes the upper half of a sealed memory, and none stores into the program."""
    builder, _, _ = builder_and_draw(TINY, 0)
    builder.sealed = True
    builder.control(set_length(5))
    load = replace(zero_load(TINY.spm_rows // 2 - 2), dyn=(3, 5, 1))
    builder.repeat([repeat(2, 8), load, set_length(5, Source.LENGTH, 5, amount=1)], 100)
    assert builder.commands[1].fields["times_cap"] == 2
    builder.program = range(1000, 2000)
    store = Command.make(Unit.STORE, base=17, offset=980, row=0, rows=1, bytes=4, row_stride=1, block_stride=1)
    builder.repeat([repeat(2, 30), store, set_displacement(17, Source.DISPLACEMENT, 17, amount=8)], 100)
    assert builder.commands[4].fields["times_cap"] == 3


def test_bodies_of_every_depth_are_written():
    sizes = Counter()
    for seed in range(6):
        builder, _, writer = builder_and_draw(TINY, seed, 300)
        writer.write(300)
        case = launch(builder.commands, builder.order.local.bases, REGISTERS[1], REGISTERS[2])
        table = decode_table(case.image)
        assert 300 <= len(table) <= 302
        for row in table[(table[:, 0] == CONTROL) & (table[:, OP] == COp.REPEAT)]:
            sizes[int(row[TABLE_FIELDS.index("predicate") + 1])] += 1
    assert {1, TINY.fetch_queue - 1, TINY.fetch_queue, TINY.fetch_queue + 1} <= sizes.keys()
    assert max(sizes) > TINY.fetch_queue + 10


def test_a_move_is_displaced_to_its_limit():
    builder, _, _ = builder_and_draw(TINY, 0)
    load = Command.make(Unit.LOAD, base=3, offset=40, row=0, rows=2, stride=100, bytes=8, row_stride=2, block_stride=1)
    found, beyond = to_the_limit(builder, load), to_the_limit(builder, load, 1)
    assert builder.control(found)
    assert builder.order.local.displacements[3] == (1 << 16) - 148
    assert builder.plan(load)
    assert builder.control(set_displacement(3))
    assert builder.control(beyond)
    assert not builder.plan(load)


@pytest.mark.parametrize("config", [TINY, SPACE16, NARROW], ids=lambda config: config.name)
def test_every_faulty_control_command_faults(config):
    """Where enough commands are behind it, within a body or not."""
    random, cfg = np.random.default_rng(5), config_vector(config)
    kinds = set()
    for _ in range(20):
        local = new_local(config)
        begin(local, *REGISTERS[:2], random.integers(0, 3 * config.parameter_words, NUM_LENGTHS), 50)
        for command in faulty_controls(config, local, random):
            encode(command)
            kinds.add((command.op if command.op < len(COp) else "op", FAULTS[execute(table_row(command), local, cfg)]))
    assert kinds == {("op", "illegal"), (COp.SET, "illegal"), (COp.SET, "rows"), (COp.PARAMS, "illegal"),
                     (COp.PARAMS, "rows"), (COp.REPEAT, "illegal")}


def program(config, seed):
    return generate(config, seed, 30, faults=1.0)


@pytest.mark.parametrize("draw_case", [program, probe], ids=["programs", "probes"])
def test_faults_come_in_every_way(draw_case):
    """By control commands of every kind and by others, in straight code and in bodies, in first and in later turns;
    with control commands behind."""
    found = Counter()
    for seed in range(120):
        case = draw_case(TINY, seed)
        each = stream(TINY, case)
        with pytest.raises(ProgramError, match=f"^command {each.good}\\b.*( faults: | names unit )"):
            verify(case.image, TINY, case.bases, case.limits, case.lengths, case.program)
        place, units = int(each.places[each.good]), each.units
        row, fault = each.table[place], FAULTS[each.resolved[each.good, OUT["fault"]]]
        kind = "other" if units[each.good] != CONTROL else "op" if row[OP] >= len(COp) else COp(int(row[OP])).name
        found[kind, fault] += 1
        found["later"] += int((each.places[:each.good] == place).any())
        found["control behind"] += int((units[each.good + 1:] == CONTROL).any())
        found["body behind"] += int((each.places[each.good + 1:] < place).any())
    for kind in (("other", "illegal"), ("other", "rows"), ("other", "limit"), ("SET", "illegal"), ("SET", "rows"),
                 ("PARAMS", "rows"), ("REPEAT", "illegal"), ("op", "illegal")):
        assert found[kind], kind
    assert min(found["later"], found["control behind"], found["body behind"]) > 3


def test_parameters_and_lengths_show():
    """What a SET or PARAMS of a program brings can be seen: changed, most change DRAM, cycles or a fault."""
    seen = changed = 0
    for seed in range(24):
        case = generate(TINY, seed, 60)
        each = stream(TINY, case)
        places = each.places[(each.units == CONTROL) & (each.table[each.places, OP] == COp.SET)]
        for place in sorted(set(places.tolist()))[:3]:
            word = case.image[place * COMMAND_BYTES:(place + 1) * COMMAND_BYTES]
            command = decode_word(int.from_bytes(word, "little"))
            amount = command.fields["amount"]
            other = replace(command, fields={**command.fields, "amount": amount - 8 if amount > 0 else amount + 8})
            at = place * COMMAND_BYTES
            image = case.image[:at] + encode(other).to_bytes(COMMAND_BYTES, "little") + case.image[at + COMMAND_BYTES:]
            changed += 1
            seen += outcome(case) != outcome(replace(case, image=image))
    assert changed > 30
    assert seen > changed / 4


def outcome(case):
    """All that a launch shows but the bytes of its program."""
    model = Simulator(TINY, dram_bytes=len(case.dram))
    model.load(case)
    result = model.run()
    return result.cycles, result.fault, model.read_dram(0, case.program)
