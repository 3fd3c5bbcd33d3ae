"""Faults planted on the model's side only: every one must show against what the RTL did.

The RTL runs each program once; the model then replays them with one constant, claim, rule or rounding wrong.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from gemmule import numerics
from gemmule.config import Config, load_config
from gemmule.resolve import OUT, STREAM_UNIT, STREAMS
from gemmule.sim import functional_vector
from gemmule.sim.fuzz import FuzzCase, generate
from gemmule.sim.result import Result
from gemmule.sim.rtl import RtlDevice
from gemmule.sim.run import Model
from gemmule.timing import Timing

from ..cocotb.wipe import wipe
from .mutant_programs import crowd, directed, selections
from .mutation import mutated

pytestmark = [pytest.mark.rtl, pytest.mark.slow]

SMALL = load_config({
    "name": "mutant4", "dim": 4, "bus_bytes": 4, "spm_kib": 4, "spm_banks": 4, "acc_kib": 4, "acc_banks": 4,
    "preload": 4, "burst_bytes": 64, "read_bursts": 8, "write_bursts": 16, "unit_queue": 16, "stat_rows": 16,
    "dividers": 1,
})
"""DIM / preload is 1, so that the read-modify-write latency sets the slot of a one-row tile."""
DEEP = load_config({
    "name": "mutant16", "dim": 16, "bus_bytes": 8, "spm_kib": 16, "spm_banks": 4, "acc_kib": 16, "acc_banks": 2,
    "preload": 4, "burst_bytes": 64, "read_bursts": 8, "write_bursts": 4, "unit_queue": 16, "stat_rows": 16,
    "dividers": 1, "dram": {"beat_cycles": 3},
})
"""The drain is many times the shortest slot, so that the limit of matrix commands in flight binds; the preload
is longer than it, so that it sets the slot; beats take three cycles."""


@dataclass(frozen=True)
class Record:
    """A program, and what the RTL made of it."""

    case: FuzzCase
    seen: Result
    dram: bytes


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
    # The overlapping commands race, so what they leave is wiped out.
    cases = [*directed(SMALL), *crowd(SMALL), wipe(SMALL, 1 << 16)]
    return _record(SMALL, cases + [generate(SMALL, seed, 80) for seed in range(300, 312)])


@pytest.fixture(scope="module")
def deep() -> list[Record]:
    return _record(DEEP, crowd(DEEP))


def caught(config: Config, records: list[Record], timing: Timing | None = None, kind: type = Model) -> str:
    """What first differs between this model and the RTL, in cycles, counters or bytes; empty: nothing.

    Memories outlive a launch on both sides, so ``records`` must begin with the first one.
    """
    model = kind(config, timing, dram_bytes=1 << 20)
    for record in records:
        try:
            difference = _run(model, record.case).first_difference(record.seen)
        except RuntimeError as error:  # a mutant may run into the engine's own check
            return str(error)
        if difference:
            return f"{record.case.name}: {difference}"
        if bytes(model.read_dram(0, len(record.case.dram))) != record.dram:
            return f"{record.case.name}: bytes"
    return ""


def test_without_a_mutant_nothing_differs(small: list[Record], deep: list[Record]) -> None:
    assert caught(SMALL, small) == ""
    assert caught(DEEP, deep) == ""


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
    assert caught(config, records, wrong)


@pytest.mark.parametrize("stream", STREAMS)
def test_dropped_claims(small: list[Record], stream: str) -> None:
    """One stream's claims forgotten."""
    number = STREAMS.index(stream)
    unit = STREAM_UNIT[number]
    column = OUT["claim0"] + number - STREAM_UNIT.index(unit)
    old = "        if resolved[i, _FAULT]:\n"
    new = f"        if resolved[i, _UNIT] == {unit}:\n            resolved[i, {column}] = 0\n{old}"
    with mutated("gemmule.sim.engine_program", old, new) as model:
        assert caught(SMALL, small, kind=model)


def test_uncompiled_model_is_the_same_model(small: list[Record]) -> None:
    for module in ("gemmule.sim.engine", "gemmule.sim.functional"):
        with mutated(module, "__all__ = ", "__all__= ") as model:
            assert caught(SMALL, small[:6], kind=model) == ""


