"""Generated programs are legal, varied and the same for the same seed."""

from pathlib import Path

import numpy as np
import pytest

from gemmule.config import PRESETS, Config, load_config
from gemmule.isa import (
    COMMAND_BYTES,
    CONTROL,
    NUM_LENGTHS,
    TABLE_FIELDS,
    Command,
    Length,
    MatrixFlag,
    MoveFlag,
    SOp,
    Unit,
    VOp,
    decode_table,
    encode,
    encode_program,
)
from gemmule.isa import decode as decode_word
from gemmule.resolve import FAULTS, OUT, resolve
from gemmule.sim.errors import SimulationError
from gemmule.sim.functional.execute import execute
from gemmule.sim.functional.memory import Memory
from gemmule.sim.fuzz.coverage import Coverage
from gemmule.sim.fuzz.draw import Draw
from gemmule.sim.fuzz.faults import faulty_commands
from gemmule.sim.fuzz.frame import Frame
from gemmule.sim.fuzz.generate import generate, probe
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sim.stream import stream_of
from gemmule.sim.verify.verify import ProgramError, verify
from tests.thinned import some

ROOT = Path(__file__).resolve().parents[3]
TINY = load_config("tiny")
ODD = Config(name="odd", dim=8, bus_bytes=2, spm_kib=8, spm_banks=2, acc_kib=4, acc_banks=1, preload=4,
             burst_bytes=64, read_bursts=1, load_commands=1, write_bursts=1, unit_queue=5, stat_rows=8,
             dividers=3)
ONE = Config(name="one", dim=4, bus_bytes=4, spm_kib=2, spm_banks=1, acc_kib=2, acc_banks=1)
WIDE = Config(name="wide", dim=64, bus_bytes=64, spm_kib=64, spm_banks=4, acc_kib=64, acc_banks=2, preload=4)
SMALLEST = Config(name="smallest", dim=2, bus_bytes=2, spm_kib=1, spm_banks=2, acc_kib=1, acc_banks=2)
UNUSUAL = [load_config(str(path)) for path in sorted((ROOT / "examples/configs/unusual").glob("*.yaml"))]
CONFIGS = [*map(load_config, PRESETS), ODD, ONE, WIDE, SMALLEST, *UNUSUAL]
WAIT_COLUMNS = [i for i, name in enumerate(TABLE_FIELDS) if name.startswith("wait_")]


def ran(config, case):
    model = Simulator(config, dram_bytes=len(case.dram))
    model.load(case)
    return model.run()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("seed", [1, 2])
def test_programs_are_legal(config, seed):
    case = generate(config, seed, 80)
    verify(case.image, config, case.bases, case.limits, case.lengths, case.program)
    assert ran(config, case).fault == 0
    assert len(generate(config, seed + 1, 80).dram) == len(case.dram)


def test_a_small_address_space_is_filled_to_its_end():
    config = next(config for config in UNUSUAL if config.address_bits == 16)
    cases = [generate(config, seed, 40) for seed in range(30)]
    assert {len(case.dram) for case in cases} == {1 << 16}
    assert any(case.program + len(case.image) == 1 << 16 for case in cases)
    most = Frame(config, 1).most
    generate(config, 1, most)
    with pytest.raises(SimulationError, match=f"{most + 1} commands a program do not fit address_bits = 16 "
                                              f".at most {most}.: use fewer --commands"):
        generate(config, 1, most + 1)


def test_limits_end_where_accesses_do():
    """Half of the limits by drawing, and by a fault: a byte less is one byte too few."""
    tight = 0
    for seed in range(17):
        case = generate(TINY, seed, 80)
        for base in range(1, 32):
            less = case.limits.copy()
            less[base] -= 1
            stream = stream_of(case.image, TINY, case.bases, less, case.lengths)
            tight += stream.good < stream.count
    assert tight > 20
    faults = [ran(TINY, generate(TINY, seed, 40, faults=1.0)).fault for seed in range(40)]
    assert {FAULTS[fault] for fault in faults} >= {"illegal", "rows", "limit"}


@pytest.mark.parametrize("config", [TINY, ONE, *UNUSUAL], ids=lambda config: config.name)
def test_a_probe_does_nothing_and_then_faults(config):
    beyond = 0
    for seed in range(6):
        case = probe(config, seed)
        stream = stream_of(case.image, config, case.bases, case.limits, case.lengths)
        model = Simulator(config, dram_bytes=len(case.dram))
        model.load(case)
        before = model.read_dram(0, len(case.dram))
        result = model.run()
        assert (result.fault > 0, result.fault_index) == (True, stream.good)
        assert model.read_dram(0, len(case.dram)) == before
        taken = np.flatnonzero(stream.units[:stream.good] != CONTROL)
        table, out = stream.table[stream.places[taken]], stream.resolved[taken]
        assert ((table[:, TABLE_FIELDS.index("predicate")] > 0) | (out[:, OUT["zero"]] > 0)).all()
        beyond += int((out[:, OUT["address"]] >= len(case.dram)).sum())
    assert stream.good > 10
    assert beyond > 10


