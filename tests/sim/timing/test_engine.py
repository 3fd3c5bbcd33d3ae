"""The compiled engine against the plain simulator of ``engine_reference``, which steps every cycle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gemmule.isa import (
    COMMAND_BYTES,
    CONTROL,
    HEADER,
    TABLE_FIELDS,
    COp,
    MatrixFlag,
    MoveFlag,
    SOp,
    Unit,
    VOp,
    control_columns,
    decode,
    decode_table,
)
from gemmule.operations import OPERATIONS
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.timing import Timing
from tests.thinned import of_methods

from . import cases as cases
from . import reference as reference
from . import times as times
from .reference_front import EVENTS

PROGRAMS = 80
KINDS = (
    {("load", flag.name) for flag in MoveFlag} | {("store", name) for name in ("ACCUMULATOR", "NARROW", "INDEXED")}
    | {("matrix", flag.name) for flag in MatrixFlag} | {("vector", op.name) for op in VOp}
    | {("vector", name) for name in (
        "REQUANT COLUMN", "REQUANT WIDE", "REQUANT RESIDUAL", "REQUANT BIAS", "REQUANT words", "ROPE COLUMN",
        "ROPE BIAS", "NORM_STAT MEAN", "NORM_APPLY MEAN", "NORM_APPLY BIAS", "SOFTMAX_EXP MORE",
        "SOFTMAX_EXP WIDE", "SOFTMAX_NORM WIDE", "ADD WIDE", "NORM_STAT ROUND", "SOFTMAX_MAX ONLINE",
        "SOFTMAX_EXP ONLINE", "I_GELU COLUMN", "I_GELU BIAS", "SOFTMAX_EXP kind 2", "SOFTMAX_NORM kind 1")}
    | {("select", op.name) for op in SOp}
    | {("select", name) for name in ("KEYS FROM_IMPORTANCE", "IMPORTANCE WIDE", "COMPARE WIDE", "TOP_K NONZERO")}
    | {(unit, kind) for unit in reference.NAMES for kind in ("", "skipped", "ran")} | {("matrix", "after predicate")}
    | {(unit, kind) for unit in ("load", "store") for kind in ("unaligned", "joined")}
    | {("matrix", "apart"), ("vector", "apart")}
)


def kinds(command: dict, bus: int) -> set[tuple[str, str]]:
    """What a resolved command exercises, as in ``KINDS``."""
    unit, names = reference.NAMES[command["unit"]], {""}
    if command["predicate"] and not command["zero"]:
        names.add("skipped" if command["skipped"] else "ran")
    if unit in ("vector", "select"):
        operation = OPERATIONS[command["unit"], command["op"]]
        op = operation.name.upper()
        names |= {op} | {f"{op} {flag.name}" for flag in operation.flags if flag in command["has"]}
        if {"REQUANT WIDE", "REQUANT LOOKUP"} <= names and "REQUANT RESIDUAL" not in names:
            names.add("REQUANT words")
        names.add(f"{op} kind {command['period']}")
    else:
        names |= {(MatrixFlag if unit == "matrix" else MoveFlag)(flag).name for flag in command["has"]}
    if unit in ("load", "store") and command["address"] % bus:
        names.add("unaligned")
    if unit in ("load", "store") and command["m"] > len(command["lines"]):
        names.add("joined")
    if command["apart"]:
        names.add("apart")
    return {(unit, name) for name in names}


def compare(case: cases.Case, where: str) -> tuple[reference.Reference, Result]:
    """Both simulators of one case, which agree."""
    result = case.run(case.model)
    skipped = {c for c, skip in enumerate(case.skipped) if skip}
    expected = reference.Reference(case.model, case.image, case.address, skipped, case.indices, times)
    cycles, issue, finish, counters = expected.run()
    known = len(result.issue)  # behind a fault it may be less
    assert result.places.tolist() == [step.place for step in expected.steps[:known]], f"{where}: places"
    assert result.issue.tolist() == issue[:known], f"{where}: issue"
    assert result.finish.tolist() == finish[:known], f"{where}: finish"
    assert set(issue[known:]) <= {-1}, f"{where}: beyond a fault"
    assert result.cycles == cycles, f"{where}: cycles"
    assert result.registers == counters, f"{where}: counters"
    for unit, split in result.counters.items():
        assert sum(split.values()) == cycles, f"{where}: counters of {unit}"
    if result.fault:
        place = expected.steps[result.fault_index].place
        assert (result.fault_place, expected.commands[result.fault_index]["fault"]) == (place, result.fault), where
    return expected, result


@pytest.mark.parametrize("name", of_methods(cases.CONFIGS, ("tiny", "slow", "two")))
def test_bodies_of_random_programs(name: str) -> None:
    config = cases.CONFIGS[name]
    events: Counter[str] = Counter()
    for seed in range(1000, 1000 + PROGRAMS):
        expected, result = compare(cases.random_case(seed, config, bodies=1), f"{name} seed {seed}")
        events.update(expected.front.seen)
        at = expected.commands[result.fault_index] if result.fault else {"unit": ""}
        events[f"fault of {'control' if at['unit'] == CONTROL else 'a unit'}"] += result.fault > 0
    never = {"burst ends with a body"} if config.burst_bytes == COMMAND_BYTES else set()
    assert {event for event in EVENTS if not events[event]} <= never
    assert min(events["fault of control"], events["fault of a unit"]) >= 2


@pytest.mark.parametrize("name", of_methods(cases.CONFIGS, ("base", "odd", "wide")))
def test_every_command_of_random_programs(name: str) -> None:
    config, faults, zeros = cases.CONFIGS[name], 0, 0
    seen: Counter[tuple[str, str]] = Counter()
    for seed in (*range(PROGRAMS), 98, 117):  # the last ones have what is rare on two and on wide
        case = cases.random_case(seed, config)
        expected, result = compare(case, f"{name} seed {seed}")
        issue = result.issue.tolist()
        faults += result.fault != 0
        predicate = 0
        for i, command in enumerate(expected.commands[:len(issue)]):
            if issue[i] >= 0 and command["unit"] != CONTROL:
                zeros += command["zero"]
                seen.update(kinds(command, config.bus_bytes))
                if command["unit"] == Unit.MATRIX:
                    seen["matrix", "after predicate"] += predicate and not command["nothing"]
                    predicate = command["predicate"] > 0
    assert min(faults, zeros) >= 2
    # with one bank A and B always meet, which output-stationary does not allow; two planes of 257 rows do not fit
    never = {("matrix", "OUTPUT_STATIONARY"), ("vector", "WORD_TABLE")} if name == "two" else set()
    assert KINDS - {kind for kind, times in seen.items() if times} <= never
    assert sum(seen[unit, ""] for unit in reference.NAMES) > 500, "the generator makes programs that hardly run"


MUTANTS: list[dict[str, int]] = [
    *({name: 1} for name in Timing.__dataclass_fields__),
    *({name: 1} for name in ("read_bursts", "read_beats", "load_commands", "write_bursts", "unit_queue", "dividers")),
    {"fetch_queue": 32},
    *({name: 1} for name in (
        "latency", "row_miss", "turnaround", "beat_cycles", "refresh_cycles", "refresh_period")),
    {"banks": 2}, {"row_bytes": 256},
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: next(iter(mutant)))
def test_a_changed_constant_is_seen(mutant: dict[str, int]) -> None:
    """The programs above tell every constant of the contract from the same constant + 1."""
    (name, step), = mutant.items()
    odd = cases.CONFIGS["odd"]
    # limits low enough to be met
    usual = replace(Timing.of(odd), matrix_commands=2, store_commands=2, matrix_rmw=9)
    for seed in range(8 * PROGRAMS):  # the scarcest, more matrix commands in flight, take hundreds
        case = cases.random_case(seed, odd)
        config, dram, timing = odd, odd.dram, usual
        if hasattr(timing, name):
            timing = replace(timing, **{name: getattr(timing, name) + step})
        elif hasattr(dram, name):
            dram = dram.model_copy(update={name: getattr(dram, name) + step})
            config = config.model_copy(update={"dram": dram})
        else:
            config = config.model_copy(update={name: getattr(config, name) + step})
        if case.run(Simulator(odd, usual)).first_difference(case.run(Simulator(config, timing))):
            return
    raise AssertionError(f"no program of the test notices {name} + {step}")


@pytest.mark.parametrize("bodies", [0, 1])
@pytest.mark.parametrize("name", cases.CONFIGS)
def test_table_equals_command_by_command_decoding(name: str, bodies: float) -> None:
    image = cases.random_case(8, cases.CONFIGS[name], bodies).image
    rows = decode_table(image)
    assert len(rows) * 32 == len(image)
    for at, row in enumerate(rows):
        command = decode(int.from_bytes(image[32 * at:32 * at + 32], "little"))
        found = dict(zip(TABLE_FIELDS, row.tolist()))
        columns = dict(zip(control_columns(COp(command.op)), row[len(HEADER):].tolist())) if (
            command.unit == CONTROL) else found
        assert {name: columns[name] for name in command.fields} == command.fields
        assert (found["unit"], found["op"]) == (command.unit, command.op)