RULES = {
    "slot": ("timing", "slot = stream if reuse else max(stream, items)", "slot = stream"),
    "load of reuse": ("timing", "load = 1 if reuse else items + scales", "load = items + scales + reuse"),
    "load of scales": ("timing", "load = 1 if reuse else items + scales", "load = 1 if reuse else items"),
    "last": ("timing", "stream + load, stream, load", "stream + load, stream + load, load"),
    "rows of transposed A": ("timing", "rows = (m + dim - 1) // dim * dim if a_transposed else m", "rows = m"),
    "blocks of outputs": ("timing", "return (m + dim - 1) // dim * columns * depth, dim, dim, 1",
                          "return columns * depth, dim, dim, 1"),
    "drain of outputs": ("sim.engine_units", "end + p.matrix_drain + p.dim", "end + p.matrix_drain"),
    "B of outputs": ("sim.engine_units", "return start, end, end, end +", "return start, start, end, end +"),
    "apart": ("resolve", "out[15] = 1 if mask0 & mask1 else 0", "out[15] = 0"),
    "apart vector": ("resolve", "out[15] = 1 if pair and mask0 & mask1 else 0", "out[15] = 0"),
    "claims of add": ("resolve", "out[12] |= mask0 << acc_read", "out[12] |= 0"),
    "alone: empty": ("sim.engine_program", "alone[i] = nothing", "alone[i] = 0"),
    "alone: fill, broadcast": ("sim.engine_program", "if long or after_long:", "if after_long:"),
    "alone: after them": ("sim.engine_program", "if long or after_long:", "if long:"),
    "alone: dataflow": ("sim.engine_program", "if stationary != dataflow or after_predicate:", "if after_predicate:"),
    "late chunk": ("sim.engine_move", "late = 1 if extra and row_chunks > 1 else 0", "late = 0"),
    "broadcast rows": ("sim.engine_move", "max(start + beats * s.broadcast, end + s.broadcast)", "end + s.broadcast"),
    "broadcast bursts": ("sim.engine_move", "after = s.written + 1", "after = t + 1"),
    "fill": ("sim.engine_move", "chunks = rows * ((size + p.bus - 1) >> p.bus_shift)", "chunks = rows"),
    "counter: dram": ("sim.engine", "spent[u, DRAM_BOUND] = spent[u, BUSY] - busy", "spent[u, DRAM_BOUND] = 0"),
    "counter: fill": ("sim.engine", "mover.load_beats + mover.fills", "mover.load_beats"),
    "counter: empty": ("sim.engine", "spent[u, EMPTY] += cycles - t", "spent[u, BUSY] += cycles - t"),
    "counter: waiting": ("sim.engine_issue", "k.status[u] = WAITING", "k.status[u] = PORTS"),
    "counter: ports": ("sim.engine_issue", "k.status[u] = PORTS", "k.status[u] = EMPTY"),
    "counter: bytes": ("sim.engine", "mover.load_beats * p.bus, mover", "mover.load_beats * p.bus - 1, mover"),
    "counter: bursts": ("sim.engine", "mover.load_bursts, mover.store_bursts", "mover.store_bursts, mover.load_bursts"),
    "bias reads": ("sim.engine_units", "parameters = 3 * (flags >> _COLUMN & 1) + bias",
                   "parameters = 3 * (flags >> _COLUMN & 1)"),
    "add reads": ("sim.engine_units", "groups * m * (2 if apart or wide else 1)", "groups * m * (2 if apart else 1)"),
    "int4 order": ("sim.functional_matrix", "4 * (i & 1)", "4 * (~i & 1)"),
    "int4 sign": ("sim.functional_matrix", "(nibble ^ 8) - 8", "nibble"),
    "scale": ("sim.functional_matrix", "groups) & 15", "groups) & 7"),
    "scale group": ("sim.functional_matrix", "np.arange(rows) // dim >> raw[_GROUP]]", "np.arange(rows) * 0]"),
    "reuse": ("sim.functional_matrix", "_multiply(a, memory.weights, total)", "_multiply(a, memory.weights.T, total)"),
    "reuse: zeros": ("sim.functional_matrix", "memory.weights[:] = 0", "memory.weights[:] = 1"),
    "reuse: outputs": ("sim.functional_matrix", "if MatrixFlag.OUTPUT_STATIONARY not in flags:", "if True:"),
    "transposed A": ("sim.functional_matrix", "[:, :m].T", "[::-1, :m].T"),
    "accumulate": ("sim.functional_matrix", "c += result", "c[...] = result"),
    "fill data": ("sim.functional", "return np.zeros(shape, dtype)", "return np.ones(shape, dtype)"),
    "broadcast data": ("sim.functional", "stride = 0 if self.broadcast else stride", "stride = max(1, stride)"),
    "load add": ("sim.functional", "inside += values", "inside[...] = values"),
    "store narrow": ("sim.functional", "np.clip(inside, -128, 127)", "np.clip(inside, -127, 127)"),
    "bias": ("sim.functional_vector", "acc = acc + _int32(planes[-4:])", "acc = acc - _int32(planes[-4:])"),
    "clamp": ("sim.functional_vector", "_signed(aux & 255), _signed(aux >> 8)", "-128, _signed(aux >> 8)"),
    "rescale": ("sim.functional_vector", "numerics.requant(residual, aux, x.raw[_SHIFT2])", "residual"),
    "add": ("sim.functional_vector", "numerics.add(a, b,", "numerics.add(b, a,"),
    "mean": ("sim.functional_vector", "mean=x.flag(VectorFlag.MEAN)", "mean=False"),
    "tree": ("sim.functional_vector", "numerics.tree_mask(bitmaps, x.m, x.n, after)",
             "numerics.tree_mask(bitmaps, x.m, x.n, after + 1)"),
    "top-K: ties": ("sim.functional_select", "numerics.top_k(memory.keys[:x.n], x.k)",
                    "x.n - 1 - numerics.top_k(memory.keys[:x.n][::-1], x.k)[::-1]"),
    "top-K: survivors": ("sim.functional_select", "numerics.top_k(memory.keys[:x.n], x.k)",
                         "numerics.top_k(memory.keys[:x.n], x.k - 1)"),
    "top-K: passes": ("sim.engine_units", "6 * (groups + 3) + groups + 2", "6 * (groups + 2) + groups + 2"),
    "predicate": ("sim.functional", "if not memory.predicates[raw[_PREDICATE]]:", "if False:"),
    "alone: predicate": ("sim.engine_program", "if stationary != dataflow or after_predicate:",
                         "if stationary != dataflow:"),
    "last index": ("sim.functional", "np.minimum(entries, raw[_LAST_INDEX])",
                   "np.minimum(entries, raw[_LAST_INDEX] + 1)"),
}
"""Rule: module below ``gemmule``, what it says, and the mutant."""


