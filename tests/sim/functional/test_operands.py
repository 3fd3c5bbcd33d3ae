"""The table of operands against what the functional model touches, for every operation and set of flags."""

from dataclasses import replace

import numpy as np
import pytest

from gemmule import operands
from gemmule.config import Config, load_config
from gemmule.isa import MoveFlag, Unit, VOp
from gemmule.operands import Memory
from gemmule.sim.functional.execute import execute
from gemmule.sim.verify.access import accesses
from gemmule.terms import OUT, Term

from ...classes import DRAM_BYTES, Drawn, classes, draw
from .recording import RecordingMemory

SEED = 11
TINY = load_config("tiny")
EACH = 4
"""Commands of each class."""
Touched = dict[tuple[Memory, bool], set[int]]


def stated(drawn: Drawn, config: Config) -> Touched:
    """Places by memory and kind, from the table."""
    found: Touched = {}
    for access in accesses(drawn.row, drawn.out, config):
        places = np.concatenate([np.arange(low, high) for low, high in access.spans])
        found.setdefault((access.memory, access.write), set()).update(places.tolist())
    return found


def recorded(drawn: Drawn, config: Config, memory: RecordingMemory) -> Touched:
    """The same, from running the command."""
    memory.log.clear()
    execute(memory, drawn.row[None], np.arange(1), drawn.out[None])
    # A launch clears the predicates, and every command asks for number 0.
    memory.log[Memory.PREDICATE, False].discard(0)
    if int(drawn.out[OUT["unit"]]) != Unit.SELECT:
        memory.log[Memory.PREDICATE, True].clear()
    return {key: places for key, places in memory.log.items() if places}


def difference(drawn: Drawn, config: Config, memory: RecordingMemory) -> str:
    """What the table and the memory say differently; an index can name any row, so a gather may touch fewer."""
    table, run = stated(drawn, config), recorded(drawn, config, memory)
    if drawn.command.unit <= Unit.STORE and MoveFlag.INDEXED in drawn.command.flags:
        for key in ((Memory.DRAM, False), (Memory.DRAM, True)):
            if run.get(key, set()) <= table.get(key, set()):
                run.pop(key, None), table.pop(key, None)
    if drawn.command.unit is Unit.SELECT:
        run.get((Memory.PREDICATE, True), set()).intersection_update({drawn.command.fields["number"]})
        if not table.get((Memory.PREDICATE, True)):
            run.pop((Memory.PREDICATE, True), None)
    return "" if run == table else f"{drawn.command}: table {table}, run {run}"


def disagreements(config: Config, only: tuple[int, int] | None = None) -> list[str]:
    random, memory = np.random.default_rng(SEED), RecordingMemory(config, dram_bytes=2 * DRAM_BYTES, seed=SEED)
    found = []
    for unit, op, flags in classes(config):
        if only in (None, (unit, op)):
            found += [difference(draw(config, random, unit, op, flags), config, memory) for _ in range(EACH)]
    return [text for text in found if text]


def test_the_table_states_what_every_class_touches() -> None:
    assert len(list(classes(TINY))) > 400
    assert disagreements(TINY) == []


@pytest.mark.parametrize(("unit", "op", "name", "change"), [
    (Unit.VECTOR, VOp.PRODUCT, "src1", {"stride": Term.STRIDE0}),
    (Unit.VECTOR, VOp.NORM_APPLY, "dst", {"stride": Term.STRIDE0}),
    (Unit.MATRIX, 0, "A", {"stride": Term.STRIDE1}),
    (Unit.LOAD, 0, "rows", {"stride": Term.STRIDE1}),
    (Unit.SELECT, 0, "src0", {"plane_stride": Term.STRIDE0}),
    (Unit.VECTOR, VOp.ROPE, "parameters", {"times": 4}),
    (Unit.VECTOR, VOp.SOFTMAX_MAX, "statistics", {"first": Term.ONE}),
])
def test_a_wrong_entry_is_noticed(monkeypatch: pytest.MonkeyPatch, unit: Unit, op: int, name: str,
                                  change: dict[str, object]) -> None:
    wrong = tuple(replace(operand, **change) if operand.name == name else operand
                  for operand in operands.OPERANDS[unit, op])
    monkeypatch.setitem(operands.OPERANDS, (unit, op), wrong)
    operands.operands_of.cache_clear()
    try:
        assert disagreements(TINY, (unit, op))
    finally:
        operands.operands_of.cache_clear()