def test_same_seed_same_program():
    first, second, other = generate(TINY, 7, 60), generate(TINY, 7, 60), generate(TINY, 8, 60)
    assert first.image == second.image
    assert first.image != other.image
    assert np.array_equal(first.dram, second.dram)


@pytest.mark.parametrize("config", some([TINY, ONE]), ids=lambda config: config.name)
def test_coverage_is_complete_over_a_few_programs(config):
    coverage = Coverage(config)
    for seed in range(17):
        case = generate(config, seed, 400)
        coverage.add(case, ran(config, case))
    assert coverage.missing() == []
    assert coverage.sets >= {(unit, 0, flags) for unit, flags in (
        (Unit.LOAD, 1 << MoveFlag.BROADCAST | 1 << MoveFlag.ADD | 1 << MoveFlag.ACCUMULATOR),
        (Unit.STORE, 1 << MoveFlag.ACCUMULATOR | 1 << MoveFlag.NARROW),
        (Unit.MATRIX, 1 << MatrixFlag.B_INT4 | 1 << MatrixFlag.GROUP_SCALES | 1 << MatrixFlag.A_TRANSPOSED))}


def test_modes_that_a_configuration_cannot_have_are_left_out():
    one, four = (" ".join(Coverage(config).counts()["commands"]["matrix"]) for config in (ONE, TINY))
    for mode, possible in (("output_stationary", False), ("switch", False), ("reuse", True)):
        assert mode in four
        assert (mode in one) is possible


def test_comparison_modes_are_asked_for_only_where_they_are():
    without, full = (Coverage(load_config(name)).counts() for name in ("edge", "tiny"))
    assert full["commands"].keys() - without["commands"].keys() == {"i_gelu"}
    for kind, modes in (("norm_stat", {"round"}), ("softmax_max", set()), ("softmax_exp", {"i_exp", "softermax"}),
                        ("softmax_norm", {"i_exp", "softermax"})):
        assert full["commands"][kind].keys() - without["commands"][kind].keys() == modes
    assert (without["flag sets"]["norm_stat"], full["flag sets"]["norm_stat"]) == ("0 of 2", "0 of 3")


def counted(commands, issue, finish, cycles, config=TINY):
    """Coverage of a program with given cycles."""
    registers = np.zeros(32, dtype=np.int64), np.full(32, 1 << 16), np.zeros(16, dtype=np.int64)
    case = Launch("cycles", 0, encode_program(commands), 0, np.zeros(64, dtype=np.uint8), *registers)
    coverage = Coverage(config)
    coverage.add(case, Result(cycles, np.array(issue), np.array(finish), decode_table(case.image)[:, 0]))
    return coverage


def test_coverage_minimum_can_fail():
    """One program of empty commands: 4 of 40 commands, no mode, no control command, no stall, no overlap."""
    commands = [Command.make(unit) for unit in (Unit.LOAD, Unit.STORE, Unit.MATRIX, Unit.VECTOR)]
    missing = counted(commands, [5, 6, 7, 8], [7, 8, 9, 10], 12).missing()
    for text in ("commands a program (4 of 40)", "softmax_exp+causal (0 of 0.4)", "softmax_max+continue (0 of 0.4)",
                 "matrix+output_stationary (0 of 0.4)", "keys+from_importance (0 of 0.4)", "load+indexed (0 of 0.4)",
                 "predicate: vector true (0 of 0.4)", "predicate: select false (0 of 0.4)",
                 "rescale (0 of 0.4)", "i_gelu+bias (0 of 0.4)", "softmax_max+online (0 of 0.4)",
                 "norm_stat+round (0 of 0.4)", "softmax_exp+i_exp (0 of 0.4)", "softmax_norm+softermax (0 of 0.4)",
                 "programs with control commands (0 of 0.5)", "repeat+depth_4 (0 of 0.4)", "set (0 of 0.4)",
                 "set+displacement_half (0 of 0.4)", "repeat+window (0 of 0.2)", "params+last (0 of 0.4)",
                 "stall: store ports (0 of 0.2)", "three units busy (0 of 1,000 cycles)"):
        assert text in missing
    assert not any(text.startswith(("load+empty", "requant (")) for text in missing)