@pytest.mark.parametrize("rule", RULES)
def test_rules(small: list[Record], deep: list[Record], rule: str) -> None:
    module, old, new = RULES[rule]
    config, records = (DEEP, deep) if rule == "slot" else (SMALL, small)
    with mutated(f"gemmule.{module}", old, new) as model:
        found = caught(config, records, kind=model)
    print(rule, "->", found)
    assert found


SELECTIONS = {
    "committed": ("np.minimum(committed + shadow, numerics.IMPORTANCE_MAX, out=committed)", "committed += shadow"),
    "key": ("np.minimum(x.memory.committed[x.positions] >> min(x.shift, _MAX_SHIFT), _KEY_MAX)",
            "x.memory.committed[x.positions] >> min(x.shift, _MAX_SHIFT) & _KEY_MAX"),
    "equal maxima": ("memory.best[rows] >= value", "memory.best[rows] > value"),
}
"""Limits and ties that random programs hardly reach."""


def test_selections() -> None:
    records = _record(SMALL, [selections(SMALL)])
    assert records[0].dram[16384:16390] == bytes([0, 0, 0, 0, 3, 0])
    assert caught(SMALL, records) == ""
    for old, new in SELECTIONS.values():
        with mutated("gemmule.sim.functional_select", old, new) as model:
            assert caught(SMALL, records, kind=model) == "selections: bytes"


@pytest.mark.parametrize("step", [-1, 1])
def test_beat_cycles(deep: list[Record], step: int) -> None:
    dram = DEEP.dram.model_copy(update={"beat_cycles": DEEP.dram.beat_cycles + step})
    assert caught(DEEP.model_copy(update={"dram": dram}), deep)


@pytest.mark.parametrize("name", ["requant", "rope", "normalize", "row_weights", "product"])
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
    assert "bytes" in caught(SMALL, small)
