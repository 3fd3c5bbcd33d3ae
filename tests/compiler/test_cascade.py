"""Cascade pruning of tokens, heads and values: lists of the select unit against plain arithmetic on whole arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule import numerics
from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.importance.cascade import CascadeSchedule
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.cascade import SCALES, CascadeProgram, compile_cascade
from gemmule.config import load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

SEED = 20261127
SCHEDULE = CascadeSchedule(length=40, heads=3, head_dim=16, kept_keys=(40, 31, 31, 12), kept_values=(11, 31, 6, 5),
                           kept_heads=(3, 3, 2, 1), first=1, last=2)
Operands = tuple[np.ndarray, np.ndarray, np.ndarray]


def operands(schedule: CascadeSchedule, seed: int) -> Operands:
    random = np.random.default_rng(seed)
    one = (schedule.layers, schedule.heads, schedule.head_dim)
    every = (*one[:2], schedule.length, schedule.head_dim)
    return tuple(random.integers(-128, 128, shape).astype(np.int8) for shape in (one, every, every))


def contexts(schedule: CascadeSchedule, queries: np.ndarray, keys: np.ndarray, values: np.ndarray,
             less: int = 0) -> np.ndarray:
    """int8 [layers, heads, head_dim]; ``less``: rows of the last layer that are chosen too few."""
    found = np.zeros(queries.shape, dtype=np.int8)
    rows, importance = np.arange(schedule.length), np.zeros(schedule.length, dtype=np.int64)
    for layer, (kept, chosen, heads) in enumerate(zip(schedule.kept_keys, schedule.kept_values, schedule.kept_heads)):
        if kept < len(rows) or layer == 0:
            keep = numerics.importance_keys(importance, 0, schedule.first, schedule.last)
            left = numerics.top_k(keep, kept - less * (layer == schedule.layers - 1))
            # of the rows that are always kept nothing else is known any more
            rows, importance = rows[left], keep[left] if layer else importance[left]
        seen = np.ones((1, len(rows)), dtype=bool)
        for head in range(heads):
            products = queries[layer, head].astype(np.int64) @ keys[layer, head, rows].T.astype(np.int64)
            t = numerics.scores(products[None], *(np.array([[v]]) for v in SCALES.score))
            maximum = numerics.row_max(t, seen)
            p, total = numerics.row_probabilities(t, maximum, seen)
            reciprocal, length = numerics.softmax_reciprocal(total)
            importance = importance + numerics.row_normalized(t, maximum, seen, reciprocal, length, wide=True)[0]
            best = numerics.top_k(p[0] + 32768 << 8, chosen)
            mixed = p[:, best] @ values[layer, head, rows[best]].astype(np.int64)
            found[layer, head] = numerics.saturate(numerics.requant_row(
                mixed, reciprocal, length, *(np.array([v]) for v in SCALES.context)), 8)[0]
    return found


def run(program: CascadeProgram, data: Operands, *others: RtlDevice) -> np.ndarray:
    """What the device gives; other devices must give the same in the same cycles."""
    given, cycles = [], set()
    for device in (Simulator(program.config, dram_bytes=program.size), *others):
        device.write_dram(0, program.fill(*data))
        device.load(program.launch("cascade", NO_DRAM, program.registers()))
        result = device.run()
        assert result.fault == 0
        cycles.add(result.cycles)
        given.append(program.contexts(device.read_dram))
    assert len(cycles) == 1
    for other in given[1:]:
        np.testing.assert_array_equal(other, given[0])
    return given[0]




@pytest.mark.parametrize("preset", ["base", "edge"])
def test_equals_plain_arithmetic(preset: str) -> None:
    data = operands(SCHEDULE, SEED)
    found = run(compile_cascade(load_config(preset), SCHEDULE), data)
    np.testing.assert_array_equal(found, contexts(SCHEDULE, *data))
    assert not np.array_equal(found, contexts(SCHEDULE, *data, less=1))  # a choice of one row less is noticed


def test_random_schedules() -> None:
    random = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    for seed in range(6):
        length, layers, heads = (int(random.integers(low, high)) for low, high in ((20, 70), (1, 5), (1, 4)))
        keys = sorted((int(random.integers(3, length + 1)) for _ in range(layers)), reverse=True)
        schedule = CascadeSchedule(
            length=length, heads=heads, head_dim=16 * int(random.integers(1, 3)), kept_keys=tuple(keys),
            kept_values=tuple(int(random.integers(1, count + 1)) for count in keys),
            kept_heads=tuple(sorted((int(random.integers(1, heads + 1)) for _ in range(layers)), reverse=True)),
            first=int(random.integers(0, 2)), last=int(random.integers(0, 2)))
        data = operands(schedule, seed)
        np.testing.assert_array_equal(run(compile_cascade(load_config("base"), schedule), data),
                                      contexts(schedule, *data), err_msg=str(schedule))


def test_keeping_everything_is_dense() -> None:
    data, every = operands(SCHEDULE, SEED), SCHEDULE.dense
    listed, plain = (run(compile_cascade(load_config("base"), every, lists=lists), data) for lists in (True, False))
    np.testing.assert_array_equal(listed, plain)


@pytest.mark.rtl
def test_on_rtl() -> None:
    config = load_config("tiny")
    schedule = CascadeSchedule(length=20, heads=2, head_dim=8, kept_keys=(20, 14, 6), kept_values=(7, 5, 2),
                               kept_heads=(2, 2, 1), last=1)
    data = operands(schedule, SEED)
    with RtlDevice(config, watchdog=100_000) as rtl:
        found = run(compile_cascade(config, schedule), data, rtl)
    np.testing.assert_array_equal(found, contexts(schedule, *data))


@pytest.mark.parametrize(("change", "message"), [
    ({"kept_keys": (40, 31, 32, 12)}, "layer 2 must have from 1 to 31 keys, as many as are left, not 32"),
    ({"kept_keys": (41, 31, 31, 12)}, "layer 0 must have from 1 to 40 keys, as many as are left, not 41"),
    ({"kept_heads": (3, 3, 0, 1)}, "layer 2 must have from 1 to 3 heads, as many as are left, not 0"),
    ({"kept_values": (11, 32, 6, 5)}, "layer 1 must take from 1 to 31 values, as many as keys, not 32"),
    ({"kept_heads": (3, 3, 2)}, "must be given for as many layers, at least 1, not 4, 4 and 3"),
    ({"last": 12}, "first + last must be at most the 12 rows of the last layer, not 13")])
def test_refuses(change: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError) as error:
        replace(SCHEDULE, **change)
    assert message in str(error.value)


def test_refuses_what_does_not_fit() -> None:
    config = load_config("base").model_copy(update={"select_keys": 32})
    with pytest.raises(CompileError, match="40 rows need 133 list_entries and 40 select_keys, not"):
        compile_cascade(config, SCHEDULE)
    with pytest.raises(CompileError, match="head_dim must be a multiple of the device's 16 lanes, not 24"):
        compile_cascade(load_config("base"), replace(SCHEDULE, head_dim=24))