def test_overlap_and_starvation_are_counted_in_cycles():
    """Three units together in cycles 12 .. 14; nothing in flight in 21 .. 29 before the last issue."""
    move = {"bytes": 4, "rows": 1}
    commands = [Command.make(Unit.LOAD, **move), Command.make(Unit.MATRIX, m=1, n=1, k=1),
                Command.make(Unit.VECTOR, op=VOp.SOFTMAX_MAX, m=1, n=1), Command.make(Unit.STORE, **move)]
    coverage = counted(commands, [5, 10, 12, 30], [14, 20, 18, 35], 40)
    assert coverage.overlapped == 3
    assert coverage.cycles == 40
    assert coverage.stalls["fetch starved"] == 9


def test_a_full_window_is_told_from_the_bursts_of_a_load():
    """Of 9 bursts the last must wait for the first (8 in flight, latency 60); BROADCAST takes one at a time."""
    for rows, flags, full in ((8, [], 0), (9, [], 1), (9, [MoveFlag.BROADCAST], 0), (9, [MoveFlag.ZERO], 0)):
        load = Command.make(Unit.LOAD, bytes=4, rows=rows, stride=8, row_stride=1, flags=flags)
        stalls = counted([load], [5], [200], 202).stalls
        assert (stalls["bursts in flight"], stalls["beats in flight"]) == (full, 0)


def test_a_full_window_is_told_from_the_beats_of_a_load():
    """Of 8 bursts of 16 beats the last must wait for the first beat (112 in flight); joined rows of one beat count
    by their bursts, not by rows."""
    for size, rows, stride, full in ((64, 7, 64, 0), (64, 8, 128, 1), (60, 7, 64, 0), (4, 112, 4, 0), (4, 128, 4, 1)):
        load = Command.make(Unit.LOAD, bytes=size, rows=rows, stride=stride, row_stride=1, block_stride=1)
        stalls = counted([load], [5], [400], 402).stalls
        assert (stalls["bursts in flight"], stalls["beats in flight"]) == (0, full)


def test_joined_rows_are_counted():
    """More than one row, without a gap, in whole beats."""
    for size, rows, stride, flags, joined in (
            (4, 2, 4, [], 1), (4, 1, 4, [], 0), (4, 2, 8, [], 0), (6, 2, 6, [], 0), (4, 2, 4, [MoveFlag.ZERO], 0),
            (4, 2, 4, [MoveFlag.BROADCAST], 0), (4, 2, 4, [MoveFlag.INDEXED], 0)):
        load = Command.make(Unit.LOAD, bytes=size, rows=rows, stride=stride, row_stride=2, block_stride=1, flags=flags)
        assert counted([load], [5], [200], 202).commands["load+joined"] == joined


def test_predicates_are_told_by_the_time_they_take():
    """A skipped command finishes 2 cycles after its issue, as an empty one does, which does not count."""
    store = Command.make(Unit.STORE, bytes=4, rows=1, predicate=1)
    commands = [store, store, Command.make(Unit.STORE, bytes=4, predicate=1), Command.make(Unit.STORE, bytes=4, rows=1),
                Command.make(Unit.LOAD, bytes=4, rows=1, flags=[MoveFlag.ZERO], predicate=1)]
    coverage = counted(commands, [5, 10, 60, 70, 80], [7, 50, 62, 130, 82], 140)
    assert coverage.predicates == {"store false": 1, "store true": 1, "load true": 1}
    assert coverage.commands["store"] == 3


