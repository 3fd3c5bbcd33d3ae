"""Faults planted on the model's side only: every one must show against what the RTL did.

The RTL runs each program once; the model then replays them with one constant, claim or rounding wrong.
"""

from dataclasses import dataclass, fields, replace
from types import FunctionType

import numpy as np
import pytest

import gemmule.sim.run
from gemmule import numerics
from gemmule.config import Config, load_config
from gemmule.isa import Command, Unit, encode_program
from gemmule.resolve import OUT, STREAM_UNIT, STREAMS
from gemmule.sim import engine, functional_vector
from gemmule.sim.fuzz import FuzzCase, generate
from gemmule.sim.result import Result
from gemmule.sim.rtl import RtlDevice
from gemmule.sim.run import Model
from gemmule.timing import Timing

pytestmark = [pytest.mark.rtl, pytest.mark.slow]

SMALL = load_config({
    "name": "mutant4", "dim": 4, "bus_bytes": 4, "spm_kib": 4, "spm_banks": 4, "acc_kib": 4, "acc_banks": 4,
    "preload": 4, "burst_bytes": 64, "read_bursts": 8, "write_bursts": 16, "unit_queue": 16, "stat_rows": 16,
    "dividers": 1,
})
"""DIM / preload is 1, so that the read-modify-write latency sets the slot of a one-row tile."""
DEEP = load_config({
    "name": "mutant8", "dim": 8, "bus_bytes": 8, "spm_kib": 8, "spm_banks": 4, "acc_kib": 8, "acc_banks": 2,
    "preload": 4, "burst_bytes": 64, "read_bursts": 8, "write_bursts": 4, "unit_queue": 16, "stat_rows": 16,
    "dividers": 1,
})
"""The drain is many times the shortest slot, so that the limit of matrix commands in flight binds."""


@dataclass(frozen=True)
class Record:
    """A program, and what the RTL made of it."""

    case: FuzzCase
    seen: Result
    dram: bytes


def _registers(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(32, dtype=np.int64), np.full(32, size, dtype=np.int64), np.zeros(16, dtype=np.int64)


def _case(name: str, commands: list[Command], size: int = 1 << 16) -> FuzzCase:
    dram = np.random.default_rng(7).integers(0, 256, size, dtype=np.uint8)
    return FuzzCase(name, 7, encode_program(commands), size // 2, dram, *_registers(size))


def _crowd(config: Config) -> list[FuzzCase]:
    """Many short matrix commands, and many short stores, back to back."""
    bank = config.spm_bank_rows
    matrix = [
        Command.make(Unit.MATRIX, a_row=0, a_stride=1, b_row=bank, b_stride=config.dim, c_row=i, c_stride=1,
                     m=1, n=1, k=config.dim * 2)
        for i in range(24)
    ]
    one = [replace(c, fields={**c.fields, "k_cap": 1}) for c in matrix]
    store = [Command.make(Unit.STORE, offset=64 * i, row=i, row_stride=1, block_stride=1, rows=1,
                          bytes=config.bus_bytes) for i in range(24)]
    return [_case("matrix", matrix), _case("one tile", one), _case("store", store)]


def _run(device: Model | RtlDevice, case: FuzzCase) -> Result:
    device.write_dram(0, case.dram.tobytes())
    device.bases[:], device.limits[:], device.lengths[:] = case.bases, case.limits, case.lengths
    device.load_program(case.image, case.program)
    return device.run()


def _record(config: Config, cases: list[FuzzCase]) -> list[Record]:
    with RtlDevice(config, watchdog=1_000_000) as rtl:
        return [Record(case, _run(rtl, case), bytes(rtl.read_dram(0, len(case.dram)))) for case in cases]


@pytest.fixture(scope="module")
def small() -> list[Record]:
    return _record(SMALL, _crowd(SMALL) + [generate(SMALL, seed, 80) for seed in range(300, 312)])


@pytest.fixture(scope="module")
def deep() -> list[Record]:
    return _record(DEEP, _crowd(DEEP))


def differences(config: Config, records: list[Record], timing: Timing | None = None) -> int:
    """Programs on which this model differs from the RTL, in cycles or bytes."""
    model = Model(config, timing, dram_bytes=1 << 20)
    found = 0
    for record in records:
        expected = _run(model, record.case)
        same = expected.first_difference(record.seen) is None
        found += not same or bytes(model.read_dram(0, len(record.case.dram))) != record.dram
    return found


def test_without_a_mutant_nothing_differs(small: list[Record], deep: list[Record]) -> None:
    assert differences(SMALL, small) == 0
    assert differences(DEEP, deep) == 0


@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("constant", [field.name for field in fields(Timing)])
def test_timing_constants(small: list[Record], deep: list[Record], constant: str, step: int) -> None:
    config, records = (DEEP, deep) if constant == "matrix_commands" else (SMALL, small)
    timing = Timing.of(config)
    if constant.endswith("_first") and step < 0:  # nothing happens in the cycle of the decision itself
        with pytest.raises(ValueError, match=f"{constant} must be at least 1"):
            replace(timing, **{constant: 0})
        return
    wrong = replace(timing, **{constant: getattr(timing, constant) + step})
    assert differences(config, records, wrong) > 0


@pytest.mark.parametrize("stream", STREAMS)
def test_dropped_claims(small: list[Record], monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    """One stream's claims forgotten; the engine runs uncompiled with a changed resolve step."""
    number = STREAMS.index(stream)
    unit = STREAM_UNIT[number]
    column = OUT["claim0"] + number - STREAM_UNIT.index(unit)
    prepare = engine._prepare

    def forgetful(table, bases, limits, lengths, cfg, resolved, order, first, target):
        good = prepare(table, bases, limits, lengths, cfg, resolved, order, first, target)
        resolved[resolved[:, OUT["unit"]] == unit, column] = 0
        return good

    original = engine._simulate.py_func
    mutant = FunctionType(original.__code__, {**original.__globals__, "_prepare": forgetful})
    monkeypatch.setattr(gemmule.sim.run, "launch", mutant)
    assert differences(SMALL, small[3:]) > 0


def test_uncompiled_engine_is_the_same_engine(small: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemmule.sim.run, "launch", engine._simulate.py_func)
    assert differences(SMALL, small[:5]) == 0


@pytest.mark.parametrize("name", ["requant", "rope", "rms_apply", "row_weights", "product"])
def test_wrong_rounding(small: list[Record], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Rounding replaced by truncation in one operation."""
    import sys

    home = sys.modules[getattr(numerics, name).__module__]
    if name in ("requant", "product"):  # both round in fixed.requant
        home = sys.modules["gemmule.numerics.fixed"]

    def truncate(x, s):
        return np.asarray(x, dtype=np.int64) >> np.asarray(s, dtype=np.int64)

    monkeypatch.setattr(home, "rshr", truncate)
    assert functional_vector.numerics is numerics
    assert differences(SMALL, small[3:]) > 0
