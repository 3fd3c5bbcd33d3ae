"""The compiled engine against the plain simulator of ``engine_reference``, which steps every cycle."""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from gemmule.isa import TABLE_FIELDS, MatrixFlag, MoveFlag, Unit, VectorFlag, VOp, decode, decode_table
from gemmule.sim.run import Model
from gemmule.timing import Timing


def beside(name: str) -> ModuleType:
    """A helper module in this directory (tests are not a package)."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases, reference = beside("engine_cases"), beside("engine_reference")
PROGRAMS = 50
KINDS = (
    {("load", flag.name) for flag in MoveFlag} | {("store", "ACCUMULATOR"), ("store", "NARROW")}
    | {("matrix", flag.name) for flag in MatrixFlag} | {("vector", op.name) for op in VOp}
    | {("vector", "BIAS"), *((unit, "") for unit in reference.NAMES)}
    | {("load", "unaligned"), ("store", "unaligned"), ("matrix", "apart"), ("vector", "apart")}
)


def kinds(command: dict, bus: int) -> set[tuple[str, str]]:
    """What a resolved command exercises, as in ``KINDS``."""
    unit, names = reference.NAMES[command["unit"]], {""}
    if unit == "vector":
        names |= {VOp(command["op"]).name} | {VectorFlag(f).name for f in command["has"] - {6}}
    else:
        names |= {(MatrixFlag if unit == "matrix" else MoveFlag)(flag).name for flag in command["has"]}
    if unit in ("load", "store") and command["address"] % bus:
        names.add("unaligned")
    if command["apart"]:
        names.add("apart")
    return {(unit, name) for name in names}


@pytest.mark.parametrize("name", cases.CONFIGS)
def test_every_command_of_random_programs(name: str) -> None:
    config, faults, zeros = cases.CONFIGS[name], 0, 0
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(PROGRAMS):
        where = f"{name} seed {seed}"
        model, image, address = cases.random_case(seed, config)
        model.load_program(image, address)
        result = model.run(timing_only=True)
        expected = reference.Reference(model, image, address)
        cycles, issue, finish, counters = expected.run()
        assert result.issue.tolist() == issue, f"{where}: issue"
        assert result.finish.tolist() == finish, f"{where}: finish"
        assert result.cycles == cycles, f"{where}: cycles"
        assert result.registers == counters, f"{where}: counters"
        for unit, split in result.counters.items():
            assert sum(split.values()) == cycles, f"{where}: counters of {unit}"
        faults += result.fault != 0
        for i, command in enumerate(expected.commands):
            if issue[i] >= 0:
                zeros += command["zero"]
                seen.update(kinds(command, config.bus_bytes))
    assert min(faults, zeros) >= 2
    # with one bank A and B always meet, which output-stationary does not allow
    assert set(seen) >= KINDS - ({("matrix", "OUTPUT_STATIONARY")} if config.spm_banks == 1 else set())
    assert sum(seen[unit, ""] for unit in reference.NAMES) > 500, "the generator makes programs that hardly run"


MUTANTS: list[dict[str, int]] = [
    *({name: 1} for name in Timing.__dataclass_fields__),
    *({name: 1} for name in ("read_bursts", "load_commands", "write_bursts", "unit_queue", "dividers")),
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
        model, image, address = cases.random_case(seed, odd)
        config, dram, timing = odd, odd.dram, usual
        if hasattr(timing, name):
            timing = replace(timing, **{name: getattr(timing, name) + step})
        elif hasattr(dram, name):
            dram = dram.model_copy(update={name: getattr(dram, name) + step})
            config = config.model_copy(update={"dram": dram})
        else:
            config = config.model_copy(update={name: getattr(config, name) + step})
        results = []
        for device in (Model(odd, usual), Model(config, timing)):
            device.bases, device.limits, device.lengths = model.bases, model.limits, model.lengths
            device.load_program(image, address)
            results.append(device.run(timing_only=True))
        if results[0].first_difference(results[1]):
            return
    raise AssertionError(f"no program of the test notices {name} + {step}")


@pytest.mark.parametrize("name", cases.CONFIGS)
def test_table_equals_command_by_command_decoding(name: str) -> None:
    image = cases.random_case(8, cases.CONFIGS[name])[1]
    rows = decode_table(image)
    assert len(rows) * 32 == len(image)
    for at, row in enumerate(rows):
        command = decode(int.from_bytes(image[32 * at:32 * at + 32], "little"))
        found = dict(zip(TABLE_FIELDS, row.tolist()))
        assert {name: found[name] for name in command.fields} == command.fields
        assert (Unit(found["unit"]), found["op"]) == (command.unit, command.op)