def test_the_dump_shows_all_state():
    """Whatever is changed in memory or hidden state before the dump changes DRAM after it."""
    random = np.random.default_rng(5)
    frame = Frame(TINY, 1)
    dram = frame.memory(random)
    program = [*frame.dump_upper(), *frame.dump_lower(table=True, words=True)]
    limits, random_keys = np.full(32, frame.end), random.integers(1000, 2000, TINY.select_keys)

    def resolved(commands):
        table = decode_table(encode_program(commands))
        out = resolve(table, np.zeros(32, dtype=np.int64), limits, np.zeros(16, dtype=np.int64), TINY)
        assert not out[:, OUT["fault"]].any()
        return table, out

    dump = resolved(program)

    def dumped(change=lambda memory: None, dump=dump):
        memory = Memory(TINY, dram_bytes=frame.end)
        memory.dram[:] = dram
        memory.reciprocal[:], memory.length[:], memory.root[:], memory.half[:] = 50_000, 24, 70_000, 1
        memory.center[:], memory.total[:] = 900, 1 << 21
        memory.rise[:] = np.arange(memory.rise.size).reshape(memory.rise.shape) % 29
        memory.list[:], memory.ids[:] = 700, np.arange(len(memory.ids))
        memory.keys[:], memory.committed[:] = random_keys, random_keys
        memory.best[:] = -20_000
        change(memory)
        execute(memory, dump[0], np.arange(len(dump[0])), dump[1])
        return memory.dram

    def poke(name, at, value):
        def change(memory):
            getattr(memory, name)[at] += value
        return change

    plain = dumped()
    changes = [poke("spm", (row, 1), 1) for row in (0, 255, 511, 512, 700, 1023)]
    changes += [poke("acc", (row, 3), 1 << 30) for row in (0, 100, 127, 128, 255)]
    changes += [poke("weights", (k, n), 1) for k in range(4) for n in range(4)]
    changes += [poke("table", entry, 1) for entry in (*range(0, 256, 17), 1, 127, 128)]
    for context in range(TINY.stat_contexts):
        for row in (0, 7, TINY.stat_rows - 1):
            at = context, row
            changes += [poke("length", at, 1), poke("reciprocal", at, 2000), poke("root", at, 9000),
                        poke("half", at, 1), poke("maximum", at, 900), poke("center", at, 300),
                        poke("total", at, 1 << 17), poke("rise", at, 1)]
    changes += [poke("words", entry, 300) for entry in (*range(0, 512, 37), 255, 256, 511, 512)]
    last = TINY.list_entries - 1
    changes += [poke("list", at, 1) for at in (0, 63, last - 63, last)]
    changes += [poke(name, at, 1) for name in ("best_ids", "ids") for at in (0, 3, 15)]
    changes += [poke("best", at, 52_000) for at in (0, 15)]
    smallest, far = int(np.argmin(random_keys[:64])), 1024 - 64 + int(np.argmin(random_keys[-64:]))
    changes += [poke("keys", smallest, 2000)]
    changes += [poke(name, at, 2000) for name in ("committed", "shadow") for at in (smallest, far)]
    for i, change in enumerate(changes):
        assert not np.array_equal(dumped(change), plain), i
    for number in (1, 2, 3):
        judged = [Command.make(Unit.SELECT, op=SOp.COMPARE, m=1, n=1, number=number), *program]
        assert not np.array_equal(dumped(dump=resolved(judged)), plain)


def test_most_waits_are_needed():
    """Dropping any wait of a program that was not strengthened breaks it: the waits are minimal (24 of them tried)."""
    for seed in range(40):
        case = generate(TINY, seed, 40)
        table = decode_table(case.image)
        places = np.random.default_rng(seed).permutation(np.argwhere(table[:, WAIT_COLUMNS] > 0))[:24]
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
    kinds = set()
    for seed in range(20):
        case = generate(TINY, seed, 30, faults=1.0)
        assert case.faulty
        result = ran(TINY, case)
        with pytest.raises(ProgramError, match=f"^command {result.fault_index}\\b.*( faults: | names unit )"):
            verify(case.image, TINY, case.bases, case.limits, case.lengths, case.program)
        kinds.add(FAULTS[result.fault])
    assert len(kinds) > 1


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_every_faulty_command_faults(config):
    case = generate(config, 0, 40)
    commands = faulty_commands(config, case.bases, np.random.default_rng(3))
    out = resolve(decode_table(encode_program(commands)), case.bases, case.limits, case.lengths, config)
    wrong = [command for command, fault in zip(commands, out[:, OUT["fault"]]) if not fault]
    assert not wrong
    assert {FAULTS[fault] for fault in out[:, OUT["fault"]]} == {"illegal", "rows", "limit", "align"}


def test_length_fields_resolve_to_the_drawn_value():
    random = np.random.default_rng(0)
    lengths = random.integers(0, 60, NUM_LENGTHS)
    draw = Draw(TINY, random, np.zeros(32, dtype=np.int64), lengths)
    forms = set()
    for _ in range(300):
        value = int(random.integers(0, 40))
        length = draw.length(value)
        assert isinstance(length, Length)
        assert length.resolve(lengths) == value
        forms.add((length.reg > 0, length.offset > 0))
    assert len(forms) == 3


def test_a_store_that_is_skipped_is_not_into_the_program():
    """In 64 KiB a store to anywhere, which no predicate will let run, met the program (seed 27)."""
    config = load_config("examples/configs/unusual/space16.yaml")
    case = generate(config, 27, 300, faults=0.1)
    verify(case.image, config, case.bases, case.limits, case.lengths, case.program)
