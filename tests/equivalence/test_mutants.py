"""Faults planted on the model's side only: every one must show against what the RTL did.

The RTL runs each program once; the model then replays them with one constant, claim, rule or rounding wrong.
What needs the deep device, whose simulator takes longest to build, is long.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace

import pytest
from _pytest.mark.structures import ParameterSet

from gemmule.config import Config
from gemmule.resolve import OUT, STREAM_UNIT, STREAMS
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.timing import Timing

from .control_rules import CONTROL_RULES
from .mutant_control import bodies
from .mutant_programs import DEEP, DUMP, SMALL, crowd, directed
from .mutant_rules import RULES, SATURATED
from .mutant_selection import chosen, online, saturated, statistics
from .mutation import mutated

pytestmark = [pytest.mark.rtl, pytest.mark.slow]
ON_DEEP = ("matrix_commands", "registers", "slot")
"""Constants and a rule that the small device does not show."""


@dataclass(frozen=True)
class Record:
    """A program, and what the RTL made of it."""

    case: Launch
    seen: Result
    dram: bytes


def _run(device: Simulator | RtlDevice, case: Launch) -> Result:
    device.load(case)
    return device.run()


def _record(config: Config, cases: list[Launch]) -> list[Record]:
    with RtlDevice(config, watchdog=1_000_000) as rtl:
        return [Record(case, _run(rtl, case), bytes(rtl.read_dram(0, len(case.dram)))) for case in cases]


def deep_ones_long(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=[pytest.mark.long] * (name in ON_DEEP)) for name in names]


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Callable[[str], tuple[Config, list[Record]]]:
    """The device and the records for what a constant or rule is called."""
    def of(name: str) -> tuple[Config, list[Record]]:
        if name in ON_DEEP:
            return DEEP, request.getfixturevalue("deep")
        return SMALL, request.getfixturevalue("control" if name == "control" else "small")

    return of


@pytest.fixture(scope="module")
def small() -> list[Record]:
    return _record(SMALL, [*chosen(SMALL), *statistics(SMALL), *online(SMALL), *directed(SMALL), *crowd(SMALL)])


@pytest.fixture(scope="module")
def deep() -> list[Record]:
    return _record(DEEP, crowd(DEEP))


@pytest.fixture(scope="module")
def control() -> list[Record]:
    return _record(SMALL, bodies(SMALL))


def caught(config: Config, records: list[Record], timing: Timing | None = None, kind: type = Simulator) -> str:
    """What first differs between this model and the RTL, in cycles, counters or bytes; empty: nothing.

    Memories outlive a launch on both sides, so ``records`` must begin with the first one.
    """
    model = kind(config, timing, dram_bytes=1 << 20)
    for record in records:
        try:
            difference = _run(model, record.case).first_difference(record.seen)
        except (RuntimeError, IndexError) as error:  # a mutant may run into the engine's own check, or beyond an array
            return str(error)
        if difference:
            return f"{record.case.name}: {difference}"
        if bytes(model.read_dram(0, len(record.case.dram))) != record.dram:
            return f"{record.case.name}: bytes"
    return ""


def test_without_a_mutant_nothing_differs(small: list[Record], control: list[Record]) -> None:
    assert caught(SMALL, small) == ""
    assert caught(SMALL, control) == ""


@pytest.mark.long
def test_without_a_mutant_nothing_differs_on_the_deep_device(deep: list[Record]) -> None:
    assert caught(DEEP, deep) == ""


@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("constant", deep_ones_long(field.name for field in fields(Timing)))
def test_timing_constants(recorded: Callable[[str], tuple[Config, list[Record]]], constant: str, step: int) -> None:
    config, records = recorded(constant)
    timing = Timing.of(config)
    if (constant.endswith("_first") or constant == "fetch_start") and step < 0:  # not in the cycle of the decision
        with pytest.raises(ValueError, match=f"{constant} must be at least 1"):
            replace(timing, **{constant: 0})
        return
    wrong = replace(timing, **{constant: getattr(timing, constant) + step})
    assert caught(config, records, wrong)


@pytest.mark.parametrize("stream", STREAMS)
def test_dropped_claims(small: list[Record], stream: str) -> None:
    """One stream's claims forgotten."""
    number = STREAMS.index(stream)
    unit = STREAM_UNIT[number]
    column = OUT["claim0"] + number - STREAM_UNIT.index(unit)
    old = "            fault = out[_FAULT]\n"
    new = f"            if out[_UNIT] == {unit}:\n                out[{column}] = 0\n{old}"
    with mutated("gemmule.sim.timing.program", old, new) as model:
        assert caught(SMALL, small, kind=model)


def test_uncompiled_model_is_the_same_model(small: list[Record]) -> None:
    for module in ("gemmule.sim.timing.engine", "gemmule.sim.functional.execute"):
        with mutated(module, "__all__ = ", "__all__= ") as model:
            assert caught(SMALL, small[:6], kind=model) == ""


@pytest.mark.parametrize("rule", deep_ones_long(RULES))
def test_rules(recorded: Callable[[str], tuple[Config, list[Record]]], rule: str) -> None:
    module, old, new = RULES[rule]
    config, records = recorded(rule)
    with mutated(f"gemmule.{module}", old, new) as model:
        found = caught(config, records, kind=model)
    print(rule, "->", found)
    assert found


@pytest.mark.parametrize("rule", CONTROL_RULES)
def test_control_rules(control: list[Record], rule: str) -> None:
    module, old, new = CONTROL_RULES[rule]
    with mutated(f"gemmule.{module}", old, new) as model:
        found = caught(SMALL, control, kind=model)
    print(rule, "->", found)
    assert found


def test_saturated() -> None:
    records = _record(SMALL, [saturated(SMALL)])
    assert records[0].dram[DUMP:DUMP + 8] == bytes([0, 0, 0, 0, SMALL.dim, 0, 3, 0])
    assert caught(SMALL, records) == ""
    for module, old, new in SATURATED.values():
        with mutated(f"gemmule.{module}", old, new) as model:
            assert caught(SMALL, records, kind=model) == "saturated: bytes"


@pytest.mark.long
@pytest.mark.parametrize("step", [-1, 1])
def test_beat_cycles(deep: list[Record], step: int) -> None:
    dram = DEEP.dram.model_copy(update={"beat_cycles": DEEP.dram.beat_cycles + step})
    assert caught(DEEP.model_copy(update={"dram": dram}), deep)

